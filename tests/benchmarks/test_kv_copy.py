"""What is copied, and what happens where there is no GPU."""

import numpy as np
import pytest
import torch

from benchmarks.kv_copy import cases, main, on_cpu, rate
from runtime.kv.store import KvShape, KvStore
from tests.rows import rows

SHAPE = KvShape(2, 2, 64, 16, 32, torch.float32)


def test_every_case_copies_as_many_blocks_and_the_first_copy_is_not_measured():
    tokens = {name: int((runs[:, 1] - runs[:, 0]).sum()) for name, runs in cases(SHAPE, 20).items()}
    assert tokens == {
        "neighbouring blocks": 20 * 16,
        "scattered blocks": 20 * 16,
        "a token of each block": 20,
    }
    copied: list[int] = []

    def copy(runs: np.ndarray) -> int:
        copied.append(len(runs))
        return 0 if len(copied) == 1 else 1 << 20

    assert rate(copy, np.array([[0, 1]])) > 0
    assert len(copied) == 10


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_it_says_so_and_exits_with_2(capsys):
    assert main([]) == 2
    assert "torch finds none" in capsys.readouterr().err


@rows("name", ["neighbouring blocks", "scattered blocks", "a token of each block"])
def test_what_was_copied_is_held_against_the_peers_bytes(name):
    with on_cpu(SHAPE) as peers:
        runs = cases(SHAPE, 20)[name]
        assert not peers.is_equal(runs)
        peers.copy(runs)
        assert peers.is_equal(runs)
        assert isinstance(peers.target, KvStore)
        peers.target.cache[:, -1].fill_(3.0)
        assert not peers.is_equal(runs)


def test_a_row_has_speeds_and_no_problem_where_bytes_are_equal():
    with on_cpu(SHAPE) as peers:
        row = peers.row(cases(SHAPE, 20)["scattered blocks"])
    assert row["problem"] is None
    assert row["share_of_plain"] == pytest.approx(row["gb_s"] / row["plain_gb_s"])
