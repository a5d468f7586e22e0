"""Where a model's engine starts again when it was lost.

As it was, or as what is best on the devices that are left.

It asks nobody, and keeps to the deployment's limits, to what is promised, and to promised limits on reconfiguration.
"""

import asyncio
import logging
from collections.abc import Collection
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from intent.models import Intent, ReconfigRule, TranslatorInfo
from runtime.capabilities import Batching, Capabilities
from runtime.errors import EngineLostError
from runtime.models import Topology
from runtime.process.supervised import begin, cancel
from runtime.replicas.replica import Replica
from selector.models import Infeasible, Plan, Workload
from service import documents as docs
from service.access.consent import Consent
from service.access.wiring import AccessControl, Acts
from service.deployment.file import Deployment
from service.deployment.models import is_about
from service.documents.access import RECOVERY
from service.documents.errors import RefusedError, StoreError
from service.documents.plans import sealed
from service.planning import targets
from service.planning.lifecycle import new_id
from service.promises.active import Active
from service.promises.agenda import Segment, cut
from service.promises.limits import breaches, held_against
from service.promises.planner import Planner
from service.promises.watch import Watch, completed, measured
from service.serving.devices import Devices
from service.serving.serving import Serving

log = logging.getLogger(__name__)

AGAIN_S = 5.0
"""Between two tries to write what the store did not take."""
MOST_RETURNS = 2
"""Tries to switch back to what was lost."""


def without(topology: Topology, out: Collection[int]) -> Topology | None:
    """The replicas of a set that use none of some devices; None: each uses one."""
    staying = [each for each in topology.replicas if {*out}.isdisjoint(each.devices)]
    return Topology.of_replicas(staying) if staying else None


@dataclass(frozen=True, slots=True)
class RelocationPlanner:
    """Plans for a model on the devices that are left."""

    deployment: Deployment
    model: str
    planner: Planner
    active: Active

    def best(self, engine: Capabilities, load: Workload | None, now: Topology | None = None) -> Plan | Infeasible:
        """What holds what is promised now under a load (None: the declared one), or comes nearest. Blocks.

        Where nothing is promised it is what has the most throughput. ``now``: what it is to be reached from.
        """
        segment, load = self._asked(load)
        if segment.promised:
            found = self.planner.outlook(segment, now, engine, workload=load)
            if found.plan:
                return found.plan
        return self.planner.best_effort(segment, now, engine, load).answer

    def away(
        self, now: Topology, engine: Capabilities, load: Workload | None
    ) -> tuple[Topology, Batching | None] | Infeasible:
        """Where what runs goes from devices that are out, and how far steps are filled there. Blocks.

        The replicas that use none of them stay alone, unless something else breaks fewer promises or serves more of the load.
        """
        found = self.best(engine, load, now)
        staying = without(now, engine.out)
        if isinstance(found, Infeasible):
            return (staying, None) if staying else found
        segment, load = self._asked(load)
        worth = [
            (-len(self.broken(found, each, engine)), self.planner.held(each, segment, engine, load))
            for each in (staying, found.target)
            if each
        ]
        return (staying, None) if staying and worth[0] >= worth[-1] else (found.target, found.batching)

    def broken(self, plan: Plan, target: Topology, engine: Capabilities) -> list[str]:
        """What breaks of what is promised now if a plan led to another target, by prediction."""
        problem = self.deployment.model(self.model).problem(plan.window, self.deployment.limits, plan.now, engine)
        prediction = self.planner.prediction(target, problem.workload, engine) or plan.prediction
        other = replace(plan, target=target, prediction=prediction, switch=None)
        return [finding.message for finding, _ in breaches(other, problem, self.active.in_force(datetime.now(UTC)))]

    def _asked(self, load: Workload | None) -> tuple[Segment, Workload]:
        """What is promised now of what runs, and the load as far as it is known: as declared beside that.

        Limits on switches are asked for apart.
        """
        now = datetime.now(UTC)
        promised = [goal for goal in self.active.promised if is_about(goal.goal, self.model)]
        promised = [goal for goal in promised if not isinstance(goal.goal, ReconfigRule)]
        segment = cut(promised, self.deployment.windows, now, now + timedelta(seconds=1))[0]
        declared = self.planner.workload(segment)
        return segment, completed(load, declared) if load else declared


class Relocation:
    """The comeback of one model's engine (``runtime.engine.Comeback``)."""

    def __init__(
        self,
        serving: Serving,
        watch: Watch,
        left: RelocationPlanner,
        devices: Devices,
        access: AccessControl,
        place: targets.ModelContext,
    ) -> None:
        self._serving = serving
        self._watch = watch
        self._left = left
        self._place = place
        self._devices = devices
        self._acts = Acts(access, RECOVERY)
        self._plan: Plan | None = None
        """That the engine is started by."""
        self._is_tried = True
        """It was: the next try has another one."""
        self._suspects = dict[int, str]()
        """Devices to blame, with why: they are out once the engine serves without them."""
        self._reports = set[asyncio.Task[None]]()
        self._is_closed = False

    async def place(self, lost: Topology) -> Topology:
        """As it was, unless a device of it is out or to blame; see the protocol."""
        out = {*self._devices.all, *self._suspects}
        if out.isdisjoint(lost.devices):
            return lost
        first = self._serving.engine.replicas[0]  # goes alone where all are out: each would go to the same place
        if first in self._others(lost) or self._others_serve(lost, out):
            raise EngineLostError(f"{lost} uses a device that is out; the other replicas serve, or start first")
        if self._plan is None or self._is_tried or not out.isdisjoint(self._plan.target.devices):
            self._plan = await self._planned(out)
        self._is_tried = True
        return self._plan.target.replicas[0]  # the controller starts the others

    def _others_serve(self, lost: Topology, out: Collection[int]) -> bool:
        """Whether what is lost is less capacity, and no outage: others serve, or start again where they were."""
        return any(each.serves or {*out}.isdisjoint(each.engine.topology.devices) for each in self._others(lost))

    def _others(self, lost: Topology) -> list[Replica]:
        """The replicas beside the one that is lost, or came back."""
        replicas = self._serving.engine.replicas
        return [each for each in replicas if each.engine.topology != lost][: len(replicas) - 1]

    async def take_out(self, device: int, why: str) -> bool:
        """Do without what is to blame.

        Where nothing could serve then, nobody is: all is tried again; see the protocol.
        """
        lost = next((each for each in self._serving.engine.topology.replicas if device in each.devices), None)
        out = {*self._devices.all, *self._suspects, device}
        if lost and self._others_serve(lost, out):
            self._devices.out(device, why)
            return True
        try:
            self._plan = await self._planned(out)
        except EngineLostError as error:
            log.warning("device %d is not taken out, though %s: %s", device, why, error)
            self._suspects.clear()
            self._is_tried = True
            return False
        self._suspects[device], self._is_tried = why, False
        return True

    def came_back(self, lost: Topology, runs: Topology, why: str) -> None:
        """Take out who was to blame and report it like a switch.

        What stood by serves until the lost one does again.

        See the protocol.
        """
        if self._is_closed:
            return
        suspects = self._suspects
        self._suspects = {}
        for device, reason in suspects.items():
            self._devices.out(device, reason)
        plan = self._plan if self._plan is not None and self._plan.target == runs else None
        self._serving.heed()
        lost = Topology.of_replicas([lost, *(each.engine.topology for each in self._others(runs))])
        begin("report of a recovery", self._followed(lost, self._serving.engine.topology, plan, why), self._reports)

    async def close(self) -> None:
        """Report nothing more."""
        self._is_closed = True
        await cancel(self._reports)

    async def _planned(self, out: Collection[int]) -> Plan:
        """What is best without some devices.

        Raises:
            EngineLostError: nothing can serve without them, or may now.
        """
        serving = self._serving
        seen = self._watch.seconds(self._left.deployment.rules.lookback_s, serving.router.waits_s)
        engine = replace(serving.engine.capabilities, out=frozenset(out))
        try:
            barred = await self._acts.access.store.beside(self._barred)
            found = await asyncio.to_thread(self._left.best, engine, measured(seen))
        except Exception as error:  # the engine is tried again, whatever is wrong here
            log.exception("where %s may go", self._left.model)
            raise EngineLostError(f"nothing can be planned: {error}") from error
        known = {index: self._devices.why(index) or self._suspects.get(index, "which failed") for index in sorted(out)}
        devices = ", ".join(f"device {index} ({why})" for index, why in known.items())
        without = f"{self._left.model} may not use {devices}"
        if barred:
            raise EngineLostError(f"{without}, and no other topology is started, for {barred}")
        if isinstance(found, Infeasible):
            why = "; ".join(found.reasons) or "no device is left"
            raise EngineLostError(f"{without}, and nothing else can serve it: {why}")
        return found

    def _barred(self) -> str:
        try:
            return self._serving.barred()
        except StoreError as error:
            log.warning("promised limits on reconfiguration cannot be read, and do not count: %s", error)
            return ""

    async def _followed(self, lost: Topology, runs: Topology, plan: Plan | None, why: str) -> None:
        words = f"Run {self._left.model} as {runs}, for its engine was lost: {why}"
        intent = Intent(words, "en", (), TranslatorInfo("rules"), readback=words)
        try:
            if plan is not None:
                await self._report(intent, replace(plan, id=new_id("plan"), intent_id=new_id("intent")), lost, why)
                return
            intent, named = await asyncio.to_thread(self._named, runs, words, None)
            await self._report(intent, named, lost, why)
            for _ in range(MOST_RETURNS):
                await self._return(lost)
                if self._serving.engine.topology == lost:
                    return
        except (RefusedError, StoreError) as error:
            log.warning("%s stays %s: %s", self._left.model, self._serving.engine.topology, error)

    def _named(self, target: Topology, words: str, now: Topology | None) -> tuple[Intent, Plan]:
        """A plan to a topology, and its intent. Blocks.

        Raises:
            RefusedError: something bars it.
        """
        situation = replace(self._serving.situation(), topology=now)
        return targets.planned(target, words, replace(self._place, situation=situation), docs.When())

    async def _return(self, lost: Topology) -> None:
        """Switch back to what was lost, which starts meanwhile.

        Raises:
            RefusedError: it is barred, or somebody else switches.
            StoreError: the plan cannot be kept.
        """
        serving = self._serving
        words = f"Run {self._left.model} as {lost} again, where it was lost."
        intent, made = await asyncio.to_thread(self._named, lost, words, serving.engine.topology)
        problem = replace(self._place, situation=serving.situation()).problem(made.window)
        promised = self._left.active.in_force(datetime.now(UTC))
        plan = sealed(held_against(made, problem, promised, alone=True))
        await self._acts.access.store.beside(self._acts.keep_plan, intent, plan)
        seen = {docs.Code.OUTSIDE_WINDOW.value: RECOVERY.name}
        await serving.apply(plan, lambda: Consent(RECOVERY.name, seen), self._acts)
        await serving.settled()

    async def _report(self, intent: Intent, plan: Plan, lost: Topology, why: str) -> None:
        """Keep and tell that the engine came back as a plan's target, once the store takes it."""
        while True:
            generation = self._serving.situation().generation
            filled = self._serving.engine.capabilities.running  # a loss changes nothing in that
            made = replace(plan, now=lost, generation=generation, batching=None, now_batching=filled)
            try:
                await self._serving.came_back(intent, sealed(made), why, self._acts)
            except StoreError as error:
                log.warning("a restart will not know what %s runs; it is tried again: %s", plan.model, error)
                await asyncio.sleep(AGAIN_S)
            else:
                return
