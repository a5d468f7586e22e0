"""Running requests move between real vLLM engines: bytes, logprobs and tokens; and what happens when one is lost.

Engines take long to start, so one ``VllmEngine`` keeps all it ever started as standby, for all tests.
"""

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio
import tokenizers

from runtime.engine import Cut, Finish, Moved, Request, SamplingParams, Token
from runtime.errors import SwitchError
from runtime.ledger import Accepted, Ledger
from runtime.models import Cluster, Gpu, Link, Node, Reason, Topology
from runtime.notation import parse_topology
from runtime.vllm_engine.engine import VllmEngine
from runtime.vllm_engine.messages import Release
from runtime.vllm_engine.models import VllmSettings
from runtime.vllm_engine.processes import SHARED_MEMORY, group_pids
from runtime.vllm_engine.switch import VllmShadow

pytestmark = [pytest.mark.vllm, pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]

CHECKPOINT = Path(__file__).parents[3] / "examples" / "counting"
CLUSTER = Cluster(
    (Node("local", tuple(Gpu(n, "cpu", 3 << 30) for n in range(4)), Link("shared-memory", 5e9, 1e-5)),)
)
LOGPROB_TOLERANCE = 1e-4


def topology(text: str, precision: str = "fp32") -> Topology:
    return parse_topology(text, CLUSTER, 8, precision)


def encode(text: str) -> tuple[int, ...]:
    return tuple(tokenizers.Tokenizer.from_file(str(CHECKPOINT / "tokenizer.json")).encode(text).ids)


def counting(step: int, start: int, length: int) -> tuple[int, ...]:
    """A prompt of exactly ``length`` tokens that has begun to count."""
    numbers = " ".join(str(start + step * n) for n in range(length))
    return encode(f"count by {step} from {start}: {numbers}")[:length]


class Streams:
    """Hears an engine through the real ledger."""

    def __init__(self, engine: VllmEngine) -> None:
        self.engine = engine
        self.ledger = Ledger("source")
        self.said: dict[str, list[Token]] = {}
        self.dropped: list[Token] = []
        self._news = asyncio.Condition()

    async def listen(self) -> None:
        async for batch in self.engine.outputs():
            for output in batch:
                if isinstance(output, Moved):
                    self.ledger.move(output)
                elif isinstance(self.ledger.accept(output), Accepted):
                    self.said[output.request_id].append(output)
                elif output.request_id in self.said:
                    self.dropped.append(output)
            async with self._news:
                self._news.notify_all()

    async def submit(self, name: str, prompt: tuple[int, ...], sampling: SamplingParams) -> None:
        self.said[name] = []
        await self.engine.submit(Request(name, prompt, sampling, self.ledger.open(name)))

    async def until(self, is_so: Callable[[], bool]) -> None:
        async with asyncio.timeout(120), self._news:
            await self._news.wait_for(is_so)
        assert self.dropped == []

    async def have(self, count: int, *names: str) -> None:
        await self.until(lambda: all(len(self.said[name]) >= count for name in names))

    async def ended(self, *names: str) -> None:
        await self.until(lambda: all(self.has_ended(name) for name in names))
        counts = self.ledger.counts
        assert (counts.lost, counts.duplicates, counts.wrong_epoch) == (0, 0, 0)

    def has_ended(self, name: str) -> bool:
        return bool(self.said[name]) and self.said[name][-1].finish is not None

    def tokens(self, name: str) -> list[int]:
        return [token.token_id for token in self.said[name] if token.token_id is not None]

    def logprobs(self, name: str) -> list[float]:
        return [token.logprob for token in self.said[name] if token.token_id is not None]

    def epochs(self, name: str) -> list[int]:
        return sorted({token.epoch for token in self.said[name]})

    async def prepared(self, target: Topology) -> VllmShadow:
        shadow = await self.engine.prepare(target)
        await shadow.ready()
        return shadow

    async def synced(self, shadow: VllmShadow, max_lag_tokens: int = 96) -> None:
        async with asyncio.timeout(60):
            while (await shadow.lag()).tokens > max_lag_tokens:
                pass

    async def cut(self, shadow: VllmShadow) -> Cut:
        return await shadow.cut(self.ledger.announce("target"), deadline_s=20.0)

    async def switch(self, target: Topology) -> Cut:
        """A whole switch."""
        shadow = await self.prepared(target)
        await self.synced(shadow)
        done = await self.cut(shadow)
        await shadow.release()
        return done

    async def be(self, target: Topology) -> None:
        """Run as ``target``, before anything is submitted."""
        if self.engine.topology != target:
            await self.switch(target)


@contextlib.asynccontextmanager
async def hearing(engine: VllmEngine) -> AsyncIterator[Streams]:
    """Streams of an engine that other tests use before and after."""
    streams = Streams(engine)
    while not engine._outputs.empty():
        engine._outputs.get_nowait()
    engine._epoch = 0
    task = asyncio.create_task(streams.listen())
    yield streams
    for name in list(engine.streams):
        await engine.cancel(name)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


OPTIONS = {"max_num_seqs": 24, "max_num_batched_tokens": 256, "max_model_len": 2048}
SETTINGS = VllmSettings(options=OPTIONS, kv_cache_bytes=192 << 20, staging_bytes=256 << 20, num_standby=8)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engine() -> AsyncIterator[VllmEngine]:
    made = await VllmEngine.start(CHECKPOINT, topology("1x1"), CLUSTER, SETTINGS)
    yield made
    await made.close()


@pytest_asyncio.fixture(loop_scope="module")
async def streams(engine: VllmEngine) -> AsyncIterator[Streams]:
    async with hearing(engine) as made:
        yield made


def prompts(salt: int = 0) -> dict[str, tuple[int, ...]]:
    """Twelve of different lengths, two over 512 tokens; half of them begin alike, with ``salt``."""
    own = [counting(4 + n, 7 * n + salt, length) for n, length in enumerate((9, 60, 128, 200, 300, 530))]
    common = encode("count by 3 from 5: " + " ".join(str(salt + 3 * n) for n in range(60)))
    shared = [(*common, *counting(20 + n, n, length)) for n, length in enumerate((5, 33, 128, 140, 250, 380))]
    return {f"r{n}": prompt for n, prompt in enumerate((*own, *shared))}


LATE = {"half-prefilled": counting(13, 3, 800), "just admitted": counting(14, 4, 12)}
SAMPLING = SamplingParams(max_tokens=260)


async def run_through(streams: Streams, source: str, target: str, path: str) -> Cut:
    """All the requests, switched in the middle, against themselves unswitched."""
    wanted = prompts() | LATE
    await streams.be(topology(source))
    for name, prompt in wanted.items():
        await streams.submit(f"{name} unswitched", prompt, SAMPLING)
    await streams.ended(*streams.said)
    shadow = await streams.prepared(topology(target))
    for name, prompt in prompts().items():
        await streams.submit(name, prompt, SAMPLING)
    await streams.have(20, *prompts())
    await streams.synced(shadow)
    for name, prompt in LATE.items():
        await streams.submit(name, prompt, SAMPLING)
    before = streams.ledger.epoch
    done = await streams.cut(shadow)
    await shadow.release()
    await streams.ended(*wanted)
    assert set(done.moved) == set(wanted)
    assert done.paths == {path: 14}
    assert done.left_to_drain == ()
    for name in wanted:
        assert streams.tokens(name) == streams.tokens(f"{name} unswitched"), name
        difference = zip(streams.logprobs(name), streams.logprobs(f"{name} unswitched"), strict=True)
        assert max(abs(a - b) for a, b in difference) < LOGPROB_TOLERANCE, name
    assert all(streams.epochs(name) == [before, done.epoch] for name in prompts())
    return done


@contextlib.contextmanager
def settings(engine: VllmEngine, **changes: object) -> Iterator[None]:
    """Other settings for the engines that are started, and for the switches, in between."""
    engine.settings, kept = replace(engine.settings, **changes), engine.settings  # type: ignore[arg-type]
    yield
    engine.settings = kept


@pytest.mark.parametrize(
    ("source", "target"), [("1x1", "tp2"), ("tp2", "1x1"), ("1x1", "pp2"), ("pp2", "tp2")]
)
async def test_running_half_prefilled_and_waiting_requests_say_the_same_as_unswitched(
    streams: Streams, source: str, target: str
) -> None:
    done = await run_through(streams, source, target, "patch")
    assert done.tokens_recomputed == 0


async def test_followed_requests_say_the_same_as_unswitched(streams: Streams) -> None:
    with settings(streams.engine, path="follow"):
        await run_through(streams, "1x1", "tp2", "follow")


@pytest.mark.parametrize(
    ("source", "target"), [("1x1", "tp2"), ("tp2", "1x1"), ("1x1", "pp2"), ("pp2", "tp2")]
)
async def test_every_page_arrives_whole(streams: Streams, source: str, target: str) -> None:
    await streams.be(topology(source))
    shadow = await streams.prepared(topology(target))
    # a prefix that the target has cached is not copied: these it has never seen
    for name, prompt in prompts(salt=1000 + 7 * ord(source[0]) + ord(target[0])).items():
        await streams.submit(name, prompt, SAMPLING)
    await streams.have(20, *prompts())
    await streams.synced(shadow)
    here, there = shadow._source, shadow._target
    await there.call("suspend", ())  # so that the first step does not write
    state = await here.call("suspend", tuple(prompts()))
    releases = [Release(name, 0, 0, state.extents[name]) for name in prompts()]
    sent = {name: await here.call("digests", name) for name in prompts()}
    await there.call("release", releases, shadow._news())
    arrived = {name: await there.call("digests", name) for name in prompts()}
    assert arrived == sent
    assert len(sent["r5"]) == 5 * 8 * 4
    await shadow.abort(Reason.CANCELLED)
    await there.call("resume", ())


async def test_followed_requests_go_on_as_the_target_would_by_itself(streams: Streams) -> None:
    """From bfloat16 to float32: the other way round one step of a bfloat16 logit, up to 0.06, can lie between the two."""
    await streams.be(topology("1x1", "bf16"))
    shadow = await streams.prepared(topology("1x1"))
    sampling = SamplingParams(max_tokens=400)
    for name, prompt in (prompts() | LATE).items():
        await streams.submit(name, prompt, sampling)
    await streams.have(20, *prompts(), *LATE)
    await streams.synced(shadow)
    epoch = streams.ledger.epoch
    done = await streams.cut(shadow)
    await shadow.release()
    await streams.ended(*prompts(), *LATE)
    assert done.paths == {"follow": 14}
    assert done.left_to_drain == ()
    for name, prompt in (prompts() | LATE).items():
        before = [token.token_id for token in streams.said[name] if token.epoch == epoch]
        rest = SamplingParams(max_tokens=sampling.max_tokens - len(before))
        await streams.engine.active.call("forget_prefixes")
        await streams.submit(f"{name} continued", (*prompt, *before), rest)
        await streams.ended(f"{name} continued")
        assert streams.tokens(name)[len(before) :] == streams.tokens(f"{name} continued"), name
        difference = zip(
            streams.logprobs(name)[len(before) :], streams.logprobs(f"{name} continued"), strict=True
        )
        assert max(abs(a - b) for a, b in difference) < LOGPROB_TOLERANCE, name


async def test_sampled_requests_stay_and_end_on_the_source(streams: Streams) -> None:
    await streams.be(topology("1x1"))
    shadow = await streams.prepared(topology("tp2"))
    sampled = SamplingParams(max_tokens=60, temperature=0.8, seed=11)
    await streams.submit("unswitched", prompts()["r1"], sampled)
    await streams.submit("sampled", prompts()["r1"], sampled)
    await streams.submit("greedy", prompts()["r2"], SAMPLING)
    await streams.have(10, "sampled", "greedy")
    await streams.synced(shadow)
    before = streams.ledger.epoch
    done = await streams.cut(shadow)
    assert done.moved == ("greedy",)
    assert set(done.left_to_drain) <= {"sampled", "unswitched"}
    await shadow.release()
    assert streams.has_ended("sampled")
    assert streams.epochs("sampled") == [before]
    assert streams.tokens("sampled") == streams.tokens("unswitched")
    await streams.ended("greedy")
    assert streams.epochs("greedy") == [before, done.epoch]


async def test_fifty_switches_between_two_engines_leave_every_block_free(streams: Streams) -> None:
    engine = streams.engine
    await streams.be(topology("tp2"))
    await streams.be(topology("1x1"))
    free = {}
    for shape in ("tp2", "1x1"):
        await streams.be(topology(shape))
        free[shape] = (await engine.stats()).free_blocks
    await streams.submit("reference", prompts()["r3"], SamplingParams(max_tokens=900))
    await streams.ended("reference")
    for number in range(4):
        await streams.submit(f"a{number}", prompts()["r3"], SamplingParams(max_tokens=900))
    moved = 0
    for number in range(50):
        done = await streams.switch(topology("tp2" if number % 2 == 0 else "1x1"))
        moved += len(done.moved)
    assert moved > 100
    await streams.ended("a0", "a1", "a2", "a3")
    for name in ("a0", "a1", "a2", "a3"):
        assert streams.tokens(name) == streams.tokens("reference")
    for shape in ("tp2", "1x1"):
        await streams.be(topology(shape))
        stats = await engine.stats()
        assert (stats.free_blocks, stats.running, stats.waiting) == (free[shape], 0, 0)


@pytest.mark.parametrize("target", ["tp2", "pp2"])
async def test_requests_that_end_while_they_are_parked_give_their_blocks_back(
    streams: Streams, target: str
) -> None:
    await streams.be(topology(target))
    free = (await streams.engine.stats()).free_blocks
    await streams.be(topology("1x1"))
    shadow = await streams.prepared(topology(target))
    for name in ("r3", "r4", "r5"):
        await streams.submit(name, prompts(500)[name], SAMPLING)
    await streams.have(5, "r3", "r4", "r5")
    await streams.synced(shadow)
    await streams.engine.cancel("r3")
    await streams.ended("r3")
    await shadow.lag()
    await shadow.abort(Reason.CANCELLED)
    assert (await shadow._target.call("stats")).free_blocks == free
    await streams.ended("r4", "r5")
    await streams.be(topology(target))
    await streams.submit("after", prompts()["r0"], SamplingParams(max_tokens=5))
    await streams.ended("after")


async def test_a_source_that_dies_inside_the_cut_is_replaced_and_the_target_given_up(
    streams: Streams, monkeypatch: pytest.MonkeyPatch
) -> None:
    await streams.be(topology("1x1"))
    shadow = await streams.prepared(topology("tp2"))
    await streams.submit("r4", prompts()["r4"], SAMPLING)
    await streams.have(5, "r4")
    await streams.synced(shadow)
    source, call = shadow._source, shadow._target.call

    async def kill_and_call(method: str, *arguments: object) -> object:
        if method == "release":
            source.kill()
            while not source.is_gone:  # noqa: ASYNC110 - heard of by the loop, not by an event
                await asyncio.sleep(0)
        return await call(method, *arguments)

    monkeypatch.setattr(shadow._target, "call", kill_and_call)
    with pytest.raises(SwitchError) as refusal:
        await streams.cut(shadow)
    monkeypatch.undo()
    assert refusal.value.reason is Reason.ENGINE_LOST
    await streams.ended("r4")
    assert streams.said["r4"][-1].finish is Finish.ERROR
    await shadow.abort(refusal.value.reason)
    await streams.submit("after", prompts()["r0"], SamplingParams(max_tokens=5))
    await streams.ended("after")
    assert streams.engine.topology == topology("1x1")


async def test_without_room_in_staging_memory_requests_stay(streams: Streams) -> None:
    await streams.be(topology("1x1"))
    engine = streams.engine
    engine.settings, kept = (
        VllmSettings(options=OPTIONS, staging_bytes=3 << 20, num_standby=8),
        engine.settings,
    )
    try:
        shadow = await streams.prepared(topology("tp2"))
        await streams.submit("small", prompts()["r0"], SAMPLING)
        await streams.submit("large", prompts()["r5"], SamplingParams(max_tokens=60))
        await streams.have(10, "small", "large")
        await shadow.lag()
        done = await streams.cut(shadow)
        await shadow.release()
    finally:
        engine.settings = kept
    assert done.left_to_drain
    await streams.ended("small", "large")


async def test_a_target_that_dies_after_parking_leaves_the_source_as_it_was(streams: Streams) -> None:
    await streams.be(topology("1x1"))
    await streams.submit("unswitched", prompts()["r4"], SAMPLING)
    await streams.ended("unswitched")
    shadow = await streams.prepared(topology("pp2"))
    await streams.submit("r4", prompts()["r4"], SAMPLING)
    await streams.have(5, "r4")
    await streams.synced(shadow)
    group = shadow._target.pid
    memory = set(shadow._target.started.shared_memory)
    assert memory
    os.kill(shadow._target.started.pids[1], signal.SIGKILL)
    with pytest.raises(SwitchError) as refusal:
        await streams.cut(shadow)
    await shadow.abort(refusal.value.reason)
    assert refusal.value.reason is Reason.RANK_LOST
    await streams.ended("r4")
    assert streams.tokens("r4") == streams.tokens("unswitched")
    assert streams.epochs("r4") == [streams.ledger.epoch]
    assert group_pids(group) == []
    assert memory.isdisjoint(entry.path for entry in os.scandir(SHARED_MEMORY))


async def test_a_target_that_dies_while_warming_is_given_up(streams: Streams) -> None:
    await streams.be(topology("1x1"))
    shadow = await streams.engine.prepare(topology("pp2"))
    starting = shadow._starting
    while not (found := _launched(streams.engine)):  # noqa: ASYNC110 - a process tells nobody that it began
        await asyncio.sleep(0)
    os.kill(found, signal.SIGKILL)
    with pytest.raises(SwitchError) as refusal:
        await shadow.ready()
    assert refusal.value.reason is Reason.LOAD_FAILED
    assert starting.done()
    await shadow.abort(refusal.value.reason)
    assert group_pids(found) == []
    await streams.submit("after", prompts()["r0"], SamplingParams(max_tokens=5))
    await streams.ended("after")


async def test_an_engine_that_refuses_an_option_is_told_in_one_line(streams: Streams) -> None:
    await streams.be(topology("1x1"))
    with settings(streams.engine, options={**OPTIONS, "max_num_seq": 3}):
        shadow = await streams.engine.prepare(topology("pp2", "bf16"))
        with pytest.raises(SwitchError, match=r"no option 'max_num_seq'.*did you mean max_num_seqs"):
            await shadow.ready()
        await shadow.abort(Reason.LOAD_FAILED)


async def test_a_layout_that_cannot_travel_is_refused_by_name(streams: Streams) -> None:
    await streams.be(topology("1x1"))
    with settings(streams.engine, path="patch"):
        shadow = await streams.engine.prepare(topology("1x1", "bf16"))
        with pytest.raises(SwitchError, match="dtype float32 and bfloat16"):
            await shadow.ready()
        await shadow.abort(Reason.UNSUPPORTED)


async def test_a_source_that_dies_in_the_sync_ends_its_streams_and_is_started_anew(streams: Streams) -> None:
    await streams.be(topology("1x1"))
    shadow = await streams.prepared(topology("tp2"))
    await streams.submit("r4", prompts()["r4"], SAMPLING)
    await streams.have(5, "r4")
    await shadow.lag()
    group = streams.engine.active.pid
    os.kill(group, signal.SIGKILL)
    await streams.ended("r4")
    assert streams.said["r4"][-1].finish is Finish.ERROR
    with pytest.raises(SwitchError) as refusal:
        await shadow.lag()
    assert refusal.value.reason is Reason.ENGINE_LOST
    await shadow.abort(refusal.value.reason)
    await streams.submit("after", prompts()["r0"], SamplingParams(max_tokens=5))
    await streams.ended("after")
    assert streams.engine.topology == topology("1x1")
    assert group_pids(group) == []


def _launched(engine: VllmEngine) -> int | None:
    """The newest driver that this process started and that does not serve yet."""
    known = {engine.active.pid, *(one.pid for one in engine.standby)}
    mine = str(os.getpid())
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) not in known:
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                command = (entry / "cmdline").read_text()
            except OSError:
                continue
            if fields[1] == mine and "vllm_engine.boot" in command:
                return int(entry.name)
    return None
