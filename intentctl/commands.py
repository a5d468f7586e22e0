"""What the commands do.

Find who answers, say what was understood, ask before applying, follow the switch.
"""

import re
import sys
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NoReturn

from pydantic import ValidationError

from intent.models import Intent, Outcome
from intentctl import lists, render
from intentctl.arguments import POLL_S, OutputFormat
from intentctl.client import Client
from intentctl.credentials import ADMIN_KEY_FILE, DEFAULT_SERVER, ServerAddress, key_for
from intentctl.lines import MAX_LINE_BYTES, texts, visible
from intentctl.local import to_serve
from intentctl.options import PlanOptions
from intentctl.status import failure
from selector.models import Plan
from service import api
from service import documents as docs
from service.api.operation import Api
from service.documents.access import Right, lacking
from service.documents.errors import ServiceError

_KEPT = re.compile(r"intent-[0-9a-f]{12}")


@dataclass(frozen=True, slots=True)
class ConsentOptions:
    """How a person says yes."""

    given: bool
    never_ask: bool
    to: frozenset[str] = frozenset()
    """Codes of refusals that this is said in spite of."""
    replaces: tuple[str, ...] = ()
    """Active intents that what is said takes the place of."""


def service(place: ServerAddress) -> Client:
    """The service at a place; nothing is asked of it yet."""
    url = place.server or DEFAULT_SERVER
    return Client(url, key_for(url, place.key_file))


def source(place: ServerAddress, deployment: Path | None) -> Api:
    """Who answers: a deployment file that was named, in this process, else the service.

    Raises:
        CommandError: nobody does.
    """
    if deployment is not None:
        from service.api.context import Offline

        render.talk(f"working in this process with {deployment}; nothing can be applied")
        return Offline(to_serve(deployment))
    client = service(place)
    if place.server is not None or client.reachable():
        return client
    ways = "start one (intentctl serve), name its --server, or plan for a file: --deployment FILE"
    raise failure("unreachable", f"no service answers at {client.url}; {ways}")


def parse(source: Api, text: str, form: OutputFormat, now: str | None, explain: bool = False) -> None:
    """Read back what was understood; for ``-`` of every line of standard input, whatever each comes to.

    Raises:
        CommandError: the outcome of the one text is not ok.
    """
    if text == "-":
        for line in texts(sys.stdin.buffer):
            intent = source(api.intents.translate, docs.TranslateRequest(text=line, now=now))
            render.emit_next(intent, form, render.intent_rows(intent))
        return
    intent = source(api.intents.translate, docs.TranslateRequest(text=text, now=now))
    rows = render.intent_rows(intent)
    if explain and form is OutputFormat.TABLE:
        print(*render.mark_lines(intent), sep="\n")
        rows += render.ledger_rows(intent)
    render.emit(intent, form, rows)
    check_outcome(intent)


def plan(source: Api, text: str | None, form: OutputFormat, look: PlanOptions) -> tuple[Plan, ...]:
    """Read back, plan for a text or else the target, and show the plans.

    Simulated or drawn where that was asked for.

    Raises:
        CommandError: the outcome is not ok, the picture cannot be written, or nothing holds the goals for some models.
        ServiceError: nothing holds the goals.
    """
    if look.plot:
        from intentctl.plots import check_name

        check_name(look.plot)
    when = look.when
    model = look.model
    answer = (
        make_plan(source, text, form, when=when, model=model) if text is not None else _plan_to_target(source, look)
    )
    if look.plot and len(answer.plans) > 1:
        names = ", ".join(made.model for made in answer.plans)
        raise failure("error", f"--plot draws one plan, and there is one for each of {names}; name a --model")
    if look.verify:
        seen = [replace(made, simulation=source(api.plans.simulation, made.id)) for made in answer.plans]
        answer = answer.model_copy(update={"plans": tuple(seen)})
    render.emit(answer, form, render.answer_rows(answer))
    if look.plot:
        _draw(source(api.plans.frontiers, answer.plans[0].id), answer.plans[0], look.plot)
    check_refused(answer.refused)
    return answer.plans


def _plan_to_target(source: Api, look: PlanOptions) -> docs.PlanAnswer:
    fields = {"target": look.target, "model": look.model, **look.when.model_dump(exclude_unset=True)}
    try:
        request = docs.PlanRequest.model_validate(fields)
    except ValidationError as error:
        raise failure("error", f"--target: {error.errors()[0]['msg']}") from None
    return source(api.plans.make_plan, request)


def _draw(found: docs.FrontiersDocument, made: Plan, path: Path) -> None:
    from intentctl.plots import bounds, draw_frontier

    draw_frontier(found.curves, bounds(made, found.rate_rps), path)
    render.talk(f"drew {path}")


def make_plan(
    source: Api,
    text: str,
    form: OutputFormat,
    consent: ConsentOptions | None = None,
    *,
    when: docs.When | None = None,
    model: str | None = None,
) -> docs.PlanAnswer:
    """Outcome, intent and plans.

    For people the read-back is shown at once, for programs only what went wrong.

    With ``consent`` a question is put to the person at the terminal, until it is answered.

    Raises:
        CommandError: the outcome is not ok, or nothing holds the goals.
        ServiceError: it was refused otherwise.
    """
    when = when or docs.When()
    intent, kept = _said(source, text, when.now)
    if form is OutputFormat.TABLE:
        render.grid(render.intent_rows(intent))
    while intent.outcome is Outcome.CLARIFY and consent is not None and can_ask(consent):
        intent = _answered(source, intent, kept)
        render.grid(render.intent_rows(intent))
    if form is not OutputFormat.TABLE and intent.outcome is not Outcome.OK:
        render.emit({"outcome": intent.outcome, "intent": intent, "plan": None, "intent_id": kept}, form, [])
    check_outcome(intent, kept)
    wish = {"intent": intent} if kept is None else {"intent_id": kept}
    try:
        answer = source(
            api.plans.make_plan, docs.PlanRequest(**wish, **when.model_dump(exclude_unset=True), model=model)
        )
    except ServiceError as error:
        render.emit(error.problem, form, render.problem_rows(error.problem))
        check_refused(error.problem.refused or ())
        if (found := error.problem.infeasible) is None:
            raise
        about = str(error).partition(found.reasons[0])[0] if found.reasons else ""  # the model, where there are several
        raise failure(error.code.value, f"{about}{_NONE_HOLDS}") from None
    check_outcome(answer.intent, kept)
    return answer


_NONE_HOLDS = "no topology holds these goals; why, and what comes nearest, is told above"


def check_refused(refused: Sequence[docs.RefusedModel]) -> None:
    """Stop where nothing holds the goals for some of the models, after that was told.

    Raises:
        CommandError: naming these models.
    """
    if refused:
        raise failure("infeasible", f"{', '.join(each.model for each in refused)}: {_NONE_HOLDS}")


def _said(source: Api, text: str, now: str | None) -> tuple[Intent, str | None]:
    """The intent of words or of an id, and the id under which a service keeps it."""
    if not source.serves:
        return intent_of(source, text, now), None
    if is_kept(text):
        return intent_of(source, text), text
    try:
        version = source(api.intents.create_intent, docs.TranslateRequest(text=_read(text), now=now))
    except ServiceError as error:
        if error.problem.intent is None:
            raise
        return error.problem.intent, None
    return version.intent, version.id


def can_ask(consent: ConsentOptions) -> bool:
    """Whether there is a person to ask."""
    return not consent.never_ask and sys.stdin.isatty()


def _answered(source: Api, intent: Intent, kept: str | None) -> Intent:
    """The intent after a person's answer to its question: a number, yes, or words.

    Raises:
        CommandError: nobody answered.
    """
    print("Answer (a number, yes, or words): ", end="", file=sys.stderr, flush=True)
    answer = sys.stdin.readline().strip()
    if not answer:
        check_outcome(intent, kept)
    try:
        if kept is not None:
            return source(api.intents.amend_intent, kept, docs.VersionedFollowUp(text=answer)).intent
        return source(api.intents.amend, docs.AmendRequest(intent=intent, **dict(docs.FollowUp(text=answer)))).intent
    except ServiceError as error:
        if error.code not in {docs.Code.OUT_OF_SCOPE, docs.Code.NO_CHANGE}:
            raise
        render.talk(str(error))
        return intent


def apply(service: Api, plan_id: str, form: OutputFormat, consent: ConsentOptions, timeout_s: float) -> None:
    """Ask, switch, and show what happened.

    Raises:
        CommandError: nobody agreed, or it took too long.
        ServiceError: the service refused, or the switch was given up.
    """
    refuse_without(service, Right.APPLY)
    (operation,) = switch(service, [service(api.plans.plan, plan_id)], consent, timeout_s)
    render.emit(operation, form, render.operation_rows(operation))
    check_operations([operation])


def switch(
    source: Api, plans: Sequence[Plan], consent: ConsentOptions, timeout_s: float
) -> list[docs.OperationDocument]:
    """The operations of plans for different models at their ends; they run at the same time."""
    if plans and not source.serves:
        refuse_unserved(plans[0])
    agreed = []
    for plan in plans:
        agreed.append((plan.id, [*acknowledged(plan, consent), *sorted(consent.to)]))
        _ask(plan, consent)
    operations: list[docs.OperationDocument] = []
    with told_to_go_on(operations):
        for plan_id, seen in agreed:
            operations.append(source(api.plans.apply, plan_id, docs.ApplyRequest(acknowledge=seen)))
        return [to_its_end(source, operation, timeout_s) for operation in operations]


@contextmanager
def told_to_go_on(operations: Sequence[docs.OperationDocument]) -> Iterator[None]:
    """Say of operations that they go on, where this command does not wait for their ends."""
    try:
        yield
    except (KeyboardInterrupt, ServiceError):
        for operation in operations:
            render.talk(f"{operation.id} goes on; see `intentctl get {operation.id}`")
        raise


def refuse_unserved(plan: Plan) -> NoReturn:
    """Say that there is no service to apply a plan, before anybody is asked.

    Raises:
        ServiceError: always.
    """
    how = "no service was asked; start one (intentctl serve) or name its --server"
    raise ServiceError(docs.Code.UNREACHABLE, f"{plan.id} was not applied: {how}")


def refuse_without(service: Api, right: Right) -> None:
    """Refuse what the key that is used may not do, before anything is shown or asked.

    Raises:
        ServiceError: naming the roles that may.
    """
    me = service(api.keys.me)
    if why := lacking(right, me.name, me.role):
        raise ServiceError(docs.Code.FORBIDDEN, why)


def approve(
    service: Api, plan_id: str, form: OutputFormat, consent: ConsentOptions, *, minutes: float, note: str
) -> None:
    """Show a plan, ask, and say yes to what was shown.

    Raises:
        CommandError: nobody agreed.
        ServiceError: the service refused.
    """
    refuse_without(service, Right.APPROVE)
    if decided := service(api.plans.standing, plan_id).approval:
        raise ServiceError(
            docs.Code.ALREADY_DECIDED, f"{plan_id} was {decided.verdict} by {decided.by}; nothing was changed"
        )
    plan = service(api.plans.plan, plan_id)
    if form is OutputFormat.TABLE:
        render.talk_rows(render.plan_rows(plan))
    seen = acknowledged(plan, consent)
    _ask(plan, consent, "Approve")
    request = docs.ApproveRequest(
        digest=plan.digest, minutes=minutes, acknowledge=[*seen, *sorted(consent.to)], note=note
    )
    _emit_approval(service(api.plans.approve, plan_id, request), form)


def reject(service: Api, plan_id: str, form: OutputFormat, note: str, for_s: float | None) -> None:
    """Say no to a plan.

    Raises:
        ServiceError: the service refused.
    """
    _emit_approval(service(api.plans.reject, plan_id, docs.RejectRequest(note=note, for_s=for_s)), form)


def _emit_approval(approval: docs.ApprovalDocument, form: OutputFormat) -> None:
    until = "" if approval.until_s is None else f" until {render.moment(approval.until_s)}"
    render.emit(approval, form, [(approval.plan_id, f"{approval.verdict} by {approval.by}{until}")])


def to_its_end(source: Api, operation: docs.OperationDocument, timeout_s: float) -> docs.OperationDocument:
    """An operation when it is done, shown until then."""
    with render.switch_progress() as progress:
        for state in follow(source, operation.id, timeout_s):
            progress.show(state)
            operation = state
    return operation


def follow(service: Api, operation_id: str, timeout_s: float) -> Iterator[docs.OperationDocument]:
    """An operation's states until it is done.

    Raises:
        CommandError: it is not done after ``timeout_s``; the operation itself goes on.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        operation = service(api.operations.operation, operation_id)
        yield operation
        if operation.done:
            return
        if time.monotonic() > deadline:
            raise failure(
                "timed_out",
                f"{operation_id} is not done after {timeout_s:g} s; see `intentctl get {operation_id}`",
            )
        time.sleep(POLL_S)


def check_operations(operations: Sequence[docs.OperationDocument]) -> None:
    """Raise what the first operation that failed says.

    Raises:
        ServiceError: one did.
    """
    for operation in operations:
        if operation.error:
            raise ServiceError.answered(operation.error)


def get(service: Api, name: str | None, form: OutputFormat) -> None:
    """Show the topology, an operation, an intent or a plan."""
    if name is None:
        found = service(api.state.models)
        rows = [row for state in found.models for row in render.topology_rows(state)]
        render.emit(found.models[0] if len(found.models) == 1 else found, form, rows)
    elif name in lists.KINDS:
        lists.show(service, name, form)
    elif name.startswith("op-"):
        operation = service(api.operations.operation, name)
        render.emit(operation, form, render.operation_rows(operation))
    elif name.startswith("intent-"):
        version = service(api.intents.intent, name)
        render.emit(version, form, render.amendment_rows(version))
    else:
        plan = service(api.plans.plan, name)
        render.emit(plan, form, render.plan_rows(plan))


def serve(deployment: Path | None, **overrides: object) -> None:
    """Run the service in this process until it is told to stop; what it does is told as it begins."""
    from service.deployment.settings import NEWS, read_settings
    from service.http.logs import configure

    settings = read_settings(**overrides)
    configure(settings.log_level, settings.log_format)
    read = to_serve(deployment)
    NEWS.info("loading libraries to serve %s, as %s says", ", ".join(read.names), read.file)
    from service.server import run  # not before: it imports torch

    def announce(url: str) -> None:
        key = settings.folder / ADMIN_KEY_FILE
        if key.is_file():
            NEWS.info("an administrator's key is in %s: intentctl --key-file, or Authorization: Bearer KEY", key)
        NEWS.info("ready at %s; the ops console: intentctl console --server %s", url, url)
        print(url, flush=True)

    try:
        run(read, settings, announce)
    finally:
        NEWS.info("stopped; nothing is left running")


def backup(file: Path, deployment: Path | None, data_dir: Path | None) -> None:
    """Write a backup of the database and the profiles of a service of this machine."""
    from service import server
    from service.deployment.settings import read_settings

    try:
        count = server.backup(to_serve(deployment), read_settings(data_dir=data_dir), file)
    except OSError as error:
        raise failure("error", f"{file} cannot be written: {error.strerror or error}") from error
    render.talk(f"{file}: {count} records")


def restore(file: Path, deployment: Path | None, data_dir: Path | None) -> None:
    """Put a backup into an empty database, which no service uses."""
    from service import server
    from service.deployment.settings import read_settings

    count = server.restore(to_serve(deployment), read_settings(data_dir=data_dir), file)
    render.talk(f"{file}: {count} records are restored; `intentctl serve` goes on with them")


def _read(text: str) -> str:
    """The text, or all of standard input as one; bytes that are no UTF-8 become lone surrogates."""
    if text != "-":
        return text
    return sys.stdin.buffer.read(MAX_LINE_BYTES).decode("utf-8", "surrogateescape").removeprefix("\ufeff")


def intent_of(source: Api, text: str, now: str | None = None) -> Intent:
    """The intent of words, or of the id of an intent that the service keeps.

    Words are read at the present or the clock given.
    """
    is_theirs = is_kept(text) and source.serves
    return (
        source(api.intents.intent, text).intent
        if is_theirs
        else source(api.intents.translate, docs.TranslateRequest(text=_read(text), now=now))
    )


def is_kept(name: str) -> bool:
    """Whether this is the id of an intent that a service keeps."""
    return _KEPT.fullmatch(name) is not None


def check_outcome(intent: Intent, kept: str | None = None) -> None:
    """Stop where an intent is not settled; one that is ``kept`` has an id to answer to.

    Raises:
        CommandError: with its question, or its findings.
    """
    if intent.outcome is Outcome.OK:
        return
    messages = [question.text for question in intent.questions]
    messages += [finding.message for finding in intent.findings]
    if intent.questions:
        messages.append(_how_to_answer(kept))
    raise failure(intent.outcome.value, " ".join(dict.fromkeys(messages)) or intent.outcome.value)


def _how_to_answer(kept: str | None) -> str:
    """What to type next."""
    if kept is not None:
        return f"Answer with a number or words: intentctl amend {kept} 1"
    return (
        'To answer say intentctl "TEXT" at a terminal, or keep the document and amend it: '
        "intentctl parse -o json TEXT > FILE; intentctl amend FILE 1"
    )


def acknowledged(plan: Plan, consent: ConsentOptions, *, left: Collection[str] = ()) -> list[str]:
    """The codes of findings that a person has seen just now.

    ``--yes`` is no person, ``--break-promise`` is one's word. ``left``: codes that are asked about elsewhere.

    Raises:
        CommandError: nobody can be asked, or nobody said yes.
    """
    findings = [finding for finding in plan.to_acknowledge if finding.code not in {*consent.to, *left}]
    for finding in findings:
        notice = f"{finding.message} ({visible(repr(finding.evidence))})"
        if not can_ask(consent):
            raise failure(
                "finding_not_acknowledged",
                f"{plan.id} was not applied: {notice} A person has to see this; --yes does not say so. "
                f"At a terminal: intentctl apply {plan.id}{_MEANT.get(finding.code, '')}",
            )
        if not says_yes(f"{notice}\n{_ALL_THE_SAME.get(finding.code, 'Apply what else was said?')} [y/N] "):
            raise failure("finding_not_acknowledged", f"{plan.id} was not applied")
    return sorted({finding.code for finding in findings})


_MEANT = {"breaks_promise": "; or, as one who may approve it, with --break-promise"}
_ALL_THE_SAME = {"breaks_promise": "Break it all the same?"}


def _ask(plan: Plan, consent: ConsentOptions, what: str = "Apply") -> None:
    done = {"Apply": "applied", "Approve": "approved"}[what]
    shapes = " to ".join(topology.shape for topology in (plan.now, plan.target) if topology)
    question = f"{what} {plan.id} ({visible(shapes)})?"
    refuse_unasked(consent, question, f"{plan.id} was not {done}", f"intentctl {what.lower()} {plan.id}")


def refuse_unasked(consent: ConsentOptions, question: str, otherwise: str, later: str) -> None:
    """Ask, unless a yes was given.

    ``otherwise`` says what was not done without one, ``later`` what would do it.

    Raises:
        CommandError: nobody can be asked, or nobody said yes.
    """
    if consent.given:
        return
    if not can_ask(consent):
        raise failure("not_approved", f"{otherwise}: nobody can be asked; say yes with --yes")
    if not says_yes(f"{question} [y/N] "):
        raise failure("not_approved", f"{otherwise}; later: {later}")


def says_yes(question: str) -> bool:
    """What a person answers."""
    print(question, end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in {"y", "yes"}
