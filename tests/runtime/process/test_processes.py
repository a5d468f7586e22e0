"""A real process group with shared memory: it is seen, and nothing of it is left."""

import os
import select
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from runtime.process.launcher import end_group, group_pids, shared_memory_of

CHILD = """
import multiprocessing, os, time
from multiprocessing import resource_tracker, shared_memory

resource_tracker.register = lambda *_: None  # nothing cleans up after this one
memory = shared_memory.SharedMemory(create=True, size=4096)
semaphore = multiprocessing.get_context("spawn").Semaphore()
is_child = os.fork() == 0
if not is_child:
    print(memory.name, semaphore._semlock.name, flush=True)
time.sleep(600)
"""
"""A parent and a child. The file of the semaphore is in their maps by the name it was made with, before it was linked."""


@pytest.fixture
def group() -> Iterator[tuple[int, set[str]]]:
    """A process group, and its files in shared memory."""
    process = subprocess.Popen([sys.executable, "-c", CHILD], stdout=subprocess.PIPE, text=True, process_group=0)
    assert process.stdout is not None
    memory, semaphore = process.stdout.readline().split()
    files = {f"/dev/shm/{memory}", f"/dev/shm/sem.{semaphore.removeprefix('/')}"}
    assert all(Path(path).exists() for path in files)
    yield process.pid, files
    end_group(process.pid, files)
    process.wait()
    process.stdout.close()


def test_a_group_its_shared_memory_and_nothing_else_is_found_and_ended(group):
    leader, files = group
    pids = group_pids(leader)
    assert len(pids) == 2
    assert leader in pids
    assert os.getpid() not in pids
    assert shared_memory_of(pids) == files
    (child,) = set(pids) - {leader}
    end_of_child = os.pidfd_open(child)
    other = Path(f"/dev/shm/intentctl-test-other-{os.getpid()}")
    other.touch()
    try:
        end_group(leader, set())
        os.waitpid(leader, 0)
        assert select.select([end_of_child], [], [], 10)[0], "the child is still there"
        assert group_pids(leader) == []
        assert not [path for path in files if Path(path).exists()]
        assert other.exists()
    finally:
        other.unlink()
        os.close(end_of_child)


def test_processes_that_are_gone_map_nothing():
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    assert shared_memory_of([process.pid]) == set()


def test_files_known_from_before_are_removed_though_the_processes_are_gone(tmp_path):
    left = tmp_path / "left"
    left.touch()
    process = subprocess.Popen([sys.executable, "-c", ""], process_group=0)
    process.wait()
    end_group(process.pid, {str(left), str(tmp_path / "gone before")})
    assert not left.exists()
