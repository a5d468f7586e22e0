"""Streams of real vLLM engines, heard as the service hears them, and switches in the middle of them."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from pathlib import Path

import tokenizers

from runtime.engine import Cut, Moved, Request, SamplingParams, Token
from runtime.ledger import Accepted, Ledger
from runtime.models import Cluster, Gpu, Link, Node, Topology
from runtime.notation import parse_topology
from runtime.vllm_engine.engine import VllmEngine
from runtime.vllm_engine.models import VllmSettings
from runtime.vllm_engine.switch import VllmShadow

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
SETTINGS = VllmSettings(
    options=OPTIONS, kv_cache_bytes=192 << 20, staging_bytes=256 << 20, num_standby=8, spare=False
)


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
