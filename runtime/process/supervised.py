"""Background work that somebody answers for: unforeseen errors are logged, counted, and end nothing."""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterator
from contextlib import contextmanager

from runtime.process.liveness import Pauses

log = logging.getLogger(__name__)

RARE = ("engine restart", "engine recovery", "recovery of streams", "report of a recovery", "router", "vLLM engine")
ERRORS = Counter(dict.fromkeys(RARE, 0))
"""How often each kind of background work of this process failed by an error that nobody foresaw.

What begins late or ends soon is there from the start: a query of what rose would miss the first error.
"""


@contextmanager
def contained(task: str) -> Iterator[None]:
    """Log and count an error of a step of background work, and go on behind it."""
    ERRORS[task] += 0
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


def begin(task: str, work: Coroutine[None, None, None], running: set[asyncio.Task[None]]) -> asyncio.Task[None]:
    """Begin work that nobody waits for; ``task`` names its errors.

    It is among ``running`` until it ends.
    """

    def ended(which: asyncio.Task[None]) -> None:
        running.discard(which)
        if not which.cancelled():
            with contained(task):
                which.result()

    started = asyncio.create_task(work)
    running.add(started)
    started.add_done_callback(ended)
    return started


async def cancel(running: Collection[asyncio.Task[None]]) -> None:
    """Cancel tasks and wait until they have ended."""
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)
