"""Formats of weights, live and in figures: ``python -m benchmarks.precision CHECKPOINT``.

What products and the whole model lose against the same codes made whole; then swaps of all layers, and of one, while streams run,
with shams of the same length beside them; and what of the bytes comes back as KV blocks. Times are those of who listens.
"""

import argparse
import asyncio
import json
import re
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - the name everyone knows

from benchmarks.provenance import ROOT, provenance, stolen_now_s
from intent.tables import mapping
from runtime.engine import GenerationRequest, Moved, SamplingParams
from runtime.footprint import freed_blocks, groups, weight_bytes
from runtime.kv.store import KvShape, KvStore
from runtime.models import Cluster, Gpu, LayerRange, Link, Node, Topology
from runtime.notation import parse_topology
from runtime.tokenizer import Tokenizer
from runtime.torch_engine.engine import TorchEngine
from runtime.torch_engine.models import EngineSettings, Span
from runtime.torch_engine.worker.attention import Attention
from runtime.torch_engine.worker.checkpoint import Checkpoint
from runtime.torch_engine.worker.group import SOLO
from runtime.torch_engine.worker.quantised import QuantisedLinear, quantise
from runtime.torch_engine.worker.shard import Shard, ShardSpec
from runtime.torch_engine.worker.weights import LayerShare, Linear, Weights

RESULT = ROOT / "benchmarks" / "results" / "precision-cpu.json"
FORMATS = ("int8", "int4")
BASES = {"fp32": torch.float32, "bf16": torch.bfloat16}
TOKENS = 256
"""Of the sequence that logits are compared on."""
QUIET_S = 4.0
"""Before each swap, and as long is a sham."""
MATRICES = {
    "self_attn.q_proj": "hidden",
    "self_attn.o_proj": "attention",
    "mlp.up_proj": "hidden",
    "mlp.down_proj": "mlp",
}


def products(checkpoint: Checkpoint) -> dict[str, float]:
    """The largest relative error of a product, by format and base, over matrices and numbers of rows."""
    found = dict[str, float]()
    for name in FORMATS:
        for base, dtype in BASES.items():
            worst = 0.0
            for matrix, width in MATRICES.items():
                weight = checkpoint.tensor(f"model.layers.0.{matrix}.weight")
                quantised = quantise(weight, name, groups(checkpoint.spec)[width] if name == "int4" else None)
                made = QuantisedLinear([quantised], None, dtype, torch.device("cpu"))
                for rows in (1, 8, 64, 256):
                    x = torch.randn(rows, quantised.width).to(dtype)
                    want = F.linear(x.float(), quantised.dequantised())
                    worst = max(worst, float((made(x).float() - want).norm() / want.norm()))
            found[f"{name} on {base}"] = worst
    return found


def whole_model(checkpoint: Checkpoint) -> dict[str, dict[str, float]]:
    """Logits of the whole model beside those of the same codes made whole, in float32.

    Of the full model, too: what bf16 itself changes.
    """
    text = " ".join(str(mapping("intentctl", "held")["text"]).split())
    tokens = torch.tensor(Tokenizer.load(checkpoint.folder).encode(text)[:TOKENS])
    weights = {base: Weights(checkpoint, dtype) for base, dtype in BASES.items()}
    found = {}
    for name in (None, *FORMATS):
        want = _logits(weights["fp32"], tokens, [_made_whole(weights["fp32"], n, name) for n in _layers(checkpoint)])
        for base, own in weights.items():
            got = _logits(own, tokens, [own.layer(n, LayerShare(0, 1), name) for n in _layers(checkpoint)])
            found[f"{name or 'full'} on {base}"] = _compared(got, want)
    return found


def _compared(got: torch.Tensor, want: torch.Tensor) -> dict[str, float]:
    logprobs = got.log_softmax(-1)
    wanted = want.log_softmax(-1)
    return {
        "largest_by_largest_logit": float((got - want).abs().max() / want.abs().max()),
        "kl_mean": float(F.kl_div(logprobs, wanted, log_target=True, reduction="batchmean")),
        "logprob_of_best": float((logprobs - wanted).gather(1, want.argmax(-1, keepdim=True)).abs().max()),
    }


def _layers(checkpoint: Checkpoint) -> range:
    return range(checkpoint.spec.num_layers)


def _made_whole(weights: Weights, layer: int, name: str | None) -> Any:
    """A layer whose matrices are what the codes stand for."""
    if name is None:
        return weights.layer(layer, LayerShare(0, 1))

    def linear(matrices: Sequence[str], width: str) -> Linear:
        group = groups(weights.checkpoint.spec)[width] if name == "int4" else None
        found = [weights.checkpoint.tensor(f"model.layers.{layer}.{matrix}.weight") for matrix in matrices]
        return Linear(torch.cat([quantise(each, name, group).dequantised() for each in found]).to(weights.dtype))

    return replace(
        weights.layer(layer, LayerShare(0, 1)),
        qkv=linear([f"self_attn.{each}_proj" for each in "qkv"], "hidden"),
        o=linear(["self_attn.o_proj"], "attention"),
        gate_up=linear(["mlp.gate_proj", "mlp.up_proj"], "hidden"),
        down=linear(["mlp.down_proj"], "mlp"),
    )


def _logits(weights: Weights, tokens: torch.Tensor, layers: Sequence[Any]) -> torch.Tensor:
    model = weights.checkpoint.spec
    spec = ShardSpec(LayerRange(0, model.num_layers), 0, 1, True, True)
    shard = Shard(weights, spec, spec.layers)
    shard.exchange({number: (None, layer) for number, layer in enumerate(layers)})
    blocks = -(-len(tokens) // 32)
    store = KvStore(KvShape(model.num_layers, model.num_kv_heads, blocks, 32, model.head_dim, weights.dtype))
    attention = Attention(store.cache, slice(None), [Span(0, len(tokens), tuple(range(blocks)))])
    return shard.logits(shard.forward(tokens, attention, SOLO), range(len(tokens)), SOLO)


@dataclass(slots=True)
class Listener:
    """When each stream said something."""

    at_s: dict[str, list[float]] = field(default_factory=dict)

    async def listen(self, engine: TorchEngine) -> None:
        """Until the engine ends."""
        async for batch in engine.outputs():
            now_s = time.perf_counter()
            for item in batch:
                if not isinstance(item, Moved) and item.token_id is not None:
                    self.at_s.setdefault(item.request_id, []).append(now_s)

    def gaps_s(self, start_s: float, end_s: float) -> list[float]:
        """Between tokens of a stream that end within a time."""
        pairs = (pairwise(spoken) for spoken in self.at_s.values())
        return [late - early for each in pairs for early, late in each if start_s <= late <= end_s]


def anonymous_bytes(pids: Mapping[int, int]) -> int:
    """Of workers: memory that is theirs alone and no file's."""
    texts = (Path(f"/proc/{pid}/smaps_rollup").read_text() for pid in pids.values())
    return sum(int(re.findall(r"^Anonymous: +(\d+)", text, re.MULTILINE)[0]) << 10 for text in texts)


async def live(checkpoint: Path, base: str, num_streams: int, shape: str) -> list[dict[str, Any]]:
    """Swaps of all layers to each format and back, and of one, under streams."""
    cluster = Cluster(
        (Node("local", tuple(Gpu(n, "CPU", 4 << 30) for n in range(2)), Link("shared-memory", 5e9, 1e-5)),)
    )
    layers = Checkpoint(checkpoint).spec.num_layers
    now = parse_topology(shape, cluster, layers, base)
    settings = EngineSettings(num_blocks=800, max_running=num_streams, prefix_caching=False)
    engine = await TorchEngine.start(checkpoint, now, cluster, settings)
    listener = Listener()
    listening = asyncio.create_task(listener.listen(engine))
    prompt = tuple(range(100, 132))
    for number in range(num_streams):
        await engine.submit(GenerationRequest(f"s{number}", (*prompt, number), SamplingParams(5000), 1))
    await asyncio.sleep(QUIET_S)
    found = []
    middle = f"{layers // 2}-{layers // 2 + 1}"
    for epoch, formats in enumerate(
        (f"0-{layers}=int8", "", f"0-{layers}=int4", "", f"{middle}=int8", "", f"{middle}=int4", ""), 2
    ):
        target = parse_topology(_text(now, formats), cluster, layers, base)
        found.append({"to": formats or base, **await swapped(engine, listener, target, epoch)})
    await engine.close()
    await listening
    return found


def _text(now: Topology, formats: str) -> str:
    """Each stage with those layers in formats that are its own."""
    parts = []
    for stage in now.stages:
        text = str(stage)
        for item in filter(None, formats.split(",")):
            interval, name = item.split("=")
            start, end = map(int, interval.split("-"))
            first, last = max(start, stage.layers.start), min(end, stage.layers.end)
            text += f",{first}-{last}={name}" if first < last else ""
        parts.append(text)
    return " > ".join(parts)


async def swapped(engine: TorchEngine, listener: Listener, target: Topology, epoch: int) -> dict[str, Any]:
    """One swap, with a quiet time before it that is its sham."""
    source = engine.topology
    stats = await engine.stats()
    had_bytes = anonymous_bytes(stats.worker_pids)
    quiet_s = time.perf_counter()
    await asyncio.sleep(QUIET_S)
    began_s = time.perf_counter()
    shadow = await engine.prepare(target)
    await shadow.ready()
    ready_s = time.perf_counter()
    cut = await shadow.cut(epoch, 30.0)
    await shadow.release()
    ended_s = time.perf_counter()
    await asyncio.sleep(QUIET_S)
    after = await engine.stats()
    weights = [sum(weight_bytes(each, engine.model).values()) for each in (source, target)]
    size = engine.settings.block_size
    before_gaps = listener.gaps_s(quiet_s, began_s)
    during_gaps = listener.gaps_s(began_s, ended_s)
    later_gaps = listener.gaps_s(ended_s, time.perf_counter())
    return {
        "prepare_s": ready_s - began_s,
        "release_s": ended_s - ready_s,
        "swap_ms": cut.timings.patch_ms,
        "drain_ms": cut.timings.drain_ms,
        "sham_longest_gap_s": max(before_gaps),
        "longest_gap_s": max(during_gaps, default=0.0),
        "step_s": statistics.median(before_gaps),
        "tpot_by_sham": statistics.median(during_gaps or later_gaps[:1]) / statistics.median(before_gaps),
        "step_after_s": statistics.median(later_gaps),
        "freed_bytes": had_bytes - anonymous_bytes(after.worker_pids),
        "footprint_bytes": weights[0] - weights[1],
        "blocks": after.total_blocks - stats.total_blocks,
        "footprint_blocks": freed_blocks(target, engine.model, size) - freed_blocks(source, engine.model, size),
    }


def main() -> None:
    """Measure and print; with ``--json`` write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("--streams", type=int, default=4)
    parser.add_argument("--shape", default="CPUx1")
    parser.add_argument("--json", action="store_true", help=f"write {RESULT.name}")
    options = parser.parse_args()
    torch.set_num_threads(1)
    before_s = stolen_now_s()
    document: dict[str, Any] = {"parameters": {"checkpoint": options.checkpoint.name, "streams": options.streams}}
    document["live"] = {
        base: asyncio.run(live(options.checkpoint, base, options.streams, options.shape)) for base in BASES
    }
    with torch.inference_mode():
        checkpoint = Checkpoint(options.checkpoint)
        document["products"] = products(checkpoint)
        document["model"] = whole_model(checkpoint)
    document["provenance"] = provenance() | {"stolen_meanwhile_s": (stolen_now_s() or 0) - (before_s or 0)}
    text = json.dumps(document, indent=1)
    if options.json:
        RESULT.write_text(text + "\n")
    sys.stdout.write(text + "\n")


if __name__ == "__main__":
    main()
