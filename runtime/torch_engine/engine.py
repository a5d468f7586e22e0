"""``TorchEngine``: the service's handle on a driver process.

Speaks the protocol of ``runtime.engine``.
"""

import asyncio
import contextlib
import dataclasses
import logging
import platform
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from runtime import footprint
from runtime.capabilities import Batching, Capabilities
from runtime.engine import Cut, EngineState, EngineStats, Finish, GenerationRequest, Lag, Moved, Output, Token
from runtime.errors import EngineLostError, EngineStartError, Reason, RuntimeFault, SwitchError, TopologyError
from runtime.models import Cluster, CutTimings, ModelSpec, Topology
from runtime.process import messages as wire
from runtime.process.content import PinnedCheckpoint
from runtime.process.driver import DriverProcess, Revived, Successor
from runtime.process.launcher import Launcher, Launchers, OneHost, Program
from runtime.process.supervised import contained
from runtime.torch_engine import messages
from runtime.torch_engine.models import EngineSettings, Resized, base_of, capabilities

if TYPE_CHECKING:
    from runtime.torch_engine.crossing import CrossingShadow

log = logging.getLogger(__name__)

DRIVER_MODULE = "runtime.torch_engine.driver.loop"
SPARE_MODULE = "runtime.torch_engine.driver.spare"


@dataclasses.dataclass(slots=True)
class _Open:
    """A request that has not ended."""

    epoch: int
    most_tokens: int
    """Of the prompt and all that may come."""


class TorchEngine(Revived):
    """One driver and what it serves.

    When the driver dies, running requests end with an error and a new one starts.
    """

    driver_module = DRIVER_MODULE
    """What runs as the driver; gets the descriptor of its socket."""

    def __init__(self, config: messages.TorchDriverConfig, launchers: Launchers | None = None) -> None:
        """Use ``start``."""
        super().__init__()
        self._config = config
        self.settings = config.settings
        """As the engine was started with."""
        self.topology = config.topology
        """What runs now."""
        self._sent: dict[str, _Open] = {}
        """Requests on their way to a driver: whoever submits them hears of its loss."""
        self._live: dict[str, _Open] = {}
        """Requests that a driver has, and that have not ended: their stream hears of its loss."""
        self._launchers = launchers or OneHost()
        self._driver: DriverProcess
        self._spare: DriverProcess | None = None
        self._started: messages.TorchStarted
        self._shadow: TorchShadow | CrossingShadow | None = None
        self.coming: DriverProcess | None = None
        """A driver on another host, in a switch to it."""
        self.standing: dict[Topology, DriverProcess] = {}
        """Drivers on other hosts that stand by, the oldest first."""
        self.gate: asyncio.Event | None = None
        """Inside a cut between hosts: until it is set nobody knows who serves."""
        self._epoch = 0

    @classmethod
    async def start(
        cls,
        checkpoint: Path,
        topology: Topology,
        cluster: Cluster,
        settings: EngineSettings | None = None,
        launchers: Launchers | None = None,
        batching: Batching | None = None,
    ) -> "TorchEngine":
        """Start a driver on a checkpoint folder, on the host of its devices, and wait until it serves.

        It fills steps as far as ``batching`` says, or its settings.

        Drivers and workers that start later refuse the folder if it has other content then.

        Raises:
            EngineStartError: this machine is no x86-64.
            CheckpointError, UnsupportedModelError, TopologyError, SwitchError: as the driver found.
        """
        if platform.machine() not in {"x86_64", "AMD64"}:
            raise EngineStartError(
                "the built-in engine relies on how x86-64 orders stores between its ranks; "
                f"this machine is {platform.machine()}: use `engine: vllm`"
            )
        _base(topology)
        pinned = await asyncio.to_thread(PinnedCheckpoint.of, checkpoint)
        config = messages.TorchDriverConfig(pinned, topology, cluster, settings or EngineSettings(), batching=batching)
        engine = cls(config, launchers)
        engine._launchers.host_of(topology.devices)
        try:
            await engine._launch(topology)
        except OSError as error:
            raise EngineStartError(f"no driver process can be started: {error}") from error
        except BaseException:
            await engine.close()
            raise
        return engine

    @property
    def capabilities(self) -> Capabilities:
        """What it runs, in the precision that it runs now."""
        settings = dataclasses.replace(self._config.settings, num_blocks=self._started.num_blocks)
        known = capabilities(self.model, _base(self.topology), self._config.cluster.kinds, settings)
        return dataclasses.replace(known, running=self._config.batching or known.batching)

    @property
    def model(self) -> ModelSpec:
        """The served model's shape."""
        return self._started.spec

    @property
    def state(self) -> EngineState:
        """Whether it can serve now; see the protocol."""
        return self.state_of(self._driver.vigil)

    async def submit(self, request: GenerationRequest) -> None:
        """Queue a request; see the protocol."""
        most_tokens = len(request.prompt) + request.sampling.max_tokens
        sent = _Open(request.epoch, most_tokens)
        while not await self._submit(sent, wire.Submit(request)):
            pass

    async def _submit(self, sent: _Open, submit: wire.Submit) -> bool:
        """Ask the driver that serves; whether it has the request. It has not if another driver serves by then.

        Raises:
            RequestError, EngineLostError: nobody has it.
        """
        driver = await self._serving()
        name = submit.request.request_id
        self._sent[name] = sent
        refused: RuntimeFault | None = None
        try:
            await driver.call(submit)
        except (SwitchError, EngineLostError) as error:
            refused = error
        finally:
            is_silent = self._sent.pop(name, None) is sent
        if not is_silent:  # it has spoken, moved or ended meanwhile
            return True
        if (lost := refused or driver.gone) is None:
            self._live[name] = sent
        elif driver is self._driver:
            raise lost
        return lost is None

    async def cancel(self, request_id: str) -> None:
        """End a request early; see the protocol."""
        with contextlib.suppress(EngineLostError):
            driver = await self._serving()
            await driver.call(wire.CancelStream(request_id))

    async def prepare(self, target: Topology, batching: Batching | None = None) -> "TorchShadow | CrossingShadow":
        """Begin to build the target; see the protocol."""
        if _base(target) != (running := _base(self.topology)):
            raise SwitchError(
                Reason.UNSUPPORTED,
                f"the torch engine keeps activations and KV in {running} until it is started anew, not as {target}",
            )
        filled = self.capabilities.accept(batching)
        here, there = map(self._launchers.host_of, (self.topology.devices, target.devices))
        if here != there:
            from runtime.torch_engine.crossing import CrossingShadow

            self._shadow = await CrossingShadow.prepare(self, target, (here, there), filled)
        else:
            if target != self.topology:
                await self._call(messages.BeginSwitch(target))
            self._shadow = TorchShadow(self._call, target, filled, stays=target == self.topology)
        return self._shadow

    async def succeed_by(self, target: Topology, batching: Batching | None = None) -> Successor:
        """Be followed by a target that is started when this has ended; see the protocol."""
        filled = self.capabilities.accept(batching)
        _base(target)
        self._launchers.host_of(target.devices)
        await self._serving()
        return Successor(self, self.topology, target, filled)

    def end_serving(self, why: str) -> tuple[str, ...]:
        """End the driver that serves; see ``Revived``. How far each request came, the ledger knows."""
        self._driver.end(EngineLostError(why))
        names = tuple(self._live)
        ended: list[Output] = [
            Token(name, each.epoch, -1, None, finish=Finish.ERROR, detail=why, is_lost=True)
            for name, each in self._live.items()
        ]
        self._live.clear()
        log.warning("%s; %d requests lost of %s, an engine is started anew", why, len(ended), self.topology)
        self._outputs.put_nowait(ended)
        return names

    async def stats(self) -> EngineStats:
        """A snapshot; see the protocol."""
        stats = await self._call(wire.Stats())
        return dataclasses.replace(stats, standby=(*self.standing, *stats.standby)) if self.standing else stats

    async def resize(self, num_blocks: int) -> Resized:
        """Have so many KV blocks while requests run; what is no longer needed goes back to the system.

        No live block moves. Where too few blocks are free, the others retire as they come free. It holds over switches, as
        far as devices have the memory, until the driver ends.

        Raises:
            SwitchError: ``busy`` while a switch is under way; ``no_memory`` if devices hold fewer, or a running request may
                come to need more.
        """
        return await self._call(messages.Resize(num_blocks))

    async def digests(self, positions: dict[str, int] | None = None) -> messages.KvDigests:
        """Byte digests of each running request's KV.

        Pass the positions of an earlier answer to compare with it.
        """
        return await self._call(messages.ReadDigests(positions))

    async def close(self) -> None:
        """End the driver and its workers; see the protocol."""
        await self.give_up()
        for driver in (*self.standing.values(), self.coming, self._spare, self._driver):
            if driver:
                await driver.close()
        self._outputs.put_nowait(None)

    async def _launch(self, topology: Topology, **changes: Any) -> None:
        launcher = self._launchers.on(self._launchers.host_of(topology.devices))
        config = msgspec.structs.replace(self._config, topology=topology, **changes)
        driver = self._take_spare(launcher.host) or self._process(launcher, self.driver_module)
        self._hear(driver)
        driver.send(msgspec.structs.replace(config, first_device=launcher.first_device))
        self._started = await driver.ready
        self._config = config
        self._pauses.served()
        if self._config.settings.spare and self.driver_module == DRIVER_MODULE and self._spare is None:
            self._begin_spare(launcher)

    def _hear(self, driver: DriverProcess) -> None:
        """It is the one that serves, or is about to."""
        self._driver = driver
        driver.on_outputs = self._note
        driver.on_end = self._lost
        driver.on_stood_in = self._stood_in

    def _process(self, launcher: Launcher, module: str) -> DriverProcess:
        settings = self._config.settings
        program = Program(module, messages.FromDriver)
        return DriverProcess(launcher, program, settings.stall_after_s, settings.lost_after_s)

    def _take_spare(self, host: str) -> DriverProcess | None:
        """The process that has imported what a driver needs.

        One that still does, at the lowest priority, stays.
        """
        spare = self._spare
        if spare is None or (spare.process.incarnation.host == host and not spare.is_prepared):
            return None
        self._spare = None
        if spare.process.incarnation.host != host:
            spare.end(EngineLostError("it is on another host"))
            return None
        spare.watch()
        spare.vigil.begin()  # it has imported: whatever hangs it hangs for as long as what serves may
        return spare

    def _begin_spare(self, launcher: Launcher) -> None:
        """The next driver's process, which imports and waits; if it ends, the next one starts without."""
        try:
            self._spare = spare = self._process(launcher, SPARE_MODULE)
        except OSError as error:
            log.warning("no spare driver process can be started: %s", error)
            return
        spare.vigil.stop()

        def gone(fatal: wire.Fatal) -> None:
            self._spare = None
            spare.end(EngineLostError(fatal.detail))
            log.warning("the spare driver process is gone: %s", fatal.detail)

        spare.on_end = gone

    def _note(self, items: list[Output]) -> None:
        """Keep the books that an error report needs if the driver dies, and pass on what was said."""
        for item in items:
            names = item.request_ids if isinstance(item, Moved) else (item.request_id,)
            for name in self._sent.keys() & names:
                self._live[name] = self._sent.pop(name)
            if isinstance(item, Moved):
                self._note_cut(item)
                for name in self._live.keys() & names:
                    self._live[name].epoch = item.epoch
            elif item.finish is not None:
                self._live.pop(item.request_id, None)
        self._outputs.put_nowait(items)

    def _note_cut(self, moved: Moved) -> None:
        """The first fence of an epoch is the commit; later ones are requests that were on their way."""
        if self._shadow and moved.epoch > self._epoch:
            self._epoch = moved.epoch
            self.topology = self._shadow.target
            self._config = msgspec.structs.replace(self._config, batching=self._shadow.batching)
            self._shadow.moved = moved

    def _lost(self, fatal: wire.Fatal) -> None:
        """The driver is gone: end what ran, and start anew unless it never served."""
        reason = f"{fatal.reason}: {fatal.detail}"
        if self._driver.ready.done():
            most_tokens = max((open_.most_tokens for open_ in self._live.values()), default=0)
            self.end_serving(f"{reason}; send the request again")
            why = fatal.blaming(EngineLostError(reason))
            if self.standing and self.coming is None:
                self.restart(partial(self._serve_standing, most_tokens, self.topology, why))
            else:
                self.revive(self.topology, why)
        else:
            trouble = fatal.trouble or wire.Trouble.of(EngineLostError(reason))
            self._driver.ready.set_exception(fatal.blaming(trouble.error))
            self._driver.end(EngineLostError(f"the engine could not start: {fatal.detail}"))

    def _stood_in(self, stand_in: wire.StoodIn) -> None:
        """Another topology serves; what ran was ended by the driver before."""
        lost = self.topology
        self.topology = stand_in.topology
        with contained("engine recovery"):
            self.comeback.came_back(lost, stand_in.topology, stand_in.why)

    async def _serve_standing(self, most_tokens: int, lost: Topology, why: RuntimeFault) -> None:
        """By a driver that stands by on another host, if one can; else by a new one."""
        from runtime.torch_engine.crossing import standing_in

        if topology := await standing_in(self.standing, most_tokens, self._config.batching):
            self.topology = topology
            self.serve_by(self.standing.pop(topology), topology)
            self._pauses.served()
            self._restart = self._down = None
            with contained("engine recovery"):
                self.comeback.came_back(lost, topology, str(why))
        else:
            await self._revive(lost, why)

    async def start_anew(self, topology: Topology, batching: Batching | None = None) -> None:
        """Start another driver, once the one before is gone; see ``Revived``."""
        await self._driver.close()
        await self.clear(self._launchers.host_of(topology.devices))
        filled = batching or self._config.batching
        await self._launch(topology, settings=self._fitting(topology), batching=filled)
        self.topology = topology

    def _fitting(self, topology: Topology) -> EngineSettings:
        """The settings with no more KV blocks than a topology holds alone.

        The pool may have given way for what ran last.
        """
        settings = self.settings
        cluster = self._config.cluster
        if settings.num_blocks is None:
            return settings
        held = footprint.blocks(topology, self.model, cluster, settings.block_size)
        return dataclasses.replace(settings, num_blocks=min(settings.num_blocks, held))

    # --- for a switch between hosts ---

    @property
    def driver(self) -> DriverProcess:
        """The one that serves."""
        return self._driver

    def begin_driver(self, topology: Topology) -> DriverProcess:
        """Another driver, whose block ids are those of the one that serves.

        Raises:
            OSError: no process can be started there.
        """
        launcher = self._launchers.on(self._launchers.host_of(topology.devices))
        driver = self._process(launcher, self.driver_module)
        changes = {"first_device": launcher.first_device, "reserved_blocks": self._started.reserved_blocks}
        driver.send(msgspec.structs.replace(self._config, topology=topology, **changes))
        return driver

    def serve_by(self, driver: DriverProcess, topology: Topology) -> None:
        """From now on a driver serves that has started."""
        self._hear(driver)
        self._started = driver.ready.result()
        self._config = msgspec.structs.replace(self._config, topology=topology)

    def commit(self, driver: DriverProcess, epoch: int, request_ids: tuple[str, ...]) -> None:
        """From now on the target's driver serves, and these requests are its own."""
        assert self._shadow, "a cut belongs to a switch"
        source = self._driver
        source.on_outputs = lambda _: None
        source.on_end = lambda fatal: source.end(EngineLostError(fatal.detail))
        self.serve_by(driver, self._shadow.target)
        self._note([Moved(epoch, request_ids)])

    def stand_by(self, driver: DriverProcess, topology: Topology) -> None:
        """Keep a driver that serves no more, as many as the settings say, as long as it lives."""

        def gone(why: str) -> None:
            driver.end(EngineLostError(why))
            if self.standing.get(topology) is driver:
                del self.standing[topology]

        driver.on_outputs = lambda _: None
        driver.on_end = lambda fatal: gone(fatal.detail)
        driver.on_stood_in = lambda stand_in: gone(stand_in.why)
        if driver.gone is None:
            self.standing[topology] = driver
        for oldest in [*self.standing][: max(0, len(self.standing) - self.settings.num_standby)]:
            self.standing.pop(oldest).end(EngineLostError("others stand by"))

    def address(self, host: str, seen_by: str) -> str:
        """Of a host, as another one reaches it.

        Raises:
            SwitchError: one of them is lost.
        """
        try:
            return self._launchers.address(host, seen_by)
        except OSError as error:
            raise SwitchError(Reason.RANK_LOST, str(error)) from error

    async def clear(self, host: str) -> None:
        """End the drivers that stand by on a host: its memory is needed."""
        for topology, driver in [*self.standing.items()]:
            if driver.process.incarnation.host == host:
                del self.standing[topology]
                await driver.close("another driver takes its place")

    def renew_spare(self) -> None:
        """Have the next driver's process wait on the host that serves now."""
        host = self._launchers.host_of(self._config.topology.devices)
        if (spare := self._spare) and spare.process.incarnation.host != host:
            self._spare = None
            spare.end(EngineLostError("another host serves"))
            with contextlib.suppress(OSError):  # a lost host gets none
                self._begin_spare(self._launchers.on(host))

    async def _serving(self) -> DriverProcess:
        """The driver that serves, once it is known which.

        Raises:
            EngineLostError: none does.
        """
        while True:
            await self.up()
            if self.gate is None:
                return self._driver
            await self.gate.wait()

    async def _call(self, command: wire.Command[wire.Answer]) -> wire.Answer:
        await self.up()
        return await self._driver.call(command)


def _base(topology: Topology) -> str:
    try:
        return base_of(topology)
    except TopologyError as error:
        raise SwitchError(Reason.UNSUPPORTED, str(error)) from error


class TorchShadow:
    """The target side of a switch; see ``runtime.engine.Shadow``."""

    def __init__(
        self, call: Callable[[wire.Command[Any]], Awaitable[Any]], target: Topology, batching: Batching, *, stays: bool
    ) -> None:
        """``stays``: the target serves already, and only fills its steps otherwise."""
        self._call = call
        self.target = target
        self.batching = batching
        """How far steps are filled from its commit on."""
        self._stays = stays
        self.moved: Moved | None = None
        """The commit, once it is heard of."""

    async def ready(self) -> None:
        """Wait until the target is up."""
        if not self._stays:
            await self._ask(messages.AwaitTarget())

    async def lag(self) -> Lag:
        """Copy a slice and tell what is left."""
        lag: Lag = Lag(0, 0) if self._stays else await self._ask(messages.CopyAhead())
        return lag

    async def cut(self, epoch: int, deadline_s: float) -> Cut:
        """Move every request to the target."""
        try:
            order = messages.Refill if self._stays else messages.CutOver
            cut: Cut = await self._ask(order(epoch, deadline_s, self.batching))
        except RuntimeFault:
            if self.moved is None:
                raise
            # the engine died after the commit: what is started anew is the target, so there is no way back
            moved = self.moved.request_ids
            return Cut(epoch, moved, (), 0, CutTimings(0.0, 0.0, 0.0, 0.0), paths={"patch": len(moved)})
        return cut

    async def drain(self) -> None:
        """Every request moves here: nothing is ever left."""

    async def release(self) -> None:
        """Clean up after a cut."""
        await self._ask(messages.EndSwitch())

    async def abort(self, reason: Reason) -> None:
        """Clean up instead of a cut."""
        try:
            await self._ask(messages.AbortSwitch(reason))
        except SwitchError as error:
            if error.reason is not Reason.ENGINE_LOST:  # what it held went with it
                raise

    async def _ask(self, command: wire.Command[Any]) -> Any:
        try:
            return await self._call(command)
        except EngineLostError as error:
            raise SwitchError(Reason.ENGINE_LOST, str(error)) from error
