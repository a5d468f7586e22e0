"""``TorchEngine``: the service's handle on a driver process; speaks the protocol of ``runtime.engine``."""

import asyncio
import contextlib
import dataclasses
import itertools
import logging
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from runtime import footprint
from runtime.capabilities import Capabilities
from runtime.channel import AsyncChannel, Call, Fatal, Outputs, Reply
from runtime.engine import Cut, EngineStats, Finish, Lag, Moved, Output, Request, Token
from runtime.errors import EngineLostError, RuntimeFault, SwitchError, TopologyError
from runtime.models import Cluster, CutTimings, ModelSpec, Reason, Topology
from runtime.torch_engine.messages import (
    DriverConfig,
    KvDigests,
    Started,
)
from runtime.torch_engine.models import EngineSettings, Resized, capabilities
from runtime.torch_engine.places import precision_of

log = logging.getLogger(__name__)


class TorchEngine:
    """One driver and what it serves. When the driver dies, running requests end with an error and a new one starts."""

    driver_module = "runtime.torch_engine.driver"
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
        """Why there will be no driver any more."""

    @classmethod
    async def start(
        cls, checkpoint: Path, topology: Topology, cluster: Cluster, settings: EngineSettings | None = None
    ) -> "TorchEngine":
        """Start a driver on a checkpoint folder and wait until it serves.

        Raises:
            CheckpointError, UnsupportedModelError, TopologyError, SwitchError: as the driver found.
        """
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
    def driver_pid(self) -> int:
        """Process id of the driver."""
        return self._process.pid

    async def submit(self, request: Request) -> None:
        """Queue a request; see the protocol."""
        self._live[request.request_id] = (request.epoch, 0)
        try:
            await self._call("submit", request)
        except RuntimeFault:
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
        self._channel.close()
        self._ready.cancel()
        await asyncio.to_thread(self._process.wait)
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
        self._channel.send(self._config)
        self._started = await self._ready

    def _hear(self, message: Any) -> None:
        match message:
            case Outputs(items):
                self._note(items)
                self._outputs.put_nowait(items)
            case Reply(call_id, value, error):
                self._settle(call_id, value, error)
            case Started() if not self._ready.done():
                self._ready.set_result(message)
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
        self._process.wait()
        fatal = self._fatal or Fatal(
            Reason.ENGINE_LOST, f"the driver ended with status {self._process.returncode}"
        )
        self._fatal = None
        if not self._ready.done():
            self._ready.set_exception(fatal.error or EngineLostError(f"{fatal.reason}: {fatal.detail}"))
            self._fail_calls(EngineLostError(f"the engine could not start: {fatal.detail}"))
            return
        detail = f"{fatal.reason}: {fatal.detail}; send the request again"
        log.warning(
            "%s: %s; %d requests lost, starting %s anew",
            fatal.reason,
            fatal.detail,
            len(self._live),
            self._topology,
        )
        self._outputs.put_nowait(
            [
                Token(rid, epoch, index, None, finish=Finish.ERROR, detail=detail)
                for rid, (epoch, index) in self._live.items()
            ]
        )
        self._live.clear()
        self._fail_calls(EngineLostError(detail))
        self._config = dataclasses.replace(self._config, topology=self._topology, settings=self._fitting())
        self._restart = asyncio.create_task(self._relaunch())

    def _fitting(self) -> EngineSettings:
        """The settings with no more KV blocks than what ran last holds alone; the pool may have given way for it."""
        settings, cluster = self._config.settings, self._config.cluster
        if settings.num_blocks is None:
            return settings
        held = footprint.blocks(self._topology, self.model, cluster, settings.block_size)
        return dataclasses.replace(settings, num_blocks=min(settings.num_blocks, held))

    async def _relaunch(self) -> None:
        """A driver with the topology that ran last; when it cannot start, nothing more will come."""
        try:
            await self._launch()
        except (RuntimeFault, OSError) as error:
            self._down = EngineLostError(f"the engine ended and could not be started again: {error}")
            log.error("%s", self._down)  # noqa: TRY400 - the message says it all
            self._outputs.put_nowait(None)
        finally:
            self._restart = None

    def _fail_calls(self, error: EngineLostError) -> None:
        calls, self._calls = self._calls, {}
        for future in calls.values():
            if not future.done():
                future.set_exception(error)

    async def _call(self, method: str, *arguments: Any) -> Any:
        if self._restart:
            await asyncio.wait({self._restart})
        if self._down:
            raise self._down
        call_id = next(self._call_ids)
        future = self._calls[call_id] = asyncio.get_running_loop().create_future()
        self._channel.send(Call(call_id, method, arguments))
        return await future


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
        except SwitchError:
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
        with contextlib.suppress(SwitchError):
            await self._ask("abort", reason)

    async def _ask(self, method: str, *arguments: Any) -> Any:
        try:
            return await self._call(method, *arguments)
        except EngineLostError as error:
            raise SwitchError(Reason.ENGINE_LOST, str(error)) from error
