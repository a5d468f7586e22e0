"""A served model: its engine, router and coordinator, and the operations that change its topology."""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from statistics import median

from pydantic import JsonValue

from intent.models import Intent
from runtime.capabilities import Batching
from runtime.coordinator import Coordinator
from runtime.engine import EngineState
from runtime.errors import EngineLostError, JournalError, RuntimeFault, SwitchError
from runtime.models import CutoverReport, Phase, Progress, Reason, Topology
from runtime.process.supervised import begin, cancel
from runtime.replicas.engine import PATIENCE_S, ReplicaSet
from runtime.replicas.transition import Transition
from runtime.router import Router
from runtime.stream import Gaps
from selector.models import Plan
from service import documents as docs
from service.access.consent import Consent, refuse_barred, refuse_unseen
from service.access.wiring import Acts
from service.deployment.file import Deployment
from service.deployment.models import ServedModel, is_about
from service.documents.errors import RefusedError, StoreError
from service.planning.lifecycle import Situation, another_switch, new_id, refuse_stale, refuse_untimely
from service.planning.undo import refusal
from service.promises.active import Active
from service.promises.limits import still_broken
from service.promises.watch import percentile
from service.serving.devices import Devices
from service.serving.events import EventBus
from service.serving.metrics import Metrics
from service.serving.shares import barred_of, policy_of
from service.store.clock import wall_s
from service.store.store import Store

log = logging.getLogger(__name__)


STATS_S = 2.0
"""How long metrics wait for an engine."""
PATIENCE = 2.0
"""By how much an outage may outlast the most that was predicted, before streams that wait for its end give up."""
STARTS = 8
"""Switches of which the service remembers how long their targets took to start."""
AGAIN_S = 2.0
"""Between two tries to write what the store did not take."""


class StoreJournal:
    """The journal of a model's switches in the store, and the generation that runs.

    A commit makes the next one.

    A write leaves the event loop free for the streams.
    """

    def __init__(self, store: Store, model: str, engine: ReplicaSet, origin: str) -> None:
        self._store = store
        self._model = model
        self._engine = engine
        self._recorded = self._runs
        self.generation = store.next_generation(model, str(engine.topology))
        self.origin = origin
        """Why this generation runs."""

    async def write(self, switch_id: str, phase: Phase, detail: str) -> None:
        """Return when the entry is durable; that of a commit with the generation it makes.

        Raises:
            JournalError: the store cannot be written.
        """
        try:
            if phase is not Phase.COMMITTED:
                await self._store.beside(self._store.append_journal, switch_id, phase.value, detail)
                return
            runs = self._runs
            self.generation = await self._store.beside(
                self._store.commit, switch_id, (phase.value, detail), self._model, str(runs[0])
            )
            self._recorded = runs
            self.origin = f"operation {switch_id}"
        except StoreError as error:
            raise JournalError(f"the journal cannot be written: {error}") from error

    async def came_back(self, keep: Callable[[], int], origin: str) -> None:
        """Note the generation of an engine that came back in another topology.

        Raises:
            StoreError: it cannot be written.
        """
        runs = self._runs
        self.generation = await self._store.beside(keep)
        self._recorded = runs
        self.origin = origin

    async def catch_up(self, switch_id: str) -> None:
        """Write of a commit what could not be written when it was made.

        Raises:
            JournalError: it still cannot be.
        """
        if self._runs != self._recorded:
            await self.write(switch_id, Phase.COMMITTED, "written after the switch")

    @property
    def _runs(self) -> tuple[Topology, Batching | None]:
        """What the engine is, and how it fills its steps."""
        return self._engine.topology, self._engine.capabilities.running


@dataclass(frozen=True, slots=True)
class ServingStorage:
    """What outlives a model's switches."""

    store: Store
    events: EventBus
    active: Active
    devices: Devices


class Serving:
    """What runs now; switches it from plan to plan, one at a time."""

    def __init__(
        self,
        deployment: Deployment,
        model: ServedModel,
        engine: ReplicaSet,
        router: Router,
        kept: ServingStorage,
        metrics: Metrics,
        origin: str,
    ) -> None:
        self.model = model
        self.engine = engine
        self.router = router
        self.metrics = metrics
        self._deployment = deployment
        self._store = store = kept.store
        self._events = kept.events
        self._active = kept.active
        self._devices = kept.devices
        self._journal = StoreJournal(store, model.name, engine, origin)
        self._coordinator = Coordinator(engine, router, self._journal, model.engine.switch)
        self._way: Transition | None = None
        """The changes of the switch under way, or of the last one."""
        self.operation: docs.OperationDocument | None = None
        """The switch under way."""
        self._left: Topology | None = None
        """What that leaves."""
        self._switch: asyncio.Task[None] | None = None
        self._applying = asyncio.Lock()
        self._over = deque[docs.OperationDocument](maxlen=64)
        self._starts_s = deque[float](maxlen=STARTS)
        """How long the last targets took to start, less what loading was predicted to take."""
        self._owed = set[asyncio.Task[None]]()
        """What is to be written as soon as the store takes it."""
        last = store.committed(model.name)
        self._plans: tuple[Plan | None, ...] = (last.plan if last else None,)
        """The last ones that were applied: whose shares the router keeps to, the last one's first of all."""
        self.heed()

    def situation(self) -> Situation:
        """What a plan starts from."""
        engine = replace(self.engine.capabilities, out=frozenset(self._devices.all))
        if self._starts_s:  # measured here: better than public figures
            engine = replace(engine, start_s=(min(self._starts_s), max(self._starts_s)))
        return Situation(self.engine.topology, self._journal.generation, engine)

    @property
    def devices(self) -> frozenset[int]:
        """Devices that what runs uses, what leaves or is left by the switch under way, too."""
        engine = self.engine
        every = [each.engine.topology for each in (*engine.replicas, *engine.leaving)]
        return frozenset(device for each in (*every, self._left) if each for device in each.devices)

    def heed(self) -> None:
        """Have the router keep to the shares of the last plans, and to what is promised now."""
        promised = self._active.in_force(datetime.now(UTC))
        goals = [goal.goal for goal in promised if is_about(goal.goal, self.model.name)]
        problem = self.model.problem("always", self._deployment.limits, None, None)
        sets = [self.engine.topology, *(plan.target for plan in self._plans[-1:] if plan and self.operation)]
        if (policy := policy_of(self._plans, goals, barred_of(sets, problem, goals))) != self.engine.policy:
            self.engine.policy = policy

    def barred(self) -> str:
        """Why what is promised forbids a switch now; empty: it does not. Blocks."""
        return self._active.barred(self.model.name, datetime.now(UTC), self._active.promised)

    def take_ended(self) -> list[docs.OperationDocument]:
        """The operations that ended since the last call."""
        ended = list(self._over)
        self._over.clear()
        return ended

    @property
    def state(self) -> docs.StateDocument:
        """What runs, since which generation, on what, and whether it is being changed."""
        return docs.StateDocument(
            model=self.model.name,
            generation=self._journal.generation,
            topology=self.engine.topology,
            batching=self.engine.capabilities.running,
            origin=self._journal.origin,
            operation=self.operation.id if self.operation else None,
            streams=self.router.num_streams,
            replicas=tuple(self._replica_documents()),
            tokens=docs.TokenCounts.model_validate(self.router.counts),
            inventory=tuple(
                docs.NodeDocument(name=node.name, link=node.link.kind, gpus=node.gpus)
                for node in self.model.cluster.nodes
            ),
            out={
                gpu.index: self._devices.why(gpu.index)
                for gpu in self.model.cluster.gpus
                if gpu.index in self._devices.all
            },
        )

    def _replica_documents(self) -> Iterator[docs.ReplicaDocument]:
        leaving = self.engine.leaving
        taken = sum(each.num_taken for each in self.engine.replicas) or 1
        for each in (*self.engine.replicas, *leaving):
            share = self.engine.policy.shares.get(str(each.engine.topology))
            yield docs.ReplicaDocument(
                topology=each.engine.topology,
                state=each.engine.state,
                share=share.share or None if share else None,
                taken=each.num_taken / taken,
                running=each.work.running,
                waiting=each.work.waiting,
                is_changing=each.is_avoided,
                is_leaving=each in leaving,
            )

    async def apply(self, plan: Plan, consent: Callable[[], Consent], acts: Acts) -> docs.OperationDocument:
        """Start the switch to a plan's target; answers with the operation at once.

        ``consent`` is asked for the yes to it where the plan is claimed; ``acts`` is where it is noted who did this.

        Raises:
            RefusedError: not allowed, applied before, stale, a finding nobody has seen, or another switch is under way.
        """
        async with self._applying:
            operation_id = new_id("op")
            try:
                operation = await self._store.beside(self._claim, plan, operation_id, consent, acts)
            except StoreError as error:
                if (claimed := self.operation) is not None and claimed.id == operation_id:
                    self.operation = None
                    if error.is_unknown:  # kept or not, it ends: nothing is switched by what nobody knows to be applied
                        ended = claimed.failed(docs.Code.SWITCH_ABORTED, f"nothing was switched: {error}")
                        self._over.append(ended)
                        self._events.publish("operation", ended)
                        self._owe(partial(self._store.beside, self._end, ended, acts))
                raise
            self.engine.patience_s = PATIENCE_S
            self._switch = asyncio.create_task(self._run(operation, plan, acts), name=operation.id)
            return operation

    def _claim(
        self, plan: Plan, operation_id: str, consent: Callable[[], Consent], acts: Acts
    ) -> docs.OperationDocument:
        """Keep that a plan is applied, and by whom, unless something is against it by then.

        All of it is read in the one transaction, in which nobody else approves, rejects, revokes or promises.
        """
        with self._store.transaction():
            acts.access.audit.hold()
            given = consent()
            self._refuse(plan, given)
            version = self._store.intent(plan.intent_id, plan.intent_version)
            operation = docs.OperationDocument.planned(
                operation_id,
                plan,
                wall_s(),
                words=version.intent.text if version else "",
                applied_by=acts.caller.name,
                approved_by=given.by,
                most=self.engine.capabilities.batching,
            )
            if not self._store.claim_plan(plan.id, operation):
                raise RefusedError(
                    docs.Code.ALREADY_APPLIED, f"{plan.id} was applied by another service just now; make a new plan"
                )
            before: docs.Json = {"topology": plan.now.text if plan.now else None, "generation": plan.generation}
            after: docs.Json = {
                "topology": plan.target.text,
                "operation": operation.id,
                "approved_by": given.by,
                "acknowledged": dict[str, JsonValue](sorted(given.acknowledged.items())),
                **({"batching": str(plan.batching)} if plan.batching else {}),
            }
            acts.note("plan.apply", plan.id, before=before, after=after)
            self.operation = operation  # only the commit can fail from here on
        return operation

    def _refuse(self, plan: Plan, consent: Consent) -> None:
        """Refuse a plan that does not fit what runs and what is promised.

        Raises:
            RefusedError: it does not.
        """
        applied_by = self._store.saved_plan(plan.id).applied_by
        kept = self._active.kept()
        refuse_stale(plan, applied_by, self.situation(), self._active.unchecked(plan, datetime.now(UTC)))
        refuse_unseen(still_broken(plan.to_acknowledge, kept), consent.acknowledged, "the plan, then apply")
        refuse_untimely(plan, self._deployment, consent.acknowledged)
        refuse_barred(plan, self._active.barred(self.model.name, datetime.now(UTC), kept), consent)
        if self.operation is not None:
            raise another_switch(self.operation.id)

    async def came_back(self, intent: Intent, plan: Plan, why: str, acts: Acts) -> None:
        """Report that a lost engine came back as a plan's target, like a switch that recovery applied.

        The plan is kept.

        Raises:
            StoreError: it cannot be written.
        """
        lost = plan.now.text if plan.now else ""
        name = acts.caller.name
        operation_id = plan.id.replace("plan", "op", 1)  # the same when it is tried again
        operation = docs.OperationDocument.planned(
            operation_id,
            plan,
            wall_s(),
            words=intent.text,
            applied_by=name,
            approved_by=name,
            most=self.engine.capabilities.batching,
        )
        report = CutoverReport(
            operation_id,
            source=lost,
            target=plan.target.text,
            phase=Phase.DONE,
            reason=Reason.ENGINE_LOST,
            detail=why,
        )
        operation = operation.advanced(Progress(operation_id, Phase.DONE, wall_s())).finished(report)

        def keep() -> int:
            after: docs.Json = {"topology": plan.target.text, "operation": operation_id, "why": why}
            if (known := self._store.generation_of(operation_id)) is not None:
                return known  # the try before was written, and its answer came too late
            with self._store.transaction():
                self._store.save_plan(intent, plan, name)
                self._store.claim_plan(plan.id, operation)
                acts.note("engine.recover", plan.id, before={"topology": lost}, after=after)
                return self._store.commit(operation_id, (Phase.COMMITTED.value, why), self.model.name, plan.target.text)

        async with self._applying:
            await self._journal.came_back(keep, f"operation {operation_id}: {why}")
        self._over.append(operation)
        self._events.publish("operation", operation)
        self._events.publish("topology", self.state)

    def _end(self, operation: docs.OperationDocument, acts: Acts) -> None:
        """Keep how an operation ended, and that its plan was applied, if that is not kept."""
        after: docs.Json = {"outcome": operation.outcome, "topology": str(self.engine.topology)}
        with self._store.transaction():
            if not self._store.claim_plan(operation.plan_id, operation):
                self._store.save_operation(operation)
            acts.note("switch.end", operation.id, after=after)

    async def cancel(self, operation_id: str, request: docs.CancelRequest, acts: Acts) -> docs.OperationDocument:
        """Give up a switch that has not cut; answers at once, while what it took is given back.

        A second time changes nothing.

        Raises:
            RefusedError: it has ended, or its cut cannot be called back.
        """
        if self.operation is None or self.operation.id != operation_id:
            async with self._applying:  # one that is beginning has begun then
                pass
        operation = self.operation
        if operation is None or operation.id != operation_id or operation.done:
            raise await self._ended(operation_id)
        if operation.cancelled_by is not None:
            return operation
        if not (self._way and self._way.give_up()):
            raise refusal(operation)
        until_s = None if request.for_s is None else wall_s() + request.for_s
        self.operation = cancelled = operation.model_copy(
            update={"cancelled_by": acts.caller.name, "barred_until_s": until_s}
        )
        self._events.publish("operation", cancelled)
        before: docs.Json = {"phase": operation.phase.value}
        try:
            await self._store.beside(acts.note, "operation.cancel", operation_id, before=before)
        except StoreError as error:
            raise StoreError(
                f"{operation_id} is being given up, but the audit cannot say by whom: {error}", is_unknown=True
            ) from error
        return cancelled

    async def exposition(self) -> tuple[str, str]:
        """The metrics of the service for this model, and the engine's own.

        Without the engine's state if it does not tell.
        """
        state = self.engine.state
        replicas = tuple(self._replica_documents())
        try:
            if state is not EngineState.SERVING:
                raise EngineLostError(f"the engine is {state}")
            async with asyncio.timeout(STATS_S):
                stats = await self.engine.stats()
                theirs = await self.engine.exposition()
        except (TimeoutError, RuntimeFault):
            return self.metrics.render(None, self.router.num_streams, replicas), ""
        return self.metrics.render(stats, self.router.num_streams, replicas), theirs

    async def settled(self) -> None:
        """Return when no switch is under way."""
        if self._switch is not None:
            await asyncio.wait({self._switch})

    def give_up(self) -> None:
        """Bring a switch that has not cut to its end as soon as may be."""
        self._coordinator.give_up()

    async def close(self) -> None:
        """Give up a switch that has not committed, and wait for its end."""
        if self._switch is not None:
            await cancel([self._switch])
        await cancel(self._owed)

    async def _ended(self, operation_id: str) -> RefusedError:
        """Why an operation that is not under way cannot be cancelled."""
        kept = await self._store.beside(self._store.operation, operation_id)
        return refusal(kept) if kept else RefusedError(docs.Code.NOT_FOUND, f"no operation {operation_id}")

    async def _run(self, operation: docs.OperationDocument, plan: Plan, acts: Acts) -> None:
        """Switch, and bring the operation to its end whatever happens."""
        target = plan.target
        self._left = self.engine.topology
        source = str(self._left)
        phase: Phase | None = None
        before = self._plans[-1]
        self._plans = (before, plan)
        self.heed()

        def on_progress(progress: Progress) -> None:
            nonlocal operation, phase
            here = replace(progress, at_s=wall_s())  # the engine's clock may be put back
            self.operation = operation = (self.operation or operation).advanced(here)
            if progress.phase in {Phase.DONE, Phase.ABORTED}:
                return  # told once, with its result
            tell = self._events.broadcast if progress.phase is phase else self._events.publish
            tell("operation", operation)
            phase = progress.phase

        try:
            predicted = plan.switch
            ends_first = predicted and predicted.strategy == "restart"
            outage_s = PATIENCE * (predicted.stop_most_s or 0.0) if predicted and ends_first else None
            is_start = predicted and predicted.prepare_s and not ends_first  # not steps filled otherwise
            is_start = is_start and target not in self.engine.capabilities.standby
            self._way = Transition(self._coordinator, self.engine, operation.id, on_progress, outage_s)
            report = await self._way.run(target, plan.batching)
            if report.phase is Phase.DONE and predicted and is_start:
                self._starts_s.append(max(0.05, report.warming_s - (predicted.loading_s or 0.0)))
            await self._conclude(report)
            operation = operation.finished(report, gaps_document(self.router.gaps(report.epoch)))
        except SwitchError as error:
            operation = operation.failed(docs.Code.SWITCH_IN_PROGRESS, str(error))
        except asyncio.CancelledError:
            if operation.phase is Phase.DONE:
                detail = "the service was stopped after the commit"
                operation = operation.finished(
                    CutoverReport(operation.id, source, str(target), Phase.DONE, detail=detail)
                )
            else:
                operation = operation.failed(docs.Code.SWITCH_ABORTED, "the service was stopped")
        except Exception as error:  # a bug must not leave an operation that never ends
            log.exception("operation %s", operation.id)
            operation = operation.failed(docs.Code.INTERNAL, f"{type(error).__name__}: {error}; see the service's log")
        if operation.error:
            self._plans = (plan, before)
        self.heed()
        try:
            await self._keep(
                f"the end of operation {operation.id}", partial(self._store.beside, self._end, operation, acts)
            )
        finally:
            self.operation = self._left = None
            self._over.append(operation)
            self._events.publish("operation", operation)

    async def _conclude(self, report: CutoverReport) -> None:
        self.metrics.switched(report)
        await self._keep(f"what {self.model.name} runs", partial(self._journal.catch_up, report.switch_id))
        if report.phase is Phase.DONE or str(self.engine.topology) != report.source:
            self._events.publish("topology", self.state)

    async def _keep(self, what: str, write: Callable[[], Awaitable[None]]) -> None:
        """Write something now, or as soon as the store takes it; a restart before that reads the journal."""
        try:
            await write()
        except (StoreError, JournalError) as error:
            log.warning("%s is not kept; it is tried again: %s", what, error)
            self._owe(write)

    def _owe(self, write: Callable[[], Awaitable[None]]) -> None:
        begin("what the store is owed", self._written(write), self._owed)

    async def _written(self, write: Callable[[], Awaitable[None]]) -> None:
        while True:
            await asyncio.sleep(AGAIN_S)
            with suppress(StoreError, JournalError):
                return await write()


def gaps_document(gaps: Gaps | None) -> docs.GapsDocument | None:
    """What streams waited through a cut, in milliseconds; None where none of them went on."""
    if gaps is None:
        return None
    waits_ms = [wait_s * 1000 for wait_s in gaps.waits_s]
    return docs.GapsDocument(
        streams=len(waits_ms),
        p50_ms=percentile(waits_ms, 0.5) or 0.0,
        p99_ms=percentile(waits_ms, 0.99) or 0.0,
        max_ms=max(waits_ms),
        usual_ms=median(gaps.usual_s) * 1000 if gaps.usual_s else None,
    )


def ready(servings: Mapping[str, Serving], store: Store) -> docs.Readiness:
    """Each model's state, and the store's, without which models serve. Answers at once.

    Raises:
        RefusedError: none can serve.
    """
    models = tuple(
        docs.ModelReadiness(model=name, state=serving.engine.state, shape=serving.engine.topology.shape)
        for name, serving in servings.items()
    )
    if all(model.state is not EngineState.SERVING for model in models):
        states = ", ".join(f"{model.model} is {model.state}" for model in models)
        raise RefusedError(docs.Code.ENGINE_LOST, f"no model can serve: {states}; see the service's log")
    return docs.Readiness(models=models, store="serving" if store.calls.stalled_s is None else "stalled")
