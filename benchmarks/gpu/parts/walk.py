"""A walk between topologies while streams run: no byte of KV, no token and hardly a logprob may change."""

import asyncio
from collections.abc import Iterator, Sequence
from itertools import pairwise

from benchmarks.gpu.heard import ChangedError, Heard, worst_logprob
from benchmarks.gpu.machine import Machine
from benchmarks.gpu.random_weights import RandomEngine
from benchmarks.gpu.room import standing_bytes, too_little
from benchmarks.gpu.rows import Row, Rows
from benchmarks.gpu.shapes import folder_of, spec_of
from benchmarks.gpu.sizes import SIZES, Walk
from runtime.engine import GenerationRequest, SamplingParams, Token
from runtime.models import Topology
from runtime.notation import parse_topology

WALK = (0, 1, 0, 2, 0, 3, 1, 2, 1, 3, 2, 3, 0)
"""Over every ordered pair of four topologies, once."""
BOUND = 1e-4
"""Of logprobs in float32: sums in another order."""


def run(machine: Machine, rows: Rows) -> None:
    """A row for each switch."""
    asyncio.run(_walk(machine, SIZES[machine.device].walk, rows))


async def _walk(machine: Machine, sizes: Walk, rows: Rows) -> None:
    num_layers = sizes.shape["num_hidden_layers"]
    ways = topologies(machine.kind, num_layers)
    names = {
        number: f"{number}: {_name(machine, ways[here], num_layers)} to {_name(machine, ways[there], num_layers)}"
        for number, (here, there) in enumerate(pairwise(WALK), start=1)
    }
    rows.plan(names.values())
    parsed = [parse_topology(way, machine.cluster, num_layers, "fp32") for way in ways]
    if reason := too_little(SIZES[machine.device].limits(machine), needed_bytes(sizes, parsed)):
        rows.skip(names.values(), reason)
        return
    with folder_of(sizes.shape, "walk") as folder:
        start = parsed[0]
        engine = await RandomEngine.start(folder, start, machine.cluster, sizes.settings)
        try:
            heard = Heard(engine, machine.cluster)
            await heard.submit(list(streams(sizes, 0)))
            await heard.said(sizes.tokens)
            for number, name in names.items():
                rows.say(name, await _switched(heard, ways[WALK[number]], sizes, number))
        finally:
            await engine.close()


async def _switched(heard: Heard, way: str, sizes: Walk, number: int) -> Row:
    """Switch to a topology under streams that ran without a switch before."""
    before, requests = heard.compared, list(streams(sizes, number))
    row: Row = {}
    try:
        await heard.switch(way, requests)
        row = {"digests_compared": heard.compared - before}
        await heard.said(sizes.tokens)
        row["tokens"] = sizes.tokens * len(requests)
        row["worst_logprob_difference"] = max(worst_logprob(*pair) for pair in _both(heard, requests))
    except ChangedError as problem:
        return {**row, "problem": str(problem)}
    return judged(row)


def needed_bytes(sizes: Walk, ways: Sequence[Topology]) -> int:
    """Device memory for all switches."""
    assert sizes.settings.num_blocks is not None, "sizes say it"
    order = [ways[number] for number in WALK]
    model = spec_of(sizes.shape, "walk")
    return standing_bytes(model, order, sizes.settings.num_blocks, sizes.settings.block_size)


def judged(row: Row) -> Row:
    """The same with what is wrong."""
    if not row["digests_compared"]:
        return {
            **row,
            "problem": "the streams ended before the cut, so no KV was compared; ask for more tokens",
        }
    if not row["worst_logprob_difference"] <= BOUND:
        return {
            **row,
            "problem": f"a logprob differs by {row['worst_logprob_difference']:.2g}, over {BOUND:.2g}",
        }
    return row


def topologies(kind: str, num_layers: int) -> tuple[str, ...]:
    """One rank, TP2, an uneven PP2, and TP2 before a stage of one rank."""
    few, most = num_layers // 2, num_layers - num_layers // 2
    return (
        f"{kind}[0]:0-{num_layers}",
        f"{kind}[0,1]:0-{num_layers}",
        f"{kind}[0]:0-{few} > {kind}[1]:{few}-{num_layers}",
        f"{kind}[2,3]:0-{most} > {kind}[1]:{most}-{num_layers}",
    )


def streams(sizes: Walk, number: int) -> Iterator[GenerationRequest]:
    """The same for each switch, under other names; the epoch is that before the switch."""
    vocabulary = sizes.shape["vocab_size"]
    for stream, length in enumerate(sizes.prompts):
        prompt = tuple((7 * at + 31 * stream) % vocabulary for at in range(length))
        yield GenerationRequest(f"{stream}/{number}", prompt, SamplingParams(sizes.tokens), max(number, 1))


def _both(heard: Heard, requests: list[GenerationRequest]) -> Iterator[tuple[list[Token], list[Token]]]:
    """What a stream said, and what it said when nothing was switched."""
    for request in requests:
        stream = request.request_id.partition("/")[0]
        yield heard.tokens[request.request_id], heard.tokens[f"{stream}/0"]


def _name(machine: Machine, way: str, num_layers: int) -> str:
    return parse_topology(way, machine.cluster, num_layers, "fp32").shape
