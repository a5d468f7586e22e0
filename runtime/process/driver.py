"""A driver process as the service sees it.

Started, watched, asked, mourned and replaced, for both engines.
"""

import asyncio
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

from runtime.capabilities import Batching
from runtime.engine import Comeback, Cut, EngineState, Lag, Moved, Output
from runtime.errors import EngineLostError, EngineStartError, Reason, RuntimeFault, SwitchError
from runtime.models import CutTimings, Topology
from runtime.process.content import other_code
from runtime.process.launcher import Launcher, Program
from runtime.process.liveness import RESTART_PATIENCE_S, DriverWatchdog, Pauses
from runtime.process.messages import (
    Answer,
    Beat,
    Calls,
    Command,
    Fatal,
    Fenced,
    Greeting,
    Prepared,
    Reply,
    StoodIn,
    Tokens,
    Trouble,
)
from runtime.process.supervised import cancel, contained, supervised

log = logging.getLogger(__name__)


class DriverProcess:
    """One driver, from its start to its end. Whoever has it hears it."""

    def __init__(self, launcher: Launcher, program: Program, stall_after_s: float, lost_after_s: float) -> None:
        """Start it; it waits for its first message.

        Raises:
            OSError: no process can be started.
        """
        self.on_outputs: Callable[[list[Output]], None] = lambda _: None
        self.on_end: Callable[[Fatal], None] = lambda _: None
        """Called once, if it ends without having been ended, with why."""
        self.on_stood_in: Callable[[StoodIn], None] = lambda _: None
        self.ready: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        """What it says when it serves."""
        self.fatal: Fatal | None = None
        """Why it ends, if it or its watch said so."""
        self.gone: EngineLostError | None = None
        """Why it can be asked no more."""
        self.is_prepared = False
        self._calls = Calls()
        self.process = launcher.start(program, self._hear, self._ended)
        self._stall_after_s = stall_after_s
        self._lost_after_s = lost_after_s
        self.watch()
        self.send = self.process.send
        self.kill = self.process.kill

    @property
    def pid(self) -> int:
        """Of its process, on its host."""
        return self.process.pid

    def watch(self) -> None:
        """Expect signs of life from now on."""
        self.vigil = DriverWatchdog(self._stall_after_s, self._lost_after_s, self._hung)

    async def call(self, command: Command[Answer]) -> Answer:
        """Ask the driver; the answer is of the command's type.

        Raises:
            EngineLostError: it is gone.
            RuntimeFault: what the driver raised.
        """
        if self.gone:
            raise self.gone
        call, done = self._calls.begin(command)
        self.send(call)
        return await done

    @contextmanager
    def in_a_switch(self) -> Iterator[None]:
        """Calls of a switch whose source this is.

        Raises:
            SwitchError: this driver or its target was lost meanwhile.
        """
        try:
            yield
        except EngineLostError as error:
            raise SwitchError(Reason.ENGINE_LOST if self.gone else Reason.RANK_LOST, str(error)) from error

    def end(self, why: EngineLostError) -> None:
        """Hear nothing more of it, and end its group; who waits for an answer hears why. Idempotent."""
        self.gone = self.gone or why
        self.vigil.stop()
        self.process.end()
        if not self.ready.done():
            self.ready.set_exception(self.gone)
            self.ready.exception()  # whoever waits hears of it; nobody has to
        self._calls.fail(why)

    async def close(self, why: str = "the engine was closed") -> None:
        """End it, and wait until it is gone, if it goes. Idempotent."""
        self.end(EngineLostError(why))
        await self.process.close()

    def _hear(self, message: Any) -> None:
        match message:
            case Tokens(items):
                self.on_outputs([*items])
            case Fenced(moved):
                self.on_outputs([moved])
            case Reply():
                self._calls.settle(message)
            case Beat():
                self.vigil.hear(message)
            case Fatal():
                self.fatal = message
            case StoodIn():
                self.on_stood_in(message)
            case Greeting(code):
                self._meet(code)
            case Prepared():
                self.is_prepared = True
            case started if not self.ready.done():
                self.vigil.begin()
                self.ready.set_result(started)

    def _meet(self, code: Mapping[str, str]) -> None:
        """End a driver that imported other code: nobody knows what it would make of its orders."""
        if why := other_code(code):
            self.fatal = Fatal(Reason.LOAD_FAILED, why, Trouble.of(EngineStartError(why)))
            self.kill()

    def _hung(self, why: str) -> None:
        """End a driver that cannot end by itself."""
        self.fatal = Fatal(Reason.ENGINE_LOST, why)
        self.kill()

    def _ended(self, why: str) -> None:
        self.vigil.stop()
        detail = f"its driver process ended: {why}" if why else "its driver process ended"
        self.on_end(self.fatal or Fatal(Reason.ENGINE_LOST, detail))


class SamePlace:
    """The comeback of an engine that nobody else plans for: as it was, for as long as it takes."""

    async def place(self, lost: Topology) -> Topology:
        return lost

    async def take_out(self, device: int, why: str) -> bool:  # noqa: ARG002 - the protocol's
        return False

    def came_back(self, lost: Topology, runs: Topology, why: str) -> None: ...


class Revived(ABC):
    """An engine whose driver is replaced when it is lost, after pauses, until one serves."""

    comeback: Comeback = SamePlace()

    @abstractmethod
    def end_serving(self, why: str) -> tuple[str, ...]:
        """End what serves, and its requests as lost; which these are."""

    @abstractmethod
    async def start_anew(self, topology: Topology, batching: Batching | None = None) -> None:
        """Start another driver, once the one before is gone.

        It fills steps as far as ``batching`` says, or as the last one that served did.
        """

    def __init__(self) -> None:
        self._outputs: asyncio.Queue[list[Output] | None] = asyncio.Queue()
        self._pauses = Pauses()
        self._restart: asyncio.Task[None] | None = None
        self._down: EngineLostError | None = None
        """Why no driver serves; one that could not be started is tried again, unless the engine was closed."""

    async def outputs(self) -> AsyncIterator[list[Output]]:
        """Batches in order; see the protocol."""
        while (batch := await self._outputs.get()) is not None:
            yield batch

    async def exposition(self) -> str:
        """None of its own; see the protocol."""
        return ""

    def state_of(self, vigil: DriverWatchdog) -> EngineState:
        """Whether it can serve now, as far as who watches over its driver knows."""
        if self._down:
            return EngineState.FAILED
        if self._restart:
            return EngineState.RESTARTING
        return EngineState.STALLED if vigil.is_stalled else EngineState.SERVING

    def revive(self, lost: Topology, why: RuntimeFault) -> None:
        """The driver of a topology was lost: start another."""
        self.restart(partial(self._revive, lost, why))

    def restart(self, work: Callable[[], Awaitable[None]]) -> None:
        """Have ``work`` bring a driver that serves; where a bug ends it, it begins again."""
        self._restart = asyncio.create_task(supervised("engine restart", partial(self._tried, work)))

    async def succeed(self, ran: Topology, target: Topology, batching: Batching, epoch: int) -> tuple[str, ...]:
        """End what ``ran``, on purpose, and start the target; the requests that are computed anew then.

        Raises:
            SwitchError: the target does not start; what ran is started anew.
        """
        self._outputs.put_nowait([Moved(epoch, ())])  # who serves next speaks under this epoch
        names = self.end_serving(f"{target.shape} takes its place")
        served: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        async def work() -> None:
            try:
                await self.start_anew(target, batching)
            except (RuntimeFault, OSError) as error:
                why = error if isinstance(error, RuntimeFault) else EngineStartError(str(error))
                served.set_exception(SwitchError(Reason.LOAD_FAILED, f"{why}; {ran.shape} is started anew"))
                await self._revive(ran, why)
            else:
                self._restart = self._down = None
                served.set_result(None)
            finally:
                if not served.done():
                    served.set_exception(EngineLostError("the engine was closed"))

        self.restart(work)
        await served
        return names

    async def _tried(self, work: Callable[[], Awaitable[None]]) -> None:
        try:
            await work()
        except Exception as error:  # or the engine would count as about to serve
            self._down = EngineLostError(f"the engine ended and could not be started again: {error!r}")
            raise

    async def up(self) -> None:
        """Wait some time for a driver that is started anew.

        Raises:
            EngineLostError: none serves.
        """
        if self._restart and not self._down:
            await asyncio.wait({self._restart}, timeout=RESTART_PATIENCE_S)
        if self._down:
            raise self._down
        if self._restart:
            raise EngineLostError("the engine is being started anew; try again in some seconds")

    async def give_up(self) -> None:
        """The engine is closed: nothing is started any more."""
        self._down = EngineLostError("the engine was closed")
        if self._restart:
            await cancel({self._restart})

    async def _revive(self, lost: Topology, why: RuntimeFault) -> None:
        self._pauses.lost()
        if why.device is not None and why.is_broken:
            await self.comeback.take_out(why.device, str(why))
        while True:
            await asyncio.sleep(self._pauses.next_s())
            try:
                place = await self.comeback.place(lost)
                await self.start_anew(place)
            except (RuntimeFault, OSError) as error:
                self._down = EngineLostError(f"the engine ended and could not be started again: {error}")
                log.error("%s; it is tried again", self._down)  # noqa: TRY400 - the message says it all
                if isinstance(error, RuntimeFault) and self._pauses.is_to_blame(error):
                    why = error
                    if await self.comeback.take_out(error.device or 0, str(error)):
                        self._pauses.elsewhere()
            else:
                self._restart = self._down = None
                with contained("engine recovery"):  # the engine serves, whatever fails here
                    if place != lost:
                        self.comeback.came_back(lost, place, str(why))
                return


class Successor:
    """The target of a switch for which what runs ends first; see ``runtime.engine.Shadow``.

    Nothing of it stands beside what runs, so all of it is in the cut, and there is nothing to give back.
    """

    def __init__(self, engine: Revived, ran: Topology, target: Topology, batching: Batching) -> None:
        self._succeed = partial(engine.succeed, ran, target, batching)

    async def ready(self) -> None:
        """At once."""

    async def lag(self) -> Lag:
        """None: requests are computed anew."""
        return Lag(0, 0)

    async def cut(self, epoch: int, deadline_s: float) -> Cut:  # noqa: ARG002 - engines have their own for a start
        """The outage."""
        began_s = time.monotonic()
        names = await self._succeed(epoch)
        outage_ms = (time.monotonic() - began_s) * 1000
        return Cut(epoch, names, (), 0, CutTimings(0.0, 0.0, outage_ms, 0.0), paths={"anew": len(names)})

    async def drain(self) -> None:
        """Nothing is left."""

    async def release(self) -> None:
        """What ran has ended."""

    async def abort(self, reason: Reason) -> None:
        """What ran serves, or is started anew."""
