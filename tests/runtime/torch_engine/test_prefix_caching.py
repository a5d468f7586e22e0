"""Prefix caching with real processes: a hit says what the uncached run said, whatever switch came between."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import tokenizers

from runtime.engine import Moved, Request, SamplingParams, Token
from runtime.models import Cluster, Reason, Topology
from runtime.notation import parse_topology
from runtime.torch_engine.engine import TorchEngine, TorchShadow
from runtime.torch_engine.models import EngineSettings

pytestmark = pytest.mark.slow

CHECKPOINT = Path(__file__).parents[3] / "examples" / "counting"
LAYERS = 8
BLOCK = 8


def settings(prefix_caching: bool) -> EngineSettings:
    return EngineSettings(
        block_size=BLOCK,
        num_blocks=256,
        max_running=6,
        max_batch_tokens=64,
        closing_batch_tokens=16,
        prefix_caching=prefix_caching,
    )


def counting(step: int, length: int) -> tuple[int, ...]:
    """A prompt of so many tokens that has begun to count."""
    text = f"count by {step} from 0: {' '.join(str(step * n) for n in range(1, length))}"
    return tuple(tokenizers.Tokenizer.from_file(str(CHECKPOINT / "tokenizer.json")).encode(text).ids[:length])


def cached(prompt: tuple[int, ...]) -> int:
    """Tokens of a prompt that need no computation once they are all known: full blocks, without the last token."""
    return (len(prompt) - 1) // BLOCK * BLOCK


class Asked:
    """An engine that is asked for generations under names of their own."""

    def __init__(self, engine: TorchEngine) -> None:
        self.engine = engine
        self.said: dict[str, list[Token]] = {}
        self.epoch = 1
        self._news = asyncio.Condition()
        self._task = asyncio.create_task(self._listen())

    async def _listen(self) -> None:
        async for batch in self.engine.outputs():
            for item in batch:
                if not isinstance(item, Moved):
                    self.said.setdefault(item.request_id, []).append(item)
            async with self._news:
                self._news.notify_all()

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(60), self._news:
            await self._news.wait_for(condition)

    async def begin(self, name: str, prompt: tuple[int, ...], tokens: int = 24) -> None:
        """Ask, and wait for the first token."""
        await self.engine.submit(Request(name, prompt, SamplingParams(tokens), self.epoch))
        await self.until(lambda: name in self.said)

    async def end(self, name: str) -> list[Token]:
        await self.until(lambda: bool(self.said[name][-1].finish))
        return self.said[name]

    async def whole(self, name: str, prompt: tuple[int, ...], tokens: int = 24) -> list[Token]:
        await self.begin(name, prompt, tokens)
        return await self.end(name)

    async def gone(self, name: str) -> None:
        await self.engine.cancel(name)
        await self.end(name)

    async def hits(self) -> int:
        """Tokens found in the cache so far."""
        return (await self.engine.stats()).prefix_cache_hits

    async def shadow(self, target: Topology) -> TorchShadow:
        shadow = await self.engine.prepare(target)
        await shadow.ready()
        return shadow

    async def commit(self, shadow: TorchShadow) -> None:
        self.epoch += 1
        await shadow.cut(self.epoch, deadline_s=5)
        await shadow.release()


Ask = Callable[..., contextlib.AbstractAsyncContextManager[Asked]]


@pytest.fixture
def ask(cluster: Cluster) -> Ask:
    @contextlib.asynccontextmanager
    async def start(shape: str = "1x1", prefix_caching: bool = True) -> AsyncIterator[Asked]:
        topology = parse_topology(shape, cluster, LAYERS, "fp32")
        engine = await TorchEngine.start(CHECKPOINT, topology, cluster, settings(prefix_caching))
        try:
            yield Asked(engine)
        finally:
            await engine.close()

    return start


@pytest.fixture
def topology(cluster: Cluster) -> Callable[[str], Topology]:
    return lambda text: parse_topology(text, cluster, LAYERS, "fp32")


LONG, OTHER = counting(7, 150), counting(13, 150)


@pytest.fixture
async def uncached(ask: Ask) -> dict[tuple[int, ...], list[Token]]:
    """What an engine without prefix caching says to each prompt."""
    async with ask(prefix_caching=False) as asked:
        said = {prompt: await asked.whole(str(n), prompt) for n, prompt in enumerate((LONG, OTHER))}
        assert (await asked.engine.stats()).prefix_cache_queries == 0
    return said


def same(got: list[Token], want: list[Token]) -> None:
    assert [token.token_id for token in got] == [token.token_id for token in want]
    assert max(abs(a.logprob - b.logprob) for a, b in zip(got, want, strict=True)) < 1e-4


@pytest.mark.parametrize("shape", ["1x1", "tp2", "pp2"])
async def test_the_same_prompt_again_computes_the_rest_and_says_the_same(
    ask: Ask, uncached: dict[tuple[int, ...], list[Token]], shape: str
) -> None:
    async with ask(shape) as asked:
        for turn in range(3):
            same(await asked.whole(f"a{turn}", LONG), uncached[LONG])
            same(await asked.whole(f"b{turn}", OTHER), uncached[OTHER])
        stats = await asked.engine.stats()
        # the two begin with the same words
        first = next(n for n, pair in enumerate(zip(LONG, OTHER, strict=True)) if len({*pair}) > 1)
        assert stats.prefix_cache_hits == 2 * cached(LONG) + 2 * cached(OTHER) + first // BLOCK * BLOCK
        assert stats.prefix_cache_queries == 6 * 150
        assert {token.num_cached for token in asked.said["a0"]} == {0}
        assert {token.num_cached for token in asked.said["a1"]} == {cached(LONG)}
        assert stats.free_blocks == stats.total_blocks


async def test_a_conversation_goes_on_from_what_was_said(
    ask: Ask, uncached: dict[tuple[int, ...], list[Token]]
) -> None:
    answer = tuple(token.token_id or 0 for token in uncached[LONG])
    longer = (*LONG, *answer, *OTHER[-30:])
    async with ask(prefix_caching=False) as asked:
        want = await asked.whole("longer", longer)
    async with ask() as asked:
        await asked.whole("first", LONG)
        same(await asked.whole("longer", longer), want)
        assert await asked.hits() == (len(LONG) + len(answer) - 1) // BLOCK * BLOCK


async def test_requests_that_run_at_once_have_the_same_blocks_and_all_of_them_have_digests(ask: Ask) -> None:
    async with ask("pp2") as asked:
        await asked.begin("a", LONG, 300)
        await asked.begin("b", LONG, 300)
        found = await asked.engine.digests({"a": 150, "b": 70})
        shared = range(cached(LONG) // BLOCK)
        assert all(
            found.blocks["a", logical] == found.blocks["b", logical] for logical in shared[: 70 // BLOCK]
        )
        pieces = {piece for _, _, piece in found.digests}
        assert len(pieces) == LAYERS * 4
        for count, name in ((-(-150 // BLOCK), "a"), (-(-70 // BLOCK), "b")):
            assert {key for key in found.digests if key[0] == name} == {
                (name, logical, piece) for logical in range(count) for piece in pieces
            }
        for piece in pieces:
            assert found.digests["a", 3, piece] == found.digests["b", 3, piece]
            assert (
                found.digests["a", 70 // BLOCK, piece] != found.digests["b", 70 // BLOCK, piece]
            )  # 8 and 6 tokens


@pytest.mark.parametrize(
    ("now", "then"), [("1x1", "tp2"), ("tp2", "pp2"), ("pp2", "CPU[2]:0-3 > CPU[3]:3-8")]
)
async def test_a_hit_during_a_sync_is_copied_as_if_it_had_been_computed(
    ask: Ask,
    uncached: dict[tuple[int, ...], list[Token]],
    topology: Callable[[str], Topology],
    now: str,
    then: str,
) -> None:
    async with ask(now) as asked:
        await asked.whole("before", LONG)
        shadow = await asked.shadow(topology(then))
        await asked.begin("early", LONG, 200)
        while (await shadow.lag()).tokens > BLOCK:
            pass
        await asked.begin("late", LONG)
        await asked.end("late")
        before = await asked.engine.digests()
        await asked.commit(shadow)
        after = await asked.engine.digests(before.positions)
        assert len(before.digests) >= len(LONG) // BLOCK * LAYERS * 4
        assert after.digests == before.digests
        assert await asked.hits() == 2 * cached(LONG)
        early = await asked.end("early")
        same(early[:24], uncached[LONG])
        same(asked.said["late"], uncached[LONG])
        same(await asked.whole("after", LONG), uncached[LONG])
        assert await asked.hits() == 3 * cached(LONG), "the target had it"


async def test_a_hit_just_before_the_cut_comes_over(
    ask: Ask, uncached: dict[tuple[int, ...], list[Token]], topology: Callable[[str], Topology]
) -> None:
    async with ask("pp2") as asked:
        await asked.whole("before", LONG)
        shadow = await asked.shadow(topology("tp2"))
        await asked.begin("hit", LONG)
        await asked.commit(shadow)
        same(await asked.end("hit"), uncached[LONG])
        assert await asked.hits() == cached(LONG)


async def test_after_a_switch_only_prefixes_that_the_target_has_are_found(
    ask: Ask, uncached: dict[tuple[int, ...], list[Token]], topology: Callable[[str], Topology]
) -> None:
    async with ask("1x1") as asked:
        await asked.whole("stays behind", LONG)
        shadow = await asked.shadow(topology("tp2"))
        await asked.begin("copied", OTHER, 500)
        while (await shadow.lag()).tokens > BLOCK:
            pass
        await asked.gone("copied")
        before = await asked.hits()
        await asked.commit(shadow)
        same(await asked.whole("moved", OTHER), uncached[OTHER])
        assert await asked.hits() == before + cached(OTHER)
        same(await asked.whole("anew", LONG), uncached[LONG])
        # the first words are those of the other prompt, the rest stayed behind
        assert await asked.hits() - before - cached(OTHER) < 3 * BLOCK
        same(await asked.whole("again", LONG), uncached[LONG])
        assert await asked.hits() >= before + cached(OTHER) + cached(LONG)


async def test_a_switch_that_was_given_up_leaves_the_cache_as_it_was(
    ask: Ask, uncached: dict[tuple[int, ...], list[Token]], topology: Callable[[str], Topology]
) -> None:
    async with ask("1x1") as asked:
        await asked.whole("first", LONG)
        shadow = await asked.shadow(topology("tp2"))
        await shadow.lag()
        await shadow.abort(Reason.CANCELLED)
        same(await asked.whole("again", LONG), uncached[LONG])
        assert await asked.hits() == cached(LONG)


async def test_a_prefix_whose_memory_was_given_back_is_computed_anew(
    ask: Ask, uncached: dict[tuple[int, ...], list[Token]]
) -> None:
    async with ask("tp2") as asked:
        for step in (3, 17, 29):
            await asked.whole(f"takes 50 blocks: {step}", counting(step, 400), 1)
        await asked.whole("first", LONG)  # in blocks after these
        before = await asked.hits()
        await asked.engine.resize(120)
        await asked.engine.resize(200)
        same(await asked.whole("again", LONG), uncached[LONG])
        assert await asked.hits() - before < 3 * BLOCK, (
            "but for the first words, which are those of others too"
        )
        same(await asked.whole("and again", LONG), uncached[LONG])
        assert await asked.hits() - before >= cached(LONG)
