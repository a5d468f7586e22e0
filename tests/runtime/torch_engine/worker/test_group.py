"""Groups between forked processes: sums in rank order, hand-over that never overtakes, a way out when a peer is gone."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from runtime.torch_engine.worker.group import Group, GroupAborted, GroupMemory, GroupShape, SoloGroup
from tests.rows import rows

ROUNDS = 300


@pytest.fixture
def fork(tmp_path: Path) -> Iterator[Callable[[Callable[[], None]], None]]:
    """Run something in a child process; every child must succeed."""
    children: list[int] = []

    def start(work: Callable[[], None]) -> None:
        if (pid := os.fork()) == 0:
            try:
                work()
            except BaseException:  # noqa: BLE001 - the parent sees the status
                os._exit(1)
            os._exit(0)
        children.append(pid)

    yield start
    assert [os.waitpid(pid, 0)[1] for pid in children] == [0] * len(children)


def test_every_rank_gets_the_same_sum_and_the_same_columns_many_times(fork):
    shape = GroupShape((3,), 64)
    memory = GroupMemory(shape)

    def rank(number: int) -> None:
        group = Group(memory.path, shape, 0, number)
        for turn in range(ROUNDS):
            part = torch.full((2, 4), float(10**number * (turn % 7 + 1)))
            assert group.all_reduce(part).tolist() == [[111.0 * (turn % 7 + 1)] * 4] * 2
            assert group.gather(part[:1, :1]).tolist() == [[(turn % 7 + 1) * 10.0**n for n in range(3)]]

    for number in range(3):
        fork(lambda number=number: rank(number))


def test_a_sum_is_bit_identical_on_every_rank(fork, tmp_path):
    shape = GroupShape((2,), 4096)
    memory = GroupMemory(shape)

    def rank(number: int) -> None:
        group = Group(memory.path, shape, 0, number)
        part = torch.randn(4096, generator=torch.Generator().manual_seed(number))
        torch.save(group.all_reduce(part), tmp_path / f"{number}.pt")
        group.all_reduce(part)  # both have saved

    fork(lambda: rank(1))
    rank(0)
    assert torch.equal(torch.load(tmp_path / "0.pt"), torch.load(tmp_path / "1.pt"))


@pytest.mark.slow
@rows(("first", "second"), [(1, 1), (2, 1), (1, 2), (2, 2), (2, 4)])
def test_the_next_stage_receives_every_hidden_state_in_order(fork, first, second):
    shape = GroupShape((first, second), 64)
    memory = GroupMemory(shape)

    def send(rank: int) -> None:
        group = Group(memory.path, shape, 0, rank)
        for turn in range(ROUNDS):
            group.send(torch.full((2, 3), float(turn)))

    def receive(rank: int) -> None:
        group = Group(memory.path, shape, 1, rank)
        for turn in range(ROUNDS):
            assert group.receive((2, 3), torch.float32).tolist() == [[float(turn)] * 3] * 2

    for rank in range(first):
        fork(lambda rank=rank: send(rank))
    for rank in range(second):
        fork(lambda rank=rank: receive(rank))


def test_a_group_that_is_called_off_lets_its_ranks_go(fork):
    shape = GroupShape((2,), 8)
    memory = GroupMemory(shape)

    def wait_for_nobody() -> None:
        with pytest.raises(GroupAborted):
            Group(memory.path, shape, 0, 0).all_reduce(torch.ones(8))

    fork(wait_for_nobody)
    memory.abort()


@pytest.mark.slow
def test_a_rank_whose_driver_is_gone_waits_no_more():
    shape = GroupShape((2,), 8)
    memory = GroupMemory(shape)
    reading, writing = os.pipe()

    def wait_for_nobody() -> None:
        group = Group(memory.path, shape, 0, 0)
        os.write(writing, b"waits ")
        try:
            group.all_reduce(torch.ones(8))
        except GroupAborted:
            os.write(writing, b"left")

    if (driver := os.fork()) == 0:
        if os.fork() == 0:
            wait_for_nobody()
        else:
            os.read(reading, 6)  # the rank has begun
        os._exit(0)
    os.waitpid(driver, 0)
    os.close(writing)
    assert os.read(reading, 4) == b"left"
    os.close(reading)


def test_a_group_of_one_waits_for_nobody():
    shape = GroupShape((1,), 8)
    part = torch.arange(4.0)
    for group in (Group(GroupMemory(shape).path, shape, 0, 0), SoloGroup()):
        assert torch.equal(group.all_reduce(part), part)
        assert torch.equal(group.gather(part), part)
