"""What parts judge: figures that are out of bounds, and those that are no numbers, are problems."""

import io
import json
import math
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest
import torch

from benchmarks.engines import Subject
from benchmarks.gpu.campaign import SHARES_S
from benchmarks.gpu.machine import Machine
from benchmarks.gpu.parts import cutover, kv_copy, logits, overhead, profile, resize, tests, walk
from benchmarks.gpu.parts.logits import ComputingError, compared, distance
from benchmarks.gpu.parts.profile import are_enough, demand_of, shipped
from benchmarks.gpu.rows import Rows, SkippedError
from benchmarks.gpu.shapes import spec_of
from benchmarks.gpu.sizes import GPU
from intentctl.steps import GAPS, Design
from intentctl.streams import Recording
from runtime.notation import parse_topology

PARTS = (logits, tests, walk, kv_copy, cutover, resize, overhead, profile)
EXACT = torch.linspace(-5, 5, 60).reshape(6, 10)


def saved(folder: Path, **tensors: torch.Tensor) -> Path:
    for name, tensor in {"transformers-fp32": EXACT, **tensors}.items():
        torch.save(tensor, folder / f"{name}.pt")
    return folder


def problem_of(folder: Path, ours: torch.Tensor) -> str:
    return str(compared(saved(folder, **{"1x1-fp32": ours}), "1x1", "fp32").get("problem"))


def test_logits_are_held_against_transformers(tmp_path: Path) -> None:
    assert problem_of(tmp_path, EXACT + 1e-6) == "None"
    assert "over 0.0001" in problem_of(tmp_path, EXACT + 1e-2)
    one_is_wrong = EXACT.clone()
    one_is_wrong[3, 3] += 1
    assert "over 0.0001" in problem_of(tmp_path, one_is_wrong)


@pytest.mark.parametrize("poison", [math.nan, math.inf])
def test_one_logit_that_is_no_number_is_a_problem(tmp_path: Path, poison: float) -> None:
    poisoned = EXACT.clone()
    poisoned[5, 9] = poison
    assert "relative error" in problem_of(tmp_path, poisoned)


def test_flat_logits_show_nothing(tmp_path: Path) -> None:
    flat = EXACT / 100
    saved(tmp_path, **{"transformers-fp32": flat, "1x1-fp32": flat})
    assert "too flat" in compared(tmp_path, "1x1", "fp32")["problem"]


def test_bfloat16_may_be_off_by_what_transformers_own_is_off(tmp_path: Path) -> None:
    tensors = {"transformers-bf16": EXACT + 0.01, "1x1-bf16": EXACT - 0.012, "2x1-bf16": EXACT - 0.1}
    saved(tmp_path, **tensors)
    assert "problem" not in compared(tmp_path, "1x1", "bf16")
    assert "over" in compared(tmp_path, "2x1", "bf16")["problem"]


def test_logits_that_nobody_saved_or_of_another_shape_are_said_to_be(tmp_path: Path) -> None:
    with pytest.raises(ComputingError, match=r"no 1x1-fp32\.pt"):
        compared(saved(tmp_path), "1x1", "fp32")
    with pytest.raises(ComputingError, match=r"are \(5, 10\), not \(6, 10\)"):
        distance(EXACT[:5], EXACT)


def test_a_walk_without_anything_to_compare_is_a_problem() -> None:
    row = {"digests_compared": 5, "worst_logprob_difference": 1e-6}
    assert "problem" not in walk.judged(row)
    assert "ended before the cut" in walk.judged({**row, "digests_compared": 0})["problem"]
    for difference in (1e-3, math.nan):
        assert "logprob" in walk.judged({**row, "worst_logprob_difference": difference})["problem"]


def test_walks_go_over_every_ordered_pair() -> None:
    pairs = list(zip(walk.WALK, walk.WALK[1:], strict=False))
    assert len(pairs) == len({*pairs}) == 12


def test_memory_that_does_not_come_back_to_the_device_is_a_problem() -> None:
    row = {"returned_bytes": 100, "device_free_before_bytes": 0, "device_free_after_bytes": 95}
    assert "problem" not in resize.judged(row, is_counted=True)
    short = {**row, "device_free_after_bytes": 80}
    assert "only 80 more" in resize.judged(short, is_counted=True)["problem"]
    assert "problem" not in resize.judged(short, is_counted=False)
    assert "no memory" in resize.judged({**row, "returned_bytes": 0}, is_counted=False)["problem"]


def test_a_kind_without_a_profile_is_said_to_have_none(h100: Machine) -> None:
    assert shipped(h100).kind == "H100"
    other = Machine("cuda", "B9000", h100.total_bytes, h100.free_bytes, h100.host_bytes, 1.0)
    with pytest.raises(SkippedError, match=r"no profile for 'B9000'.*rows above"):
        shipped(other)


def recording(*arrivals_s: float) -> Recording:
    return Recording([1], arrivals_s=list(arrivals_s))


def test_streams_are_listened_to_until_all_have_run_together_for_long_enough() -> None:
    early = recording(*range(GAPS + 2))
    assert are_enough([early])
    assert not are_enough([early, recording()])
    assert not are_enough([early, recording(5.0)])
    late = recording(*(5.0 + n for n in range(GAPS + 2)))
    assert not are_enough([early, late])
    assert are_enough([recording(*range(GAPS + 10)), late])


def test_there_is_room_for_the_largest_point() -> None:
    design = Design()
    demand = demand_of(design)
    assert demand.streams == max(design.batches)
    assert demand.tokens >= max(*design.input_tokens, *design.contexts) + 2 * GAPS


def test_files_with_tests_of_a_gpu_are_found(tmp_path: Path) -> None:
    (tmp_path / "test_with.py").write_text("@pytest.mark.gpu")
    (tmp_path / "test_without.py").write_text("@pytest.mark.slow")
    assert tests.files(tmp_path) == [str(tmp_path / "test_with.py")]


def test_every_part_has_a_module() -> None:
    names = [module.__name__.rpartition(".")[2].replace("_", "-") for module in PARTS]
    assert names == list(SHARES_S)
    assert all(callable(module.run) for module in PARTS)


@pytest.mark.parametrize("part", [logits, walk, kv_copy, cutover, resize, overhead, profile])
def test_on_a_device_with_too_little_memory_every_case_is_skipped_with_the_figures(
    h100: Machine, part: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("subprocess.Popen", lambda *_, **__: pytest.fail("a process was started"))
    out = io.StringIO()
    part.run(replace(h100, free_bytes=3_000_000_000), Rows(out))
    planned, *rows = map(json.loads, out.getvalue().splitlines())
    assert [row["case"] for row in rows] == planned["planned"]
    assert all("GB" in row["skipped"] and "2.0 GB" in row["skipped"] for row in rows)


def test_every_part_fits_one_gpu_of_80_gb(h100: Machine, tmp_path: Path) -> None:
    most = GPU.limits(h100).device_bytes
    ways = [
        parse_topology(way, h100.cluster, GPU.walk.shape["num_hidden_layers"], "fp32")
        for way in walk.topologies("H100", GPU.walk.shape["num_hidden_layers"])
    ]
    profiled = Subject(tmp_path, spec_of(GPU.profile_shape, "p"), h100.cluster, GPU.precision)
    needed = {
        "logits": logits.needed_bytes(h100, GPU.logits),
        "walk": walk.needed_bytes(GPU.walk, ways),
        "resize": resize.needed_bytes(GPU.resize, ways[0]),
        "profile": profile.needed_bytes(profiled, GPU.profile),
        "kv-copy": 2 * kv_copy.kv_bytes(GPU.kv),
    }
    assert {name: size for name, size in needed.items() if not 0 < size <= most} == {}
    assert kv_copy.kv_bytes(GPU.kv) == 8192 * 16 * 131_072, "of the 8B: 128 KiB a token"
