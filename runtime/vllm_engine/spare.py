"""The spare: a driver process that has imported vLLM and waits for its orders, so that a target starts in a part of the time.

It is there to save time and nothing else: without one, or with one that is not ready yet, an engine starts as ever.
"""

import asyncio
import logging
from collections.abc import Mapping

from runtime.vllm_engine.driver_process import DriverProcess
from runtime.vllm_engine.messages import Preparation
from runtime.vllm_engine.models import VllmSettings

log = logging.getLogger(__name__)

NICENESS = 19
"""While it imports, beside an engine that serves."""


class Spare:
    """One process at a time, for engines on devices of one kind."""

    def __init__(self, environment: Mapping[str, str], settings: VllmSettings) -> None:
        """Begin nothing yet; ``environment`` is what vLLM reads while it is imported."""
        patience = settings.stall_after_s, settings.lost_after_s
        self._preparation = Preparation(environment, NICENESS, *patience)
        self._process: DriverProcess | None = None
        self._background: set[asyncio.Task[None]] = set()
        self._is_closed = False

    def begin(self) -> None:
        """Start a process in the background, unless there is one."""
        if self._process is not None or self._is_closed:
            return
        try:
            self._process = DriverProcess(self._preparation)
        except OSError as error:
            log.warning("no spare vLLM process can be started: %s", error)
        else:
            self._process.on_end = self._lost

    @property
    def is_ready(self) -> bool:
        """A process waits for orders."""
        return self._process is not None and self._process.is_prepared

    def take(self) -> DriverProcess | None:
        """The process, if it is ready for orders; it belongs to the caller then."""
        if not self.is_ready:
            return None
        taken, self._process = self._process, None
        return taken

    async def close(self) -> None:
        """End it; none begins any more. Idempotent."""
        self._is_closed = True
        if (process := self._process) is not None:
            self._process = None
            process.end(set())
            await process.close()
        await asyncio.gather(*self._background)

    def _lost(self) -> None:
        """It ended by itself: one that had been ready is replaced, any other would end the same way."""
        process = self._process
        if process is None:
            return
        self._process = None
        log.warning("the spare vLLM process ended: %s", "; ".join(process.log()[-3:]) or "it wrote nothing")
        process.end(set())
        task = asyncio.create_task(process.close())
        self._background.add(task)
        task.add_done_callback(self._background.discard)
        if process.is_prepared:
            self.begin()
