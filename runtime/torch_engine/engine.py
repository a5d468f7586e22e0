"""``TorchEngine``: the service's handle on a driver process; speaks the protocol of ``runtime.engine``."""

import asyncio
import contextlib
import dataclasses
import itertools
import logging
import os
import platform
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from runtime import footprint
from runtime.capabilities import Capabilities
from runtime.engine import Cut, EngineState, EngineStats, Finish, Lag, Moved, Output, Request, Token
from runtime.errors import EngineLostError, EngineStartError, Reason, RuntimeFault, SwitchError, TopologyError
from runtime.models import Cluster, CutTimings, ModelSpec, Topology
from runtime.process.channel import AsyncChannel, Beat, Call, Fatal, Outputs, Reply
from runtime.process.liveness import RESTART_PATIENCE_S, Pauses, Vigil
from runtime.torch_engine.messages import (
    DriverConfig,
    KvDigests,
    Started,
)
from runtime.torch_engine.models import EngineSettings, Resized, capabilities
from runtime.torch_engine.worker.places import precision_of

log = logging.getLogger(__name__)

END_S = 5.0
"""How long a driver may take to end, before it is killed; and then to be gone."""


class TorchEngine:
    """One driver and what it serves. When the driver dies, running requests end with an error and a new one starts."""

    driver_module = "runtime.torch_engine.driver.loop"
    """What runs as the driver; gets the descriptor of its socket."""

    def __init__(self, config: DriverConfig) -> None:
        """Use ``start``."""
        self._config = config
        self._topology = config.topology
        self._outputs: asyncio.Queue[list[Output] | None] = asyncio.Queue()
        self._live: dict[str, tuple[int, int]] = {}  # request id -> (epoch, next index)
        self._calls: dict[int, asyncio.Future[Any]] = {}
        self._call_ids = itertools.count()
        self._shadow: TorchShadow | None = None
        self._epoch = 0
        self._fatal: Fatal | None = None
        self._restart: asyncio.Task[None] | None = None
        self._down: EngineLostError | None = None
        """Why no driver serves; one that could not be started is tried again, unless the engine was closed."""
        self._pauses = Pauses()

    @classmethod
    async def start(
        cls, checkpoint: Path, topology: Topology, cluster: Cluster, settings: EngineSettings | None = None
    ) -> "TorchEngine":
        """Start a driver on a checkpoint folder and wait until it serves.

        Raises:
            EngineStartError: this machine is no x86-64.
            CheckpointError, UnsupportedModelError, TopologyError, SwitchError: as the driver found.
        """
        if platform.machine() not in {"x86_64", "AMD64"}:
            relies = "the built-in engine relies on how x86-64 orders stores between its ranks"
            raise EngineStartError(f"{relies}; this machine is {platform.machine()}: use `engine: vllm`")
        _precision(topology)
        engine = cls(DriverConfig(checkpoint, topology, cluster, settings or EngineSettings()))
        try:
            await engine._launch()
        except BaseException:
            await engine.close()
            raise
        return engine

    @property
    def capabilities(self) -> Capabilities:
        """What it runs, in the precision that it runs now."""
        return capabilities(self.model, precision_of(self._config.topology), self._config.settings)

    @property
    def model(self) -> ModelSpec:
        """The served model's shape."""
        return self._started.spec

    @property
    def topology(self) -> Topology:
        """What runs now."""
        return self._topology

    @property
    def state(self) -> EngineState:
        """Whether it can serve now; see the protocol."""
        if self._down:
            return EngineState.FAILED
        if self._restart:
            return EngineState.RESTARTING
        return EngineState.STALLED if self._vigil.is_stalled else EngineState.SERVING

    @property
    def driver_pid(self) -> int:
        """Process id of the driver."""
        return self._process.pid

    async def submit(self, request: Request) -> None:
        """Queue a request; see the protocol."""
        self._live[request.request_id] = (request.epoch, len(request.past))
        try:
            await self._call("submit", request)
        except BaseException:  # cancelled before a driver had it, too
            self._live.pop(request.request_id, None)
            raise

    async def cancel(self, request_id: str) -> None:
        """End a request early; see the protocol."""
        with contextlib.suppress(EngineLostError):
            await self._call("cancel", request_id)

    async def outputs(self) -> AsyncIterator[list[Output]]:
        """Batches in order; see the protocol."""
        while (batch := await self._outputs.get()) is not None:
            yield batch

    async def prepare(self, target: Topology) -> "TorchShadow":
        """Begin to build the target; see the protocol."""
        if _precision(target) != (running := _precision(self._topology)):
            what = f"the torch engine computes in {running} on these devices"
            raise SwitchError(Reason.UNSUPPORTED, f"{what} until it is started anew, not as {target}")
        await self._call("prepare", target)
        self._shadow = TorchShadow(self._call, target)
        return self._shadow

    async def stats(self) -> EngineStats:
        """A snapshot; see the protocol."""
        stats: EngineStats = await self._call("stats")
        return stats

    async def exposition(self) -> str:
        """The service's metrics say all there is."""
        return ""

    async def resize(self, num_blocks: int) -> Resized:
        """Have so many KV blocks while requests run; what is no longer needed goes back to the system.

        No live block moves. Where too few blocks are free, the others retire as they come free. It holds over switches, as
        far as devices have the memory, until the driver ends.

        Raises:
            SwitchError: ``busy`` while a switch is under way; ``no_memory`` if devices hold fewer, or a running request may
                come to need more.
        """
        resized: Resized = await self._call("resize", num_blocks)
        return resized

    async def digests(self, positions: dict[str, int] | None = None) -> KvDigests:
        """Byte digests of each running request's KV; pass the positions of an earlier answer to compare with it."""
        found: KvDigests = await self._call("digests", positions)
        return found

    async def close(self) -> None:
        """End the driver and its workers; see the protocol."""
        self._down = EngineLostError("the engine was closed")
        if self._restart:
            self._restart.cancel()
        self._vigil.stop()
        self._channel.close()
        self._ready.cancel()
        await asyncio.to_thread(_end, self._process, END_S)
        self._fail_calls(self._down)
        self._outputs.put_nowait(None)

    async def _launch(self) -> None:
        ours, theirs = socket.socketpair()
        command = [sys.executable, "-m", self.driver_module, str(theirs.fileno())]
        self._process = subprocess.Popen(  # noqa: ASYNC220 - a fork, milliseconds
            command, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, process_group=0
        )
        theirs.close()
        self._ready: asyncio.Future[Started] = asyncio.get_running_loop().create_future()
        self._channel = AsyncChannel(ours, self._hear, self._lost)
        settings = self._config.settings
        self._vigil = Vigil(settings.stall_after_s, settings.lost_after_s, self._kill)
        self._channel.send(self._config)
        self._started = await self._ready
        self._pauses.served()

    def _kill(self, why: str) -> None:
        """End a driver that hangs: it cannot end by itself."""
        self._fatal = Fatal(Reason.ENGINE_LOST, why)
        _kill_group(self._process)

    def _hear(self, message: Any) -> None:
        match message:
            case Outputs(items):
                self._note(items)
                self._outputs.put_nowait(items)
            case Reply(call_id, value, error):
                self._settle(call_id, value, error)
            case Started() if not self._ready.done():
                self._vigil.begin()
                self._ready.set_result(message)
            case Beat():
                self._vigil.hear(message)
            case Fatal():
                self._fatal = message

    def _settle(self, call_id: int, value: Any, error: Exception | None) -> None:
        future = self._calls.pop(call_id)
        if future.done():
            return
        if error is None:
            future.set_result(value)
        else:
            future.set_exception(error)

    def _note(self, items: list[Output]) -> None:
        """Keep the books that an error report needs if the driver dies."""
        for item in items:
            if isinstance(item, Moved):
                self._note_cut(item)
                self._live.update(
                    {rid: (item.epoch, self._live[rid][1]) for rid in item.request_ids if rid in self._live}
                )
            elif item.finish is not None:
                self._live.pop(item.request_id, None)
            else:
                self._live[item.request_id] = (item.epoch, item.index + 1)

    def _note_cut(self, moved: Moved) -> None:
        """The first fence of an epoch is the commit; later ones are requests that were on their way."""
        if self._shadow and moved.epoch > self._epoch:
            self._epoch, self._topology, self._shadow.moved = moved.epoch, self._shadow.target, moved

    def _lost(self) -> None:
        """The driver is gone: end what ran, and start anew unless it never served."""
        self._vigil.stop()
        live, self._live = self._live, {}
        calls, self._calls = self._calls, {}
        if self._ready.done():
            self._restart = asyncio.create_task(self._replace(live, calls))
        else:
            self._burial = asyncio.create_task(self._say_why_not(calls))

    async def _end_of_driver(self) -> Fatal:
        """Why the driver is gone, once it is."""
        status = await asyncio.to_thread(_end, self._process, 0.0)
        fatal = self._fatal or Fatal(Reason.ENGINE_LOST, f"the driver ended with status {status}")
        self._fatal = None
        return fatal

    async def _say_why_not(self, calls: "_Calls") -> None:
        fatal = await self._end_of_driver()
        if not self._ready.done():
            self._ready.set_exception(fatal.error or EngineLostError(f"{fatal.reason}: {fatal.detail}"))
        _fail(calls, EngineLostError(f"the engine could not start: {fatal.detail}"))

    async def _replace(self, live: dict[str, tuple[int, int]], calls: "_Calls") -> None:
        """End what the lost driver served, and start another with the topology that ran last, until one serves."""
        lost, topology = await self._end_of_driver(), self._topology
        detail = f"{lost.reason}: {lost.detail}; send the request again"
        log.warning(
            "%s: %s; %d requests lost, starting %s anew", lost.reason, lost.detail, len(live), topology
        )
        ended = [
            Token(name, epoch, index, None, finish=Finish.ERROR, detail=detail, is_lost=True)
            for name, (epoch, index) in live.items()
        ]
        self._outputs.put_nowait(list(ended))
        _fail(calls, EngineLostError(detail))
        self._config = dataclasses.replace(self._config, topology=topology, settings=self._fitting())
        self._pauses.lost()
        while not await self._relaunched():
            pass
        self._restart = self._down = None

    async def _relaunched(self) -> bool:
        """Try once to start a driver, after a pause if drivers were lost one after the other."""
        await asyncio.sleep(self._pauses.next_s())
        try:
            await self._launch()
        except (RuntimeFault, OSError) as error:
            self._down = EngineLostError(f"the engine ended and could not be started again: {error}")
            log.error("%s; it is tried again", self._down)  # noqa: TRY400 - the message says it all
            return False
        return True

    def _fitting(self) -> EngineSettings:
        """The settings with no more KV blocks than what ran last holds alone; the pool may have given way for it."""
        settings, cluster = self._config.settings, self._config.cluster
        if settings.num_blocks is None:
            return settings
        held = footprint.blocks(self._topology, self.model, cluster, settings.block_size)
        return dataclasses.replace(settings, num_blocks=min(settings.num_blocks, held))

    def _fail_calls(self, error: EngineLostError) -> None:
        calls, self._calls = self._calls, {}
        _fail(calls, error)

    async def _call(self, method: str, *arguments: Any) -> Any:
        if self._restart and not self._down:
            await asyncio.wait({self._restart}, timeout=RESTART_PATIENCE_S)
        if self._down:
            raise self._down
        if self._restart:
            raise EngineLostError("the engine is being started anew; try again in some seconds")
        call_id = next(self._call_ids)
        future = self._calls[call_id] = asyncio.get_running_loop().create_future()
        self._channel.send(Call(call_id, method, arguments))
        return await future


_Calls = dict[int, asyncio.Future[Any]]


def _fail(calls: _Calls, error: EngineLostError) -> None:
    for future in calls.values():
        if not future.done():
            future.set_exception(error)


def _kill_group(process: "subprocess.Popen[bytes]") -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


def _end(process: "subprocess.Popen[bytes]", patience_s: float) -> int | None:
    """Wait for a driver, then kill it and its workers; its status, None if it is still there. Blocks."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(patience_s or 0.1)
    if process.returncode is None:
        _kill_group(process)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(END_S)
    return process.returncode


def _precision(topology: Topology) -> str:
    try:
        return precision_of(topology)
    except TopologyError as error:
        raise SwitchError(Reason.UNSUPPORTED, str(error)) from error


class TorchShadow:
    """The target side of a switch; see ``runtime.engine.Shadow``."""

    def __init__(self, call: Any, target: Topology) -> None:
        self._call, self.target = call, target
        self.moved: Moved | None = None
        """The commit, once it is heard of."""

    async def ready(self) -> None:
        """Wait until the target is up."""
        await self._ask("ready")

    async def lag(self) -> Lag:
        """Copy a slice and tell what is left."""
        lag: Lag = await self._ask("lag")
        return lag

    async def cut(self, epoch: int, deadline_s: float) -> Cut:
        """Move every request to the target."""
        try:
            cut: Cut = await self._ask("cut", epoch, deadline_s)
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
        await self._ask("release")

    async def abort(self, reason: Reason) -> None:
        """Clean up instead of a cut."""
        try:
            await self._ask("abort", reason)
        except SwitchError as error:
            if error.reason is not Reason.ENGINE_LOST:  # what it held went with it
                raise

    async def _ask(self, method: str, *arguments: Any) -> Any:
        try:
            return await self._call(method, *arguments)
        except EngineLostError as error:
            raise SwitchError(Reason.ENGINE_LOST, str(error)) from error
