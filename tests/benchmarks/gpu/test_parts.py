"""What parts judge: figures that are out of bounds, and those that are no numbers, are problems."""

import io
import json
import math
from dataclasses import replace

import pytest
import torch

from benchmarks.engines import Subject
from benchmarks.gpu.machine import Machine
from benchmarks.gpu.parts import cutover, formats, kv_copy, logits, overhead, profile, resize, tests, walk
from benchmarks.gpu.parts.logits import ComputingError, compared, distance
from benchmarks.gpu.parts.profile import are_enough, demand_of, shipped
from benchmarks.gpu.random_weights import RandomCheckpoint
from benchmarks.gpu.rows import Rows, SkippedError
from benchmarks.gpu.shapes import SMALL_LLAMA, folder_of, spec_of
from benchmarks.gpu.sizes import GPU
from intentctl.steps import GAPS, Design
from intentctl.streams import Recording
from runtime.notation import parse_topology
from tests.rows import rows

EXACT = torch.linspace(-5, 5, 60).reshape(6, 10)


def problem_of(folder, theirs=EXACT, **ours):
    """What is wrong with logits beside those of transformers; None when nothing is."""
    for name, tensor in {"transformers-fp32": theirs, **ours}.items():
        torch.save(tensor, folder / f"{name}.pt")
    subject = [*ours][-1] if ours else "1x1-fp32"
    return compared(folder, *subject.split("-")).get("problem")


def with_one(value):
    wrong = EXACT.clone()
    wrong[5, 9] = value
    return wrong


@rows(
    ("theirs", "ours", "problem"),
    [
        (EXACT, EXACT + 1e-6, None),
        (EXACT, EXACT + 1e-2, "over 0.0001"),
        (EXACT, with_one(6.0), "over 0.0001"),
        (EXACT, with_one(math.nan), "relative error"),
        (EXACT, with_one(math.inf), "relative error"),
        (EXACT / 100, EXACT / 100, "too flat"),
    ],
    ids=["near", "far", "one is wrong", "one is no number", "one is infinite", "flat"],
)
def test_logits_are_held_against_transformers(tmp_path, theirs, ours, problem):
    found = problem_of(tmp_path, theirs, **{"1x1-fp32": ours})
    assert found is None if problem is None else problem in found


def test_logits_of_bfloat16_may_be_off_and_missing_ones_are_said(tmp_path):
    own = {"transformers-bf16": EXACT + 0.01}
    assert problem_of(tmp_path, **own, **{"1x1-bf16": EXACT - 0.012}) is None
    assert "over" in problem_of(tmp_path, **own, **{"2x1-bf16": EXACT - 0.1})
    with pytest.raises(ComputingError, match=r"no 1x1-fp32\.pt"):
        problem_of(tmp_path)
    with pytest.raises(ComputingError, match=r"are \(5, 10\), not \(6, 10\)"):
        distance(EXACT[:5], EXACT)


def test_a_walk_goes_over_every_ordered_pair_and_is_a_problem_without_anything_to_compare():
    row = {"digests_compared": 5, "worst_logprob_difference": 1e-6}
    assert "problem" not in walk.judged(row)
    assert "ended before the cut" in walk.judged({**row, "digests_compared": 0})["problem"]
    for difference in (1e-3, math.nan):
        assert "logprob" in walk.judged({**row, "worst_logprob_difference": difference})["problem"]
    pairs = list(zip(walk.WALK, walk.WALK[1:], strict=False))
    assert len(pairs) == len({*pairs}) == 12


def test_memory_that_does_not_come_back_to_the_device_is_a_problem():
    row = {"returned_bytes": 100, "device_free_before_bytes": 0, "device_free_after_bytes": 95}
    assert "problem" not in resize.judged(row, is_counted=True)
    short = {**row, "device_free_after_bytes": 80}
    assert "only 80 more" in resize.judged(short, is_counted=True)["problem"]
    assert "problem" not in resize.judged(short, is_counted=False)
    assert "no memory" in resize.judged({**row, "returned_bytes": 0}, is_counted=False)["problem"]


@rows(
    ("change", "problem"),
    [
        ({}, None),
        ({"paths": {"patch": 2}}, "2 streams should have stayed where they are"),
        ({"tokens_recomputed": 3}, "2 streams should have stayed where they are"),
        ({"digests_compared": 0}, "no KV was compared"),
        ({"blocks_gained": 18}, "18 KV blocks came of it, not 19 as the footprint says"),
    ],
)
def test_a_swap_that_moves_a_stream_or_brings_other_blocks_is_a_problem(change, problem):
    fine = {
        "paths": {"swap": 2},
        "tokens_recomputed": 0,
        "digests_compared": 5,
        "blocks_gained": 19,
        "footprint_blocks": 19,
    }
    found = formats.swapped({**fine, **change}, 2).get("problem")
    assert found is None if problem is None else problem in found


def test_products_are_held_against_what_the_codes_stand_for():
    codes = formats.quantise(torch.randn(32, 64), "int8", None)
    x = torch.randn(4, 64)
    right = x @ codes.dequantised().T
    for found, is_near in ((right, True), (right * 1.01, False), (right * math.nan, False)):
        error = formats.relative_error(found, x, codes)
        assert ("problem" not in formats.held({"relative_error": {1: 0.0, 4: error}}, 5e-3)) is is_near
    assert "0.01 with 4 rows" in formats.held({"relative_error": {4: 0.01}}, 5e-3)["problem"]


def test_a_checkpoint_made_whole_is_that_of_the_codes_in_its_layers_alone():
    with folder_of(SMALL_LLAMA, "small") as folder:
        full = RandomCheckpoint(folder)
        whole = formats.MadeWhole(folder, "int4")
        name = "model.layers.0.mlp.down_proj.weight"
        codes = formats.quantise(full.tensor(name), "int4", 32)
        assert torch.equal(whole.tensor(name), codes.dequantised())
        for same in ("model.embed_tokens.weight", "model.layers.0.input_layernorm.weight"):
            assert torch.equal(whole.tensor(same), full.tensor(same))


def test_a_kind_without_a_profile_is_said_to_have_none(h100):
    assert shipped(h100).kind == "H100"
    other = Machine("cuda", "B9000", h100.total_bytes, h100.free_bytes, h100.host_bytes, 1.0)
    with pytest.raises(SkippedError, match=r"no profile for 'B9000'.*rows above"):
        shipped(other)


def recording(*arrivals_s: float) -> Recording:
    return Recording([1], arrivals_s=list(arrivals_s))


def test_there_is_room_for_the_largest_point_and_streams_are_listened_to_for_long_enough():
    early = recording(*range(GAPS + 2))
    assert are_enough([early])
    assert not are_enough([early, recording()])
    assert not are_enough([early, recording(5.0)])
    late = recording(*(5.0 + n for n in range(GAPS + 2)))
    assert not are_enough([early, late])
    assert are_enough([recording(*range(GAPS + 10)), late])
    design = Design()
    demand = demand_of(design)
    assert demand.streams == max(design.batches)
    assert demand.tokens >= max(*design.input_tokens, *design.contexts) + 2 * GAPS


def test_files_with_tests_of_a_gpu_are_found(tmp_path):
    (tmp_path / "test_with.py").write_text("@pytest.mark.gpu")
    (tmp_path / "test_without.py").write_text("@pytest.mark.slow")
    assert tests.files(tmp_path) == [str(tmp_path / "test_with.py")]


@rows("part", [logits, walk, formats, kv_copy, cutover, resize, overhead, profile])
def test_on_a_device_with_too_little_memory_every_case_is_skipped_with_the_figures(h100, part, monkeypatch):
    monkeypatch.setattr("subprocess.Popen", lambda *_, **__: pytest.fail("a process was started"))
    out = io.StringIO()
    part.run(replace(h100, free_bytes=3_000_000_000), Rows(out))
    planned, *rows = map(json.loads, out.getvalue().splitlines())
    assert [row["case"] for row in rows] == planned["planned"]
    assert all("GB" in row["skipped"] and "2.0 GB" in row["skipped"] for row in rows)


def test_every_part_fits_one_gpu_of_80_gb(h100, tmp_path):
    most = GPU.limits(h100).device_bytes
    ways = [
        parse_topology(way, h100.cluster, GPU.walk.shape["num_hidden_layers"], "fp32")
        for way in walk.topologies("H100", GPU.walk.shape["num_hidden_layers"])
    ]
    profiled = Subject(tmp_path, spec_of(GPU.profile_shape, "p"), h100.cluster, GPU.precision)
    needed = {
        "logits": logits.needed_bytes(h100, GPU.logits),
        "walk": walk.needed_bytes(GPU.walk, ways),
        "formats": formats.needed_bytes(h100, GPU.formats),
        "resize": resize.needed_bytes(GPU.resize, ways[0]),
        "profile": profile.needed_bytes(profiled, GPU.profile),
        "kv-copy": 2 * kv_copy.kv_bytes(GPU.kv),
    }
    assert {name: size for name, size in needed.items() if not 0 < size <= most} == {}
    assert kv_copy.kv_bytes(GPU.kv) == 8192 * 16 * 131_072, "of the 8B: 128 KiB a token"
