"""How fast KV is packed, scattered and patched, beside a plain copy on the same device."""

from functools import partial

from benchmarks.gpu.machine import Machine
from benchmarks.gpu.room import CONTEXT_BYTES, too_little
from benchmarks.gpu.rows import Rows
from benchmarks.gpu.sizes import SIZES
from benchmarks.kv_copy import PEERS, PLAIN_BYTES, cases
from runtime.kv.store import KvShape


def run(machine: Machine, rows: Rows) -> None:
    """A row for each way that blocks lie."""
    sizes = SIZES[machine.device]
    every = cases(sizes.kv, sizes.kv_blocks)
    rows.plan(every)
    needed = 2 * kv_bytes(sizes.kv) + 2 * CONTEXT_BYTES + 2 * PLAIN_BYTES
    if reason := too_little(sizes.limits(machine), needed):
        rows.skip(every, reason)
        return
    with PEERS[machine.device](sizes.kv) as peers:
        for name, runs in every.items():
            rows.take(name, partial(peers.row, runs))


def kv_bytes(shape: KvShape) -> int:
    """Of one store that holds everything."""
    return 2 * shape.num_stacks * shape.num_kv_heads * shape.slab_bytes
