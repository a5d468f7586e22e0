"""Which topologies may be considered, and why the others may not."""

from dataclasses import replace

import pytest

from runtime.footprint import HEADROOM, block_bytes, peak_bytes, weight_bytes
from runtime.models import Capabilities, Cluster, Limits, ModelSpec, uniform
from selector.models import Problem, Workload
from selector.space import BLOCK_TOKENS, Shape, Space, blocks_needed, survey


def reasons(space: Space) -> dict[str, str]:
    return {str(what): why for what, why in space.rejected}


def test_every_divisor_of_the_heads_and_every_depth_is_there(
    laptop: Cluster, counting: ModelSpec, streams: Workload
) -> None:
    space = survey(Problem(laptop, counting, streams, None), ["CPU"], ["fp32"])
    assert sorted(topology.shape for topology in space.topologies) == [
        "1x1", "PP2", "PP3", "PP4", "TP2", "TP2xPP2", "TP4",
    ]  # fmt: skip
    assert reasons(space).keys() == {"CPU TP3xPP1@fp32"}
    assert "TP 3 does not divide the 4 KV heads" in reasons(space)["CPU TP3xPP1@fp32"]
    assert space.considered == 8


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        (Limits(max_gpus=1), "needs 2 devices; the limit is 1"),
        (Limits(allowed_tp=(1, 4)), "the limits allow TP 1, 4"),
        (Limits(allowed_pp=(2,)), "the limits allow PP 2"),
        (Limits(allowed_precisions=("bf16",)), "the limits allow precision bf16"),
    ],
)
def test_a_limit_bars_by_name(
    laptop: Cluster, counting: ModelSpec, streams: Workload, limits: Limits, reason: str
) -> None:
    space = survey(Problem(laptop, counting, streams, None, limits), ["CPU"], ["fp32"])
    assert reasons(space)["CPU TP2xPP1@fp32"] == reason


@pytest.mark.parametrize(
    ("engine", "reason"),
    [
        (Capabilities((1,), 4, ("fp32",), False, False), "the engine runs TP 1"),
        (Capabilities((1, 2), 1, ("fp32",), False, False), "the engine runs PP up to 1"),
        (Capabilities((1, 2), 4, ("bf16",), False, False), "the engine runs precision bf16"),
    ],
)
def test_what_the_engine_cannot_run_is_barred_by_name(
    laptop: Cluster, counting: ModelSpec, streams: Workload, engine: Capabilities, reason: str
) -> None:
    space = survey(Problem(laptop, counting, streams, None, Limits(), engine), ["CPU"], ["fp32"])
    assert reasons(space)["CPU TP2xPP2@fp32"] == reason


def test_what_is_considered_fits_with_the_kv_of_every_request(
    mixed: Cluster, llama: ModelSpec, peak: Workload
) -> None:
    problem = Problem(mixed, llama, peak, None)
    space = survey(problem, ["A100", "L40S"], ["bf16", "fp8", "int4"])
    assert space.topologies
    for topology in space.topologies:
        weights, per_block = weight_bytes(topology, llama), block_bytes(topology, llama, BLOCK_TOKENS)
        for device in topology.devices:
            needed = weights[device] + blocks_needed(problem) * per_block[device]
            assert needed <= mixed.gpu(device).memory_bytes * (1 - HEADROOM)


def test_what_does_not_fit_says_how_much_is_too_much(
    mixed: Cluster, llama: ModelSpec, peak: Workload
) -> None:
    why = reasons(survey(Problem(mixed, llama, peak, None), ["A100", "L40S"], ["bf16"]))
    assert why["A100 TP1xPP1@bf16"] == "141 GB of weights leave no room for KV in the 80 GB of device 0"
    crowded = replace(peak, concurrency=2000)
    why = reasons(survey(Problem(mixed, llama, crowded, None), ["A100"], ["bf16"]))
    held = int(why["A100 TP4xPP1@bf16"].split("KV of ")[1].split()[0])
    assert "of the 2000 requests in flight" in why["A100 TP4xPP1@bf16"]
    just = survey(Problem(mixed, llama, replace(peak, concurrency=held), None), ["A100"], ["bf16"])
    assert "TP4" in {topology.shape for topology in just.topologies}
    one_more = survey(Problem(mixed, llama, replace(peak, concurrency=held + 1), None), ["A100"], ["bf16"])
    assert "TP4" not in {topology.shape for topology in one_more.topologies}


def test_every_target_fits_beside_what_runs(mixed: Cluster, llama: ModelSpec, peak: Workload) -> None:
    now = uniform(mixed, "A100", 4, 1, 80, "bf16")
    problem = Problem(mixed, llama, peak, now)
    space = survey(problem, ["A100", "L40S"], ["bf16", "int8"])
    assert any("does not fit beside what runs now" in why for why in reasons(space).values())
    for topology in space.topologies:
        if topology != now:
            peak_of = peak_bytes(now, topology, llama, blocks_needed(problem), BLOCK_TOKENS)
            assert all(
                size <= mixed.gpu(device).memory_bytes * (1 - HEADROOM) for device, size in peak_of.items()
            )


def test_what_runs_is_considered_once_and_first(
    laptop: Cluster, counting: ModelSpec, streams: Workload
) -> None:
    now = uniform(laptop, "CPU", 1, 2, 8, "fp32")
    space = survey(Problem(laptop, counting, streams, now), ["CPU"], ["fp32"])
    assert space.topologies[0] == now
    assert [topology.shape for topology in space.topologies].count("PP2") == 1


def test_what_runs_in_a_barred_precision_is_rejected_with_the_reason(
    laptop: Cluster, counting: ModelSpec, streams: Workload
) -> None:
    now = uniform(laptop, "CPU", 1, 2, 8, "bf16")
    space = survey(Problem(laptop, counting, streams, now), ["CPU"], ["fp32"])
    assert space.rejected[0] == (now, "it runs in bf16; allowed is fp32")


def test_a_shape_reads_as_people_write_it() -> None:
    assert str(Shape("A100", 2, 4, "bf16")) == "A100 TP2xPP4@bf16"
