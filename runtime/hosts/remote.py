"""Other hosts as the service has them.

One incarnation of each, which starts processes there until it is lost as one thing.
"""

import asyncio
import contextlib
import itertools
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runtime.errors import EngineLostError, EngineStartError, RuntimeFault
from runtime.hosts import messages
from runtime.hosts.tls import TlsChannel, connect
from runtime.process import messages as wire
from runtime.process.channel import Ends, FrameError, Frames, Hears, encode
from runtime.process.facts import HostFacts
from runtime.process.launcher import GONE_S, Incarnation, Process, Program
from runtime.process.liveness import AwakeClock

HEARTBEAT_S = 0.5
"""Between two heartbeats."""
LOST_AFTER_S = 4 * HEARTBEAT_S
"""After so long without a word a host is lost."""
INSPECT_S = 60.0
"""How long a host may take to say what it has; its checkpoints may lie on a network disk."""


class Lane:
    """What is said to one process of a host, and heard from it."""

    def __init__(self, host: "RemoteHost", number: int, speaks: Any, on_message: Hears, on_end: Ends) -> None:
        self._host = host
        self._number = number
        self._on_message = on_message
        self._on_end = on_end
        self._frames = Frames(speaks)
        self._is_open = True

    def send(self, message: object) -> None:
        """Send now, or as soon as there is room; dropped when the host is lost (``on_end`` tells)."""
        self.send_encoded(encode(message))

    def send_encoded(self, data: bytes) -> None:
        """The same, for what ``encode`` made."""
        if self._is_open:
            self._host.tell(messages.Relay(self._number, data))

    def hold(self, is_held: bool) -> None:
        """Back-pressure is the agent's to make."""

    def close(self) -> None:
        """Hear nothing more. Idempotent."""
        self._is_open = False

    def hear(self, data: bytes) -> None:
        """Bytes of it came."""
        try:
            for message in self._frames.feed(data):
                if self._is_open:
                    self._on_message(message)
        except FrameError as error:
            self.end(str(error))

    def end(self, why: str) -> None:
        """It says nothing more; told once."""
        if self._is_open:
            self._is_open = False
            self._on_end(why)


class RemoteProcess(Process):
    """A process on another host."""

    def __init__(self, incarnation: Incarnation, lane: Lane, terminate: Callable[[int, set[str]], None]) -> None:
        """``terminate`` asks the agent to end it; it is called in a thread."""
        self.lane = lane
        self._terminate = terminate
        self.removed = threading.Event()
        self.lines: tuple[str, ...] = ()
        super().__init__(incarnation, 0, lane, self._end_there)

    @property
    def is_stopped(self) -> bool:
        """Not known here."""
        return False

    def log(self) -> list[str]:
        """The end of what it wrote, once it has ended."""
        return [*self.lines]

    def _end_there(self, litter: set[str]) -> None:
        self._terminate(self.incarnation.number, litter)
        self.removed.wait(GONE_S)


@dataclass(slots=True)
class RemoteMemory:
    """Memory of an agent."""

    host: "RemoteHost"
    path: str
    inode: int

    def close(self) -> None:
        """See ``SharedFile``; the agent gives back once what it has."""
        self.host.ask(messages.FreeMemory(messages.MemoryFile(self.path, self.inode)))


class RemoteHost:
    """A connection to the agent of a host; with its end the host is lost, and all that runs there."""

    def __init__(self, host: str, first_device: int, on_lost: Callable[["RemoteHost", str], None]) -> None:
        """``on_lost`` is called once, with why, before anybody else hears of it; not after ``close``."""
        self.host = host
        self.first_device = first_device
        self.visible = ""
        self.facts: HostFacts
        self.certificate_end_s = 0.0
        """When the one that the agent showed ends, Unix seconds."""
        self.lost: str | None = None
        self._on_lost = on_lost
        self._channel = TlsChannel(messages.FromAgent, self._hear, self.lose)
        self._calls, self._numbers = wire.Calls(), itertools.count(1)
        self._processes: dict[int, RemoteProcess] = {}
        self._loop = asyncio.get_running_loop()
        self._clock: AwakeClock | None = None
        self._heard_s = self._beat_s = 0.0

    async def open(
        self,
        address: tuple[str, int],
        file: Path,
        checkpoints: tuple[str, ...],
        claim: messages.Claim | None = None,
    ) -> None:
        """Connect, ask what the host has, and claim it: or nothing is started there.

        Whatever comes of it, ``close`` it in the end.

        Raises:
            OSError: it cannot be reached, a certificate is refused, it does not say what it has, or is another service's.
            EngineStartError: there is no certificate here.
        """
        try:
            self.certificate_end_s = await connect(address, self.host, file, self._channel)
            self._clock = AwakeClock(self._turn)
            async with asyncio.timeout(INSPECT_S):
                self.facts = await self.ask(messages.Inspect(checkpoints))
                if claim:
                    await self.ask(claim)
        except EngineStartError:
            raise
        except RuntimeFault as error:  # it was lost meanwhile, or cannot say: a disk fails there
            raise ConnectionError(f"{error}; the agent's log may say more") from error

    @property
    def address_there(self) -> str:
        """The address of the other end."""
        return self._channel.address("peername")

    @property
    def address_here(self) -> str:
        """The address of this end of the connection."""
        return self._channel.address("sockname")

    def ask(self, command: wire.Command[wire.Answer]) -> "asyncio.Future[wire.Answer]":
        """Ask the agent; the answer is of the command's type, or an ``EngineLostError``."""
        call, done = self._calls.begin(command)
        if self.lost is not None:
            self._calls.fail(EngineLostError(f"host {self.host} is lost: {self.lost}"))
        self.tell(call)
        return done

    def tell(self, message: object) -> None:
        """Send; dropped when the host is lost."""
        if self.lost is None:
            self._channel.send(message)

    async def memory(self, size: int) -> RemoteMemory:
        """See ``Launcher``."""
        made = await self.ask(messages.MakeMemory(size))
        return RemoteMemory(self, made.path, made.inode)

    def start(self, program: Program, on_message: Hears, on_end: Ends) -> Process:
        """See ``Launcher``; what keeps the agent from starting it is told as its end."""
        if self.lost is not None:
            raise ConnectionError(f"host {self.host} is lost: {self.lost}")
        number = next(self._numbers)
        incarnation = Incarnation(self.host, program.device, number)
        lane = Lane(self, number, program.speaks, on_message, on_end)
        process = self._processes[number] = RemoteProcess(incarnation, lane, self._terminate)
        self.tell(messages.Launch(number, program.module, program.device, program.has_folder))
        return process

    def lose(self, why: str) -> None:
        """The host is lost, with all that runs there. Nothing that it still says is heard. Idempotent."""
        if self.lost is not None:
            return
        processes = self._part(why)
        self._on_lost(self, why)
        for process in processes:
            process.lane.end(f"host {self.host} is lost: {why}")

    def close(self) -> None:
        """Let go of the host; the agent ends what runs there. Idempotent."""
        if self.lost is None:
            self._part("it was let go")

    def _part(self, why: str) -> list[RemoteProcess]:
        self.lost = why
        self._channel.close()
        if self._clock:
            self._clock.stop()
        self._calls.fail(EngineLostError(f"host {self.host} is lost: {why}"))
        processes = [*self._processes.values()]
        self._processes = {}
        for process in processes:
            process.removed.set()
        return processes

    def _terminate(self, number: int, litter: set[str]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed, and the connection with it
            self._loop.call_soon_threadsafe(self.tell, messages.Terminate(number, tuple(litter)))

    def _turn(self) -> None:
        assert self._clock is not None
        now_s = self._clock.now_s
        if self._channel.has_moved():
            self._heard_s = now_s
        if now_s - self._heard_s > LOST_AFTER_S:
            self.lose(f"it was silent for {now_s - self._heard_s:.1f} s")
        elif now_s - self._beat_s >= HEARTBEAT_S:
            self._beat_s = now_s
            self.tell(messages.Heartbeat(next(self._numbers)))

    def _hear(self, message: Any) -> None:
        match message:
            case messages.Relay(number, data):
                if process := self._processes.get(number):
                    process.lane.hear(data)
            case messages.Launched(number, pid):
                if process := self._processes.get(number):
                    process.pid = pid
            case messages.Ended(number, why, lines):
                if process := self._processes.get(number):
                    process.lines = lines
                    process.lane.end(why)
            case messages.Removed(number):
                if process := self._processes.pop(number, None):
                    process.removed.set()
            case wire.Reply():
                self._calls.settle(message)
