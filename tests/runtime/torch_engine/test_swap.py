"""Formats of layers change while requests run: tokens are of the formats that ran, KV stays, and faults leave layers whole."""

import asyncio
import os
import shutil
import signal
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
import torch

from runtime.engine import EngineState, GenerationRequest, SamplingParams
from runtime.errors import Reason, SwitchError
from runtime.footprint import freed_blocks, groups
from runtime.kv.store import KvShape, KvStore
from runtime.models import Cluster, LayerRange, Topology
from runtime.notation import parse_topology
from runtime.torch_engine.models import Span
from runtime.torch_engine.worker.attention import Attention
from runtime.torch_engine.worker.checkpoint import Checkpoint
from runtime.torch_engine.worker.group import SOLO
from runtime.torch_engine.worker.quantised import quantise
from runtime.torch_engine.worker.shard import Shard, ShardSpec
from runtime.torch_engine.worker.weights import LayerWeights, Linear, Weights
from tests.runtime.scripted import cluster_of, reaches
from tests.runtime.torch_engine.ears import CUT_S, SETTINGS, Ears, all_same, hearing, same, started

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="session")]

COUNTING = Path(__file__).parents[3] / "examples" / "counting"
NUM_LAYERS = 8
WAYS = (
    "CPUx1@fp32",
    "CPU[0]:0-8@fp32,0-8=int8",
    "CPU[0]:0-4@fp32 > CPU[1]:4-8@fp32,4-7=int4",
    "CPUx2@fp32,2-6=int8",
)
CIRCUIT = (0, 1, 0, 2, 0, 3, 1, 2, 1, 3, 2, 3, 0)
"""Every ordered pair of these ways, one after the other."""
BLOCK = 8


class Reference:
    """The model with weights that were made whole again, one rank, in float32."""

    def __init__(self) -> None:
        self._weights = Weights(Checkpoint(COUNTING), torch.float32)
        model = self._weights.checkpoint.spec
        spec = ShardSpec(LayerRange(0, NUM_LAYERS), 0, 1, True, True)
        self._shard = Shard(self._weights, spec, spec.layers)
        self._full = dict(self._shard._layers)
        self._shape = KvShape(NUM_LAYERS, model.num_kv_heads, 90, BLOCK, model.head_dim, torch.float32)

    def logprobs(
        self, prompt: Sequence[int], output: Sequence[int], parts: Sequence[tuple[Topology, int]]
    ) -> list[float]:
        """Of each token of an output, of which the first were computed by one topology, those up to the next end by another."""
        store = KvStore(self._shape)
        tokens = [*prompt, *output]
        found: list[float] = []
        for (topology, end), (_, start) in zip(parts, [(None, 0), *parts], strict=False):
            first = 0 if not start else len(prompt) + start - 1
            last = len(prompt) + end - 1
            if last <= first:
                continue
            self._shard._layers |= {layer: self._layer(layer, topology) for layer in range(NUM_LAYERS)}
            span = Span(first, last - first, tuple(range(-(-last // BLOCK))))
            attention = Attention(store.cache, slice(None), [span])
            hidden = self._shard.forward(torch.tensor(tokens[first:last]), attention, SOLO)
            rows = [*range(len(prompt) + start - 1 - first, last - first)]
            logits = self._shard.logits(hidden, rows, SOLO).log_softmax(dim=-1)
            found += [float(row[token]) for row, token in zip(logits, output[start:end], strict=True)]
        return found

    def _layer(self, layer: int, topology: Topology) -> LayerWeights:
        name = topology.stage_of(layer).precision_of(layer).weights
        if name == "fp32":
            return self._full[layer]

        def whole(matrices: Sequence[str], width: str) -> Linear:
            found = [self._weights.checkpoint.tensor(f"model.layers.{layer}.{each}.weight") for each in matrices]
            group = groups(self._weights.checkpoint.spec)[width] if name == "int4" else None
            return Linear(torch.cat([quantise(each, name, group).dequantised() for each in found]))

        return replace(
            self._full[layer],
            qkv=whole([f"self_attn.{each}_proj" for each in "qkv"], "hidden"),
            o=whole(["self_attn.o_proj"], "attention"),
            gate_up=whole(["mlp.gate_proj", "mlp.up_proj"], "hidden"),
            down=whole(["mlp.down_proj"], "mlp"),
        )


def topologies(cluster: Cluster) -> list[Topology]:
    return [parse_topology(text, cluster, NUM_LAYERS, "fp32") for text in WAYS]


def streams(count: int, tokens: int) -> list[GenerationRequest]:
    """Every other one sampled."""
    return [
        GenerationRequest(
            f"r{number}",
            tuple((7 * number + 3 * place) % 98 for place in range(3 + 5 * (number % 4))),
            SamplingParams(tokens, temperature=0.9 * (number % 2), seed=number, top_p=0.98),
            epoch=1,
        )
        for number in range(count)
    ]


class Watching(Ears):
    """Notes how many tokens each stream has when it moves."""

    def __init__(self, engine) -> None:
        super().__init__(engine)
        self.parts: list[tuple[Topology, dict[str, int]]] = []

    async def hear(self, batch):
        for item in batch:
            if hasattr(item, "request_ids"):
                ended = {name: len(tokens) for name, tokens in self.tokens.items()}
                self.parts.append((self.now, ended))
            await super().hear([item])

    now: Topology


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of a checkpoint, to spoil."""
    copied = tmp_path / "counting"
    shutil.copytree(COUNTING, copied, ignore=shutil.ignore_patterns(".*"))
    return copied


async def test_streams_over_every_pair_say_what_the_formats_that_ran_say():
    cluster = cluster_of()
    ways = topologies(cluster)
    settings = replace(SETTINGS, num_blocks=1300, max_running=16, max_batch_tokens=64, closing_batch_tokens=32)
    wanted = streams(16, 600)
    async with started(COUNTING, WAYS[0], cluster, settings) as engine, hearing(engine, Watching) as ears:
        ears.now = ways[0]
        await ears.submit(*wanted)
        for before, after in pairwise(CIRCUIT):
            await ears.goes_on("r0")
            shadow = await engine.prepare(ways[after])
            await shadow.ready()
            while (await shadow.lag()).tokens > 6 * 16:
                pass
            ears.now = ways[before]
            ears.epoch += 1
            cut = await shadow.cut(ears.epoch, CUT_S)
            assert {*cut.paths} <= {"swap", "patch"}
            assert ("swap" in cut.paths) == ({before, after} == {0, 1})
            await shadow.release()
        await ears.goes_on("r0")
        await ears.cancel(*(request.request_id for request in wanted))  # however many there are by then
        reference = Reference()
        for request in wanted:
            tokens = [token for token in ears.tokens[request.request_id] if token.token_id is not None]
            assert [token.index for token in tokens] == list(range(len(tokens)))
            ends = [(topology, counts.get(request.request_id, 0)) for topology, counts in ears.parts]
            parts = [*ends, (ways[CIRCUIT[-1]], len(tokens))]
            want = reference.logprobs(request.prompt, [token.token_id for token in tokens], parts)
            assert max(abs(token.logprob - logprob) for token, logprob in zip(tokens, want, strict=True)) < 1e-4
    counts = [counts["r0"] for _, counts in ears.parts]
    assert len({*counts}) == 12
    assert 0 < counts[0] < counts[-1] < 600, "they ran all the way"


async def test_a_swap_and_the_way_back_change_no_kv_and_bring_blocks_and_take_them_back(cluster):
    full, low, _, mixed = (
        parse_topology(text, cluster, NUM_LAYERS, "fp32") for text in (*WAYS[:3], "CPUx1@fp32,1-3=int4")
    )
    async with started(COUNTING, str(full), cluster, SETTINGS) as engine, hearing(engine) as ears:
        await ears.submit(*streams(6, 200))
        await ears.have("r5", 3)
        had = (await engine.stats()).total_blocks
        for target in (low, mixed, full):
            shadow = await engine.prepare(target)
            await shadow.ready()
            before = await engine.digests()
            ears.epoch += 1
            cut = await shadow.cut(ears.epoch, CUT_S)
            after = await engine.digests(before.positions)
            assert len(before.digests) > 100
            assert after.digests == before.digests
            assert (cut.paths, cut.tokens_recomputed, cut.bytes_inside) == ({"swap": 6}, 0, 0)
            await shadow.release()
            stats = await engine.stats()
            assert stats.total_blocks == had + freed_blocks(target, engine.model, SETTINGS.block_size)
            assert engine.topology == target
        await ears.all_ended(6)
        assert await ears.is_free()


async def test_the_way_back_waits_until_blocks_are_free_and_can_be_given_up(cluster):
    low = parse_topology(WAYS[1], cluster, NUM_LAYERS, "fp32")
    settings = replace(SETTINGS, num_blocks=100)
    async with started(COUNTING, str(low), cluster, settings) as engine, hearing(engine) as ears:
        most = (await engine.stats()).total_blocks
        assert most > 150, "more than it has in float32"
        long = [replace(request, sampling=SamplingParams(150)) for request in streams(6, 150)]
        await ears.submit(*long)
        await ears.until(lambda: sum(len(tokens) for tokens in ears.tokens.values()) > 6 * 140)
        back = await engine.prepare(parse_topology(WAYS[0], cluster, NUM_LAYERS, "fp32"))
        assert (await engine.stats()).total_blocks > 99, "some are in use"
        await back.abort(Reason.CANCELLED)
        assert (engine.topology, (await engine.stats()).total_blocks) == (low, most)
        back = await engine.prepare(parse_topology(WAYS[0], cluster, NUM_LAYERS, "fp32"))
        await back.ready()  # once requests have ended
        await ears.commit(back)
        await ears.all_ended(6)
        assert (await engine.stats()).total_blocks == 99


async def test_where_memory_is_short_layers_change_in_rounds_and_back_where_it_is_given_up(folder):
    """And where they cannot be changed back, each is whole in a format that is named."""
    cluster = cluster_of(memory_bytes=17_000_000)
    settings = replace(SETTINGS, num_blocks=100, num_standby=0)
    full, low = (parse_topology(text, cluster, NUM_LAYERS, "fp32") for text in WAYS[:2])
    wanted = streams(4, 12)
    async with started(folder, str(full), cluster, settings) as engine, hearing(engine) as ears:
        want = await ears.whole(*wanted)
        await ears.submit(*streams(3, 100))
        shadow = await engine.prepare(low)
        await shadow.ready()
        await shadow.abort(Reason.CANCELLED)
        await ears.all_ended(3)
        ears.tokens.clear()
        assert engine.topology == full
        all_same(await ears.whole(*wanted), want)
        await ears.commit(await ears.prepared(str(low)))
        assert engine.topology == low

        config = folder / "config.json"
        content = config.read_text()
        shadow = await ears.prepared(str(full))
        config.write_text(content + " ")
        await shadow.abort(Reason.CANCELLED)
        await engine.stats()  # whose answer comes behind what the driver said of itself
        formats = [engine.topology.stage_of(layer).precision_of(layer).weights for layer in range(NUM_LAYERS)]
        assert {*formats} == {"fp32", "int8"}
        config.write_text(content)
        await ears.commit(await ears.prepared(str(full)))
        all_same(await ears.whole(*wanted), want)


async def test_a_fault_leaves_every_layer_in_the_format_that_it_was_in(folder, cluster):
    text = "CPU[0]:0-4@fp32 > CPU[1]:4-8@fp32"
    low = parse_topology("CPU[0]:0-4@fp32,0-4=int8 > CPU[1]:4-8@fp32,4-8=int8", cluster, NUM_LAYERS, "fp32")
    async with started(folder, text, cluster, SETTINGS) as engine, hearing(engine) as ears:
        now = engine.topology
        config = folder / "config.json"
        content = config.read_text()
        await ears.submit(*streams(4, 150))
        await ears.have("r3", 2)
        config.write_text(content + " ")
        shadow = await engine.prepare(low)
        with pytest.raises(SwitchError, match="changed"):
            await shadow.ready()
        await shadow.abort(Reason.LOAD_FAILED)
        config.write_text(content)
        assert engine.topology == now
        await ears.goes_on("r3")
        shadow = await engine.prepare(low)
        with pytest.raises(SwitchError, match="another switch is under way"):
            await engine.prepare(parse_topology("tp2", cluster, NUM_LAYERS, "fp32"))
        await shadow.ready()
        stats = await engine.stats()
        os.kill(stats.worker_pids[1], signal.SIGKILL)
        ears.epoch += 1
        with pytest.raises(SwitchError):
            await shadow.cut(ears.epoch, CUT_S)
        await ears.ended("r0", "r1", "r2", "r3")
        async with asyncio.timeout(60):
            await engine.up()
        assert engine.topology == now
        await ears.switch(str(low))
        assert engine.topology == low


async def test_what_fits_only_in_few_bits_starts_again_as_it_ran_and_gives_way_where_kv_fills_memory(cluster):
    """Full weights leave no room for the blocks that were asked for: a lost engine came back in vain before."""
    small = cluster_of(memory_bytes=14_000_000)
    pair, low, full = (
        parse_topology(text, small, NUM_LAYERS, "fp32")
        for text in ("CPUx2@fp32", "CPU[0]:0-8@fp32,0-8=int4", "CPU[0]@fp32")
    )
    settings = replace(SETTINGS, num_blocks=250, num_standby=0)
    async with started(COUNTING, str(pair), small, settings) as engine, hearing(engine) as ears:
        await ears.switch(str(low))
        had = (await engine.stats()).total_blocks
        assert 100 < had < 250
        os.kill(engine.driver.pid, signal.SIGKILL)
        async with asyncio.timeout(60):
            await reaches(engine, EngineState.RESTARTING)
            await engine.up()
        assert (engine.topology, (await engine.stats()).total_blocks) == (low, had)
        await ears.switch(str(full))
        assert 0 < (await engine.stats()).total_blocks < had
        await ears.switch(str(low))
        assert (await engine.stats()).total_blocks == had


async def test_prefixes_of_other_weights_are_not_found_and_a_size_that_was_asked_for_holds(cluster):
    low, full = (parse_topology(text, cluster, NUM_LAYERS, "fp32") for text in (WAYS[1], WAYS[0]))
    settings = replace(SETTINGS, num_blocks=100, prefix_caching=True)
    requests = [GenerationRequest(name, tuple(7 * i % 98 for i in range(41)), SamplingParams(4), 1) for name in "abcde"]
    async with started(COUNTING, str(full), cluster, settings) as engine, hearing(engine) as ears:
        found = []
        for request, target in zip(requests, (full, full, low, low, full), strict=True):
            await ears.be(str(target))
            found.append((await ears.whole(request))[request.request_id])
        assert [tokens[0].num_cached for tokens in found] == [0, 40, 0, 40, 0]
        same(found[-1], found[0])
        await ears.switch(str(low))
        await engine.resize(40)
        for target in (full, low):
            await ears.switch(str(target))
            assert (await engine.stats()).total_blocks == 40
