"""The loop of one model: looks, and does what was decided as far as mode, policy and people let it."""

import asyncio
import contextlib
import logging
import threading
import time
from collections import Counter, deque
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import Self
from zoneinfo import ZoneInfo

from pydantic import JsonValue

from intent.models import Intent, Objective
from runtime.errors import RuntimeFault
from runtime.models import CutoverReport, Phase, Topology
from runtime.process.supervised import cancel, contained
from selector.models import Plan
from service import documents as docs
from service.access import consent as consents
from service.access.wiring import AccessControl, Acts
from service.deployment.policy import Applied
from service.documents.access import CONTROLLER, RECOVERY
from service.documents.errors import RefusedError, ServiceError, StoreError
from service.documents.plans import leads_to, sealed
from service.planning import lifecycle, targets
from service.promises import handlers, limits, people
from service.promises.active import Active
from service.promises.agenda import Segment
from service.promises.attainment import Tally
from service.promises.controller import LoopOutput, PromiseController
from service.promises.course import goal_key
from service.promises.decide import Decision, Hold, PastSwitch
from service.promises.recent import tenant_loads
from service.promises.verdict import Judgement
from service.promises.watch import LoopInput, Observation, Watch
from service.serving.events import EventBus
from service.serving.serving import Serving
from service.store.book import GoalKey
from service.store.clock import wall_s
from service.store.store import Store

log = logging.getLogger(__name__)

LOAD_S = 300.0
"""Of which the load is kept together."""
BOOKED_S = 60.0
"""Between two times at which counts are written."""


@dataclass(frozen=True, slots=True)
class LoopContext:
    """What a loop works with."""

    serving: Serving
    watch: Watch
    controller: PromiseController
    active: Active
    store: Store
    access: AccessControl
    events: EventBus
    place: targets.ModelContext
    """As it was at the start; its situation is asked for anew."""

    @property
    def model(self) -> str:
        """Its name."""
        return self.serving.model.name

    @property
    def people(self) -> people.People:
        """Who act on the model."""
        return people.People(self.store, self.access.approvals, self.model, ZoneInfo(self.place.deployment.timezone))

    @property
    def acts(self) -> Acts:
        """The controller's, for the audit."""
        return Acts(self.access, CONTROLLER)


@dataclass(slots=True)
class _Begun:
    """A switch that the controller asked for, or would have."""

    decision: Decision
    segment: Segment
    plan_id: str


class ControlLoop:
    """Keeps the promises of one model. Use as an async context manager."""

    def __init__(self, parts: LoopContext) -> None:
        self._parts = parts
        self._rules = parts.controller.rules
        self._begun: deque[_Begun] = deque(maxlen=16)
        self._endings = deque[docs.OperationDocument]()
        """Switches that ended and are not taken note of yet."""
        self._unwritten = deque[docs.OutcomeDocument]()
        """Verdicts that are not written yet."""
        self._counts: Counter[tuple[GoalKey, str]] = Counter()
        self._counting = threading.Lock()
        self._booked_s = self._load_s = time.monotonic()
        self._known = -1
        self._last: LoopInput | None = None
        self._heeded = parts.active.control
        """How the controller stood at the last look."""
        self._decided = parts.active.control
        """How it stood when the last decision was made."""
        self._outcome: docs.OutcomeDocument | None = None
        self._waked = asyncio.Event()
        self.decision = docs.DecisionDocument(model=parts.model, kind="wait", reason="it has not looked yet")
        self._term: people.Term | None = None
        """As people's acts were seen at the last look."""
        self.override: docs.OverrideDocument | None = None
        self.refusals: tuple[docs.RefusalDocument, ...] = ()

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        await self._parts.store.beside(self._remember)
        self._task = asyncio.create_task(self._run(), name=f"promises of {self._parts.model}")
        return self

    async def __aexit__(self, *_: object) -> None:
        await cancel([self._task])
        with contextlib.suppress(StoreError):
            await self._parts.store.beside(self.book)

    def _publish(self, kind: docs.Kind, happened: docs.Happened) -> None:
        """Tell of something from whatever thread."""
        self._loop.call_soon_threadsafe(self._parts.events.publish, kind, happened)

    def wake(self) -> None:
        """Look now: something was promised, or said to the controller."""
        self._waked.set()

    def hold(self, now: datetime) -> Hold | None:
        """What keeps it from switching, by what was said to the controller until now."""
        return people.hold(self._parts.active, None if self.is_resumed else self.override, now)

    @property
    def is_resumed(self) -> bool:
        """Whether somebody let the controller go on since the last decision."""
        return self._decided.resumed_s != self._parts.active.control.resumed_s

    def told(self, now: datetime) -> docs.DecisionDocument:
        """The last decision, or what is true since somebody said otherwise to the controller."""
        if self._decided == self._parts.active.control or not self._parts.active.promised:
            return self.decision
        hold = self.hold(now)
        why = hold.why if hold else "the controller was told otherwise, and looks again"
        return docs.DecisionDocument(model=self._parts.model, kind="hold" if hold else "wait", reason=why)

    async def _run(self) -> None:
        while True:
            with contained(f"promises of {self._parts.model}"):
                try:
                    await self._tick()
                except (ServiceError, RuntimeFault) as error:
                    if self._parts.store.calls.stalled_s is None:  # the store says so once
                        log.warning("the promises of %s are not looked at: %s", self._parts.model, error)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._waked.wait(), self._rules.tick_s)
            self._waked.clear()

    async def _tick(self) -> None:
        """One look, and what follows from it."""
        parts = self._parts
        router = parts.serving.router
        observed = parts.watch.look(self._rules.lookback_s, router.waits_s, router.num_streams, router.counts.accepted)
        if router.lost is not None and self._last is not None:
            observed = replace(observed, at_s=self._last.observed.at_s)  # an engine that is gone measures nothing
        await self._ended()
        await self._keep_load()
        parts.serving.heed()
        seen, found = await asyncio.to_thread(self._look, observed)
        self._last = seen
        self._tell(await self._acted(found) if found.decision.kind == "switch" else found.decision)

    def _look(self, observed: Observation) -> tuple[LoopInput, LoopOutput]:
        """Blocks: it reads the store, and may have to plan."""
        parts = self._parts
        now = datetime.now(UTC)
        now_s = time.monotonic()
        if parts.active.is_stale:
            parts.active.refresh()
        self._heeded = parts.active.control
        for ended in handlers.expire(parts.active, parts.acts, parts.store, now):
            self._publish("promise", ended)
        if self._known != parts.active.version:
            self._known = parts.active.version
            activated = [datetime.fromtimestamp(promise.activated_s, UTC) for promise in parts.active.promises]
            parts.controller.promise(parts.active.promised, max(activated, default=None))
        situation = parts.serving.situation()
        assert situation.topology is not None, "a service runs something"
        self._heed(now, now_s)
        seen = LoopInput(
            now=now,
            now_s=now_s,
            runs=situation.topology,
            engine=situation.capabilities,
            observed=observed,
            switched_s=parts.active.switched_s(parts.model, now.timestamp()) if parts.active.limited else (),
            is_switching=parts.serving.operation is not None,
            hold=hold.why if (hold := people.hold(parts.active, self.override, now)) else "",
            refused={refusal.target: people.no_in_words(refusal) for refusal in self.refusals},
        )
        found = parts.controller.look(seen)
        self._note(found)
        return seen, found

    # -- what is written ------------------------------------------------------------------------------

    def _note(self, found: LoopOutput) -> None:
        """Count what was met, and keep a verdict."""
        for promised, tally in found.counted.items():
            goal = goal_key(self._parts.model, promised)
            assert goal, "it was counted"
            with self._counting:
                self._counts[goal, "met"] += tally.met
                self._counts[goal, "total"] += tally.total
        if found.judgement and self._outcome:
            self._close(self._outcome, found.judgement)
            self._outcome = None
        while self._unwritten:  # what cannot be written is tried again at the next look
            self._parts.active.book.keep_outcome(self._unwritten[0])
            self._publish("verdict", self._unwritten.popleft())
        if time.monotonic() - self._booked_s >= BOOKED_S:
            self.book()

    def _close(self, outcome: docs.OutcomeDocument, found: Judgement) -> None:
        """Keep the verdict on a switch, to be written at the next look."""
        why = "; ".join(filter(None, (outcome.why, found.why)))
        self._unwritten.append(outcome.model_copy(update={"verdict": found.verdict, "why": why}))

    async def _keep_load(self) -> None:
        """Keep what was asked since the last time, when some minutes are over.

        What cannot be written is part of the next.
        """
        now_s = time.monotonic()
        seconds = now_s - self._load_s
        if seconds < LOAD_S:
            return
        kept = docs.PastLoadDocument(
            model=self._parts.model,
            begins_s=wall_s() - seconds,
            seconds=seconds,
            tenants=tenant_loads(self._parts.watch.seconds(seconds, self._parts.serving.router.waits_s)),
        )
        await self._parts.store.beside(self._parts.active.book.keep_load, kept)
        self._load_s = now_s

    def book(self) -> None:
        """Write what was counted until now; whoever asks for a report does so from another thread. Blocks."""
        with self._counting:
            counts = self._counts
            tallies = {goal: Tally(counts[goal, "met"], counts[goal, "total"]) for goal, _ in counts}
            self._parts.active.book.count(tallies, wall_s())
            counts.clear()
            self._booked_s = time.monotonic()
        self._parts.active.weigh()

    def _tell(self, decision: Decision) -> None:
        """Publish a decision that is another than the last."""
        begun = self._begun[-1] if self._begun else None
        is_same_wish = begun is not None and begun.decision.target == decision.target
        document = docs.DecisionDocument(
            model=self._parts.model,
            kind=decision.kind,
            reason=decision.reason,
            cause=decision.cause,
            target=decision.target,
            plan_id=begun.plan_id if begun and is_same_wish and decision.target else None,
            at_s=wall_s(),
        )
        before = self.decision
        self.decision = document
        self._decided = self._heeded
        if (document.kind, document.cause, document.target, document.plan_id) != (
            before.kind,
            before.cause,
            before.target,
            before.plan_id,
        ):
            log.info("%s: %s: %s", document.model, document.kind, document.reason)
            self._publish("decision", document)

    # -- switches that ended --------------------------------------------------------------------------

    async def _ended(self) -> None:
        """Take note of switches that ended since the last look, whoever made them."""
        self._endings += self._parts.serving.take_ended()
        while self._endings:  # one that cannot be written is taken up again at the next look
            await self._parts.store.beside(self._take, self._endings[0])
            self._endings.popleft()

    def _take(self, operation: docs.OperationDocument) -> None:
        parts = self._parts
        last = self._last
        begun = next((begun for begun in self._begun if begun.plan_id == operation.plan_id), None)
        others: docs.Cause = "recovery" if operation.applied_by == RECOVERY.name else "person"
        cause = begun.decision.cause if begun and begun.decision.cause else others
        stops = [phase.at for phase in operation.phases if phase.phase is Phase.CUTTING]
        ended_s = time.monotonic() - max(0.0, wall_s() - operation.phases[-1].at)
        past = PastSwitch(
            ended_s=ended_s,
            source=operation.source or "",
            target=leads_to(operation.source, operation.target or "", operation.batching),
            cause=cause,
            is_done=operation.result is not None,
            stopped_s=ended_s - (operation.phases[-1].at - stops[-1]) if stops else None,
        )
        why = operation.result.detail if operation.result and cause == "recovery" else ""
        outcome = self._outcome_of(operation, past, begun.decision.reason if begun else why)
        parts.active.book.keep_outcome(outcome)
        if last is None:
            parts.controller.past.append(past)
            return
        segment = begun.segment if begun else parts.controller.enter(last.now, last.now_s)
        parts.controller.switched(past, segment, last.runs, last)
        if past.is_done:
            if self._outcome:
                self._close(self._outcome, Judgement("unknown", f"{operation.id} came before there was one"))
            self._outcome = outcome if outcome.verdict is None else None

    def _outcome_of(self, operation: docs.OperationDocument, past: PastSwitch, reason: str) -> docs.OutcomeDocument:
        report: CutoverReport | None = operation.result
        stop_ms = sum(asdict(report.timings).values()) if report else None
        bounds = [
            goal.goal.value * 1000
            for goal in self._parts.active.in_force(datetime.now(UTC))
            if isinstance(goal.goal, Objective) and goal.goal.metric == "reconfig_pause" and goal.goal.value
        ]
        bound_ms = min(bounds, default=None)
        broken = stop_ms is not None and bound_ms is not None and stop_ms > bound_ms
        nothing = "" if self._parts.controller.promised else "nothing was promised"
        unjudged = nothing if past.is_done else "it changed nothing"
        return docs.OutcomeDocument(
            operation=operation.id,
            model=self._parts.model,
            cause=past.cause,
            reason=reason or operation.cause,
            source=past.source,
            target=past.target,
            at_s=operation.phases[0].at,
            prepare_s=report.prepare_s if report else None,
            stop_ms=stop_ms,
            stop_bound_ms=bound_ms,
            ended=operation.outcome,
            verdict="unknown" if unjudged else None,
            why=f"it stood still for {stop_ms:.1f} ms, and {bound_ms:g} are promised" if broken else unjudged,
        )

    def _remember(self) -> None:
        """What an earlier process did lately; its switches keep the clock of now."""
        now_s = time.monotonic()
        present_s = wall_s()
        for outcome in self._parts.active.book.outcomes(present_s - 86_400):
            if outcome.model == self._parts.model:
                past = PastSwitch(
                    now_s - max(0.0, present_s - outcome.at_s),
                    outcome.source,
                    outcome.target,
                    outcome.cause,
                    outcome.ended == "done",
                    outcome.verdict or "unknown",
                )
                self._parts.controller.past.append(past)
                if past.is_done and outcome.verdict is None:
                    self._close(outcome, Judgement("unknown", "the service started anew before there was one"))

    def _heed(self, now: datetime, now_s: float) -> None:
        """Take note of what people did beside what is promised."""
        parts = self._parts
        self._term = self.override = None
        self.refusals = ()
        if not parts.active.promised:
            return
        segment = parts.controller.enter(now, now_s)
        self._term = term = people.Term(
            now_s=now.timestamp(),
            began_s=now.timestamp() - (now_s - parts.controller.began_s),
            ends_s=None if parts.controller.is_last(segment) else segment.ends.timestamp(),
            resumed_s=parts.active.control.resumed_s,
        )
        self.override = parts.people.override(term)
        self.refusals = parts.people.refusals(term)

    # -- what is done ---------------------------------------------------------------------------------

    async def _acted(self, found: LoopOutput) -> Decision:
        """Switch where mode and policy allow it, else have the plan wait for a person; says what came of it."""
        mode = self._parts.active.control.mode
        decision = found.decision
        if mode == "observe":
            return replace(decision, kind="hold", reason=f"{decision.reason}; the mode is `observe`")
        plan = await asyncio.to_thread(self._kept, found)
        if plan is None:
            return replace(decision, kind="hold", reason=f"{decision.reason}, but it cannot be planned")
        if mode == "recommend":
            return replace(
                decision, kind="hold", reason=f"{decision.reason}; a person has to: intentctl apply {plan.id}"
            )
        try:
            await self._parts.serving.apply(plan, partial(self._consent, plan, decision), self._parts.acts)
        except RefusedError as error:
            return replace(decision, kind="hold", reason=f"{decision.reason}, but {error}")
        return decision

    def _consent(self, plan: Plan, decision: Decision) -> consents.Consent:
        """The policy's yes. How many plans were applied lately does not hold up a roll-back.

        Raises:
            RefusedError: it has none; or somebody paused it, said otherwise or applied a topology since it looked.
        """
        override = self._parts.people.override(self._term) if self._term else None  # one may have ended just now
        if (self._parts.active.kept_control(), override) != (self._heeded, self.override):
            raise RefusedError(
                docs.Code.NOT_APPROVED, "somebody said otherwise to the controller meanwhile; it looks again"
            )
        rule = self._parts.place.deployment.approval
        known = consents.known_of(plan, self._parts.acts)
        applied = Applied(0, 0) if decision.cause == "roll_back" else known.applied
        given = consents.consent(plan, rule, replace(known, applied=applied), CONTROLLER, ())
        return replace(given, acknowledged={**given.acknowledged, docs.Code.OUTSIDE_WINDOW.value: CONTROLLER.name})

    def _kept(self, found: LoopOutput) -> Plan | None:
        """The plan of a decision, kept; the one that waits already where it is for the same."""
        decision = found.decision
        generation = self._parts.serving.situation().generation
        for begun in self._begun:
            same = (begun.decision.target, begun.decision.cause) == (decision.target, decision.cause)
            saved = self._parts.store.plan(begun.plan_id) if same else None
            if saved and saved.applied_by is None and saved.generation == generation:
                return saved
        made = self._made(found)
        if made is None:
            return None
        intent, plan = made
        intents = list[JsonValue](dict.fromkeys(goal.intent_id for goal in found.segment.promised))
        self._parts.acts.keep_plan(intent, plan, cause=decision.cause, intents=intents)
        self._begun.append(_Begun(decision, found.segment, plan.id))
        return plan

    def _made(self, found: LoopOutput) -> tuple[Intent, Plan] | None:
        """The plan of a decision, and the intent that it serves."""
        if found.plan is None:
            return self._back(found)
        intent_id = found.segment.promised[0].intent_id
        version = self._parts.store.intent(intent_id)
        if version is None:
            return None
        measured = ["for the load that is measured, not the declared one"] if found.load else []
        plan = replace(
            found.plan,
            id=lifecycle.new_id("plan"),
            intent_id=intent_id,
            intent_version=version.version,
            generation=self._parts.serving.situation().generation,
            reasons=(f"the controller: {found.decision.reason}", *measured, *found.plan.reasons),
            to_acknowledge=lifecycle.to_acknowledge(version.intent),
        )
        return version.intent, self._held_against_promises(plan, found)

    def _back(self, found: LoopOutput) -> tuple[Intent, Plan] | None:
        """The plan to a topology that ran before."""
        decision = found.decision
        place = replace(self._parts.place, situation=self._parts.serving.situation())
        assert decision.target is not None, "a way back leads somewhere"
        try:
            target: Topology = targets.read(decision.target, place)
            intent, plan = targets.planned(target, f"the controller: {decision.reason}", place, docs.When())
        except RefusedError as error:
            log.warning("no way back to %s: %s", decision.target, error)
            return None
        reasons = (f"the controller: {decision.reason}", *plan.reasons)
        return intent, self._held_against_promises(replace(plan, intent_version=1, reasons=reasons), found)

    def _held_against_promises(self, plan: Plan, found: LoopOutput) -> Plan:
        """A plan of its own: what it newly breaks waits for a person to see it."""
        place = replace(self._parts.place, situation=self._parts.serving.situation())
        held = limits.held_against(plan, place.problem(plan.window), found.segment.promised, alone=True)
        return sealed(replace(held, promised=tuple(map(limits.called, self._parts.controller.promised))))
