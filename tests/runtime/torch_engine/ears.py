"""Built-in engines of real processes, heard: what is asked of them, what they say, and switches in the middle of it."""

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from runtime.engine import Cut, GenerationRequest, Moved, Output, SamplingParams, Token
from runtime.errors import Reason
from runtime.models import Cluster, ModelSpec, Topology
from runtime.notation import parse_topology
from runtime.torch_engine.engine import TorchEngine, TorchShadow
from runtime.torch_engine.models import EngineSettings

LAYERS = 5
MODEL = ModelSpec("m", "Qwen3ForCausalLM", 4, 64, 128, 8, 4, 16, 100, 1024)
"""Of drivers without processes."""
SETTINGS = EngineSettings(
    block_size=8,
    num_blocks=256,
    max_running=6,
    max_batch_tokens=24,
    closing_batch_tokens=16,
    prefix_caching=False,  # what is submitted again is half-prefilled again
)


CUT_S = 60.0
"""For a cut in a test: a busy machine is no failure."""


class Ears:
    """Hears everything the engine says, and asks it for more."""

    def __init__(self, engine: TorchEngine) -> None:
        self.engine = engine
        self.tokens: dict[str, list[Token]] = {}
        self.moves: list[Moved] = []
        self.epoch = max(1, engine._epoch)
        self._news = asyncio.Condition()
        self.task = asyncio.create_task(self._listen())

    async def _listen(self) -> None:
        try:
            async for batch in self.engine.outputs():
                await self.hear(batch)
                async with self._news:
                    self._news.notify_all()
        finally:
            async with self._news:
                self._news.notify_all()

    async def hear(self, batch: Sequence[Output]) -> None:
        for item in batch:
            if isinstance(item, Moved):
                self.moves.append(item)
            else:
                self.tokens.setdefault(item.request_id, []).append(item)

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(200), self._news:
            await self._news.wait_for(condition)

    async def have(self, name: str, count: int) -> None:
        await self.until(lambda: len(self.tokens.get(name, [])) >= count)

    async def goes_on(self, name: str) -> None:
        """Wait until it says more than it has, or has come to its end."""
        tokens = self.tokens.setdefault(name, [])
        more = len(tokens) + 2
        await self.until(lambda: len(tokens) >= more or (bool(tokens) and tokens[-1].finish is not None))

    async def ended(self, *names: str) -> None:
        await self.until(lambda: all(name in self.tokens and self.tokens[name][-1].finish for name in names))

    async def all_ended(self, count: int) -> None:
        await self.until(lambda: sum(bool(t[-1].finish) for t in self.tokens.values()) == count)

    async def submit(self, *wanted: GenerationRequest) -> None:
        for request in wanted:
            await self.engine.submit(dataclasses.replace(request, epoch=self.epoch))

    async def run(self, *wanted: GenerationRequest) -> None:
        """Submit and wait until each speaks."""
        await self.submit(*wanted)
        await self.until(lambda: all(request.request_id in self.tokens for request in wanted))

    async def whole(self, *wanted: GenerationRequest) -> dict[str, list[Token]]:
        """All that the engine says to these; it is heard no more of them."""
        await self.submit(*wanted)
        await self.ended(*(request.request_id for request in wanted))
        return {request.request_id: self.tokens.pop(request.request_id) for request in wanted}

    async def cancel(self, *names: str) -> None:
        for name in names:
            await self.engine.cancel(name)
        await self.ended(*names)

    def topology(self, text: str) -> Topology:
        return parse_topology(text, self.engine._config.cluster, self.engine.model.num_layers, "fp32")

    async def prepared(self, text: str) -> TorchShadow:
        shadow = await self.engine.prepare(self.topology(text))
        await shadow.ready()
        return shadow

    async def synced(self, text: str) -> TorchShadow:
        shadow = await self.prepared(text)
        while (await shadow.lag()).tokens > 6 * 8:
            pass
        return shadow

    async def commit(self, shadow: TorchShadow) -> Cut:
        self.epoch += 1
        cut = await shadow.cut(self.epoch, deadline_s=CUT_S)
        await shadow.release()
        return cut

    async def switch(self, text: str) -> None:
        await self.commit(await self.synced(text))

    async def be(self, text: str) -> None:
        """Run as this topology."""
        if self.engine.topology != self.topology(text):
            await self.switch(text)

    async def is_free(self) -> bool:
        """Whether no request holds a block."""
        stats = await self.engine.stats()
        return stats.free_blocks == stats.total_blocks

    async def forget_prefixes(self) -> None:
        """But for a block."""
        size = (await self.engine.stats()).total_blocks
        await self.engine.resize(1)
        await self.engine.resize(size)


@contextlib.asynccontextmanager
async def started(
    folder: Path, text: str, cluster: Cluster, settings: EngineSettings, kind: type[TorchEngine] = TorchEngine
) -> AsyncIterator[TorchEngine]:
    """An engine as long as it is needed."""
    num_layers = 8 if "counting" in folder.name else LAYERS
    engine = await kind.start(folder, parse_topology(text, cluster, num_layers, "fp32"), cluster, settings)
    try:
        yield engine
    finally:
        await engine.close()


@contextlib.asynccontextmanager
async def hearing(engine: TorchEngine, make: Callable[[TorchEngine], Any] = Ears) -> AsyncIterator[Any]:
    """Ears for an engine that other tests use before and after."""
    while not engine._outputs.empty():
        engine._outputs.get_nowait()
    ears = make(engine)
    try:
        yield ears
    finally:
        if engine._shadow is not None and not engine._shadow.moved:
            await engine._shadow.abort(Reason.CANCELLED)
        await ears.cancel(*[*engine._live])
        ears.task.cancel()
        await asyncio.gather(ears.task, return_exceptions=True)


def requests(tokens: int = 60) -> list[GenerationRequest]:
    """Eight, more than run at once, every other one sampled; the fifth has a prompt of many prefill chunks."""
    lengths = [5, 8, 17, 30, 400, 1, 64, 23]
    return [
        GenerationRequest(
            f"r{i}",
            tuple((31 * i + 7 * j) % 101 for j in range(length)),
            SamplingParams(tokens, temperature=0.8 * (i % 2), top_p=0.95, seed=11),
            epoch=1,
        )
        for i, length in enumerate(lengths)
    ]


def same(got: Sequence[Token], want: Sequence[Token]) -> None:
    """Equal tokens, every index once, and equal logprobs."""
    assert [token.index for token in got] == list(range(len(want)))
    assert [token.token_id for token in got] == [token.token_id for token in want]
    assert max(abs(a.logprob - b.logprob) for a, b in zip(got, want, strict=True)) < 1e-4


def all_same(got: Mapping[str, Sequence[Token]], want: Mapping[str, Sequence[Token]]) -> None:
    assert got.keys() == want.keys()
    for name, tokens in want.items():
        same(got[name], tokens)
