"""Digests of the KV of running requests, whatever the topology."""

from collections.abc import Mapping
from collections.abc import Sequence as Sequences

from runtime.footprint import Piece
from runtime.torch_engine.driver.host import Host
from runtime.torch_engine.driver.scheduler import Sequence
from runtime.torch_engine.messages import Digest, KvDigests


async def digests(host: Host, running: Sequences[Sequence], positions: dict[str, int] | None) -> KvDigests:
    """Of their first positions; of all that each has computed where none are given."""
    if positions is None:
        positions = {s.request.request_id: s.num_computed for s in running}
    wanted = _valid_blocks(running, positions, host.parts.settings.block_size)
    found: dict[tuple[str, int, Piece], str] = {}
    for device in host.active.topology.devices:
        pieces = tuple(sorted(host.active.pieces(device)))
        read = await host.parts.workers.order(device, Digest(pieces, tuple({*wanted.values()})))
        found.update({(*place, piece): read[*what, piece] for place, what in wanted.items() for piece in pieces})
    return KvDigests(positions, found, {place: block for place, (block, _) in wanted.items()})


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
