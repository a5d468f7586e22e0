"""One vLLM engine as the service sees it: a driver process that has its orders, and calls to it."""

import asyncio
import itertools
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from runtime.engine import Finish, Request, Token
from runtime.errors import EngineLostError, EngineStartError, Reason
from runtime.models import Topology
from runtime.process.channel import Call, Fatal, Outputs, Reply
from runtime.vllm_engine.driver_process import DriverProcess
from runtime.vllm_engine.messages import DriverConfig, Started

log = logging.getLogger(__name__)

LOG_LINES = 40
"""Shown when an engine is lost."""


class UntoldEndError(EngineStartError):
    """A driver process ended before its engine served, and said nothing: it was killed."""


class Instance:
    """A vLLM engine with one topology, from its start to its end."""

    started: Started

    def __init__(self, topology: Topology, process: DriverProcess) -> None:
        """Use ``start``."""
        self.topology = topology
        self.process = process
        self.on_tokens: Callable[[Instance, list[Token]], None] = lambda *_: None
        self.on_lost: Callable[[Instance, str], None] = lambda *_: None
        """Called once, if it ends without having been closed."""
        self._calls: dict[int, asyncio.Future[Any]] = {}
        self._ids = itertools.count()
        self._gone: EngineLostError | None = None
        self._ready: asyncio.Future[Started] = asyncio.get_running_loop().create_future()

    @classmethod
    async def start(
        cls, config: DriverConfig, topology: Topology, process: DriverProcess, patience_s: float
    ) -> "Instance":
        """Give a process its orders and wait until its engine serves, up to ``patience_s``. Cancelling ends it.

        Raises:
            EngineStartError: it cannot, and why; ``UntoldEndError`` where the process ended without saying why.
        """
        instance = cls(topology, process)
        process.on_message, process.on_end = instance._hear, instance._lost
        process.send(config)
        try:
            async with asyncio.timeout(patience_s):
                instance.started = await instance._ready
        except TimeoutError:
            words = instance._last_words("")
            await instance.close()
            late = f"vLLM did not start as {topology.shape} in {patience_s:g} s{words}; raise vllm.start_timeout_s"
            raise EngineStartError(late) from None
        except BaseException:
            await instance.close()
            raise
        return instance

    @property
    def pid(self) -> int:
        """Process id of the driver, and id of the process group."""
        return self.process.pid

    @property
    def is_gone(self) -> bool:
        """It ended, or was closed."""
        return self._gone is not None

    @property
    def is_stalled(self) -> bool:
        """It makes no progress."""
        return self.process.vigil.is_stalled

    async def call(self, method: str, *arguments: Any) -> Any:
        """Ask the driver; it answers between two steps.

        Raises:
            EngineLostError: it is gone.
            RuntimeFault: what the driver raised.
        """
        if self._gone:
            raise self._gone
        call_id = next(self._ids)
        future = self._calls[call_id] = asyncio.get_running_loop().create_future()
        self.process.send(Call(call_id, method, arguments))
        return await future

    def kill(self) -> None:
        """End it as if it had ended by itself: ``on_lost`` is called."""
        self.process.kill(set(self.started.shared_memory))

    async def close(self) -> None:
        """End the engine and everything of it. Idempotent."""
        if self._gone is None:
            self._end(EngineLostError("the engine was closed"))
        await self.process.close()

    def _hear(self, message: Any) -> None:
        match message:
            case Outputs(items):
                self.on_tokens(self, [item for item in items if isinstance(item, Token)])
            case Reply(call_id, value, error):
                _settle(self._calls.pop(call_id), value, error)
            case Started() if not self._ready.done():
                self._ready.set_result(message)

    def _lost(self) -> None:
        """The driver is gone, and nobody asked it to go."""
        fatal = self.process.fatal or Fatal(Reason.ENGINE_LOST, "its driver process ended")
        detail = (
            f"the vLLM engine {self.topology.shape} was lost: {fatal.detail}{self._last_words(fatal.detail)}"
        )
        if not self._ready.done():
            self._ready.set_exception(self._start_error(fatal))
        self._end(EngineLostError(detail))
        log.error("%s; the end of its log:\n%s", detail, "\n".join(self.process.log()[-LOG_LINES:]))
        self.on_lost(self, detail)

    def _start_error(self, fatal: Fatal) -> Exception:
        """Why it did not start; the cause of a worker's failure is only in its log."""
        words = self._last_words(fatal.detail)
        if fatal.error is None or (words and "root cause" in str(fatal.error)):
            kind = EngineStartError if self.process.fatal else UntoldEndError
            return kind(f"vLLM did not start as {self.topology.shape}: {fatal.detail}{words}")
        return fatal.error

    def _last_words(self, said: str) -> str:
        """The last error in the engine's log, unless it was said."""
        errors = [line.partition("] ")[2] or line for line in self.process.log() if "Error: " in line]
        wanted = [line.strip() for line in errors if "root cause" not in line and "cancelled" not in line]
        last = wanted[-1][-300:] if wanted else ""
        return f" ({last})" if last and last not in said else ""

    def _end(self, reason: EngineLostError) -> None:
        self._gone = reason
        self.process.end(set(self.started.shared_memory) if hasattr(self, "started") else set())
        self._ready.cancel()
        calls, self._calls = self._calls, {}
        for future in calls.values():
            _settle(future, None, reason)


@dataclass(slots=True)
class Stream:
    """A request that has not ended."""

    request: Request
    owner: Instance
    emitted: list[int] = field(default_factory=list)
    epoch: int = 0

    def end(self, detail: str, *, is_lost: bool) -> Token:
        """Its end with an error."""
        name, index = self.request.request_id, len(self.emitted)
        return Token(name, self.epoch, index, None, finish=Finish.ERROR, detail=detail, is_lost=is_lost)


def _settle(future: "asyncio.Future[Any]", value: Any, error: Exception | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(value)
    else:
        future.set_exception(error)
