"""Streams of real vLLM engines, heard as the service hears them, and switches in the middle of them."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import torch

from runtime import grammar
from runtime.engine import Cut, Finish, GenerationRequest, Moved, SamplingParams, Token
from runtime.ledger import Accepted, Ledger
from runtime.models import Topology
from runtime.notation import parse_topology
from runtime.tokenizer import Tokenizer
from runtime.vllm_engine.engine import VllmEngine
from runtime.vllm_engine.messages import ForgetPrefixes
from runtime.vllm_engine.models import VllmSettings
from runtime.vllm_engine.switch import VllmShadow
from tests.runtime.scripted import cluster_of

CHECKPOINT = Path(__file__).parents[3] / "examples" / "counting"
TOKENIZER = Tokenizer.load(CHECKPOINT)
CLUSTER = cluster_of("cpu", 3 << 30)
LOGPROB_TOLERANCE = 1e-4


def topology(text: str, precision: str = "fp32") -> Topology:
    return parse_topology(text, CLUSTER, 8, precision)


def counting(step: int, start: int, length: int) -> tuple[int, ...]:
    """A prompt of exactly ``length`` tokens that has begun to count."""
    numbers = " ".join(str(start + step * n) for n in range(length))
    return TOKENIZER.encode(f"count by {step} from {start}: {numbers}")[:length]


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
        await self.engine.submit(GenerationRequest(name, prompt, sampling, self.ledger.open(name)))

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
SETTINGS = VllmSettings(options=OPTIONS, kv_cache_bytes=192 << 20, staging_bytes=256 << 20, num_standby=8, spare=False)


def prompts(salt: int = 0) -> dict[str, tuple[int, ...]]:
    """Twelve of different lengths, two over 512 tokens; half of them begin alike, with ``salt``."""
    own = [counting(4 + n, 7 * n + salt, length) for n, length in enumerate((9, 60, 128, 200, 300, 530))]
    common = TOKENIZER.encode("count by 3 from 5: " + " ".join(str(salt + 3 * n) for n in range(60)))
    shared = [(*common, *counting(20 + n, n, length)) for n, length in enumerate((5, 33, 128, 140, 250, 380))]
    return {f"r{n}": prompt for n, prompt in enumerate((*own, *shared))}


SAMPLING = SamplingParams(max_tokens=260)
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 20, "maxLength": 40},
        "sizes": {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 999}, "minItems": 30, "maxItems": 30},
    },
    "required": ["name", "sizes"],
    "additionalProperties": False,
}  # fmt: skip
WARM = replace(SAMPLING, temperature=1.0)
SEEDED = {
    f"seeded {n}": replace(WARM, seed=seed, top_p=top_p, top_k=top_k, min_p=min_p)
    for n, (seed, top_p, top_k, min_p) in enumerate([(7, 1, 0, 0), (-3, 0.9, 0, 0), (2**40, 1, 9, 0), (8, 1, 0, 0.05)])
}
KINDS = {
    **SEEDED,
    "greedy": SAMPLING,
    "presence": replace(SAMPLING, presence_penalty=1.5),
    "frequency": replace(SAMPLING, frequency_penalty=0.4),
    "repetition": replace(SAMPLING, repetition_penalty=1.3),
    "bias": replace(SAMPLING, logit_bias=((3, -2.0), (19, 4.0))),
    "seeded penalties": replace(WARM, seed=9, presence_penalty=0.7, frequency_penalty=0.3),
    "document": replace(WARM, seed=12, grammar=grammar.json_schema(SCHEMA), stop_token_ids=(1,)),
    "unseeded": WARM,
}
"""What depends on more than the model: noise, penalties and biases."""
Wanted = dict[str, tuple[tuple[int, ...], SamplingParams]]
RUNNING: Wanted = {
    **{name: (prompt, KINDS[name]) for name, prompt in zip(KINDS, prompts().values(), strict=True)},
    **{name: (prompts(7)[name], SAMPLING) for name in ("r2", "r5", "r8", "r11")},
}
LATE: Wanted = {
    "half-prefilled": (counting(13, 3, 800), SAMPLING),
    "half-prefilled and seeded": (counting(15, 3, 800), SEEDED["seeded 0"]),
    "just admitted": (counting(14, 4, 12), SAMPLING),
}
"""The long ones are computed in four steps, the last of them after the switch; a draw for each but the last is undone."""
WANTED = RUNNING | LATE


@cache
def model() -> Any:
    import transformers

    return transformers.AutoModelForCausalLM.from_pretrained(CHECKPOINT, dtype=torch.float32).eval()


@cache
def forced(prompt: tuple[int, ...], output: tuple[int, ...]) -> list[float]:
    """The logprob of each token of ``output`` after those before it, by a model that never was in an engine."""
    with torch.inference_mode():
        logits = model()(torch.tensor([[*prompt, *output]])).logits[0, len(prompt) - 1 : -1]
    chances = torch.log_softmax(logits.float(), dim=-1)
    return [float(chances[n, token]) for n, token in enumerate(output)]


def difference(ours: list[float], theirs: list[float]) -> float:
    """The largest, as a share of logprobs beyond -1: penalties and noise bring unlikely tokens, to -30."""
    return max(abs(a - b) / max(1.0, abs(a)) for a, b in zip(ours, theirs, strict=True))


async def run_through(streams: Streams, unswitched: Streams, source: str, target: str, path: str) -> Cut:
    """All the requests, switched in the middle, against themselves unswitched."""
    await streams.be(topology(source))
    await streams.engine.active.call(ForgetPrefixes())
    shadow = await streams.prepared(topology(target))
    for name, (prompt, sampling) in RUNNING.items():
        await streams.submit(name, prompt, sampling)
    await streams.have(20, *RUNNING)
    await streams.synced(shadow)
    for name, (prompt, sampling) in LATE.items():
        await streams.submit(name, prompt, sampling)
    before = streams.ledger.epoch
    done = await streams.cut(shadow)
    await shadow.release()
    await streams.ended(*WANTED)
    assert set(done.moved) == set(WANTED)
    assert (done.paths, done.left_to_drain, done.stays) == ({path: len(WANTED)}, (), {})
    assert all(streams.epochs(name) == [before, done.epoch] for name in RUNNING)
    for name in WANTED.keys() - {"unseeded"}:
        assert streams.tokens(name) == unswitched.tokens(name), name
        assert difference(streams.logprobs(name), unswitched.logprobs(name)) < LOGPROB_TOLERANCE, name
    for name in [*SEEDED, "unseeded"]:
        by_the_model = forced(RUNNING[name][0], tuple(streams.tokens(name)))
        assert difference(streams.logprobs(name), by_the_model) < LOGPROB_TOLERANCE, name
    jsonschema.validate(json.loads(TOKENIZER.decode(streams.tokens("document"))), SCHEMA)
    assert streams.said["document"][-1].finish is Finish.STOP
    assert streams.tokens("unseeded") != unswitched.tokens("unseeded"), "it drew from the engine's own noise"
    return done


@contextlib.contextmanager
def settings(engine: VllmEngine, **changes: object) -> Iterator[None]:
    """Other settings for the engines that are started, and for the switches, in between."""
    engine.settings, kept = replace(engine.settings, **changes), engine.settings  # type: ignore[arg-type]
    yield
    engine.settings = kept
