"""How fast KV is packed, scattered and patched, beside a plain copy on the same device."""

from functools import partial

from benchmarks.gpu.machine import Machine
from benchmarks.gpu.rows import Rows
from benchmarks.gpu.sizes import SIZES
from benchmarks.kv_copy import PEERS, cases


def run(machine: Machine, rows: Rows) -> None:
    """A row for each way that blocks lie."""
    sizes = SIZES[machine.device]
    every = cases(sizes.kv, sizes.kv_blocks)
    rows.plan(every)
    with PEERS[machine.device](sizes.kv) as peers:
        for name, runs in every.items():
            rows.take(name, partial(peers.row, runs))
