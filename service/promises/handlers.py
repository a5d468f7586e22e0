"""What is done with promises, on behalf of somebody: activate, retire, look ahead, report. Blocks."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from intent.models import Goal, Intent, Objective, Relative
from runtime.errors import RuntimeFault
from runtime.notation import parse_topology
from service import documents as docs
from service.access import consent as consents
from service.access.people import Actors, IntentAuthors, lacks_another
from service.access.wiring import Acts
from service.deployment.file import Deployment
from service.deployment.models import ServedModel, is_about
from service.documents.errors import RefusedError
from service.planning import intents, lifecycle
from service.planning.lifecycle import Situation
from service.promises import admission, people
from service.promises.active import Active
from service.promises.agenda import ActiveGoal, cut
from service.promises.attainment import counted
from service.promises.course import PlannedSegment, goal_document, goal_key, segment_document, words
from service.promises.decide import Hold
from service.promises.planner import Planner
from service.store.store import Store

AHEAD = timedelta(days=8)
"""Every day of the week, whole: so far an activation looks."""


@dataclass(frozen=True, slots=True)
class PlanningContext:
    """What is planned for: models as they run, and who plans for each."""

    deployment: Deployment
    planners: Mapping[str, Planner]
    situations: Mapping[str, Situation]
    mode: docs.Mode
    holds: Mapping[str, Hold] = field(default_factory=dict)
    """What keeps the controller from switching a model."""

    def outlooks(
        self,
        model: ServedModel,
        promised: Sequence[ActiveGoal],
        now: datetime,
        ahead: timedelta,
        hold: Hold | None = None,
    ) -> list[PlannedSegment]:
        """The time ahead of a model, planned."""
        mine = [goal for goal in promised if is_about(goal.goal, model.name)]
        segments = cut(mine, self.deployment.windows, now, now + ahead)
        situation = self.situations[model.name]
        return self.planners[model.name].agenda(segments, situation.topology, situation.capabilities, hold=hold)

    def agenda(self, promised: Sequence[ActiveGoal], now: datetime, ahead: timedelta) -> docs.AgendaDocument:
        """The time ahead of each model, as far as the controller may switch it."""
        found = list[docs.SegmentDocument]()
        zone = ZoneInfo(self.deployment.timezone)
        for model in self.deployment.models:
            hold = self.holds.get(model.name)
            earliest = max(now, hold.until) if hold else now
            found += [
                segment_document(model.name, outlook, zone, self.deployment.rules.margin, earliest)
                for outlook in self.outlooks(model, promised, now, ahead, hold)
            ]
        return docs.AgendaDocument(timezone=self.deployment.timezone, mode=self.mode, segments=tuple(found))

    def settled(self, intent: Intent, model: ServedModel) -> list[Goal]:
        """Goals that were said beside what runs as bounds."""
        if not any(isinstance(goal, Relative) for goal in intent.goals):
            return list(intent.goals)
        situation = self.situations[model.name]
        window = next((goal.window for goal in intent.goals if isinstance(goal.window, str)), "always")
        return self.planners[model.name].settled(intent.goals, window, situation.topology, situation.capabilities)


def seen_with(
    intent_id: str,
    intent: Intent,
    moments: Sequence[datetime],
    beside: Sequence[ActiveGoal],
    here: PlanningContext,
) -> list[ActiveGoal]:
    """What would be promised with an intent beside what is.

    Raises:
        RefusedError: it is no promise, or speaks of a window that nobody has defined.
    """
    admission.refuse_no_promise(intent)
    admission.refuse_undefined(intent.goals, here.deployment)
    model = here.deployment.models[0]
    return [*beside, *admission.promised(intent_id, intent, moments, here.settled(intent, model))]


def activate(
    version: docs.VersionDocument,
    request: docs.ActivateRequest,
    active: Active,
    here: PlanningContext,
    acts: Acts,
    store: Store,
) -> docs.PromiseDocument:
    """Keep an intent from now on, until it is superseded, retired or expired.

    Raises:
        RefusedError: it is no promise or not known, contradicts what is active, cannot be held in some window, has findings
            that nobody has seen, or the policy lets nobody switch; nothing is changed then.
    """
    now = datetime.now(UTC)
    deployment = here.deployment
    consents.refuse_nobody(deployment.approval)
    words = IntentAuthors(version.id, version.said_by, acts.caller.name)
    if alone := lacks_another(deployment.approval.by, Actors([words]), is_within=True):
        raise RefusedError(docs.Code.NOT_APPROVED, f"{version.id} was not activated: {alone}")
    intent = lifecycle.check(version.intent, deployment, now)
    others = _others(version.id, request.replace, active)
    beside = [goal for promise in others.values() for goal in admission.of_document(promise)]
    moments = intents.first_said(store, version.id, intent.goals)
    promised = seen_with(version.id, intent, moments, beside, here)
    consents.refuse_unseen(lifecycle.to_acknowledge(intent), request.acknowledge, f"{version.id}, then activate")
    admission.refuse_contradiction(version.id, intent, others, deployment, now)
    against = list[str]()
    for model in deployment.models:
        outlooks = here.outlooks(model, promised, now, AHEAD)
        admission.refuse_unheld(outlooks, deployment, model.name)
        asked_for = outlooks[0].target
        if asked_for is not None and outlooks[0].changes:
            who = people.People(store, acts.access.approvals, model.name, ZoneInfo(deployment.timezone))
            against += people.against(asked_for, who, active, now)
    mine = tuple(goal for goal in promised if goal.intent_id == version.id)
    made = _document(version, mine, acts.caller.name, against)
    with active.written(), store.transaction():
        for name in request.replace:
            _end(active, name, "superseded", f"{version.id} took its place", acts)
        active.book.keep(made)
        after: docs.Json = {
            "version": version.version,
            "replaces": list(request.replace),
            "acknowledged": list(request.acknowledge),
        }
        acts.note("intent.activate", version.id, after=after)
    return made


def retire(intent_id: str, active: Active, acts: Acts, store: Store) -> docs.PromiseDocument:
    """Keep an intent no longer.

    Raises:
        RefusedError: it is not active.
    """
    with active.written(), store.transaction():
        return _end(active, intent_id, "retired", f"by {acts.caller.name}", acts)


def expire(active: Active, acts: Acts, store: Store, now: datetime) -> list[docs.PromiseDocument]:
    """End what can hold at no moment from now on."""
    if not active.over(now):
        return []
    with active.changing, active.written(), store.transaction():
        return [_end(active, promise.intent_id, "expired", "its time is over", acts) for promise in active.over(now)]


def report(active: Active, here: PlanningContext, store: Store, since: datetime) -> docs.ReportDocument:
    """What came of what was promised, since a moment."""
    since_s = since.timestamp()
    until_s = time.time()
    spent = [
        (_devices(text, model), (ends_s - begins_s) / 3600)
        for model in here.deployment.models
        for begins_s, ends_s, text in _ran(store, model.name, since_s, until_s)
    ]
    counted_goals = active.book.attainments(since_s)
    known = {(goal.model, goal.intent_id, goal.words, goal.window) for goal in counted_goals}
    silent = [
        docs.AttainmentDocument(**asdict(key), met=0, total=0)
        for model in here.deployment.models
        for goal in active.promised
        if is_about(goal.goal, model.name) and (key := goal_key(model.name, goal))
        if (key.model, key.intent_id, key.words, key.window) not in known
    ]
    return docs.ReportDocument(
        since=admission.local(since, here.deployment),
        until=admission.local(datetime.fromtimestamp(until_s, UTC), here.deployment),
        attainment=(*counted_goals, *silent),
        switches=tuple(active.book.outcomes(since_s)),
        device_hours=sum(devices * hours for (devices, _), hours in spent),
        usd=sum(usd_per_hour * hours for (_, usd_per_hour), hours in spent) or None,
    )


def _ran(store: Store, model: str, since_s: float, until_s: float) -> list[tuple[float, float, str]]:
    """From when to when each topology ran, within two moments."""
    made = store.generations(model)
    ends = [at_s for at_s, _ in made[1:]] + [until_s]
    spans = [(max(at_s, since_s), min(end_s, until_s), text) for (at_s, text), end_s in zip(made, ends, strict=True)]
    return [span for span in spans if span[0] < span[1]]


def _devices(text: str, model: ServedModel) -> tuple[int, float]:
    """How many devices a topology takes, and their USD per hour; none where they are gone."""
    try:
        found = parse_topology(text, model.cluster, model.spec.num_layers, model.precision)
    except RuntimeFault:
        return 0, 0.0
    return len(found.devices), sum(model.cluster.gpu(device).usd_per_hour for device in found.devices)


def _others(intent_id: str, replaced: Sequence[str], active: Active) -> dict[str, docs.PromiseDocument]:
    """What stays active beside an intent.

    Raises:
        RefusedError: what it is to take the place of is not active.
    """
    known = {promise.intent_id: promise for promise in active.promises}
    for name in replaced:
        if name not in known:
            raise _not_active(name, active)
    return {name: promise for name, promise in known.items() if name not in replaced and name != intent_id}


def _end(active: Active, intent_id: str, state: docs.State, why: str, acts: Acts) -> docs.PromiseDocument:
    found = next((promise for promise in active.promises if promise.intent_id == intent_id), None)
    if found is None:
        raise _not_active(intent_id, active)
    ended = found.model_copy(update={"state": state, "ended_s": time.time(), "why": why})
    active.book.keep(ended)
    acts.note(f"intent.{state.removesuffix('d')}", intent_id, after={"why": why})
    return ended


def _not_active(intent_id: str, active: Active) -> RefusedError:
    if active.book.promise(intent_id) is None:
        return RefusedError(docs.Code.NOT_FOUND, f"{intent_id} was never activated")
    known = ", ".join(promise.intent_id for promise in active.promises) or "none"
    return RefusedError(docs.Code.NOT_ACTIVE, f"{intent_id} is not active; active are: {known}")


def _document(
    version: docs.VersionDocument, promised: Sequence[ActiveGoal], by: str, against: Sequence[str]
) -> docs.PromiseDocument:
    unmeasured = tuple(words(goal.goal) for goal in promised if _is_unmeasured(goal.goal))
    return docs.PromiseDocument(
        intent_id=version.id,
        version=version.version,
        text=version.intent.text,
        state="active",
        goals=tuple(map(goal_document, promised)),
        left_out=unmeasured,
        against=tuple(against),
        activated_by=by,
        activated_s=time.time(),
    )


def _is_unmeasured(goal: Goal) -> bool:
    """A bound that no request and no look at the service tells of."""
    bound = goal.value if isinstance(goal, Objective) and goal.metric != "reconfig_pause" else None
    return bound is not None and counted(goal) is None
