"""Ranks in forked processes, in both forms: the same sums, hand-over that never overtakes, a way out when a peer is gone."""

import os
import signal
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from runtime.torch_engine.worker.distributed import DistributedRanks, open_store
from runtime.torch_engine.worker.group import (
    AHEAD,
    SOLO,
    GroupAborted,
    GroupMemory,
    GroupShape,
    Peers,
    Position,
)
from tests.rows import rows

ROUNDS = {"shared_memory": 100, "torch_distributed": 8}
"""gloo takes some milliseconds for each on a busy machine."""
LOCAL, CPU = "127.0.0.1", torch.device("cpu")
Join = Callable[[int, int], Peers]
"""From stage and rank, in that rank's process."""

both_forms = pytest.mark.parametrize("form", [*ROUNDS])


@pytest.fixture
def meeting() -> Iterator[Callable[..., Join]]:
    """Where the ranks of a topology meet, as long as there are any."""
    held: list[Any] = []

    def made(form: str, *tp_sizes: int, timeout_s: float = 30.0) -> Join:
        if form == "shared_memory":
            held.append(memory := GroupMemory(GroupShape(tp_sizes, 4096)))
            return memory.ranks.join
        held.append(store := open_store(LOCAL))
        ranks = DistributedRanks(LOCAL, store.port, "1", tp_sizes, timeout_s)
        return lambda stage, rank: ranks.join(stage, rank, LOCAL, CPU)

    yield made
    held.clear()


@pytest.fixture
def fork(meeting: object) -> Iterator[Callable[[Callable[[], None]], int]]:
    """Run something in a child process; every child must succeed, or have been killed by the test."""
    children: list[int] = []

    def start(work: Callable[[], None]) -> int:
        if (pid := os.fork()) == 0:
            try:
                signal.alarm(60)
                torch.set_num_threads(1)
                with torch.inference_mode():
                    work()
            except BaseException:  # noqa: BLE001 - the parent sees the status
                os._exit(1)
            os._exit(0)
        children.append(pid)
        return pid

    yield start
    assert {os.waitpid(pid, 0)[1] for pid in children} <= {0, signal.SIGKILL}


@both_forms
def test_every_rank_gets_the_same_sum_and_the_same_columns_many_times(fork, meeting, form):
    join = meeting(form, 3)

    def rank(number: int) -> None:
        group = join(0, number).group
        for turn in range(ROUNDS[form]):
            part = torch.full((2, 4), float(10**number * (turn % 7 + 1)))
            assert group.all_reduce(part).tolist() == [[111.0 * (turn % 7 + 1)] * 4] * 2
            own = torch.full((1, 1), (turn % 7 + 1) * 10.0**number)
            assert group.gather(own).tolist() == [[(turn % 7 + 1) * 10.0**n for n in range(3)]]

    for number in range(3):
        fork(partial(rank, number))


@both_forms
def test_a_sum_is_bit_identical_on_every_rank(fork, meeting, tmp_path, form):
    join = meeting(form, 3)

    def rank(number: int) -> None:
        group = join(0, number).group
        part = torch.randn(4096, generator=torch.Generator().manual_seed(number))
        torch.save(group.all_reduce(part), tmp_path / f"{number}.pt")

    for pid in [fork(partial(rank, number)) for number in range(3)]:
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    first, *others = [torch.load(tmp_path / f"{number}.pt") for number in range(3)]
    assert all(torch.equal(first, other) for other in others)


@pytest.mark.slow
@both_forms
@rows(("first", "second"), [(1, 1), (2, 1), (1, 2), (2, 4)])
def test_the_next_stage_receives_every_hidden_state_in_order(fork, meeting, form, first, second):
    join = meeting(form, first, second)

    def send(rank: int) -> None:
        hop = join(0, rank).hop
        for turn in range(ROUNDS[form]):
            hop.send(torch.full((2, 3), float(turn)))
        os.read(reading, 1)  # all have it

    def receive(rank: int) -> None:
        hop = join(1, rank).hop
        for turn in range(ROUNDS[form]):
            assert hop.receive((2, 3), torch.float32).tolist() == [[float(turn)] * 3] * 2

    reading, writing = os.pipe()
    for rank in range(first):
        fork(partial(send, rank))
    for pid in [fork(partial(receive, rank)) for rank in range(second)]:
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    os.write(writing, b"." * first)
    os.close(reading)
    os.close(writing)


@both_forms
def test_two_hand_overs_may_be_under_way_before_the_next_stage_takes_one(fork, meeting, form):
    join, sent, received = meeting(form, 1, 1), os.pipe(), os.pipe()

    def send() -> None:
        hop = join(0, 0).hop
        for turn in range(AHEAD):
            hop.send(torch.full((1, 1), float(turn)))
        os.write(sent[1], b".")
        hop.send(torch.full((1, 1), float(AHEAD)))
        os.read(received[0], 1)

    def receive() -> None:
        hop = join(1, 0).hop
        os.read(sent[0], 1)
        for turn in range(AHEAD + 1):
            assert hop.receive((1, 1), torch.float32).item() == turn
        os.write(received[1], b".")

    fork(send)
    fork(receive)
    for end in (*sent, *received):
        os.close(end)


@rows(
    ("tp_sizes", "stage", "rank", "me", "source", "receivers"),
    [
        ((1,), 0, 0, 0, None, []),
        ((2, 4), 0, 1, 1, None, [3, 5]),
        ((2, 4), 1, 3, 5, 1, []),
        ((4, 2), 0, 3, 3, None, []),
        ((4, 2), 1, 1, 5, 1, []),
        ((1, 2, 3), 1, 1, 2, 0, [4]),
    ],
)
def test_a_rank_reads_from_one_of_the_stage_before(tp_sizes, stage, rank, me, source, receivers):
    position = Position(tp_sizes, stage, rank)
    assert (position.me, position.source, position.receivers) == (me, source, receivers)


def test_a_group_that_is_called_off_lets_its_ranks_go(fork):
    memory = GroupMemory(GroupShape((2,), 8))

    def wait_for_nobody() -> None:
        with pytest.raises(GroupAborted):
            memory.ranks.join(0, 0).group.all_reduce(torch.ones(8))

    fork(wait_for_nobody)
    memory.abort()


@pytest.mark.slow
@rows("work", ["sum", "hop"])
def test_ranks_hear_that_one_which_stood_still_was_killed(fork, meeting, work):
    """As gloo can call nobody off: whoever waits goes on when the driver has ended who hangs."""
    join = meeting("torch_distributed", *{"sum": (3,), "hop": (1, 1, 1)}[work])
    (reading, writing), (never, held) = os.pipe(), os.pipe()

    def stand_still() -> None:
        ranks = join(*((0, 1) if work == "sum" else (1, 0)))
        os.write(writing, b".")
        os.read(never, 1)
        del ranks  # its connections are open until here

    def wait(rank: int) -> None:
        ranks = join(*((0, rank) if work == "sum" else (rank, 0)))
        os.write(writing, b".")
        with pytest.raises(GroupAborted, match="peer"):
            talk(ranks, rank)

    def talk(ranks: Peers, rank: int) -> None:
        for _ in range(AHEAD + 1):
            if work == "sum":
                ranks.group.all_reduce(torch.ones(8))
            elif rank:
                ranks.hop.receive((1, 8), torch.float32)
            else:
                ranks.hop.send(torch.ones(1, 8))

    stopped = fork(stand_still)
    for rank in (0, 2):
        fork(partial(wait, rank))
    for _ in range(3):
        os.read(reading, 1)  # all have joined
    os.kill(stopped, signal.SIGSTOP)
    os.waitid(os.P_PID, stopped, os.WSTOPPED | os.WNOWAIT)
    os.kill(stopped, signal.SIGKILL)
    for end in (reading, writing, never, held):
        os.close(end)


@pytest.mark.slow
def test_a_rank_whose_peers_do_not_come_gives_up_in_time(meeting):
    with pytest.raises(GroupAborted):
        meeting("torch_distributed", 2, timeout_s=0.5)(0, 0)


def test_a_store_listens_at_its_address_alone():
    store = open_store(LOCAL)
    listening = [
        line.split()[1]
        for line in Path("/proc/net/tcp").read_text().splitlines()
        if f":{store.port:04X} 00000000:0000 0A" in line
    ]
    assert listening == [f"0100007F:{store.port:04X}"]


@pytest.mark.slow
def test_a_rank_whose_driver_is_gone_waits_no_more():
    memory = GroupMemory(GroupShape((2,), 8))
    reading, writing = os.pipe()

    def wait_for_nobody() -> None:
        group = memory.ranks.join(0, 0).group
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


@rows("form", [*ROUNDS, "solo"])
def test_a_rank_of_one_waits_for_nobody(meeting, form):
    ranks, part = SOLO if form == "solo" else meeting(form, 1)(0, 0), torch.arange(4.0)
    assert torch.equal(ranks.group.all_reduce(part), part)
    assert torch.equal(ranks.group.gather(part), part)
    ranks.hop.send(part)
