"""A switch of running requests to weights that are quantised first: what is said then is what the built-in engine computes."""

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import pytest
import torch

from runtime.engine import SamplingParams
from runtime.kv.store import KvShape, KvStore
from runtime.models import LayerRange
from runtime.process.content import PinnedCheckpoint
from runtime.torch_engine.models import Span
from runtime.torch_engine.worker.attention import Attention
from runtime.torch_engine.worker.checkpoint import Checkpoint
from runtime.torch_engine.worker.group import SOLO
from runtime.torch_engine.worker.quantised_files import FOLDER, QuantisedFiles
from runtime.torch_engine.worker.shard import Shard, ShardSpec
from runtime.torch_engine.worker.weights import Weights
from runtime.vllm_engine.engine import VllmEngine
from tests.runtime.vllm_engine.streams import CHECKPOINT, CLUSTER, SETTINGS, hearing, topology

pytestmark = [pytest.mark.vllm, pytest.mark.slow, pytest.mark.asyncio(loop_scope="session")]

NEAR = 2e-2
"""Mean difference of logprobs between two engines that round to bfloat16 in other places."""


class BuiltIn:
    """The built-in engine's computation with all layers in a weight format, one rank, in bfloat16."""

    def __init__(self, folder: Path, name: str | None) -> None:
        checkpoint = Checkpoint(folder)
        files = QuantisedFiles(checkpoint, PinnedCheckpoint.of(folder).digest)
        weights = Weights(checkpoint, torch.bfloat16, files=files)
        layers = LayerRange(0, checkpoint.spec.num_layers)
        self._shard = Shard(weights, ShardSpec(layers, 0, 1, True, True, (name,) * len(layers)), layers)
        self._shape = KvShape(
            len(layers), checkpoint.spec.num_kv_heads, 200, 8, checkpoint.spec.head_dim, torch.bfloat16
        )

    def logprobs(self, prompt: Sequence[int], output: Sequence[int]) -> list[float]:
        tokens = [*prompt, *output]
        span = Span(0, len(tokens), tuple(range(-(-len(tokens) // 8))))
        attention = Attention(KvStore(self._shape).cache, slice(None), [span])
        hidden = self._shard.forward(torch.tensor(tokens), attention, SOLO)
        rows = [*range(len(prompt) - 1, len(tokens) - 1)]
        chances = self._shard.logits(hidden, rows, SOLO).float().log_softmax(dim=-1)
        return [float(row[token]) for row, token in zip(chances, output, strict=True)]


def apart(ours: Sequence[float], theirs: Sequence[float]) -> float:
    return sum(abs(a - b) for a, b in zip(ours, theirs, strict=True)) / len(ours)


@pytest.mark.parametrize(
    ("name", "shape"), [("int4", "tp2"), pytest.param("int8", "1x1", marks=pytest.mark.exhaustive)]
)
async def test_streams_go_on_as_the_built_in_engine_computes_with_the_same_codes(tmp_path, name, shape):
    """Sampled, from prompts that mean nothing: so that tokens are no foregone conclusion."""
    folder = tmp_path / "counting"
    shutil.copytree(CHECKPOINT, folder, ignore=shutil.ignore_patterns(".*"))
    wanted = {f"r{number}": tuple((7 * number + 3 * place) % 98 for place in range(9, 90, 20)) for number in range(4)}
    engine = await VllmEngine.start(folder, topology("1x1", "bf16"), CLUSTER, replace(SETTINGS, num_standby=0))
    try:
        async with hearing(engine) as streams:
            shadow = await streams.prepared(topology(shape, name))
            for stream, prompt in wanted.items():
                await streams.submit(stream, prompt, SamplingParams(max_tokens=300, temperature=1.0, seed=5))
            await streams.have(5, *wanted)
            await streams.synced(shadow)
            done = await streams.cut(shadow)
            await shadow.release()
            await streams.ended(*wanted)
    finally:
        await engine.close()
    assert (done.paths, done.left_to_drain) == ({"follow": 4}, ())
    digest = PinnedCheckpoint.of(folder).digest
    assert {path.name for path in (folder / FOLDER).iterdir()} == {f"{name}-{digest}", f"vllm-{name}-{digest}"}
    computed = {each: BuiltIn(folder, each) for each in (name, None)}
    apart: dict[str | None, list[float]] = {each: [] for each in computed}
    for stream, prompt in wanted.items():
        tokens = streams.tokens(stream)
        before = sum(token.epoch != done.epoch for token in streams.said[stream])
        assert 5 <= before < 250
        said = streams.logprobs(stream)[before:]
        for each, engine_of in computed.items():
            found = engine_of.logprobs((*prompt, *tokens[:before]), tokens[before:])
            apart[each] += [abs(ours - theirs) for ours, theirs in zip(said, found, strict=True)]
    distances = {each: fmean(found) for each, found in apart.items()}
    assert distances[name] < NEAR
    if name == "int4":
        assert distances[None] > 3 * distances[name], "as full weights would say it"
