"""The driver's workers: forked on demand, kept as standby when idle, missed when they die."""

import asyncio
import functools
import itertools
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from runtime.errors import Reason, SwitchError
from runtime.footprint import Piece
from runtime.kv.store import KvHandle, Slice
from runtime.process.channel import AsyncChannel, encode
from runtime.process.liveness import is_stopped
from runtime.torch_engine.messages import (
    Copy,
    Digest,
    Done,
    Drop,
    Exchange,
    Forget,
    Gain,
    GiveBack,
    Ping,
    WarmUp,
)
from runtime.torch_engine.worker.loop import Hello, Unable, WorkerConfig, worker_main

Order = Copy | Exchange | Drop | Gain | Forget | GiveBack | WarmUp | Digest | Ping
Runs = tuple[tuple[int, int], ...]


_PING_S = 2.0
"""After so long without a word a worker is asked whether it lives."""
_REAP_S = 2.0
"""How long the end of the driver waits for that of a worker."""


class WorkerLostError(Exception):
    """A worker died, or was ended because it hung, while something was awaited from it."""

    def __init__(self, device: int, how: str = "died") -> None:
        super().__init__(f"the worker on device {device} {how}")
        self.device = device


@dataclass(frozen=True, slots=True)
class _Awaited:
    """An order without an answer yet."""

    device: int
    name: str
    done: asyncio.Future[Any]
    since_s: float
    patience_s: float
    """Silence of the worker after which it is ended; at least as long as that of the others."""

    def is_overdue(self, now_s: float, silent_s: float, patience_s: float) -> bool:
        """Whether its worker said nothing for too long since it was given."""
        return min(silent_s, now_s - self.since_s) > max(patience_s, self.patience_s)


class Crew:
    """Workers by device index."""

    def __init__(
        self,
        config: WorkerConfig,
        on_event: Callable[[int, Any], None],
        on_lost: Callable[[int, str], None],
    ) -> None:
        """``on_event`` gets what is no answer to an order, ``on_lost`` the device of a worker that is gone, and how."""
        self._config = config
        self._on_event, self._on_lost = on_event, on_lost
        self._channels: dict[int, AsyncChannel] = {}
        self._greetings: dict[int, asyncio.Future[KvHandle]] = {}
        self._orders: dict[int, _Awaited] = {}
        self._now_s = 0.0
        self._heard_s: dict[int, float] = {}
        self._numbers = itertools.count()
        self.pids: dict[int, int] = {}

    @property
    def all_blocks(self) -> tuple[tuple[int, int], ...]:
        """The run of every block of a slab."""
        return ((0, self._config.shape.num_blocks),)

    async def muster(self, devices: Iterable[int]) -> None:
        """Fork what is missing and wait until each has greeted."""
        wanted = list(devices)
        for device in wanted:
            if device not in self.pids:
                self._fork(device)
        # shielded: whoever gives up waiting must not cancel a greeting that others wait for later
        await asyncio.gather(*(asyncio.shield(self._greetings[device]) for device in wanted))

    def handle(self, device: int) -> KvHandle:
        """Where peers find this worker's KV memory."""
        return self._greetings[device].result()

    def broadcast(self, devices: Iterable[int], message: object) -> None:
        """Send one message to several workers, encoded once."""
        data = encode(message)
        for device in devices:
            if channel := self._channels.get(device):
                channel.send_encoded(data)

    async def order(self, device: int, make: Callable[[int], Order], patience_s: float = 0.0) -> Any:
        """Give an order and wait for its outcome.

        Raises:
            WorkerLostError: the worker is or gets lost.
            SwitchError: the worker could not do it.
        """
        if device not in self._channels:
            raise WorkerLostError(device)
        return await self._send(device, make, patience_s)

    def _send(self, device: int, make: Callable[[int], Order], patience_s: float) -> asyncio.Future[Any]:
        number = next(self._numbers)
        order, done = make(number), asyncio.get_running_loop().create_future()
        name = type(order).__name__
        self._orders[number] = _Awaited(device, name, done, self._now_s, patience_s)
        self._channels[device].send(order)
        return done

    def turn(self, now_s: float, patience_s: float, greeting_s: float) -> None:
        """End workers that have been silent for ``patience_s`` of the awake clock while an answer is awaited; ask quiet ones.

        A forked one may take ``greeting_s`` to open its device.
        """
        self._now_s = now_s
        first: dict[int, _Awaited] = {}
        for awaited in self._orders.values():
            first.setdefault(awaited.device, awaited)
        for device in list(self.pids):
            silent_s = now_s - self._heard_s[device]
            if not self._greetings[device].done():
                if silent_s > max(patience_s, greeting_s):
                    self.lose(device, f"did not greet for {silent_s:.0f} s")
            elif device not in first:
                if silent_s > _PING_S:
                    self._send(device, Ping, 0.0)
            elif first[device].is_overdue(now_s, silent_s, patience_s):
                self.lose(device, f"did not answer {first[device].name} for {silent_s:.0f} s and was ended")

    async def give_back(
        self, device: int, pieces: Iterable[Piece], runs: Iterable[tuple[int, int]]
    ) -> list[Slice]:
        """Have a worker give memory back to the system, slice by slice beside its steps, or between them on a GPU.

        Raises:
            WorkerLostError: the worker is or gets lost; its memory went with it.
        """
        what = tuple(sorted(pieces)), tuple(runs)
        if self.gains and all(what):
            await self._have_closed(device)
        return await self._in_slices(device, GiveBack, what)

    @property
    def gains(self) -> bool:
        """KV memory has to be gained; elsewhere writing to it does."""
        return self._config.gains

    async def gain(self, wanted: Mapping[int, Iterable[Piece]], runs: Iterable[tuple[int, int]]) -> None:
        """Have workers hold these pieces of these blocks, slice by slice beside their steps, or between them on a GPU.

        Raises:
            WorkerLostError: a worker is or gets lost.
            SwitchError: a device has not so much memory.
        """
        every = tuple(runs)
        orders = [
            self._in_slices(device, Gain, (tuple(sorted(pieces)), every)) for device, pieces in wanted.items()
        ]
        await asyncio.gather(*orders)

    async def _in_slices(
        self, device: int, kind: type[Gain | GiveBack], what: tuple[tuple[Piece, ...], Runs]
    ) -> list[Slice]:
        slices: list[Slice] = []
        after: int | None = 0
        while after is not None:
            done = await self.order(device, functools.partial(_slice_of, kind, what, after))
            slices.append(done)
            after = done.rest
        return slices

    async def _have_closed(self, device: int) -> None:
        """No peer has this worker's memory open when this returns, nor opens again what nobody copies from."""
        others = [other for other in self._channels if other != device]
        await asyncio.gather(*(self.order(other, Forget) for other in others), return_exceptions=True)

    def end(self) -> None:
        """Kill every worker and wait for it."""
        for reaping in [self._bury(device) for device in list(self.pids)]:
            reaping.join(_REAP_S)

    def stopped(self, devices: Iterable[int]) -> list[int]:
        """Those whose worker was stopped by a signal or a debugger."""
        return [device for device in devices if device in self.pids and is_stopped(self.pids[device])]

    def _fork(self, device: int) -> None:
        ours, theirs = socket.socketpair()
        self._greetings[device] = asyncio.get_running_loop().create_future()
        self._heard_s[device] = self._now_s
        if (pid := os.fork()) == 0:
            _close_all_but(theirs.fileno())
            worker_main(theirs, self._config, device)
        theirs.close()
        self.pids[device] = pid
        self._channels[device] = AsyncChannel(
            ours, lambda message: self._hear(device, message), lambda: self.lose(device, "died")
        )

    def _hear(self, device: int, message: Any) -> None:
        self._heard_s[device] = self._now_s
        match message:
            case Hello(handle):
                self._greetings[device].set_result(handle)
            case Unable(detail):
                unable = SwitchError(Reason.LOAD_FAILED, f"device {device} cannot be used: {detail}")
                self._greetings.pop(device).set_exception(unable)
                self._bury(device)
            case Done(number, value, error):
                awaited = self._orders.pop(number)
                if awaited.done.done():
                    return
                if error is None:
                    awaited.done.set_result(value)
                else:
                    failed = f"device {device} failed at {awaited.name}: {error.detail}"
                    awaited.done.set_exception(SwitchError(error.reason, failed))
            case _:
                self._on_event(device, message)

    def lose(self, device: int, how: str) -> None:
        """A worker died, or hangs and is ended: whoever waits for it hears of it."""
        self._bury(device)
        lost = [number for number, awaited in self._orders.items() if awaited.device == device]
        waiting = [self._orders.pop(number).done for number in lost] + [self._greetings.pop(device)]
        for future in waiting:
            if not future.done():
                future.set_exception(WorkerLostError(device, how))
                future.exception()  # whoever waits hears of it; nobody has to
        self._on_lost(device, how)

    def _bury(self, device: int) -> threading.Thread:
        pid = self.pids.pop(device)
        self._channels.pop(device).close()
        os.kill(pid, signal.SIGKILL)
        # a GPU's driver may take seconds to let go of a process: the steps of the others do not wait for it
        reaping = threading.Thread(target=os.waitpid, args=(pid, 0), daemon=True)
        reaping.start()
        return reaping


def _slice_of(
    kind: type[Gain | GiveBack], what: tuple[tuple[Piece, ...], Runs], after: int, number: int
) -> Gain | GiveBack:
    return kind(number, *what, after)


def _close_all_but(descriptor: int) -> None:
    """In a forked worker: hold nothing of the driver's, or its death would not be noticed at the other ends."""
    os.closerange(3, descriptor)
    os.closerange(descriptor + 1, os.sysconf("SC_OPEN_MAX"))
