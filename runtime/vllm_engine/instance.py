"""One vLLM engine as the service sees it: a driver process that has its orders.

And one that waits for some.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from runtime.engine import Finish, GenerationRequest, Output, Token
from runtime.errors import EngineLostError, EngineStartError
from runtime.models import Topology
from runtime.process.driver import DriverProcess
from runtime.process.launcher import Launcher, Program
from runtime.process.messages import Fatal
from runtime.process.supervised import begin
from runtime.vllm_engine.messages import FromDriver, Preparation, VllmDriverConfig, VllmStarted
from runtime.vllm_engine.models import VllmSettings

log = logging.getLogger(__name__)

MODULE = "runtime.vllm_engine.driver.boot"
"""What the process runs."""
LOG_LINES = 40
"""Shown when an engine is lost."""
SPARE_NICENESS = 19
"""Of the spare while it imports, beside an engine that serves."""


class UntoldEndError(EngineStartError):
    """A driver process ended before its engine served, and said nothing: it was killed."""


class Instance(DriverProcess):
    """A vLLM engine, from the start of its process, which imports vLLM and waits for orders, to its end."""

    topology: Topology
    started: VllmStarted

    def __init__(self, launcher: Launcher, preparation: Preparation) -> None:
        """Start the process; ``serve`` gives it its orders.

        Raises:
            OSError: no process can be started.
        """
        self.on_tokens: Callable[[Instance, list[Token]], None] = lambda *_: None
        self.on_lost: Callable[[Instance, str], None] = lambda *_: None
        """Called once, if it ends without having been closed."""
        program = Program(MODULE, FromDriver, has_folder=True)
        super().__init__(launcher, program, preparation.stall_after_s, preparation.lost_after_s)
        self.send(preparation)

    async def serve(self, config: VllmDriverConfig, topology: Topology, patience_s: float) -> "Instance":
        """Give it its orders and wait until its engine serves, up to ``patience_s``. Cancelling ends it.

        Returns itself.

        Raises:
            EngineStartError: it cannot, and why; ``UntoldEndError`` where the process ended without saying why.
        """
        self.topology = topology
        self.on_outputs = self._say
        self.on_end = self._lost
        self.send(config)
        try:
            async with asyncio.timeout(patience_s):
                self.started = await self.ready
        except TimeoutError:
            words = self._last_words("")
            await self.close()
            late = f"vLLM did not start as {topology.shape} in {patience_s:g} s{words}; raise vllm.start_timeout_s"
            raise EngineStartError(late) from None
        except BaseException:
            await self.close()
            raise
        self.process.litter |= {*self.started.shared_memory}
        return self

    def _say(self, items: list[Output]) -> None:
        self.on_tokens(self, [item for item in items if isinstance(item, Token)])

    def _lost(self, fatal: Fatal) -> None:
        """The driver is gone, and nobody asked it to go."""
        detail = f"the vLLM engine {self.topology.shape} was lost: {fatal.detail}{self._last_words(fatal.detail)}"
        if not self.ready.done():
            self.ready.set_exception(self._start_error(fatal))
        self.end(EngineLostError(detail))
        log.error("%s; the end of its log:\n%s", detail, "\n".join(self.process.log()[-LOG_LINES:]))
        self.on_lost(self, detail)

    def _start_error(self, fatal: Fatal) -> Exception:
        """Why it did not start; the cause of a worker's failure is only in its log."""
        words = self._last_words(fatal.detail)
        if fatal.trouble is None or (words and "root cause" in fatal.trouble.detail):
            kind = EngineStartError if self.fatal else UntoldEndError
            return kind(f"vLLM did not start as {self.topology.shape}: {fatal.detail}{words}")
        return fatal.trouble.error

    def _last_words(self, text: str) -> str:
        """The last error in the engine's log, unless it was said."""
        errors = [line.partition("] ")[2] or line for line in self.process.log() if "Error: " in line]
        wanted = [line.strip() for line in errors if "root cause" not in line and "cancelled" not in line]
        last = wanted[-1][-300:] if wanted else ""
        return f" ({last})" if last and last not in text else ""


@dataclass(slots=True)
class TrackedRequest:
    """A request that has not ended."""

    request: GenerationRequest
    owner: Instance
    emitted: list[int] = field(default_factory=list)
    epoch: int = 0
    is_had: bool = False
    """Its owner has it, and its stream hears of the owner's loss; before that, whoever submits it does."""

    def end(self, detail: str, *, is_lost: bool) -> Token:
        """Its end with an error."""
        name = self.request.request_id
        index = len(self.emitted)
        return Token(name, self.epoch, index, None, finish=Finish.ERROR, detail=detail, is_lost=is_lost)


class Spare:
    """A driver process that has imported vLLM and waits for its orders.

    So that a target starts in a part of the time.

    It is there to save time and nothing else: without one, or with one that is not ready yet, an engine starts as ever. One
    process at a time, for engines on devices of one kind.
    """

    def __init__(self, launcher: Launcher, environment: Mapping[str, str], settings: VllmSettings) -> None:
        """Begin nothing yet; ``environment`` is what vLLM reads while it is imported."""
        self._preparation = Preparation(
            environment,
            niceness=SPARE_NICENESS,
            stall_after_s=settings.stall_after_s,
            lost_after_s=settings.lost_after_s,
        )
        self._launcher = launcher
        self._process: Instance | None = None
        self._background: set[asyncio.Task[None]] = set()
        self._is_closed = False

    def begin(self) -> None:
        """Start a process in the background, unless there is one."""
        if self._process is not None or self._is_closed:
            return
        try:
            self._process = Instance(self._launcher, self._preparation)
        except OSError as error:
            log.warning("no spare vLLM process can be started: %s", error)
        else:
            self._process.on_end = self._lost

    @property
    def is_ready(self) -> bool:
        """A process waits for orders."""
        return self._process is not None and self._process.is_prepared

    def take(self) -> Instance | None:
        """The process, if it is ready for orders; it belongs to the caller then."""
        if not self.is_ready:
            return None
        taken = self._process
        self._process = None
        return taken

    async def close(self) -> None:
        """End it; none begins any more. Idempotent."""
        self._is_closed = True
        if (process := self._process) is not None:
            self._process = None
            await process.close()
        await asyncio.gather(*self._background, return_exceptions=True)

    def _lost(self, fatal: Fatal) -> None:
        """It ended by itself: one that had been ready is replaced, any other would end the same way."""
        process = self._process
        if process is None:
            return
        self._process = None
        log.warning("the spare vLLM process ended: %s", "; ".join(process.process.log()[-3:]) or fatal.detail)
        begin("spare vLLM process", process.close(), self._background)
        if process.is_prepared:
            self.begin()
