"""The promises of a service: what is active, a loop for each model, and what can be asked of them."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial

from selector.models import Profile
from selector.planning import planned_within
from service.access.wiring import AccessControl
from service.control.control_loop import ControlLoop, LoopContext
from service.control.drains import Drains
from service.control.relocation import Relocation, RelocationPlanner
from service.deployment.file import Deployment
from service.documents.errors import RefusedError
from service.documents.problems import Code
from service.documents.promises import ControlDocument, Mode, ObservedDocument
from service.planning import targets
from service.promises.active import Active
from service.promises.controller import PromiseController
from service.promises.handlers import PlanningContext
from service.promises.planner import Planner
from service.promises.recent import observed_document
from service.promises.watch import Watch, WatchHistory
from service.serving.serving import Serving, ServingStorage
from service.serving.worker_process import WorkerProcess


@dataclass(frozen=True, slots=True)
class PromiseService:
    """All of it, put together."""

    deployment: Deployment
    active: Active
    servings: Mapping[str, Serving]
    watches: Mapping[str, Watch]
    planners: Mapping[str, Planner]
    runners: Mapping[str, ControlLoop]
    drains: Drains

    def here(self) -> PlanningContext:
        """What is planned for now."""
        situations = {name: serving.situation() for name, serving in self.servings.items()}
        holds = {name: hold for name, runner in self.runners.items() if (hold := runner.hold(datetime.now(UTC)))}
        return PlanningContext(self.deployment, self.planners, situations, self.active.control.mode, holds)

    def wake(self) -> None:
        """Have every loop look now; called in the event loop."""
        for runner in self.runners.values():
            runner.wake()

    def control(self) -> ControlDocument:
        """How the controller stands."""
        now = datetime.now(UTC)
        heeding = [runner for runner in self.runners.values() if not runner.is_resumed]
        return ControlDocument(
            mode=self.active.control.mode,
            paused=self.active.control.paused,
            pin=self.active.pin(now),
            overrides=tuple(runner.override for runner in heeding if runner.override),
            refusals=tuple(refusal for runner in heeding for refusal in runner.refusals),
            decisions=tuple(runner.told(now) for runner in self.runners.values()),
        )

    def refuse_mode(self, mode: Mode | None) -> None:
        """Refuse to let the controller act where the policy lets it do nothing.

        Raises:
            RefusedError: nothing may be applied without a person.
        """
        if mode != "act" or (self.deployment.approval.by != "nobody" and self.deployment.approval.within):
            return
        message = (
            f"the controller may apply nothing without a person: {self.deployment.file.name} says under `approval` what it may, "
            "as `approval: {by: person, within: {most_stop_ms: 50, per_hour: 4}}`; the mode stays as it is"
        )
        raise RefusedError(Code.NOT_APPROVED, message)

    async def load(self, name: str) -> ObservedDocument:
        """What is asked of a model now."""
        serving = self.servings[name]
        stats = await serving.engine.stats()
        seen = self.watches[name].seconds(self.deployment.rules.lookback_s, serving.router.waits_s)
        return observed_document(name, seen, self.planners[name], serving.situation(), stats)

    async def minutes(self, name: str) -> WatchHistory:
        """All that was seen of a model in the last minutes."""
        return self.watches[name].minutes()


@asynccontextmanager
async def keep_promises(
    deployment: Deployment,
    servings: Mapping[str, Serving],
    watches: Mapping[str, Watch],
    profiles: Mapping[str, Mapping[str, Profile]],
    kept: ServingStorage,
    access: AccessControl,
    planning: WorkerProcess,
) -> AsyncIterator[PromiseService]:
    """Run a loop for each model that is served, which plans in a process apart."""
    search = partial(planning.do, planned_within)
    planners = {name: Planner(deployment, serving.model, profiles[name], search) for name, serving in servings.items()}
    runners = dict[str, ControlLoop]()
    lefts = {name: RelocationPlanner(deployment, name, planner, kept.active) for name, planner in planners.items()}
    drains = Drains(deployment, kept.devices, servings, lefts, watches)
    async with AsyncExitStack() as stack:
        for name, serving in servings.items():
            controller = PromiseController(name, deployment.windows, planners[name], deployment.rules)
            place = targets.ModelContext(deployment, serving.model, serving.situation(), profiles[name])
            parts = LoopContext(serving, watches[name], controller, kept.active, kept.store, access, kept.events, place)
            comeback = Relocation(serving, watches[name], lefts[name], kept.devices, access, place)
            stack.push_async_callback(comeback.close)
            serving.engine.comeback = comeback
            runners[name] = await stack.enter_async_context(ControlLoop(parts))
        promises = PromiseService(deployment, kept.active, servings, watches, planners, runners, drains)
        loop = asyncio.get_running_loop()

        def tell(device: int) -> None:
            for serving in servings.values():
                if device in {gpu.index for gpu in serving.model.cluster.gpus}:
                    kept.events.publish("topology", serving.state)
            promises.wake()

        kept.devices.on_change = lambda device: loop.call_soon_threadsafe(tell, device)
        yield promises
