"""Prefix caching with real processes: a hit says what the uncached run said, whatever switch came between."""

import itertools
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio
import tokenizers

from runtime.engine import GenerationRequest, SamplingParams, Token
from runtime.errors import Reason
from runtime.torch_engine.engine import TorchEngine
from runtime.torch_engine.models import EngineSettings
from tests.runtime.torch_engine.ears import Ears, hearing, same, started

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]

CHECKPOINT = Path(__file__).parents[3] / "examples" / "counting"
LAYERS, BLOCK = 8, 8
SETTINGS = EngineSettings(block_size=BLOCK, num_blocks=256, max_running=6, max_batch_tokens=64, closing_batch_tokens=16)
Prompt = tuple[int, ...]
NUMBERS = itertools.count()
"""Tests begin their prompts with numbers of their own: they share engines, and no prefixes."""


def cached(prompt: Prompt) -> int:
    """Tokens of a prompt that need no computation once they are all known: full blocks, without the last token."""
    return (len(prompt) - 1) // BLOCK * BLOCK


class Asked(Ears):
    """An engine that is asked for generations under names of their own; and one that caches nothing."""

    def __init__(self, engine: TorchEngine, without: Ears) -> None:
        super().__init__(engine)
        self._without, self._number = without, next(NUMBERS)
        self.long, self.other = self.counting(7), self.counting(13)

    def counting(self, step: int, length: int = 150) -> Prompt:
        """A prompt of so many tokens that has begun to count."""
        text = f"{self._number} count by {step} from 0: {' '.join(str(step * n) for n in range(1, length))}"
        return tuple(tokenizers.Tokenizer.from_file(str(CHECKPOINT / "tokenizer.json")).encode(text).ids[:length])

    async def begin(self, name: str, prompt: Prompt, tokens: int = 12) -> None:
        """Ask, and wait for the first token."""
        await self.run(GenerationRequest(name, prompt, SamplingParams(tokens), self.epoch))

    async def end(self, name: str) -> list[Token]:
        await self.ended(name)
        return self.tokens[name]

    async def say(self, name: str, prompt: Prompt, tokens: int = 12) -> list[Token]:
        await self.begin(name, prompt, tokens)
        return await self.end(name)

    async def uncached(self, prompt: Prompt) -> list[Token]:
        """What the engine without prefix caching says."""
        said = await self._without.whole(GenerationRequest("uncached", prompt, SamplingParams(12), 1))
        return said["uncached"]

    async def hits(self) -> int:
        """Tokens found in the cache so far."""
        return (await self.engine.stats()).prefix_cache_hits


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engine(cluster):
    async with started(CHECKPOINT, "1x1", cluster, SETTINGS) as made:
        yield made


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def without(cluster):
    plain = replace(SETTINGS, prefix_caching=False)
    async with started(CHECKPOINT, "1x1", cluster, plain) as made, hearing(made) as ears:
        yield ears
        assert (await made.stats()).prefix_cache_queries == 0


@pytest_asyncio.fixture(loop_scope="module")
async def asked(engine, without):
    async with hearing(engine, lambda made: Asked(made, without)) as asked:
        yield asked


@pytest.mark.parametrize(
    "shape",
    [pytest.param("1x1", marks=pytest.mark.exhaustive), "tp2", pytest.param("pp2", marks=pytest.mark.exhaustive)],
)
async def test_the_same_prompt_again_computes_the_rest_and_says_the_same(asked, shape):
    await asked.be(shape)
    before = await asked.engine.stats()
    long, other = asked.long, asked.other
    for turn in range(3):
        same(await asked.say(f"a{turn}", long), await asked.uncached(long))
        same(await asked.say(f"b{turn}", other), await asked.uncached(other))
    stats = await asked.engine.stats()
    # the two begin with the same words
    first = next(n for n, pair in enumerate(zip(long, other, strict=True)) if len({*pair}) > 1)
    hits = 2 * cached(long) + 2 * cached(other) + first // BLOCK * BLOCK
    assert first > BLOCK
    assert stats.prefix_cache_hits - before.prefix_cache_hits == hits
    assert stats.prefix_cache_queries - before.prefix_cache_queries == 6 * 150
    assert {token.num_cached for token in asked.tokens["a0"]} == {0}
    assert {token.num_cached for token in asked.tokens["a1"]} == {cached(long)}
    assert await asked.is_free()


async def test_a_conversation_goes_on_from_what_was_said(asked):
    before, long = await asked.hits(), asked.long
    answer = tuple(token.token_id for token in await asked.say("first", long))
    longer = (*long, *answer, *asked.other[-30:])
    same(await asked.say("longer", longer), await asked.uncached(longer))
    assert await asked.hits() - before == (len(long) + len(answer) - 1) // BLOCK * BLOCK


async def test_requests_that_run_at_once_have_the_same_blocks_and_all_of_them_have_digests(asked):
    await asked.be("pp2")
    await asked.begin("a", asked.long, 300)
    await asked.begin("b", asked.long, 300)
    found = await asked.engine.digests({"a": 150, "b": 70})
    assert all(found.blocks["a", logical] == found.blocks["b", logical] for logical in range(70 // BLOCK))
    pieces = {piece for _, _, piece in found.digests}
    assert len(pieces) == LAYERS * 4
    for count, name in ((-(-150 // BLOCK), "a"), (-(-70 // BLOCK), "b")):
        assert {key for key in found.digests if key[0] == name} == {
            (name, logical, piece) for logical in range(count) for piece in pieces
        }
    part = 70 // BLOCK  # of which one has 8 tokens and the other 6
    for piece in pieces:
        assert found.digests["a", 3, piece] == found.digests["b", 3, piece]
        assert found.digests["a", part, piece] != found.digests["b", part, piece]


@pytest.mark.parametrize(
    ("now", "then"),
    [("1x1", "tp2"), pytest.param("tp2", "pp2", marks=pytest.mark.exhaustive), ("pp2", "CPU[2]:0-3 > CPU[3]:3-8")],
)
async def test_a_hit_during_a_sync_is_copied_as_if_it_had_been_computed(asked, now, then):
    await asked.be(now)
    before_hits, long, uncached = await asked.hits(), asked.long, await asked.uncached(asked.long)
    await asked.say("before", long)
    shadow = await asked.prepared(then)
    await asked.begin("early", long, 200)
    while (await shadow.lag()).tokens > BLOCK:
        pass
    await asked.say("late", long)
    before = await asked.engine.digests()
    await asked.commit(shadow)
    after = await asked.engine.digests(before.positions)
    assert len(before.digests) >= len(long) // BLOCK * LAYERS * 4
    assert after.digests == before.digests
    assert await asked.hits() - before_hits == 2 * cached(long)
    early = await asked.end("early")
    same(early[:12], uncached)
    same(asked.tokens["late"], uncached)
    same(await asked.say("after", long), uncached)
    assert await asked.hits() - before_hits == 3 * cached(long), "the target had it"


async def test_a_hit_just_before_the_cut_comes_over(asked):
    await asked.be("pp2")
    before, long = await asked.hits(), asked.long
    await asked.say("before", long)
    shadow = await asked.prepared("tp2")
    await asked.begin("hit", long)
    await asked.commit(shadow)
    same(await asked.end("hit"), await asked.uncached(long))
    assert await asked.hits() - before == cached(long)


async def test_after_a_switch_only_prefixes_that_the_target_has_are_found(asked):
    await asked.be("1x1")
    long, other = asked.long, asked.other
    await asked.say("stays behind", long)
    shadow = await asked.prepared("tp2")
    await asked.begin("copied", other, 500)
    while (await shadow.lag()).tokens > BLOCK:
        pass
    await asked.cancel("copied")
    before = await asked.hits()
    await asked.commit(shadow)
    same(await asked.say("moved", other), await asked.uncached(other))
    assert await asked.hits() == before + cached(other)
    same(await asked.say("anew", long), await asked.uncached(long))
    # the first words are those of the other prompt, the rest stayed behind
    assert await asked.hits() - before - cached(other) < 3 * BLOCK
    same(await asked.say("again", long), await asked.uncached(long))
    assert await asked.hits() >= before + cached(other) + cached(long)


async def test_a_switch_that_was_given_up_leaves_the_cache_as_it_was(asked):
    await asked.be("1x1")
    before = await asked.hits()
    await asked.say("first", asked.long)
    shadow = await asked.prepared("tp2")
    await shadow.lag()
    await shadow.abort(Reason.CANCELLED)
    same(await asked.say("again", asked.long), await asked.uncached(asked.long))
    assert await asked.hits() - before == cached(asked.long)


async def test_a_prefix_whose_memory_was_given_back_is_computed_anew(asked):
    await asked.be("tp2")
    await asked.say("first", asked.long)
    before = await asked.hits()
    await asked.engine.resize(2)
    await asked.engine.resize(255)
    same(await asked.say("again", asked.long), await asked.uncached(asked.long))
    assert await asked.hits() - before < 3 * BLOCK, "but for the blocks that stayed"
    same(await asked.say("and again", asked.long), await asked.uncached(asked.long))
    assert await asked.hits() - before >= cached(asked.long)
