"""Which whole pages a set of blocks fills, and how well blocks fill what a device allocates. Pure.

Memory goes back by the page. A block of one slab may be smaller than a page or lie across two, so only the pages
wholly inside a run of neighbouring block ids can be returned. Byte ranges are half-open.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence

from runtime.errors import TopologyError
from runtime.models import Topology


def runs(blocks: Iterable[int], touching: Collection[int]) -> list[tuple[int, int]]:
    """The longest runs ``[start, end)`` of neighbouring ids in ``blocks`` that have an id of ``touching`` in them."""
    found: list[tuple[int, int]] = []
    wanted: list[bool] = []
    for block in sorted(blocks):
        if found and found[-1][1] == block:
            found[-1] = found[-1][0], block + 1
            wanted[-1] |= block in touching
        else:
            found.append((block, block + 1))
            wanted.append(block in touching)
    return [run for run, is_wanted in zip(found, wanted, strict=True) if is_wanted]


def holes(
    slabs: Sequence[tuple[int, int]], runs: Sequence[tuple[int, int]], page: int, after: int = 0
) -> Iterator[tuple[int, int]]:
    """The whole pages of runs of blocks in each slab, ascending, as byte ranges from ``after`` on.

    ``slabs`` are (first byte, bytes of one block), ascending; ``runs`` ascending block ranges; ``after`` a multiple of ``page``.
    """
    for base, size in slabs:
        if base + runs[-1][1] * size <= after:
            continue
        for first, last in runs:
            start = max(after, -(-(base + first * size) // page) * page)
            end = (base + last * size) // page * page
            if start < end:
                yield start, end


def refuse_divided_stacks(topology: Topology, stack: int) -> None:
    """Refuse stages that divide a stack of layers: they are gained and dropped together.

    Raises:
        TopologyError: naming the stage.
    """
    for number, stage in enumerate(topology.stages):
        if stage.layers.start % stack:
            raise TopologyError(
                f"stage {number} ({stage}): starts in the middle of a slab of {stack} layers; "
                f"let it start at a multiple of {stack}"
            )


def chunk_blocks(block_bytes: int, granularity: int) -> int:
    """Neighbouring blocks that are allocated together: as many as fill what a device allocates at once, or one that is larger."""
    return max(1, granularity // block_bytes)
