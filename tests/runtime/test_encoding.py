"""Encoding beside the event loop: what is short never waits for what is long, and the tokens are the tokenizer's own."""

import asyncio
import threading
from collections.abc import Iterator

import pytest

from runtime.encoding import LONG_CHARACTERS, ON_THE_SPOT_CHARACTERS, Encoder
from runtime.errors import RequestError
from tests.rows import rows
from tests.service.scripted import character_tokenizer

TOKENIZER = character_tokenizer()
MIDDLING = "b" * (ON_THE_SPOT_CHARACTERS + 1)
LONG = "c" * LONG_CHARACTERS


class Gated:
    """A tokenizer whose long texts wait until a test lets them through."""

    def __init__(self) -> None:
        self.gate, self.begun = threading.Event(), threading.Event()
        self.threads: dict[int, str] = {}

    def encode(self, text: str) -> tuple[int, ...]:
        self.threads[len(text)] = threading.current_thread().name
        if len(text) >= LONG_CHARACTERS:
            self.begun.set()
            assert self.gate.wait(timeout=30)
        return TOKENIZER.encode(text)


@pytest.fixture
def gated() -> Iterator[Gated]:
    made = Gated()
    yield made
    made.gate.set()


@pytest.fixture
def encoder():
    made = Encoder(TOKENIZER)
    yield made
    made.close()


@pytest.fixture
def slow(gated):
    made = Encoder(gated)  # type: ignore[arg-type]
    yield made
    made.close()


async def test_token_ids_are_those_of_the_tokenizer_whatever_the_length(encoder):
    texts = ["abc", MIDDLING, LONG]
    assert [(await encoder.prompts([text]))[0] for text in texts] == list(map(TOKENIZER.encode, texts))
    assert await encoder.prompts(["ab", (5, 6)]) == [TOKENIZER.encode("ab"), (5, 6)]


async def test_others_are_encoded_while_a_long_one_is(slow, gated):
    long = [asyncio.create_task(slow.prompts([LONG])) for _ in range(3)]
    await asyncio.to_thread(gated.begun.wait, 30)

    assert await slow.prompts(["abc"]) == [TOKENIZER.encode("abc")]
    assert await slow.prompts([MIDDLING]) == [TOKENIZER.encode(MIDDLING)]
    assert not any(task.done() for task in long)
    assert gated.threads[3] == threading.current_thread().name
    assert len(set(gated.threads.values())) == 3

    gated.gate.set()
    assert {tuple(found) for found in await asyncio.gather(*long)} == {(TOKENIZER.encode(LONG),)}


async def test_many_short_prompts_count_together(slow, gated):
    await slow.prompts(["abcd"] * ON_THE_SPOT_CHARACTERS)
    assert gated.threads[4] != threading.current_thread().name


async def test_a_client_that_leaves_gives_its_place_back(slow, gated):
    first, second = (asyncio.create_task(slow.prompts([LONG + end])) for end in ("1", "22"))
    await asyncio.to_thread(gated.begun.wait, 30)
    second.cancel()
    await asyncio.gather(second, return_exceptions=True)
    gated.gate.set()
    await first
    await slow.prompts([LONG])
    assert LONG_CHARACTERS + 2 not in gated.threads


async def test_a_conversation_is_rendered_beside_the_loop_too(encoder):
    messages = [{"role": "user", "content": MIDDLING}]
    assert await encoder.chat(messages) == TOKENIZER.encode_chat(messages)


@rows("content", ["a\ud800", "a\ud800" + MIDDLING])
async def test_what_cannot_be_encoded_is_the_requests_error(encoder, content):
    with pytest.raises(RequestError, match="half of a character"):
        await encoder.chat([{"role": "user", "content": content}])
