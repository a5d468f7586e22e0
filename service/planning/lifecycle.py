"""The life of an intent as plain functions: translate, plan, approve. No HTTP, database or engine."""

import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Literal
from zoneinfo import ZoneInfo

from intent.fold import is_chinese
from intent.messages import Language, say
from intent.models import (
    MAX_CHARACTERS,
    Config,
    Finding,
    Goal,
    Intent,
    LlmSettings,
    Outcome,
    TranslatorInfo,
    Window,
)
from intent.translate import INJECTION, flagged
from intent.translate import translate as translate_text
from intent.windows import holds, in_words, moment
from runtime.capabilities import Capabilities
from runtime.models import Topology
from selector.models import Infeasible, LeftOut, Plan, PlanRef, Profile
from service.deployment.file import Deployment
from service.deployment.models import ServedModel, is_about
from service.deployment.profiles import speeds
from service.documents.errors import RefusedError
from service.documents.forms import NO_CHARACTER
from service.documents.plans import RefusedModel, When
from service.documents.problems import Code, Detail
from validator.models import Site
from validator.schema import SCHEMA_VIOLATION
from validator.validate import validate


@dataclass(frozen=True, slots=True)
class Situation:
    """What runs while a plan is made or applied."""

    topology: Topology | None
    generation: int
    capabilities: Capabilities | None = None


def translate(text: str, deployment: Deployment, llm: LlmSettings | None, now: datetime) -> Intent:
    """Words to a checked intent; may call the LLM and then blocks until it answers.

    Never refuses words: empty, endless or damaged ones are an intent that is out of scope, with a finding.
    """
    if NO_CHARACTER.search(text):
        return _damaged(text)
    return check(translate_text(text, deployment.catalogue(now), llm), deployment, now)


def clock(text: str | None, deployment: Deployment, name: str = "now") -> datetime:
    """The moment that counts as now: the one that was said, or the present.

    ``name`` is that of the option.

    Raises:
        RefusedError: what was said is no moment; the message shows the form.
    """
    try:
        return moment(text, deployment.timezone) if text is not None else datetime.now(UTC)
    except ValueError as error:
        detail = Detail(f"/{name}", str(error), "no_moment")
        raise RefusedError(Code.INVALID_REQUEST, f"{name}: {error}", [detail]) from None


def refuse_damaged(text: str) -> None:
    """Refuse words with places that are no characters.

    Raises:
        RefusedError: there are such places.
    """
    if NO_CHARACTER.search(text):
        (finding,) = _damaged(text).findings
        raise RefusedError(Code.INVALID_REQUEST, finding.message, [Detail("/text", finding.message, finding.code)])


def _damaged(text: str) -> Intent:
    """An intent for a text with places that are no characters; nobody knows what stood there."""
    shown = NO_CHARACTER.sub("\N{REPLACEMENT CHARACTER}", text)[:MAX_CHARACTERS]
    language: Language = "zh" if is_chinese(shown) else "en"
    words = say("service", language, "text_damaged", count=len(NO_CHARACTER.findall(text)))
    return Intent(
        text=shown,
        language=language,
        goals=(),
        translator=TranslatorInfo(name="rules"),
        outcome=Outcome.OUT_OF_SCOPE,
        findings=(Finding("text_damaged", "/text", words),),
    )


def refuse_outside_schema(checked: Intent) -> None:
    """Refuse an intent document of another form than intents have; ``check`` has found that.

    Raises:
        RefusedError: with each place that the domain schema does not allow.
    """
    found = [
        Detail(f"/intent{finding.pointer}", finding.message, finding.code)
        for finding in checked.findings
        if finding.code == SCHEMA_VIOLATION
    ]
    if found and checked.outcome is Outcome.OUT_OF_SCOPE:
        raise RefusedError(Code.INVALID_REQUEST, "; ".join(detail.message for detail in found), found)


def check(intent: Intent, deployment: Deployment, now: datetime) -> Intent:
    """An intent with outcome, findings and read-back as this deployment sees them at ``now``.

    Orders to the system in its text are found again: a document that says nothing of them has lost a finding.
    """
    if len(intent.text) <= MAX_CHARACTERS:  # a longer one is outside the schema, and takes long to look through
        intent = flagged(intent)
    site = Site(
        cluster=deployment.cluster,
        models={model.name: model.spec for model in deployment.models},
        now=now,
        limits=deployment.limits,
        tenants=tuple(deployment.tenants),
        windows=deployment.windows,
        speeds=speeds(deployment),
    )
    return validate(intent, site)


def concerned(intent: Intent, deployment: Deployment, model: str | None = None) -> list[ServedModel]:
    """The models that a plan is to be made for: the one that is named, those that goals name, or all.

    Raises:
        RefusedError: there is no model of that name.
    """
    if model is not None:
        return [deployment.model(model)]
    return [model for model in deployment.models if any(is_about(goal, model.name) for goal in intent.goals)]


def plan(
    intent: Intent,
    deployment: Deployment,
    model: ServedModel,
    situation: Situation,
    profiles: Mapping[str, Profile],
    when: When,
    intent_id: str | None = None,
    said_at: Sequence[datetime] = (),
) -> Plan:
    """The best topology of a model for a checked intent.

    One that is kept has an id, and ``said_at``: when, for each of its goals.

    Raises:
        RefusedError: the intent's outcome is not ok, nothing holds its goals, or the time to plan for is none.
    """
    refuse_unless_ok(intent)
    now = clock(when.now, deployment)
    moments = zip(intent.goals, said_at or [now] * len(intent.goals), strict=True)
    begun = [(goal, at) for goal, at in moments if is_about(goal, model.name)]
    goals = [goal for goal, _ in begun]
    segment = _segment(goals, deployment, when, now)
    engine = situation.capabilities
    problem = model.problem(segment.window, deployment.limits, situation.topology, engine)
    ticket = PlanRef(new_id("plan"), intent_id or new_id("intent"), situation.generation, segment.window)
    from selector.explain import goal_words
    from selector.planning import planned_within  # here, for a service that starts need not wait for numpy

    held = [goal for goal, at in begun if segment.holds(goal.window, at)]
    answer = planned_within(held, problem, profiles, ticket)
    elsewhere = (LeftOut(goal_words(goal), segment.blocker(goal.window)) for goal in goals if goal not in held)
    unserved = engine.serves_not(model.precision) if engine else ""
    answer = replace(
        answer, left_out=(*elsewhere, *answer.left_out), reasons=(*filter(None, [unserved]), *answer.reasons)
    )
    if isinstance(answer, Infeasible):
        raise _infeasible(intent, answer, f"{model.name}: " if len(deployment.models) > 1 else "")
    return answer


@dataclass(frozen=True, slots=True)
class PlanTime:
    """A time to plan for: a window, and the moment in it if there is one."""

    window: str
    at: datetime | None
    """None where the window is not the one in force at the moment in question."""
    defined: Mapping[str, Window]
    """The deployment's windows."""
    is_now: bool

    def holds(self, window: Window, now: datetime) -> bool:
        """Whether a goal's window holds then; ``now`` is when it was said."""
        if window in {"always", self.window}:
            return True
        if self.at is None:
            return False
        return holds(self.defined.get(window, window) if isinstance(window, str) else window, self.at, now)

    def blocker(self, window: Window) -> str:
        """That a goal's window does not hold then."""
        if self.at is None:
            return f"holds {in_words(window)}; this plan is for {self.window}"
        return f"holds {in_words(window)}, not {'now' if self.is_now else f'at {self.at:%Y-%m-%d %H:%M}'}"


def _segment(goals: Sequence[Goal], deployment: Deployment, when: When, now: datetime) -> PlanTime:
    """The time to plan for: the one asked for, else the window in force, else the first one named.

    The window in force counts if a goal speaks of it or none names one.

    Of several in force at once it is the one that is declared first, or the first that a goal speaks of.

    Raises:
        RefusedError: the moment is none, or nobody knows the window.
    """
    at = now if when.at is None else clock(when.at, deployment, "at")
    in_force = deployment.window_in_force(at)
    named = [goal.window for goal in goals if isinstance(goal.window, str) and goal.window != "always"]
    timely = [name for name in named if deployment.is_in_force(name, at)]
    usual = in_force if when.at or not named else named[0]
    window = in_force if in_force in timely else next(iter(timely), usual)
    if when.window is not None:
        known = dict.fromkeys(("always", *deployment.windows, *named))
        if when.window not in known:
            message = f"window: {when.window!r} is not known; the deployment and the goals have {', '.join(known)}"
            raise RefusedError(Code.INVALID_REQUEST, message, [Detail("/window", message, "unknown_window")])
        window = when.window
    return time_of(window, deployment, when, now)


def time_of(window: str, deployment: Deployment, when: When, now: datetime) -> PlanTime:
    """The time that a plan for a window is for.

    Raises:
        RefusedError: the moment that was said is none.
    """
    at = now if when.at is None else clock(when.at, deployment, "at")
    is_then = window == deployment.window_in_force(at) or (window != "always" and deployment.is_in_force(window, at))
    return PlanTime(window, at if is_then else None, deployment.windows, is_now=when.at is None)


def window_of(deployment: Deployment, when: When) -> str:
    """The window that a plan without goals is for.

    Raises:
        RefusedError: the moment is none, or nobody knows the window.
    """
    return _segment((), deployment, when, clock(when.now, deployment)).window


def refuse_unless_ok(intent: Intent) -> None:
    """Refuse to plan for an intent that is not settled.

    Raises:
        RefusedError: with the findings, or the question to answer first.
    """
    if intent.outcome is Outcome.OK:
        return
    details = [Detail(finding.pointer, finding.message, finding.code) for finding in intent.findings]
    questions = [question.text for question in intent.questions]
    sentences = dict.fromkeys(
        [*questions, *(detail.message for detail in details)]
    )  # a question may repeat its finding
    message = " ".join(sentences) or intent.readback
    raise RefusedError(Code[intent.outcome.name], message, details, intent=intent)


def to_acknowledge(intent: Intent) -> tuple[Finding, ...]:
    """The findings of an intent that somebody has to have seen before its plan is applied."""
    return tuple(finding for finding in intent.findings if finding.code == INJECTION)


def refuse_stale(plan: Plan, applied_by: str | None, situation: Situation, unchecked: str = "") -> None:
    """Refuse a plan that does not fit what runs and what is promised, before anything is touched.

    Raises:
        RefusedError: applied before, made for another topology or before something was promised, or without a change.
    """
    for refusal in staleness(plan, applied_by, situation, unchecked):
        raise refusal


def refuse_untimely(plan: Plan, deployment: Deployment, acknowledged: Collection[str]) -> None:
    """Refuse a promise for a window that does not hold now.

    What runs would be reshaped for a load that is not there.

    Raises:
        RefusedError: nobody has said that it is meant for now all the same.
    """
    now = datetime.now(UTC)
    is_timely = plan.kind == "act" or deployment.is_in_force(plan.window, now)
    if is_timely or Code.OUTSIDE_WINDOW.value in acknowledged:
        return
    local = now.astimezone(ZoneInfo(deployment.timezone))
    message = (
        f"{plan.id} is for {plan.window}, and at {local:%a %H:%M} ({deployment.timezone}) that does not hold; "
        f"apply it then, or, as one who may approve it, now all the same: intentctl apply {plan.id} --now "
        f'(acknowledge: ["{Code.OUTSIDE_WINDOW.value}"])'
    )
    raise RefusedError(Code.OUTSIDE_WINDOW, message)


def kind_of(intent: Intent) -> Literal["act", "promise"]:
    """An act names a configuration and nothing else; everything else is a promise, from now on."""
    names = (isinstance(goal, Config) and not goal.key.startswith("lost_") for goal in intent.goals)
    return "act" if all(names) else "promise"


def staleness(plan: Plan, applied_by: str | None, situation: Situation, unchecked: str = "") -> Iterator[RefusedError]:
    """Each reason for which a plan does not fit what runs, or (``unchecked``) what is promised now."""
    if applied_by is not None:
        yield RefusedError(
            Code.ALREADY_APPLIED, f"{plan.id} was applied before, by operation {applied_by}; make a new plan"
        )
    if plan.generation != situation.generation or plan.now is None or plan.now.text != str(situation.topology):
        made_for = f"{plan.now.text if plan.now else 'what did not run'} (generation {plan.generation})"
        runs = f"{situation.topology} (generation {situation.generation}) runs now"
        yield RefusedError(Code.STALE_PLAN, f"{plan.id} was made for {made_for}, but {runs}; make a new plan")
    out = situation.capabilities.out if situation.capabilities else frozenset[int]()
    if gone := sorted(out.intersection(plan.target.devices)):
        message = f"{plan.id} uses the device {', '.join(map(str, gone))}, which is out now; make a new plan"
        yield RefusedError(Code.STALE_PLAN, message)
    if unchecked:
        yield RefusedError(Code.STALE_PLAN, unchecked)
    if not plan.changes:
        yield RefusedError(Code.NO_CHANGE, f"{plan.id} asks for what runs already; there is nothing to apply")


def another_switch(operation: str) -> RefusedError:
    """That a switch is under way already."""
    message = f"operation {operation} is switching; wait for its end, then make a new plan"
    return RefusedError(Code.SWITCH_IN_PROGRESS, message)


def _infeasible(intent: Intent, answer: Infeasible, about: str) -> RefusedError:
    message = about + ("; ".join(answer.reasons) or "no topology holds these goals")
    if answer.feasible_targets:
        message += ". Feasible would be: " + "; ".join(answer.feasible_targets)
    details = [Detail("/goals", reason) for reason in answer.reasons]
    return RefusedError(Code.INFEASIBLE, message, details, intent=intent, infeasible=answer)


def none_has_a_plan(intent: Intent, refused: Sequence[RefusedModel]) -> RefusedError:
    """That nothing holds the goals for any of several models, with the reasons of each."""
    message = "; ".join(each.message for each in refused)
    details = [Detail("/goals", reason) for each in refused for reason in each.infeasible.reasons]
    return RefusedError(Code.INFEASIBLE, message, details, intent=intent, refused=refused)


def new_id(prefix: str) -> str:
    """A name that nothing else has."""
    return f"{prefix}-{uuid.uuid4().hex[:12]}"
