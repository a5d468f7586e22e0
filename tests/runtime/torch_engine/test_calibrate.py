"""Calibration measures this machine and hands over plain numbers."""

import dataclasses
import itertools
import math
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor, wait

import pytest
import torch

from runtime.errors import CheckpointError
from runtime.torch_engine import calibrate
from runtime.torch_engine.calibrate import measure
from runtime.torch_engine.worker.group import GroupMemory, GroupShape
from selector.models import CpuSamples
from tests.rows import rows


@pytest.mark.slow
def test_the_figures_are_what_the_selector_fits(checkpoints):
    found = measure(checkpoints["qwen3-tied"])
    figures = found.figures
    assert (2 <= found.rounds <= calibrate.ROUNDS, found.apart >= 0, found.load >= 0) == (True, True, True)
    assert set(figures) == {field.name for field in dataclasses.fields(CpuSamples)}
    products_s = figures["products_s"]
    assert (figures["base"], set(products_s)) == ("fp32", {"fp32", "int8", "int4"})
    rates = [value for key, value in figures.items() if key not in {"base", "products_s"}]
    assert all(math.isfinite(value) and value >= 0 for value in rates)
    assert all(0 < one_s < many_s for (_, one_s), _, (_, many_s) in products_s.values())
    assert figures["gemm_flops_s"] > 1e8
    assert figures["memory_bytes_s"] > 1e8


BUSY, QUIET, QUICKEST = ({"gemm_s": took_s, "memory_s": took_s, "all_s": took_s} for took_s in (3.0, 1.05, 1.0))


@rows(
    ("rounds", "took_s", "count"),
    [
        ([QUIET, QUICKEST], 1.0, 2),
        ([BUSY, QUIET, BUSY, QUICKEST], 1.0, 4),
        ([BUSY, QUIET, BUSY, BUSY, BUSY], 1.05, 5),
        ([QUICKEST, {**QUICKEST, "all_s": 2.0}, QUIET], 1.0, 3),
    ],
)
def test_rounds_are_repeated_until_two_of_the_quickest_are_alike(rounds, took_s, count):
    found, repeated, apart = calibrate.settled(iter(rounds).__next__)
    assert (found["gemm_s"], found["all_s"], repeated) == (took_s, took_s, count)
    assert (apart <= calibrate.SETTLED) is (count < calibrate.ROUNDS)


def test_two_ranks_repeat_alike_where_one_of_them_is_kept_from_its_core(monkeypatch):
    clock = threading.local()
    monkeypatch.setattr(calibrate.time, "perf_counter", lambda: next(clock.seconds))
    memories = [GroupMemory(GroupShape(tp_sizes, calibrate._LARGE_VALUES)) for tp_sizes in ((2,), (1, 1))]

    def rank(number: int) -> tuple[float, float, float]:
        clock.seconds = itertools.count(step=number)
        reducing = memories[0].ranks.join(0, number).group
        return calibrate._rank(reducing, memories[1].ranks.join(number, 0).hop, is_sender=number == 0)

    with ThreadPoolExecutor(2) as threads:
        ranks = [threads.submit(rank, number) for number in (0, 1)]
        wait(ranks, timeout=30)
        for memory in memories:
            memory.abort()  # or ranks that wait for each other do so for ever
        assert [found.result() for found in ranks] == [(0, 0, 0), (1, 1, 1)]


def test_a_folder_that_cannot_be_served_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["calibrate", str(tmp_path), "fp32"])
    monkeypatch.setattr(torch, "set_num_threads", lambda _: None)
    with pytest.raises(SystemExit) as ended:
        calibrate.main()
    said = subprocess.CompletedProcess([], 1, "", f"a warning\n{ended.value}\n")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: said)
    with pytest.raises(CheckpointError, match=r"^calibration failed: /.* has no config\.json"):
        measure(tmp_path)
