"""Background work that somebody answers for: unforeseen errors are logged, counted, and end nothing."""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager

from runtime.process.liveness import Pauses

log = logging.getLogger(__name__)

ERRORS = Counter[str]()
"""How often each kind of background work of this process failed by an error that nobody foresaw."""


@contextmanager
def contained(task: str) -> Iterator[None]:
    """Log and count an error of a step of background work, and go on behind it."""
    ERRORS[task] += 0  # shown from the start: a query of what rose would miss the first
    try:
        yield
    except Exception:
        ERRORS[task] += 1
        log.exception("%s: an unforeseen error; it goes on", task)


async def supervised(task: str, work: Callable[[], Awaitable[None]]) -> None:
    """Do long-lived work until it returns, and begin again where it raises.

    At once, then after pauses of 1, 2, 4 … 60 s.
    """
    pauses = Pauses()
    while True:
        pauses.served()
        with contained(task):
            await work()
            return
        pauses.lost()
        await asyncio.sleep(pauses.next_s())


class Background:
    """Tasks that nobody waits for."""

    def __init__(self, task: str) -> None:
        """``task`` names them in the log and in the metrics."""
        self._task = task
        self._running = set[asyncio.Task[None]]()

    def start(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        """Begin one."""
        started = asyncio.create_task(work)
        self._running.add(started)
        started.add_done_callback(self._ended)
        return started

    async def settle(self, *, is_cancelled: bool = False) -> None:
        """Wait until all have ended, cancelled first or as they do."""
        for running in self._running if is_cancelled else ():
            running.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    def _ended(self, ended: asyncio.Task[None]) -> None:
        self._running.discard(ended)
        if not ended.cancelled():
            with contained(self._task):
                ended.result()
