"""KV memory given back to the device and taken again while streams run: how much, how fast, and what streams notice."""

import asyncio
import statistics
import time
from collections.abc import Sequence

from benchmarks.gpu.heard import ChangedError, Heard, worst_logprob
from benchmarks.gpu.machine import Machine, host_free_bytes
from benchmarks.gpu.random_weights import RandomEngine
from benchmarks.gpu.room import standing_bytes, too_little
from benchmarks.gpu.rows import Row, Rows
from benchmarks.gpu.shapes import folder_of, spec_of
from benchmarks.gpu.sizes import SIZES, Resize
from runtime.engine import GenerationRequest, SamplingParams
from runtime.models import Topology
from runtime.notation import parse_topology

FILLING = 2
"""Times as many streams run before: on a CPU memory comes by writing, and what nobody wrote cannot be given back."""
LEAST_SHARE = 0.9
"""Of what the engine says it returned that the device has to have more."""


def run(machine: Machine, rows: Rows) -> None:
    """Two rows a round, one more for the tokens."""
    asyncio.run(_resized(machine, SIZES[machine.device].resize, rows))


async def _resized(machine: Machine, sizes: Resize, rows: Rows) -> None:
    changes = [f"{number}: {way}" for number in range(1, sizes.rounds + 1) for way in ("give back", "take again")]
    rows.plan([*changes, "tokens"])
    topology = parse_topology("1x1", machine.cluster, sizes.shape["num_hidden_layers"], "fp32")
    if reason := too_little(SIZES[machine.device].limits(machine), needed_bytes(sizes, topology)):
        rows.skip([*changes, "tokens"], reason)
        return
    free(machine)  # asking for the first time takes a second, in which no token is stamped
    with folder_of(sizes.shape, "resize") as folder:
        engine = await RandomEngine.start(folder, topology, machine.cluster, sizes.settings)
        try:
            heard = Heard(engine, machine.cluster)
            calm = await _begin(heard, sizes, "calm", FILLING * sizes.streams)
            await heard.said(sizes.output)
            disturbed = await _begin(heard, sizes, "disturbed", sizes.streams)
            for change in changes:
                rows.say(change, await _change(heard, machine, sizes, change))
            await heard.said(sizes.output)
            rows.say("tokens", _same(heard, disturbed, calm))
        finally:
            await engine.close()


def needed_bytes(sizes: Resize, topology: Topology) -> int:
    """Device memory of the engine with a full pool."""
    assert sizes.settings.num_blocks is not None, "sizes say it"
    pool = sizes.settings.num_blocks, sizes.settings.block_size
    return standing_bytes(spec_of(sizes.shape, "resize"), [topology], *pool)


async def _begin(heard: Heard, sizes: Resize, name: str, count: int) -> list[GenerationRequest]:
    """Streams that speak; the same whatever their name."""
    vocabulary = sizes.shape["vocab_size"]
    requests = [
        GenerationRequest(
            f"{name}-{number}",
            tuple((11 * at + 31 * number) % vocabulary for at in range(sizes.prompt)),
            SamplingParams(sizes.output),
            1,
        )
        for number in range(count)
    ]
    await heard.submit(requests)
    await heard.said(2)
    return requests


async def _change(heard: Heard, machine: Machine, sizes: Resize, change: str) -> Row:
    """Make the pool as small as the streams allow, or as large as it was."""
    stats, quiet_s = await heard.engine.stats(), time.perf_counter()
    await heard.more(sizes.quiet_tokens)
    assert sizes.settings.num_blocks is not None, "sizes say it"
    is_shrinking = change.endswith("back")
    per_stream = -(-(sizes.prompt + sizes.output) // sizes.settings.block_size)
    least = max(sizes.streams * per_stream, stats.total_blocks - stats.free_blocks)
    wanted = least if is_shrinking else sizes.settings.num_blocks - 1
    digests, free_bytes, began_s = await heard.engine.digests(), free(machine), time.perf_counter()
    changed = await heard.engine.resize(wanted)
    ended_s, now_free_bytes = time.perf_counter(), free(machine)
    await heard.more(1)
    row: Row = {
        "blocks": changed.num_blocks,
        "seconds": ended_s - began_s,
        "returned_bytes": changed.returned_bytes,
        "device_free_before_bytes": free_bytes,
        "device_free_after_bytes": now_free_bytes,
        "slices": len(changed.slices_s),
        "longest_slice_ms": 1000 * max(changed.slices_s, default=0.0),
        "gap_ms": _gaps(heard.gaps_ms(began_s, ended_s)),
        "quiet_gap_ms": _gaps(heard.gaps_ms(quiet_s, began_s)),
    }
    try:
        await heard.compare(digests)
    except ChangedError as problem:
        return {**row, "problem": str(problem)}
    return judged(row, machine.device == "cuda") if is_shrinking else row


def judged(row: Row, is_counted: bool) -> Row:
    """A pool that shrank, with what is wrong; where nobody else uses the device what is free there is counted too."""
    returned = row["returned_bytes"]
    if returned <= 0:
        return {**row, "problem": "no memory was given back"}
    gained = row["device_free_after_bytes"] - row["device_free_before_bytes"]
    if is_counted and gained < LEAST_SHARE * returned:
        return {
            **row,
            "problem": f"{returned:,} bytes were given back, but the device has only {gained:,} more",
        }
    return row


def free(machine: Machine) -> int:
    """Bytes that the device has left."""
    if machine.device == "cpu":
        return host_free_bytes()
    import torch

    return int(torch.cuda.mem_get_info()[0])


def _gaps(found: Sequence[float]) -> Row | None:
    if not found:
        return None
    return {"median": statistics.median(found), "max": max(found), "samples": len(found)}


def _same(heard: Heard, disturbed: Sequence[GenerationRequest], calm: Sequence[GenerationRequest]) -> Row:
    """Whether streams said what they say when nothing happens."""
    pairs = [
        (heard.tokens[one.request_id], heard.tokens[other.request_id])
        for one, other in zip(disturbed, calm, strict=False)  # the others only filled memory
    ]
    row: Row = {"tokens": sum(len(tokens) for tokens, _ in pairs)}
    try:
        return {**row, "worst_logprob_difference": max(worst_logprob(*pair) for pair in pairs)}
    except ChangedError as problem:
        return {**row, "problem": str(problem)}
