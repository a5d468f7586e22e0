"""The router: text in, deltas out, each stream whole whatever the engine does."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace

import pytest
import tokenizers
from tokenizers import decoders, models, pre_tokenizers

from runtime.engine import Finish, GenerationRequest, Moved, SamplingParams, Token
from runtime.errors import EngineLostError, RequestError, StreamError
from runtime.router import Router
from runtime.stream import AT_A_TIME, Delta, GenerationParams, Usage
from runtime.tokenizer import Tokenizer
from tests.rows import rows
from tests.runtime.scripted import ScriptedEngine, topology

EOS = 0
LETTERS = {"<eos>": EOS, **{chr(code): code - 96 for code in range(97, 123)}}


@pytest.fixture
def tokenizer() -> Tokenizer:
    """See ``letters_alone``."""
    return letters_alone()


def letters_alone() -> Tokenizer:
    """One token per letter: a is 1."""
    letters = tokenizers.Tokenizer(models.WordLevel(LETTERS, unk_token="<eos>"))
    letters.pre_tokenizer = pre_tokenizers.Split(tokenizers.Regex("."), behavior="isolated")
    letters.decoder = decoders.Fuse()
    letters.add_special_tokens(["<eos>"])
    return Tokenizer(letters, eos_ids=(EOS,))


@pytest.fixture
async def engine() -> AsyncIterator[ScriptedEngine]:
    scripted = ScriptedEngine(topology(1, 1))
    yield scripted
    await scripted.close()


@pytest.fixture
async def router(engine: ScriptedEngine, tokenizer: Tokenizer) -> AsyncIterator[Router]:
    async with Router(engine, tokenizer) as made:
        yield made


async def collect(
    router: Router, prompt: str, max_tokens: int = 6, stop: tuple[str, ...] = (), **sampling: object
) -> list[Delta]:
    params = GenerationParams(SamplingParams(max_tokens, **sampling), stop)  # type: ignore[arg-type]
    return [delta async for delta in router.generate(prompt, params)]


def text_of(deltas: list[Delta]) -> str:
    return "".join(delta.text for delta in deltas)


async def settled(engine: ScriptedEngine) -> None:
    """Let what is under way arrive."""
    for _ in range(20):
        await asyncio.sleep(0)


async def submitted(engine: ScriptedEngine) -> GenerationRequest:
    """The request that just reached the engine."""
    await engine.until(lambda: bool(engine.requests))
    return engine.requests[-1]


async def held(router: Router, engine: ScriptedEngine, **asked: int) -> tuple[asyncio.Task[list[Delta]], str]:
    """A stream of an engine that says what the test has it say, and the id of its request."""
    engine.hold()
    task = asyncio.create_task(collect(router, "ab", **asked))
    return task, (await submitted(engine)).request_id


async def test_a_generation_has_text_usage_and_a_finish(router):
    deltas = await collect(router, "abc", max_tokens=5)
    assert text_of(deltas) == "abcab"
    assert [delta.index for delta in deltas] == [0, 1, 2, 3, 4]
    assert [delta.finish for delta in deltas] == [None] * 4 + [Finish.LENGTH]
    assert deltas[-1].usage == Usage(prompt_tokens=3, completion_tokens=5)
    assert router.num_streams == 0


async def test_a_prompt_may_be_token_ids(router):
    deltas = [delta async for delta in router.generate((1, 2), GenerationParams(SamplingParams(2)))]
    assert text_of(deltas) == "ab"


async def test_streams_do_not_mix(router):
    prompts = ["abc", "de", "fghij", "k", "lmno", "pq"]
    results = await asyncio.gather(*(collect(router, prompt, 20) for prompt in prompts))
    assert [text_of(deltas) for deltas in results] == [(prompt * 20)[:20] for prompt in prompts]


@rows("wants_seed", [True, False])
async def test_a_seed_is_drawn_for_an_engine_that_wants_one(router, engine, wants_seed):
    engine.capabilities = replace(engine.capabilities, wants_seed=wants_seed)
    engine.hold()
    wishes = [(1.0, 7), (1.0, None), (1.0, None), (0.0, None)]
    tasks = [asyncio.create_task(collect(router, "ab", temperature=t, seed=seed)) for t, seed in wishes]
    await settled(engine)
    given, first, second, greedy = (request.sampling.seed for request in engine.requests)
    assert (given, greedy) == (7, None)
    if wants_seed:
        assert first != second
    assert (first is not None) is (second is not None) is wants_seed
    engine.resume()
    await asyncio.gather(*tasks)


async def test_the_end_token_ends_the_text_and_is_no_part_of_it(router):
    deltas = [delta async for delta in router.generate((1, 2, EOS, 3), GenerationParams(SamplingParams(9)))]
    assert text_of(deltas) == "ab"
    assert (deltas[-1].finish, deltas[-1].token_id) == (Finish.STOP, EOS)


async def test_the_end_token_can_be_ignored(router):
    params = GenerationParams(SamplingParams(5), ignore_eos=True)
    deltas = [delta async for delta in router.generate((1, EOS, 3), params)]
    assert text_of(deltas) == "aca"
    assert deltas[-1].finish is Finish.LENGTH


async def test_the_text_of_any_stop_token_is_left_out(router):
    deltas = await collect(router, "abc", stop_token_ids=(LETTERS["c"],))
    assert text_of(deltas) == "ab"
    assert deltas[-1].finish is Finish.STOP


async def test_a_stop_string_ends_the_stream_and_the_engine_is_told(router, engine):
    deltas = await collect(router, "abcd", max_tokens=200, stop=("cda",))
    assert text_of(deltas) == "ab"
    assert deltas[-1].finish is Finish.STOP
    assert deltas[-1].usage == Usage(4, 5)
    await settled(engine)
    assert engine.requests == ()


async def test_what_looked_like_a_stop_string_comes_at_the_end(router):
    assert text_of(await collect(router, "abc", max_tokens=3, stop=("cx",))) == "abc"


async def test_a_consumer_that_goes_away_ends_its_request(router, engine):
    async with contextlib.aclosing(router.generate("ab", GenerationParams(SamplingParams(200)))) as deltas:
        await anext(deltas)
    await settled(engine)
    assert engine.requests == ()
    assert router.num_streams == 0


async def test_a_cancelled_consumer_ends_its_request(router, engine):
    task, _ = await held(router, engine)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await settled(engine)
    assert engine.requests == ()


async def test_a_request_the_engine_refuses_fails_before_any_delta(router):
    with pytest.raises(RequestError, match="ask for fewer"):
        await collect(router, "ab", max_tokens=10_000)
    assert router.num_streams == 0


async def test_the_fingerprint_changes_exactly_at_the_streams_own_cut(router, engine):
    task, _ = await held(router, engine, max_tokens=4)
    for _ in range(3):  # one of prefill, two tokens
        engine.turn()
    epoch = router.announce(topology(2))
    engine.move(epoch, topology(2))
    engine.resume()
    deltas = await task
    assert [delta.fingerprint for delta in deltas] == ["0-PP2", "0-PP2", "1-TP2", "1-TP2"]
    assert text_of(deltas) == "abab"


async def test_what_the_old_owner_still_says_after_the_fence_is_not_heard(router, engine):
    task, request_id = await held(router, engine, max_tokens=2)
    epoch = router.announce(topology(2))
    stale = Token(request_id, 0, 0, LETTERS["z"])
    engine.emit([Moved(epoch, (request_id,)), stale, Token(request_id, epoch, 0, LETTERS["a"])])
    engine.emit([stale, Token(request_id, epoch, 1, LETTERS["b"], finish=Finish.LENGTH)])
    assert text_of(await task) == "ab"
    assert router.counts.wrong_epoch == 2
    assert router.counts.lost == router.counts.duplicates == 0


@pytest.mark.parametrize("num_cached", [None, 0, 1])
async def test_usage_has_what_the_first_token_says_was_cached(router, engine, num_cached):
    task, request_id = await held(router, engine, max_tokens=2)
    engine.emit([Token(request_id, 0, 0, LETTERS["a"], num_cached=num_cached)])
    engine.emit([Token(request_id, 0, 1, None, finish=Finish.CANCELLED)])
    assert (await task)[-1].usage == Usage(2, 1, num_cached)


async def test_a_token_said_twice_is_delivered_once(router, engine):
    task, request_id = await held(router, engine, max_tokens=2)
    first = Token(request_id, 0, 0, LETTERS["a"])
    engine.emit([first, first, Token(request_id, 0, 1, LETTERS["b"], finish=Finish.LENGTH)])
    assert text_of(await task) == "ab"
    assert router.counts.duplicates == 1


async def test_a_lost_token_breaks_the_stream_instead_of_corrupting_it(router, engine):
    engine.hold()
    seen: list[Delta] = []

    async def consume() -> None:
        async for delta in router.generate("ab", GenerationParams(SamplingParams(9))):
            seen.append(delta)  # noqa: PERF401 - what came before the error is looked at

    task = asyncio.create_task(consume())
    request_id = (await submitted(engine)).request_id
    engine.emit([Token(request_id, 0, 0, LETTERS["a"]), Token(request_id, 0, 3, LETTERS["b"])])
    with pytest.raises(StreamError, match="2 tokens before index 3 were lost"):
        await task
    assert text_of(seen) == "a"
    assert router.counts.lost == 2
    await settled(engine)
    assert engine.requests == ()


async def test_an_engine_error_ends_the_stream_after_what_came_before(router, engine):
    engine.hold()
    deltas = router.generate("ab", GenerationParams(SamplingParams(9)))
    first = asyncio.create_task(anext(deltas))
    await submitted(engine)
    engine.turn()
    engine.turn()
    assert (await first).text == "a"
    engine.fail("rank 1 died")
    with pytest.raises(StreamError, match="rank 1 died"):
        await anext(deltas)


async def test_a_lost_engine_breaks_all_streams_and_refuses_new_ones(router, engine):
    engine.hold()
    tasks = [asyncio.create_task(collect(router, "ab")) for _ in range(3)]
    await settled(engine)
    engine.lose("the driver was killed")
    for task in tasks:
        with pytest.raises(EngineLostError, match="the driver was killed"):
            await task
    with pytest.raises(EngineLostError, match="the driver was killed"):
        await collect(router, "ab")
    assert router.lost is not None


@dataclass(slots=True)
class Seen:
    """An observer that writes down what it is told."""

    ttft_s: list[float] = field(default_factory=list)
    itl_s: list[float] = field(default_factory=list)
    ends: list[tuple[Finish, Usage]] = field(default_factory=list)
    times_s: list[tuple[float, float | None]] = field(default_factory=list)
    """From arrival to the last token, and between tokens."""
    refusals: int = 0
    prompts: list[int] = field(default_factory=list)
    """Tokens of those that came."""
    tenants: list[str] = field(default_factory=list)

    def of(self, tenant: str) -> "Seen":
        self.tenants.append(tenant)
        return self

    def arrived(self, prompt_tokens: int) -> None:
        self.prompts.append(prompt_tokens)

    def first_token(self, ttft_s: float) -> None:
        self.ttft_s.append(ttft_s)

    def next_token(self, itl_s: float) -> None:
        self.itl_s.append(itl_s)

    def finished(self, finish: Finish, usage: Usage, *, e2e_s: float, tpot_s: float | None) -> None:
        self.ends.append((finish, usage))
        self.times_s.append((e2e_s, tpot_s))

    def refused(self) -> None:
        self.refusals += 1


async def test_an_observer_learns_latencies_and_ends(engine, tokenizer):
    now_s, seen = 10.0, Seen()
    engine.hold()
    async with Router(engine, tokenizer, clock=lambda: now_s, observers=seen) as router:
        task = asyncio.create_task(collect(router, "ab", max_tokens=3))
        await submitted(engine)
        engine.turn()
        for step_s in (0.5, 0.25, 0.125):
            now_s += step_s
            engine.turn()
            await settled(engine)
        deltas = await task
    assert (seen.ttft_s, seen.itl_s) == ([0.5], [0.25, 0.125])
    assert seen.ends == [(Finish.LENGTH, Usage(2, 3))]
    assert seen.times_s == [(0.875, 0.1875)]
    assert [delta.arrived_at_s for delta in deltas] == [10.5, 10.75, 10.875]


async def test_times_begin_with_the_clients_request_and_end_when_it_leaves(engine, tokenizer):
    now_s, seen = 10.0, Seen()
    engine.hold()
    async with Router(engine, tokenizer, clock=lambda: now_s, observers=seen) as router:
        deltas = router.generate("ab", GenerationParams(SamplingParams(3), arrived_s=7.0))
        waiting = asyncio.create_task(anext(deltas))
        await submitted(engine)
        assert router.waits_s == [("", 3.0)]
        now_s = 15.0
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
    assert seen.ends == [(Finish.CANCELLED, Usage(2, 0))]
    assert seen.times_s == [(8.0, None)]


async def test_a_request_to_an_engine_that_is_lost_is_an_error(engine, tokenizer):
    seen = Seen()
    async with Router(engine, tokenizer, observers=seen) as router:
        engine.lose("the driver was killed")
        await settled(engine)
        with pytest.raises(EngineLostError):
            await collect(router, "ab")
    assert [finish for finish, _ in seen.ends] == [Finish.ERROR]


async def test_an_observer_that_fails_ends_its_own_streams_alone(engine, tokenizer, caplog):
    class Failing(Seen):
        def next_token(self, itl_s: float) -> None:
            raise ZeroDivisionError

    class ByTenant:
        def of(self, tenant: str) -> Seen:
            return Failing() if tenant == "bad" else Seen()

    async def said(tenant: str) -> list[Delta]:
        params = GenerationParams(SamplingParams(5), tenant=tenant)
        return [delta async for delta in router.generate("abc", params)]

    async with Router(engine, tokenizer, observers=ByTenant()) as router:
        bad, good = await asyncio.gather(said("bad"), said("good"), return_exceptions=True)
        assert isinstance(bad, StreamError)
        assert "which its log has" in str(bad)
        assert isinstance(good, list)
        assert text_of(good) == "abcab"
        assert text_of(await said("another")) == "abcab"
        assert router.lost is None
    assert "ZeroDivisionError" in caplog.text
    await engine.until(lambda: not engine.requests)


async def test_requests_without_a_token_are_told_with_their_age(engine, tokenizer):
    now_s = 10.0
    engine.hold()
    async with Router(engine, tokenizer, clock=lambda: now_s) as router:
        stream = router.generate("ab", GenerationParams(SamplingParams(2), tenant="free"))
        first = asyncio.ensure_future(anext(stream))
        await submitted(engine)
        now_s = 13.0
        assert router.waits_s == [("free", 3.0)]
        for _ in range(3):
            engine.turn()
            await settled(engine)
        await first
        assert router.waits_s == []
        await stream.aclose()


async def test_an_observer_learns_of_clients_that_went_away_and_of_refused_requests(engine, tokenizer):
    seen = Seen()
    async with Router(engine, tokenizer, observers=seen) as router:
        async with contextlib.aclosing(router.generate("ab", GenerationParams(SamplingParams(200)))) as deltas:
            await anext(deltas)
        with pytest.raises(RequestError):
            await collect(router, "ab", max_tokens=10_000)
    assert [finish for finish, _ in seen.ends] == [Finish.CANCELLED]
    assert seen.refusals == 1
    assert seen.prompts == [2]


async def test_a_stream_with_much_to_say_lets_others_speak(router, engine):
    engine.hold()
    deltas = router.generate("ab", GenerationParams(SamplingParams(250)))
    first = asyncio.create_task(anext(deltas))
    request_id = (await submitted(engine)).request_id
    engine.emit([Token(request_id, 0, index, 1) for index in range(200)])
    await first
    turns = list[int]()

    async def others() -> None:
        for _ in range(2):
            turns.append(len(heard))
            await asyncio.sleep(0)

    heard, task = [await first], asyncio.create_task(others())
    while len(heard) < 200:
        heard.append(await anext(deltas))
    await task
    assert turns == [AT_A_TIME, 2 * AT_A_TIME]
    await deltas.aclose()


async def test_one_batch_wakes_a_stream_once(router, engine):
    engine.hold()
    deltas = router.generate("abc", GenerationParams(SamplingParams(3)))
    first = asyncio.create_task(anext(deltas))
    request_id = (await submitted(engine)).request_id
    engine.emit([Token(request_id, 0, index, 1 + index) for index in range(2)])
    await first
    # the second token of the batch is there without the loop turning
    pending = deltas.__anext__()
    with pytest.raises(StopIteration) as done:
        pending.send(None)
    assert done.value.value.index == 1
    await deltas.aclose()


async def streaming(
    router: Router, engine: ScriptedEngine, num: int
) -> tuple[list[asyncio.Task[list[Delta]]], list[str]]:
    """Streams without a token yet, and the ids of their requests."""
    tasks = [asyncio.create_task(collect(router, "ab", max_tokens=9)) for _ in range(num)]
    await engine.until(lambda: len(engine.requests) == num)
    return tasks, [request.request_id for request in engine.requests]


def tokens(names: list[str], epoch: int, index: int) -> list[Token]:
    return [Token(name, epoch, index, LETTERS["a"]) for name in names]


@pytest.mark.parametrize("observers", [None, Seen()])
async def test_what_streams_waited_through_a_cut_is_kept(engine, tokenizer, observers):
    now_s = 10.0
    engine.hold()
    async with Router(engine, tokenizer, clock=lambda: now_s, observers=observers) as router:
        tasks, names = await streaming(router, engine, 4)
        first, single, gone, waiting = names
        said = [(10.5, [first, single, gone], 0), (11.0, [first], 1), (12.5, [first], 2)]
        for now_s, those, index in said:  # noqa: B007 - the router's clock reads it
            engine.emit(tokens(those, 0, index))
            await settled(engine)
        epoch = router.announce(topology(2))
        assert router.gaps(epoch) is None
        engine.emit([Moved(epoch, tuple(names))])
        now_s = 13.0
        engine.emit([*tokens([first], epoch, 3), *tokens([waiting], epoch, 0)])
        await settled(engine)
        now_s = 14.5
        engine.emit([*tokens([first], epoch, 4), *tokens([single], epoch, 1), *tokens([waiting], epoch, 1)])
        engine.emit([Token(gone, epoch, 1, None, finish=Finish.CANCELLED)])
        await settled(engine)
        found = router.gaps(epoch)
        assert found is not None
        assert (found.waits_s, found.usual_s) == ([0.5, 4.0], [1.0])
        router.end_streams("over")
        await asyncio.gather(*tasks, return_exceptions=True)


async def test_a_fence_that_moves_nobody_leaves_no_gaps(router, engine):
    engine.hold()
    tasks, (name,) = await streaming(router, engine, 1)
    engine.emit([*tokens([name], 0, 0), Moved(1, (name,)), *tokens([name], 0, 1)])  # nobody announced it
    await settled(engine)
    assert router.gaps(1) is None
    epoch = router.announce(topology(2))
    engine.emit([Moved(epoch, ("somebody",)), *tokens([name], 0, 2)])
    await settled(engine)
    assert (router.gaps(epoch), router.counts.accepted) == (None, 3)
    router.end_streams("over")
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_gaps_are_those_of_the_last_cut(router, engine):
    engine.hold()
    tasks, (name,) = await streaming(router, engine, 1)
    engine.emit(tokens([name], 0, 0))
    first, second = router.announce(topology(2)), router.announce(topology(1, 1))
    engine.emit([Moved(first, (name,)), Moved(second, (name,)), *tokens([name], second, 1)])
    engine.emit([Moved(second, (name,)), *tokens([name], second, 2)])  # a fence said twice
    await settled(engine)
    found = router.gaps(second)
    assert (router.gaps(first), found is not None and len(found.waits_s)) == (None, 1)
    router.end_streams("over")
    await asyncio.gather(*tasks, return_exceptions=True)
