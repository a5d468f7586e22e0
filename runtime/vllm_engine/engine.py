"""``VllmEngine``: stock vLLM engines behind the protocol of ``runtime.engine``.

One that serves and one to go to.

Block ids are private to each engine; a request is named by the router's id everywhere. The service knows every token
that was emitted, so what it knows is the frontier.
"""

import asyncio
import contextlib
import json
import logging
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

from runtime import errors
from runtime.capabilities import Batching, Capabilities
from runtime.engine import EngineState, EngineStats, GenerationRequest, Moved, Output, Token
from runtime.footprint import refuse_cut_groups, weight_bytes
from runtime.models import Cluster, ModelSpec, Topology
from runtime.process.content import PinnedCheckpoint
from runtime.process.driver import Revived, Successor
from runtime.process.launcher import Launcher, Launchers, OneHost
from runtime.process.liveness import RESTART_PATIENCE_S
from runtime.process.messages import CancelStream, Stats, Submit
from runtime.process.supervised import begin, contained
from runtime.vllm_engine import launch
from runtime.vllm_engine.instance import Instance, Spare, TrackedRequest, UntoldEndError
from runtime.vllm_engine.messages import Expose, Preparation, VllmDriverConfig
from runtime.vllm_engine.models import VllmSettings
from runtime.vllm_engine.switch import VllmShadow

log = logging.getLogger(__name__)


class VllmEngine(Revived):
    """One vLLM engine that serves, standby ones, and during a switch a target."""

    def __init__(
        self,
        checkpoint: PinnedCheckpoint,
        spec: ModelSpec,
        cluster: Cluster,
        settings: VllmSettings,
        launchers: Launchers | None = None,
    ) -> None:
        """Use ``start``."""
        super().__init__()
        self.model = spec
        self.cluster = cluster
        self.settings = settings
        self.streams: dict[str, TrackedRequest] = {}
        self.standby: list[Instance] = []
        """The least recently used one first."""
        self.active: Instance
        self._checkpoint = checkpoint
        self._shadow: VllmShadow | None = None
        self._epoch = 0
        self._open = asyncio.Event()
        """Closed while it is not known who serves: inside a cut, and until a lost engine is replaced."""
        self._cancelled: set[str] = set()
        """Cancelled while the gate was closed."""
        self._background: set[asyncio.Task[None]] = set()
        self._surroundings = launch.surroundings(cluster, settings)
        # what vLLM learns of a device while it is imported holds for all of one kind
        has_spare = settings.spare and len(cluster.kinds) == 1 and launchers is None
        self._launchers = launchers or OneHost(settings.visible)
        self.spare = Spare(self._launchers.on(""), self._surroundings, settings) if has_spare else None

    @classmethod
    async def start(
        cls,
        checkpoint: Path,
        topology: Topology,
        cluster: Cluster,
        settings: VllmSettings | None = None,
        launchers: Launchers | None = None,
        batching: Batching | None = None,
    ) -> "VllmEngine":
        """Start a vLLM engine on the host of its devices and wait until it serves.

        It fills steps as far as ``batching`` says, or its settings.

        Raises:
            EngineStartError: vLLM is missing or another version, refuses an option, cannot load the model.
            CheckpointError, UnsupportedModelError, TopologyError, SwitchError: as checked before.
        """
        if launchers is None and find_spec("vllm") is None:
            raise errors.EngineStartError(f"vLLM is not installed; {launch.INSTALL}")
        pinned = await asyncio.to_thread(PinnedCheckpoint.of, checkpoint)
        spec = _read_spec(checkpoint)
        weights = max(weight_bytes(topology, spec).values())
        engine = cls(
            pinned, spec, cluster, launch.sized(settings or VllmSettings(), cluster, topology, weights), launchers
        )
        engine._refuse_without_memory([topology])
        engine._serve(await engine.launch(topology, batching))
        engine._begin_spare()
        return engine

    @property
    def capabilities(self) -> Capabilities:
        """One TP degree for all stages, any number of stages up to the layers."""
        known = launch.capabilities(self.cluster, self.model, self.settings)
        standby = frozenset(
            spare.topology for spare in self.standby if spare.started.batching == self.active.started.batching
        )
        return replace(known, running=self.active.started.batching, standby=standby)

    @property
    def topology(self) -> Topology:
        """What serves now."""
        return self.active.topology

    @property
    def state(self) -> EngineState:
        """Whether it can serve now; see the protocol."""
        return self.state_of(self.active.vigil)

    async def submit(self, request: GenerationRequest) -> None:
        """Queue a request; see the protocol."""
        await self._opened()
        if request.epoch < self._epoch:
            # it was under way to the engine during a cut
            self._outputs.put_nowait([Moved(self._epoch, (request.request_id,))])
            request = replace(request, epoch=self._epoch)
        owner = self.active
        tracked = TrackedRequest(request, owner, [*request.past], request.epoch)
        self.streams[request.request_id] = tracked
        refused: errors.RuntimeFault | None = None
        try:
            await owner.call(Submit(request))
        except errors.RuntimeFault as error:
            refused = error
        finally:  # whoever asked may be gone, and cancels what its owner may have
            was_had = tracked.is_had
            tracked.is_had = True
        lost = refused or owner.gone
        if lost and not was_had:  # else it has spoken or moved, and its stream hears what becomes of it
            self.streams.pop(request.request_id, None)
            raise lost

    async def cancel(self, request_id: str) -> None:
        """End a request early; see the protocol."""
        if not self._open.is_set():
            self._cancelled.add(request_id)
        elif stream := self.streams.get(request_id):
            owner = stream.owner
            with contextlib.suppress(errors.EngineLostError):
                await owner.call(CancelStream(request_id))
            if self.streams.get(request_id) is stream and stream.owner is owner:  # its owner refused it meanwhile
                del self.streams[request_id]

    async def prepare(self, target: Topology, batching: Batching | None = None) -> VllmShadow:
        """Begin to start the target's engine, or take a standby one; see the protocol."""
        filled = await self._accept(target, batching)
        known = self._take(filled, target)
        if known is None:
            await self._make_room(target)
        self._shadow = VllmShadow(self, target, known, filled)
        return self._shadow

    async def succeed_by(self, target: Topology, batching: Batching | None = None) -> Successor:
        """Be followed by a target that is started when this has ended; see the protocol."""
        filled = await self._accept(target, batching)
        self._refuse_without_memory([target])
        while self.standby:  # it may need their memory
            await self.standby.pop().close()
        return Successor(self, self.topology, target, filled)

    def end_serving(self, why: str) -> tuple[str, ...]:
        """End the engine that serves; see ``Revived``."""
        names = [name for name, stream in self.streams.items() if stream.owner is self.active and stream.is_had]
        self._open.clear()
        self.active.end(errors.EngineLostError(why))
        self.end_streams(names, why, are_lost=True)
        return tuple(names)

    async def stats(self) -> EngineStats:
        """A snapshot of the engine that serves; see the protocol."""
        await self._opened()
        stats = await self.active.call(Stats())
        pids = dict(zip(self.topology.devices, self.active.started.pids, strict=True))
        return replace(stats, worker_pids=pids)

    async def exposition(self) -> str:
        """vLLM's metrics of the engine that serves."""
        await self._opened()
        return await self.active.call(Expose())

    async def close(self) -> None:
        """End every engine; see the protocol."""
        self._open.set()
        await self.give_up()
        if self._shadow:
            await self._shadow.end()
        if self.spare:
            await self.spare.close()
        for instance in (self.active, *self.standby):
            await instance.close()
        await asyncio.gather(*self._background, return_exceptions=True)
        self._outputs.put_nowait(None)

    # --- for the switch ---

    async def launch(self, topology: Topology, batching: Batching | None = None) -> Instance:
        """Start one vLLM engine, in the spare process if that is ready.

        It fills steps as far as ``batching`` says, or the settings.

        Raises:
            EngineStartError, EngineLostError: it cannot; its host is lost.
        """
        options = launch.engine_options(self._checkpoint.folder, topology, self.settings, batching)
        wanted = (
            None
            if launch.is_cpu(self.cluster)
            else launch.wanted_bytes(weight_bytes(topology, self.model), self.settings)
        )
        launcher = self.launcher_of(topology)
        environment = launch.environment(topology, launcher.visible, launcher.first_device)
        made = launch.made_format(topology, self.model)
        config = VllmDriverConfig(self._checkpoint, options, environment, wanted, made)
        instance = await self._ordered(config, topology) or await self._fresh(launcher, config, topology)
        instance.on_tokens = self._hear
        instance.on_lost = self._lost
        return instance

    def launcher_of(self, topology: Topology) -> Launcher:
        """Of the host of a topology.

        Raises:
            EngineLostError: the host is lost.
        """
        try:
            return self._launchers.on(self._launchers.host_of(topology.devices))
        except OSError as error:
            raise errors.EngineLostError(str(error)) from error

    def close_gate(self) -> None:
        """Let nothing in or out until ``open_gate``."""
        self._open.clear()

    def open_gate(self) -> None:
        """Go on, first with what was cancelled meanwhile."""
        self._open.set()
        for request_id in self._cancelled:
            begin("vLLM engine", self.cancel(request_id), self._background)
        self._cancelled.clear()

    def commit(self, epoch: int, moved: tuple[str, ...], target: Instance) -> None:
        """From now on ``target`` serves, and these requests are its own."""
        self._epoch = epoch
        self.active = target
        for name in moved:
            if stream := self.streams.get(name):
                stream.owner = target
                stream.epoch = epoch
                stream.is_had = True
        self._outputs.put_nowait([Moved(epoch, moved)])

    def hear(self, instance: Instance, tokens: list[Token]) -> None:
        """Book tokens of the requests that this engine owns, and pass them on."""
        ours = [token for token in tokens if self._book(instance, token)]
        if ours:
            self._outputs.put_nowait(list(ours))

    def end_streams(self, names: list[str], detail: str, *, are_lost: bool = False) -> None:
        """End requests with an error; those that are lost with their engine may be submitted again."""
        ended: list[Output] = [self.streams.pop(name).end(detail, is_lost=are_lost) for name in names]
        if ended:
            self._outputs.put_nowait(ended)

    async def retire(self, instance: Instance) -> None:
        """Keep an engine that serves no more as standby, or end it."""
        if self.settings.num_standby and not instance.gone and self._down is None:
            self.standby.append(instance)
        else:
            await instance.close()
        while len(self.standby) > self.settings.num_standby:
            await self.standby.pop(0).close()

    def end_switch(self) -> None:
        """Another one may begin."""
        self._shadow = None
        self._begin_spare()

    # --- inside ---

    async def _ordered(self, config: VllmDriverConfig, topology: Topology) -> Instance | None:
        """An engine in the spare process; None where none is ready, or it was killed on the way."""
        instance = self.spare.take() if self.spare else None
        if instance is None:
            return None
        try:
            return await instance.serve(config, topology, self.settings.start_timeout_s)
        except UntoldEndError as error:
            log.warning("the spare process was lost, the engine starts in a new one: %s", error)
            return None

    async def _fresh(self, launcher: Launcher, config: VllmDriverConfig, topology: Topology) -> Instance:
        settings = self.settings
        surroundings = {**self._surroundings, **config.environment}
        preparation = Preparation(
            surroundings, niceness=0, stall_after_s=settings.stall_after_s, lost_after_s=settings.lost_after_s
        )
        try:
            instance = Instance(launcher, preparation)
        except OSError as error:
            raise errors.EngineStartError(f"no process for a vLLM engine can be started: {error}") from error
        return await instance.serve(config, topology, settings.start_timeout_s)

    def _begin_spare(self) -> None:
        """While nothing else is being started or moved, which it would slow down."""
        if self.spare and self._down is None:
            self.spare.begin()

    async def _accept(self, target: Topology, batching: Batching | None) -> Batching:
        """How far a target fills its steps, where it is one to switch to."""
        await self._opened()
        if self._shadow is not None:
            raise errors.SwitchError(errors.Reason.BUSY, "a switch is already under way; wait for its end")
        launch.engine_options(self._checkpoint.folder, target, self.settings)
        try:
            self._launchers.host_of(target.devices)
        except errors.TopologyError as error:
            raise errors.SwitchError(errors.Reason.UNSUPPORTED, str(error)) from error
        return self.capabilities.accept(batching)

    def _take(self, batching: Batching, topology: Topology | None = None) -> Instance | None:
        """The standby engine used last that fills its steps so, of this topology or any; it is none any more."""
        for instance in reversed(self.standby):
            if instance.started.batching == batching and topology in {None, instance.topology}:
                self.standby.remove(instance)
                return instance
        return None

    def _serve(self, instance: Instance) -> None:
        self.active = instance
        self._pauses.served()
        self.open_gate()

    async def _opened(self) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._open.wait(), 0.0 if self._down else RESTART_PATIENCE_S)
        if self._down:
            raise self._down
        if not self._open.is_set():
            raise errors.EngineLostError("the vLLM engine is being started anew; try again in some seconds")

    def _hear(self, instance: Instance, tokens: list[Token]) -> None:
        if self._shadow is None or not self._shadow.holds_back(instance, tokens):
            self.hear(instance, tokens)

    def _book(self, instance: Instance, token: Token) -> bool:
        stream = self.streams.get(token.request_id)
        if stream is None or stream.owner is not instance:
            return False
        stream.is_had = True
        if token.token_id is not None:
            stream.emitted.append(token.token_id)
        if token.finish is not None:
            del self.streams[token.request_id]
        return True

    def _lost(self, instance: Instance, detail: str) -> None:
        """An engine ended by itself: its requests end with an error; the one that serves is started anew."""
        names = [name for name, stream in self.streams.items() if stream.owner is instance and stream.is_had]
        self.end_streams(names, f"{detail}; send the request again", are_lost=True)
        if instance in self.standby:
            self.standby.remove(instance)
        if instance is not self.active or self._down:
            begin("vLLM engine", instance.close(), self._background)
        elif self._shadow is None and (alike := self._take(instance.started.batching)):
            begin("vLLM engine", instance.close(), self._background)
            self._serve(alike)
            with contained("engine recovery"):
                self.comeback.came_back(instance.topology, self.topology, detail)
        else:
            self._open.clear()
            self.revive(instance.topology, errors.EngineLostError(detail))

    async def start_anew(self, topology: Topology, batching: Batching | None = None) -> None:
        """Start another engine, once the one before is gone; see ``Revived``."""
        await self.active.close()
        try:
            instance = await self.launch(topology, batching or self.active.started.batching)
        except UntoldEndError as error:
            # who does not say why may have a sick device; of several nobody knows which
            error.device = topology.devices[0] if len(topology.devices) == 1 else None
            raise
        self._down = None
        self._serve(instance)
        self._begin_spare()

    async def _make_room(self, target: Topology) -> None:
        """Check that the target fits beside what runs.

        Standby engines on its devices give way, the least recently used first.

        Raises:
            SwitchError: it does not, with the figures; nothing gave way.
        """
        self._refuse_without_memory([self.topology, target])
        while not self._fits_all(target):
            oldest = next(
                instance for instance in self.standby if not {*instance.topology.devices}.isdisjoint(target.devices)
            )
            self.standby.remove(oldest)
            await oldest.close()

    def _fits_all(self, target: Topology) -> bool:
        """The target fits beside all engines there are."""
        try:
            self._refuse_without_memory([self.topology, target, *(instance.topology for instance in self.standby)])
        except errors.SwitchError:
            return False
        return True

    def _refuse_without_memory(self, topologies: list[Topology]) -> None:
        known = launch.capabilities(self.cluster, self.model, self.settings)
        for topology in topologies:
            topology.check(self.cluster, self.model)
            refuse_cut_groups(topology, self.model)
            if why := known.serves_not(topology.stages[0].precision.weights):
                raise errors.SwitchError(errors.Reason.UNSUPPORTED, why)
        launch.refuse_without_memory(
            topologies, self.cluster, launch.side_by_side(topologies, self.model), self.settings
        )


def _read_spec(checkpoint: Path) -> ModelSpec:
    try:
        config = json.loads((checkpoint / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise errors.CheckpointError(f"{checkpoint / 'config.json'} cannot be read: {error}") from error
    if not isinstance(config, dict):
        raise errors.CheckpointError(f"{checkpoint / 'config.json'} should hold a JSON object")
    spec = ModelSpec.from_config(config, checkpoint.name)
    if spec.unserved:
        raise errors.UnsupportedModelError(spec.unserved)
    return spec
