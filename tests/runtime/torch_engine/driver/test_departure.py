"""The sample that a source takes of what was copied to another host: of what stays as it is, and nobody waits for it."""

from types import SimpleNamespace
from typing import Any

import numpy as np

from runtime.kv.blocks import BlockPool
from runtime.sync.patch import PatchSync
from runtime.torch_engine.driver.departure import Departure
from tests.rows import rows

SIZE = 4


@rows(("times", "asked", "pinned"), [(0, 1, False), (1, 2, False), (2, 3, True), (9, 3, True)])
async def test_a_sample_is_of_blocks_that_are_kept_meanwhile_and_the_third_one_keeps_them(times, asked, pinned):
    """All copied blocks were pinned for every sample: in a full pool whoever ran lost its own to no avail."""
    pool = BlockPool(16)
    sync, table, seen = PatchSync(pool, SIZE), pool.take(6), list[tuple[list[int], bool]]()
    for block in table:
        pool.written(block, 0, SIZE)
    sync.order()

    async def digest(runs: Any, _: int) -> bytes:
        blocks = [slot // SIZE for first, end in runs.tolist() for slot in range(first, end, SIZE)]
        seen.append((blocks, pool._references[blocks[0]] > 1))
        if len(seen) <= times:
            pool.give_back([table.pop()])
        return bytes([len(seen)])

    departure = Departure.__new__(Departure)
    departure._sync, departure._parts = sync, SimpleNamespace(pool=pool)  # type: ignore[assignment] - what it needs of them
    departure._carrier = SimpleNamespace(digest=digest)  # type: ignore[assignment]
    sample = await departure._sample()
    assert (len(seen), [is_pinned for _, is_pinned in seen]) == (asked, [False] * (asked - 1) + [pinned])
    assert sample.digest == bytes([asked])
    assert np.array_equal(sample.runs, [[seen[-1][0][0] * SIZE, (seen[-1][0][-1] + 1) * SIZE]])
    assert max(pool._references) <= 1
