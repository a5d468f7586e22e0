import asyncio
from collections.abc import AsyncGenerator

import pytest

from runtime.engine import Finish
from runtime.errors import StreamError
from runtime.stream import Delta
from service.openai.api import interleaved


class Generation:
    """Deltas that come when they are told to."""

    def __init__(self) -> None:
        self.is_closed = False
        self._deltas: asyncio.Queue[Delta | Exception] = asyncio.Queue()

    def say(self, text: str, finish: Finish | None = None) -> None:
        self._deltas.put_nowait(Delta(text, 1, 0.0, (), 0, finish, "0-TP2", 0.0))

    def fail(self, problem: Exception) -> None:
        self._deltas.put_nowait(problem)

    async def __call__(self) -> AsyncGenerator[Delta, None]:
        try:
            while True:
                said = await self._deltas.get()
                if isinstance(said, Exception):
                    raise said
                yield said
                if said.finish is not None:
                    return
        finally:
            self.is_closed = True


async def test_one_generation_is_itself() -> None:
    one = Generation()
    one.say("a")
    one.say("b", Finish.STOP)
    assert [(index, delta.text) async for index, delta in interleaved([one()])] == [(0, "a"), (0, "b")]


async def test_deltas_come_as_they_are_made_until_every_generation_ended() -> None:
    one, other = Generation(), Generation()
    deltas = interleaved([one(), other()])
    found = []
    for maker, text, finish in ((other, "x", None), (one, "a", Finish.STOP), (other, "y", Finish.LENGTH)):
        maker.say(text, finish)
        index, delta = await anext(deltas)
        found.append((index, delta.text))

    assert found == [(1, "x"), (0, "a"), (1, "y")]
    with pytest.raises(StopAsyncIteration):
        await anext(deltas)
    assert one.is_closed
    assert other.is_closed


@pytest.mark.parametrize("problem", [StreamError("broken"), KeyError("a bug")])
async def test_one_that_breaks_ends_the_others(problem: Exception) -> None:
    one, other = Generation(), Generation()
    deltas = interleaved([one(), other()])
    one.say("a")
    assert (await anext(deltas))[0] == 0
    other.fail(problem)
    with pytest.raises(type(problem)):
        await anext(deltas)
    assert one.is_closed


@pytest.mark.parametrize("count", [1, 2])
async def test_closing_it_closes_every_generation(count: int) -> None:
    made = [Generation() for _ in range(count)]
    deltas = interleaved([one() for one in made])
    for one in made:
        one.say("a")
    await anext(deltas)
    await deltas.aclose()
    assert all(one.is_closed for one in made)
