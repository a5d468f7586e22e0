"""Several generations as one stream of deltas: the choices of one answer."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

from runtime.process.supervised import cancel
from runtime.stream import Delta

Numbered = tuple[int, Delta]
"""The index of a choice, and what came for it."""

Generations = Sequence[AsyncGenerator[Delta, None]]


async def interleaved(generations: Generations) -> AsyncGenerator[Numbered, None]:
    """Deltas of all generations as they come; closing it closes them.

    Raises:
        RuntimeFault: one of them did; the others are ended.
    """
    if len(generations) == 1:
        async with aclosing(generations[0]) as only:
            async for delta in only:
                yield 0, delta
        return
    arrived: asyncio.Queue[Numbered | Exception] = asyncio.Queue()
    followers = [
        asyncio.create_task(_follow(number, generation, arrived)) for number, generation in enumerate(generations)
    ]
    try:
        running = len(followers)
        while running:
            item = await arrived.get()
            if isinstance(item, Exception):
                raise item
            running -= item[1].finish is not None
            yield item
    finally:
        await cancel(followers)


async def _follow(
    number: int, generation: AsyncGenerator[Delta, None], arrived: asyncio.Queue[Numbered | Exception]
) -> None:
    try:
        async with aclosing(generation):
            async for delta in generation:
                arrived.put_nowait((number, delta))
    except Exception as problem:  # noqa: BLE001 - it is raised to whoever reads
        arrived.put_nowait(problem)
