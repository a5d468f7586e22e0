"""Digests of KV: of running requests, whatever the topology, and of what was copied, on both sides."""

import asyncio
import random
from collections import defaultdict
from collections.abc import Mapping
from collections.abc import Sequence as Sequences
from itertools import product

from runtime.errors import Reason, SwitchError
from runtime.footprint import Piece, Transfer
from runtime.kv.pages import Runs, parts_of_blocks
from runtime.torch_engine.driver.host import Host
from runtime.torch_engine.driver.scheduler import Sequence
from runtime.torch_engine.messages import Digest, KvDigests

_AT_ONCE = 100
"""Pieces that a worker digests between two steps."""


async def digests(host: Host, running: Sequences[Sequence], positions: dict[str, int] | None) -> KvDigests:
    """Of their first positions; of all that each has computed where none are given."""
    if positions is None:
        positions = {s.request.request_id: s.num_computed for s in running}
    wanted = _valid_blocks(running, positions, host.parts.settings.block_size)
    found: dict[tuple[str, int, Piece], str] = {}
    for device in host.active.topology.devices:
        places = list(product(wanted, sorted(host.active.pieces(device))))
        read = await host.parts.workers.order(device, Digest([(*wanted[place], piece) for place, piece in places]))
        found.update({(*place, piece): digest for (place, piece), digest in zip(places, read, strict=True)})
    return KvDigests(positions, found, {place: block for place, (block, _) in wanted.items()})


async def refuse_other_bytes(host: Host, boxes: Sequences[Transfer], runs: Runs, most: int) -> None:
    """Compare what boxes hold of these tokens on both sides: ``most`` of the pieces, by chance.

    Raises:
        SwitchError: they differ, or a worker is lost.
    """
    parts = parts_of_blocks(runs, host.parts.settings.block_size).tolist()
    pieces = [(box, piece) for box in boxes for piece in box.pieces]
    total = len(parts) * len(pieces)
    places = defaultdict[Transfer, list[tuple[int, int, Piece]]](list)
    for number in random.sample(range(total), min(most, total)):
        (block, _, tokens), (box, piece) = parts[number // len(pieces)], pieces[number % len(pieces)]
        places[box].append((block, tokens, piece))
    for box, chosen in places.items():
        for first in range(0, len(chosen), _AT_ONCE):
            await _refuse_other_bytes(host, box, Digest(chosen[first : first + _AT_ONCE]))


async def _refuse_other_bytes(host: Host, box: Transfer, order: Digest) -> None:
    here, there = await asyncio.gather(*(host.parts.workers.order(each, order) for each in (box.source, box.target)))
    if here != there:
        raise SwitchError(
            Reason.LOAD_FAILED,
            f"KV has other bytes on device {box.target} than on device {box.source}, which it was copied from; "
            "look at the memory of both",
        )


def _valid_blocks(
    running: Sequences[Sequence], positions: Mapping[str, int], size: int
) -> dict[tuple[str, int], tuple[int, int]]:
    """(Request, logical block) to (block, valid tokens)."""
    return {
        (sequence.request.request_id, logical): (block, valid)
        for sequence in running
        for logical, block in enumerate(sequence.table)
        if (valid := min(positions.get(sequence.request.request_id, 0) - logical * size, size)) > 0
    }
