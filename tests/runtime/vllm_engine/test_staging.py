"""Staging memory: seen by other processes, bounded, without a name, and given back."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from runtime.errors import EngineLostError
from runtime.vllm_engine.geometry import PACKED, SPLIT, KvGeometry
from runtime.vllm_engine.staging import Staging, open_slots
from tests.rows import rows

GEOMETRY = KvGeometry(
    num_layers=2, num_kv_heads=2, block_size=16, head_dim=16, dtype="float32", form=PACKED, backend="cpu-x"
)
BLOCK_BYTES = GEOMETRY.block_values * 4


def used_bytes(staging: Staging) -> int:
    """Memory that was really taken."""
    return Path(staging.handle.path).stat().st_blocks * 512


OTHER_PROCESS = """
import sys
from runtime.vllm_engine.geometry import KvGeometry
from runtime.vllm_engine.staging import StagingHandle, open_slots
slots = open_slots(eval(sys.argv[1]))
assert slots[1, 1, 0, 3, 5] == 7.5, slots[1, 1, 0]
slots[2, 0, 1] = -1.0
"""


@pytest.mark.slow
def test_another_process_reads_and_writes_the_same_slots():
    staging = Staging(GEOMETRY, BLOCK_BYTES, 3 * BLOCK_BYTES)
    slots = open_slots(staging.handle)
    slots[1, 1, 0, 3, 5] = 7.5
    subprocess.run([sys.executable, "-c", OTHER_PROCESS, repr(staging.handle)], check=True)
    assert torch.equal(slots[2, 0, 1], torch.full((16, 32), -1.0))
    assert int(slots.count_nonzero()) == 1 + 16 * 32
    staging.close()


@rows("form", [PACKED, SPLIT])
@rows("dtype", ["float32", "bfloat16"])
def test_slots_have_the_shape_and_dtype_of_the_geometry(form, dtype):
    geometry = replace(GEOMETRY, form=form, dtype=dtype)
    block_bytes = geometry.block_values * getattr(torch, dtype).itemsize
    staging = Staging(geometry, block_bytes, 4 * block_bytes)
    slots = open_slots(staging.handle)
    assert slots.shape == (4, 2, 2, *geometry.page_shape)
    assert str(slots.dtype) == f"torch.{dtype}"
    staging.close()


def test_the_memory_never_exceeds_its_bound():
    bound_bytes = 3 * BLOCK_BYTES + BLOCK_BYTES // 2
    staging = Staging(GEOMETRY, BLOCK_BYTES, bound_bytes)
    assert staging.handle.num_slots == 3
    open_slots(staging.handle).fill_(1.0)
    assert used_bytes(staging) == 3 * BLOCK_BYTES
    staging.close()


def test_memory_is_taken_as_slots_are_first_written():
    staging = Staging(GEOMETRY, BLOCK_BYTES, 1000 * BLOCK_BYTES)
    assert used_bytes(staging) == 0
    slots = open_slots(staging.handle)
    slots[500] = 1.0
    assert used_bytes(staging) == BLOCK_BYTES
    staging.close()


def test_a_bound_below_one_block_has_no_slots():
    staging = Staging(GEOMETRY, BLOCK_BYTES, BLOCK_BYTES - 1)
    assert staging.handle.num_slots == 0
    staging.close()


def test_the_memory_has_no_name_that_could_outlive_its_processes():
    staging = Staging(GEOMETRY, BLOCK_BYTES, BLOCK_BYTES)
    file = str(Path(staging.handle.path).readlink())
    assert file.startswith("/memfd:")
    assert file.endswith("(deleted)")
    staging.close()


def test_closing_twice_closes_nobody_elses_file():
    staging = Staging(GEOMETRY, BLOCK_BYTES, BLOCK_BYTES)
    staging.close()
    other = Staging(GEOMETRY, BLOCK_BYTES, BLOCK_BYTES)
    staging.close()
    assert open_slots(other.handle).shape[0] == 1
    other.close()


def test_the_memory_is_given_back_once_it_is_closed_and_nobody_holds_it():
    staging = Staging(GEOMETRY, BLOCK_BYTES, 4 * BLOCK_BYTES)
    slots = open_slots(staging.handle)
    slots[0] = 1.0
    inode = staging.handle.inode
    staging.close()
    assert slots[0, 1, 1, 0, 0] == 1.0
    assert is_mapped(inode)
    del slots
    assert not is_mapped(inode)


def test_staging_whose_maker_closed_it_is_named():
    staging = Staging(GEOMETRY, BLOCK_BYTES, BLOCK_BYTES)
    staging.close()
    with pytest.raises(EngineLostError, match=f"the staging memory of the switch is gone.*{os.getpid()}"):
        open_slots(staging.handle)


def test_a_descriptor_that_is_another_file_by_now_is_not_opened():
    staging = Staging(GEOMETRY, BLOCK_BYTES, BLOCK_BYTES)
    staging.close()
    other = Staging(GEOMETRY, BLOCK_BYTES, BLOCK_BYTES)
    assert other.handle.path == staging.handle.path
    with pytest.raises(EngineLostError, match="is another file"):
        open_slots(staging.handle)
    other.close()


def is_mapped(inode: int) -> bool:
    maps = Path("/proc/self/maps").read_text().splitlines()
    return any("intentctl-staging" in line and int(line.split()[4]) == inode for line in maps)
