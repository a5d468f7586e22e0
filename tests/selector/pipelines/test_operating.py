"""What stages cost and hold at operating points: beside the scalar step model and the footprint."""

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from runtime.capabilities import USUAL_BATCHING, Batching
from runtime.footprint import blocks
from runtime.models import Cluster, LayerRange, Link, ModelSpec, Precision, Stage, Topology
from selector.models import Profile, Workload
from selector.pipelines.operating import (
    BATCHES,
    BLOCK_TOKENS,
    OperatingLoad,
    Points,
    Setting,
    StageKind,
    bubbles,
    capacities,
    pools_of,
    times_of,
)
from tests.rows import rows


def points_at(stages: np.ndarray, batch: np.ndarray) -> Points:
    """With steps of 2,048 tokens."""
    return Points(stages, batch, np.full(len(stages), 2048.0))


def setting_of(cluster: Cluster, model: ModelSpec, known: dict[str, Profile], tokens: int = 800) -> Setting:
    return Setting(model, cluster, known, OperatingLoad(2.0, tokens, 250, 8, tokens))


@rows(("first", "last"), [(False, False), (True, False), (False, True), (True, True)])
@rows("kind", [StageKind(0, "A100", 4, "bf16"), StageKind(1, "L40S", 2, "fp8"), StageKind(0, "A100", 1, "int4")])
def test_a_stage_holds_as_many_layers_as_the_footprint_says(kind, first, last, mixed, llama, known):
    points = points_at(np.array([2.0]), np.array([64.0]))
    held = int(
        capacities([kind], points, pools_of(mixed, mixed.kinds), setting_of(mixed, llama, known))[first, last][0, 0]
    )
    needed = 64 * math.ceil(1050 / BLOCK_TOKENS)

    def room(layers: int) -> int:
        """KV blocks of a topology in which that stage stands first, last, in between or alone."""
        ids = [gpu.index for gpu in mixed.gpus if gpu.kind == kind.kind]
        others = [gpu.index for gpu in mixed.gpus if gpu.kind != kind.kind]
        precision, stages, start = Precision.named(kind.precision, kind.kind), [], 0
        if not first:
            stages.append(Stage(mixed.gpu(others[0]).kind, (others[0],), LayerRange(0, 1), precision))
            start = 1
        stages.append(Stage(kind.kind, tuple(ids[: kind.tp]), LayerRange(start, start + layers), precision))
        if not last:
            stages.append(
                Stage(
                    mixed.gpu(others[1]).kind,
                    (others[1],),
                    LayerRange(start + layers, start + layers + 1),
                    precision,
                )
            )
        return blocks(Topology(tuple(stages)), llama, mixed, BLOCK_TOKENS)

    assert room(held) >= needed > room(held + 1)


def test_prompts_take_as_many_chunks_as_the_room_beside_the_decodes_asks():
    points = points_at(np.array([1.0, 2.0, 1.0]), np.array([48.0, 96.0, 1024.0]))
    assert points.chunks(2000).tolist() == [1, 1, 2]
    assert points.chunks(4000).tolist() == [2, 2, 4]


def test_every_batch_leaves_half_a_step_for_prompts():
    points = Points.all([1, 2, 4], BATCHES, USUAL_BATCHING)
    assert points.sequences.max() == 1024
    assert set(points.stages.tolist()) == {1, 2, 4}


def test_no_batch_is_larger_than_the_engine_runs_and_the_largest_is_among_them():
    points = Points.all([1, 2], BATCHES, Batching(max_sequences=48, max_step_tokens=64))
    assert points.batch[(points.stages == 1) & (points.batch >= 1)].tolist() == [1, 2, 3, 4, 6, 8, 12, 16, 24, 32]
    assert points.batch[(points.stages == 2) & (points.batch >= 1)].tolist() == [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48]
    assert points.chunks(100).max() == 4, "32 tokens are left beside 32 decodes"


def test_a_long_prompt_is_costed_by_parts_almost_as_chunk_by_chunk(mixed, llama, known):
    kinds, points = [StageKind(0, "A100", 4, "bf16")], points_at(np.array([1.0]), np.array([16.0]))
    per_token = []
    for chunks in (8, 9, 16):  # eight are costed one by one, more by parts
        _, first = times_of(kinds, points, setting_of(mixed, llama, known, tokens=chunks * 2032))
        per_token.append(float(first.of(0, 80, last=True)[0]) / chunks)
    growth = [later - earlier for earlier, later in pairwise(per_token)]
    assert growth[1] == pytest.approx(7 * growth[0], rel=0.05), "attention grows with the square, chunk by chunk"


def test_a_prompt_alone_keeps_every_stage_from_work_and_many_share_it():
    load = OperatingLoad(1.0, 800, 250, 1, 800)
    points = points_at(np.array([1.0, 4.0, 4.0, 4.0]), np.array([64.0, 1.0, 256.0, 4096.0]))
    alone, four, shared, full = bubbles(points, load).tolist()
    assert (alone, full) == (1.0, 1.0)
    assert four == pytest.approx(4.0, rel=0.01)
    assert 1.0 < shared < four


def test_the_load_of_a_workload_has_at_least_one_token_and_one_request():
    load = OperatingLoad.of(Workload(1.0, 100, 0, 0))
    assert (load.output_tokens, load.held, load.decoded) == (1, 1, 1)
    assert replace(load, output_tokens=250).decoded == 249


def test_of_a_prompt_only_what_is_not_in_the_prefix_cache_is_computed(mixed, llama, known):
    load = OperatingLoad.of(Workload(1.0, 800, 250, 4, prefix_hit=0.75))
    assert (load.computed_tokens, load.input_tokens, load.blocks) == (200, 800, math.ceil(1050 / BLOCK_TOKENS))
    assert OperatingLoad.of(Workload(1.0, 800, 250, 4, prefix_hit=1.0)).computed_tokens == 1
    kinds, points = [StageKind(0, "A100", 4, "bf16")], points_at(np.array([1.0]), np.array([16.0]))
    whole, less = (
        times_of(kinds, points, replace(setting_of(mixed, llama, known), load=replace(load, computed_tokens=one)))
        for one in (800, 200)
    )
    for full, part in zip(whole, less, strict=True):
        assert part.of(0, 80, last=True) < full.of(0, 80, last=True)


def test_what_is_idle_between_requests_decodes_as_one_alone(mixed, llama, known):
    kinds, points = [StageKind(0, "A100", 4, "bf16")], points_at(np.array([1.0, 1.0]), np.array([1 / 64, 1.0]))
    setting = setting_of(mixed, llama, known, tokens=4000)
    busy, _ = times_of(kinds, points, replace(setting, load=replace(setting.load, output_tokens=9)))
    idle_s, after_each_other_s = (busy.of(0, 80, last=True) * points.batch / 8).tolist()
    assert idle_s < 0.3 * after_each_other_s, "nobody's prompt comes between its tokens"


def test_a_slow_network_is_no_hop_within_a_node(mixed, llama, known):
    kinds, points = [StageKind(0, "A100", 2, "bf16")], points_at(np.array([2.0]), np.array([2.0]))
    near, far = (
        times_of(kinds, points, setting_of(replace(mixed, network=network), llama, known))[1].of(0, 40, last=False)
        for network in (None, Link("network", 1e8, 1e-3))
    )
    assert far == pytest.approx(near)
