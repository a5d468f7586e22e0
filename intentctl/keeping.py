"""What bare text does: plan; for a promise show the time ahead, ask, activate, and switch if due."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from intent.models import Intent
from intentctl import commands, render
from intentctl.arguments import SWITCH_TIMEOUT_S, OutputFormat
from intentctl.lines import visible
from intentctl.promises import agenda_rows, promise_rows
from selector.models import Plan
from service import api
from service import documents as docs
from service.api.operation import Api
from service.documents.errors import ServiceError


@dataclass(slots=True)
class TextOutcome:
    """What came of a text, as far as it came."""

    intent: Intent
    agenda: docs.AgendaDocument | None = None
    promise: docs.PromiseDocument | None = None
    operations: list[docs.OperationDocument] = field(default_factory=list)


def say(source: Api, text: str, form: OutputFormat, consent: commands.ConsentOptions) -> None:
    """Plan for a text; if a person says yes, apply an act, or keep a promise from now on.

    Raises:
        CommandError: the outcome is not ok, or nobody agreed.
        ServiceError: it cannot be planned for, was refused, or the switch was given up; or no service was asked.
    """
    answer = commands.make_plan(source, text, form, consent)
    if form is OutputFormat.TABLE:
        render.grid(render.answer_rows(answer))
    outcome = TextOutcome(answer.intent)
    try:
        commands.check_refused(answer.refused)
        if any(plan.kind == "promise" for plan in answer.plans):
            keep(source, answer.plans, form, consent, outcome)
        else:
            changing = [plan for plan in answer.plans if plan.changes]
            outcome.operations = commands.switch(source, changing, consent, SWITCH_TIMEOUT_S)
    finally:
        operations = outcome.operations
        rows = [row for operation in operations for row in render.operation_rows(operation)]
        operation = operations[0] if len(operations) == 1 else None
        document = {**answer.model_dump(mode="json"), "operation": operation, "operations": operations}
        render.emit({**document, "promise": outcome.promise, "agenda": outcome.agenda}, form, rows)
    commands.check_operations(operations)


def keep(
    source: Api,
    plans: Sequence[Plan],
    form: OutputFormat,
    consent: commands.ConsentOptions,
    outcome: TextOutcome,
) -> None:
    """Show the time ahead and, after a yes, keep the intent of these plans; ``outcome`` notes all of it.

    Raises:
        CommandError: nobody agreed.
        ServiceError: it was refused, a switch was given up, or no service was asked.
    """
    changing = [plan for plan in plans if plan.changes]
    intent_id = plans[0].intent_id
    if not source.serves:
        outcome.agenda = source(api.promises.preview, docs.AgendaRequest(intent=outcome.intent))
        if form is OutputFormat.TABLE:
            render.grid(agenda_rows(outcome.agenda))
        if changing:
            commands.refuse_unserved(changing[0])
        return
    outcome.agenda = source(
        api.promises.preview, docs.AgendaRequest(intent_id=intent_id, replace=list(consent.replaces))
    )
    if form is OutputFormat.TABLE:
        render.grid(agenda_rows(outcome.agenda))
    later = {"breaks_promise"}  # what is activated may take its place
    seen = sorted({code for plan in plans for code in commands.acknowledged(plan, consent, left=later)})
    _ask(plans[0], changing, consent)
    acknowledge = [*seen, *sorted(consent.to)]
    kept = _kept(source, intent_id, consent, acknowledge, [plan.id for plan in changing])
    with commands.told_to_go_on(outcome.operations):
        if kept is None:
            for plan in changing:
                outcome.operations.append(source(api.plans.apply, plan.id, docs.ApplyRequest(acknowledge=acknowledge)))
        else:
            outcome.promise = kept.promise
            outcome.operations += kept.operations
            _tell(kept, form)
        outcome.operations = [commands.to_its_end(source, each, SWITCH_TIMEOUT_S) for each in outcome.operations]


def _tell(kept: docs.KeptDocument, form: OutputFormat) -> None:
    """What is promised, and what was not switched.

    Raises:
        ServiceError: a plan was refused for another reason than that it is not due.
    """
    if form is OutputFormat.TABLE:
        render.grid(promise_rows(kept.promise))
    for problem in kept.not_switched.values():
        if problem.code not in docs.NOT_NOW:
            raise ServiceError.answered(problem)
        render.talk(f"not switched by this command: {problem.detail}")
        render.talk("what comes is in `intentctl agenda`; how far the controller goes, in `intentctl mode`")


def _ask(plan: Plan, changing: Sequence[Plan], consent: commands.ConsentOptions) -> None:
    shapes = [" to ".join(topology.shape for topology in (plan.now, plan.target) if topology) for plan in changing]
    now = f", and switch now where it is due ({visible(', '.join(shapes))})" if shapes else ""
    later = f"intentctl activate {plan.intent_id}, or only intentctl apply {plan.id}"
    question = f"Keep {plan.intent_id} from now on{now}?"
    commands.refuse_unasked(consent, question, f"{plan.id} was not applied", later)


def _kept(
    source: Api, intent_id: str, consent: commands.ConsentOptions, acknowledge: list[str], plans: list[str]
) -> docs.KeptDocument | None:
    """The promise and what began; None where whoever asks may apply plans and not activate intents."""
    request = docs.KeepRequest(replace=list(consent.replaces), acknowledge=acknowledge, plans=plans)
    try:
        return source(api.promises.keep, intent_id, request)
    except ServiceError as error:
        if error.code is docs.Code.FORBIDDEN:
            render.talk(f"{intent_id} is not kept: {error}; an approver has to: intentctl activate {intent_id}")
            return None
        clashing = [
            error.pointer and error.message.split(":")[0] for error in error.problem.errors if error.code == CLASH
        ]
        if not clashing or not commands.can_ask(consent):
            raise
        render.talk(str(error))
        if not commands.says_yes("Put this in their place? [y/N] "):
            raise
        replaces = [*consent.replaces, *clashing]
        return source(api.promises.keep, intent_id, request.model_copy(update={"replace": replaces}))


CLASH = "contradicts_active"
