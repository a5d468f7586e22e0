"""Weights in fewer bits: products and logits beside the same codes made whole, and swaps under streams.

Products are the device's own operators, or parts made whole, whichever ``quantised`` takes for so many rows; times are with cold
caches, beside a bfloat16 weight of the same shape. Logits may be off by what bfloat16 itself is off, and half of that.
"""

import asyncio
import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - the name everyone knows

from benchmarks.gpu.heard import ChangedError, Heard
from benchmarks.gpu.machine import Device, Machine
from benchmarks.gpu.parts.logits import SLACK, distance, judged
from benchmarks.gpu.random_weights import RandomCheckpoint, RandomEngine
from benchmarks.gpu.ranks import Asked, Rank
from benchmarks.gpu.room import standing_bytes, too_little
from benchmarks.gpu.rows import Row, Rows
from benchmarks.gpu.shapes import folder_of, spec_of
from benchmarks.gpu.sizes import SIZES, Formats
from runtime.engine import GenerationRequest, SamplingParams
from runtime.footprint import freed_blocks, groups
from runtime.models import ModelSpec
from runtime.notation import parse_topology
from runtime.torch_engine.models import quantised_on
from runtime.torch_engine.worker.group import SOLO
from runtime.torch_engine.worker.quantised import Quantised, QuantisedLinear, quantise

BASE = "bf16"
ROWS = (1, 16, 64, 256)
MOST_OFF = {"int8": 5e-3, "int4": 5e-3, "fp8": 4e-2}
"""Relative error of a product; the operator of fp8 rounds activations to 8 bits, too."""
FP8_LOGITS = 0.1
"""Relative error of logits in fp8, whose activations are rounded in each product: 0.03 to 0.06 on a CPU."""
RUNS = 10
FLUSHED_BYTES = {"cuda": 256 << 20, "cpu": 1 << 20}
"""Written between two runs: more than a GPU's cache holds."""


class MadeWhole(RandomCheckpoint):
    """The same weights with those of layers as their codes say them."""

    def __init__(self, folder: Path, name: str) -> None:
        super().__init__(folder)
        self._name = name

    def _made(self, name: str) -> torch.Tensor:
        whole = super()._made(name)
        if ".layers." not in name or whole.dim() != 2:
            return whole
        width = {"o_proj": "attention", "down_proj": "mlp"}.get(name.split(".")[-2], "hidden")
        return quantise(whole, self._name, group_of(self.spec, self._name, width)).dequantised()


def run(machine: Machine, rows: Rows) -> None:
    """A row for each product of a layer, for the logits of each format, and for each swap there and back."""
    sizes = SIZES[machine.device].formats
    spec = spec_of(sizes.shape, "formats")
    names = quantised_on(machine.kind)
    swaps = [f"swap {way}" for name in names for way in (f"to {name}", f"back from {name}")]
    products = {
        f"product {name} {matrix}": partial(product, machine, name, rows_out, width, group_of(spec, name, kind))
        for name in names
        for matrix, (rows_out, width, kind) in matrices(spec).items()
    }
    logits = [f"logits {name}" for name in names]
    rows.plan([*products, *logits, *swaps])
    if reason := too_little(SIZES[machine.device].limits(machine), needed_bytes(machine, sizes)):
        rows.skip([*products, *logits, *swaps], reason)
        return
    torch.set_num_threads(1)
    torch.set_float32_matmul_precision("highest")
    torch.zeros(1, device=machine.device)  # random weights are made on the device in use
    with folder_of(sizes.shape, "formats") as folder:
        with torch.inference_mode():
            for case, measure in products.items():
                rows.take(case, measure)
            for case, name in zip(logits, names, strict=True):
                rows.take(case, partial(compared, machine, folder, sizes, name))
        if machine.device == "cuda":
            torch.cuda.empty_cache()
        asyncio.run(_swap_all(machine, folder, sizes, rows))


def matrices(spec: ModelSpec) -> dict[str, tuple[int, int, str]]:
    """Of a layer as the engine multiplies: rows, width, and by what its groups go."""
    heads = spec.num_heads * spec.head_dim
    return {
        "qkv": (heads + 2 * spec.num_kv_heads * spec.head_dim, spec.hidden_size, "hidden"),
        "o": (spec.hidden_size, heads, "attention"),
        "gate_up": (2 * spec.intermediate_size, spec.hidden_size, "hidden"),
        "down": (spec.hidden_size, spec.intermediate_size, "mlp"),
    }


def group_of(spec: ModelSpec, name: str, width: str) -> int | None:
    """Values that share a scale; None: those of a row."""
    return groups(spec)[width] if name == "int4" else None


def needed_bytes(machine: Machine, sizes: Formats) -> int:
    """Device memory of all layers in float32 and as much again, of pool and caches."""
    spec = spec_of(sizes.shape, "formats")
    assert sizes.settings.num_blocks is not None, "sizes say it"
    way = parse_topology("1x1", machine.cluster, spec.num_layers, "fp32")
    pool = sizes.settings.num_blocks, sizes.settings.block_size
    return 2 * standing_bytes(spec, [way], *pool) + 2 * FLUSHED_BYTES[machine.device]


def product(machine: Machine, name: str, rows_out: int, width: int, group: int | None) -> Row:
    """How far products are from those of the codes made whole, and how long they take."""
    device = torch.device(machine.device)
    weight = torch.randn(rows_out, width, device=device) * width**-0.5
    codes = quantise(weight, name, group)
    made = QuantisedLinear([codes], None, torch.bfloat16, device)
    full = weight.bfloat16()
    row: Row = {"rows": rows_out, "width": width, "group": group, "relative_error": {}, "us": {}, "bf16_us": {}}
    for count in ROWS:
        x = torch.randn(count, width, device=device).bfloat16()
        row["relative_error"][count] = relative_error(made(x), x, codes)
        row["us"][count] = took_us(machine.device, partial(made, x))
        row["bf16_us"][count] = took_us(machine.device, partial(F.linear, x, full))
    return held(row, MOST_OFF[name])


def relative_error(found: torch.Tensor, x: torch.Tensor, codes: Quantised) -> float:
    """Of a product."""
    want = F.linear(x.float(), codes.dequantised())
    return float((found.float() - want).norm() / want.norm())


def held(row: Row, bound: float) -> Row:
    """The same with what is wrong; what is no number is."""
    wrong = {count: error for count, error in row["relative_error"].items() if not error <= bound}
    if not wrong:
        return row
    count, error = next(iter(wrong.items()))
    return {**row, "problem": f"relative error {error:.2g} with {count} rows, over {bound:.2g}"}


def took_us(device: Device, run_once: Callable[[], object]) -> float:
    """The median of some runs, with nothing of the weight in a cache."""
    flushed = torch.empty(FLUSHED_BYTES[device], dtype=torch.uint8, device=device)
    run_once()
    took = []
    for _ in range(RUNS):
        flushed.zero_()
        took.append(_event_us(run_once) if device == "cuda" else _wall_us(run_once))
    return statistics.median(took)


def _wall_us(run_once: Callable[[], object]) -> float:
    began_s = time.perf_counter()
    run_once()
    return 1e6 * (time.perf_counter() - began_s)


def _event_us(run_once: Callable[[], object]) -> float:
    marks: list[Any] = [torch.cuda.Event(enable_timing=True) for _ in range(2)]  # type: ignore[no-untyped-call]
    marks[0].record()
    run_once()
    marks[1].record()
    marks[1].synchronize()
    return 1e3 * float(marks[0].elapsed_time(marks[1]))


def compared(machine: Machine, folder: Path, sizes: Formats, name: str) -> Row:
    """Logits of all layers in a format, beside those of the same codes made whole in float32."""
    way = parse_topology("1x1", machine.cluster, sizes.shape["num_hidden_layers"], "fp32")
    formats = (name,) * sizes.shape["num_hidden_layers"]

    def logits(checkpoint: RandomCheckpoint, precision: str, *, is_quantised: bool) -> torch.Tensor:
        asked = Asked(checkpoint, folder, machine.kind, sizes.chunks, (precision,))
        return Rank(way, 0, 0, formats if is_quantised else ()).logits(asked, SOLO, precision).float()

    exact = logits(MadeWhole(folder, name), "fp32", is_quantised=False)
    usual = distance(logits(MadeWhole(folder, name), BASE, is_quantised=False), exact)["relative_error"]
    row = distance(logits(RandomCheckpoint(folder), BASE, is_quantised=True), exact)
    bound = FP8_LOGITS if name == "fp8" else SLACK * usual
    return judged({**row, "made_whole_relative_error": usual, "bound": bound})


async def _swap_all(machine: Machine, folder: Path, sizes: Formats, rows: Rows) -> None:
    """Of all layers to each format and back, each under streams."""
    num_layers = sizes.shape["num_hidden_layers"]
    full = f"{machine.kind}[0]:0-{num_layers}@{BASE}"
    start = parse_topology(full, machine.cluster, num_layers, BASE)
    engine = await RandomEngine.start(folder, start, machine.cluster, sizes.settings)
    heard = Heard(engine, machine.cluster)
    try:
        for name in quantised_on(machine.kind):
            for case, way in ((f"to {name}", f"{full},0-{num_layers}={name}"), (f"back from {name}", full)):
                rows.say(f"swap {case}", await _swapped(heard, way, sizes, case))
    finally:
        await engine.close()


async def _swapped(heard: Heard, way: str, sizes: Formats, case: str) -> Row:
    """One swap, under streams that begin when the new weights lie beside the old ones."""
    engine, compared_before, source = heard.engine, heard.compared, heard.engine.topology
    before = await engine.stats()
    requests = list(streams(sizes, case, heard.epoch))
    began_s = time.perf_counter()
    try:
        cut = await heard.switch(way, requests)
        ended_s = time.perf_counter()
        await heard.said(sizes.tokens)
    except ChangedError as problem:
        return {"problem": str(problem)}
    after = await engine.stats()
    size, model = engine.settings.block_size, engine.model
    wanted = freed_blocks(engine.topology, model, size) - freed_blocks(source, model, size)
    row = {
        "swap_ms": cut.timings.patch_ms,
        "drain_ms": cut.timings.drain_ms,
        "first_step_ms": cut.timings.first_step_ms,
        "longest_gap_ms": max(heard.gaps_ms(began_s, ended_s), default=0.0),
        "paths": dict(cut.paths),
        "tokens_recomputed": cut.tokens_recomputed,
        "digests_compared": heard.compared - compared_before,
        "tokens": sizes.tokens * len(requests),
        "blocks_gained": after.total_blocks - before.total_blocks,
        "footprint_blocks": wanted,
    }
    return swapped(row, len(requests))


def swapped(row: Row, count: int) -> Row:
    """A swap under so many streams, with what is wrong."""
    if row["paths"] != {"swap": count} or row["tokens_recomputed"]:
        return {**row, "problem": f"{count} streams should have stayed where they are; they went {row['paths']}"}
    if not row["digests_compared"]:
        return {**row, "problem": "no KV was compared: the streams ended before the cut; ask for more tokens"}
    if row["blocks_gained"] != row["footprint_blocks"]:
        return {
            **row,
            "problem": f"{row['blocks_gained']} KV blocks came of it, not {row['footprint_blocks']} as the footprint says",
        }
    return row


def streams(sizes: Formats, case: str, epoch: int) -> Iterator[GenerationRequest]:
    """The same for each swap, under other names."""
    vocabulary = sizes.shape["vocab_size"]
    for stream, length in enumerate(sizes.prompts):
        prompt = tuple((7 * at + 31 * stream) % vocabulary for at in range(length))
        yield GenerationRequest(f"{case}/{stream}", prompt, SamplingParams(sizes.tokens), epoch)
