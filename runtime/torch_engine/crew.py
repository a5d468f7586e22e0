"""The driver's workers: forked on demand, kept as standby when idle, missed when they die."""

import asyncio
import functools
import itertools
import os
import signal
import socket
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from runtime.channel import AsyncChannel, encode
from runtime.errors import SwitchError
from runtime.footprint import Piece
from runtime.kv.store import KvHandle, Slice
from runtime.models import Reason
from runtime.torch_engine.messages import Copy, Digest, Done, Drop, Exchange, Forget, Gain, GiveBack, WarmUp
from runtime.torch_engine.worker import Hello, Unable, WorkerConfig, worker_main

Order = Copy | Exchange | Drop | Gain | Forget | GiveBack | WarmUp | Digest
Runs = tuple[tuple[int, int], ...]


class WorkerLostError(Exception):
    """A worker died while something was awaited from it."""

    def __init__(self, device: int) -> None:
        super().__init__(f"the worker on device {device} died")
        self.device = device


class Crew:
    """Workers by device index."""

    def __init__(
        self,
        config: WorkerConfig,
        on_event: Callable[[int, Any], None],
        on_lost: Callable[[int], None],
    ) -> None:
        """``on_event`` gets what is no answer to an order, ``on_lost`` the device of a worker that died."""
        self._config = config
        self._on_event, self._on_lost = on_event, on_lost
        self._channels: dict[int, AsyncChannel] = {}
        self._greetings: dict[int, asyncio.Future[KvHandle]] = {}
        self._orders: dict[int, tuple[int, asyncio.Future[Any]]] = {}
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

    async def order(self, device: int, make: Callable[[int], Order]) -> Any:
        """Give an order and wait for its outcome.

        Raises:
            WorkerLostError: the worker is or gets lost.
        """
        if device not in self._channels:
            raise WorkerLostError(device)
        number = next(self._numbers)
        done = asyncio.get_running_loop().create_future()
        self._orders[number] = (device, done)
        self._channels[device].send(make(number))
        return await done

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
            if isinstance(done, str):
                raise SwitchError(Reason.NO_MEMORY, f"device {device} cannot hold its KV: {done}")
            slices.append(done)
            after = done.rest
        return slices

    async def _have_closed(self, device: int) -> None:
        """No peer has this worker's memory open when this returns, nor opens again what nobody copies from."""
        others = [other for other in self._channels if other != device]
        await asyncio.gather(*(self.order(other, Forget) for other in others), return_exceptions=True)

    def end(self) -> None:
        """Kill every worker and wait for it."""
        for device in list(self.pids):
            self._bury(device)

    def _fork(self, device: int) -> None:
        ours, theirs = socket.socketpair()
        self._greetings[device] = asyncio.get_running_loop().create_future()
        if (pid := os.fork()) == 0:
            _close_all_but(theirs.fileno())
            worker_main(theirs, self._config, device)
        theirs.close()
        self.pids[device] = pid
        self._channels[device] = AsyncChannel(
            ours, lambda message: self._hear(device, message), lambda: self._lose(device)
        )

    def _hear(self, device: int, message: Any) -> None:
        match message:
            case Hello(handle):
                self._greetings[device].set_result(handle)
            case Unable(detail):
                unable = SwitchError(Reason.LOAD_FAILED, f"device {device} cannot be used: {detail}")
                self._greetings.pop(device).set_exception(unable)
                self._bury(device)
            case Done(number, value):
                _, done = self._orders.pop(number)
                if not done.done():
                    done.set_result(value)
            case _:
                self._on_event(device, message)

    def _lose(self, device: int) -> None:
        self._bury(device)
        lost = [number for number, (owner, _) in self._orders.items() if owner == device]
        waiting = [self._orders.pop(number)[1] for number in lost] + [self._greetings.pop(device)]
        for future in waiting:
            if not future.done():
                future.set_exception(WorkerLostError(device))
                future.exception()  # whoever waits hears of it; nobody has to
        self._on_lost(device)

    def _bury(self, device: int) -> None:
        pid = self.pids.pop(device)
        self._channels.pop(device).close()
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def _slice_of(
    kind: type[Gain | GiveBack], what: tuple[tuple[Piece, ...], Runs], after: int, number: int
) -> Gain | GiveBack:
    return kind(number, *what, after)


def _close_all_but(descriptor: int) -> None:
    """In a forked worker: hold nothing of the driver's, or its death would not be noticed at the other ends."""
    os.closerange(3, descriptor)
    os.closerange(descriptor + 1, os.sysconf("SC_OPEN_MAX"))
