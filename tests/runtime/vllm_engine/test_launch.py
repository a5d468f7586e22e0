"""From a topology to the options and variables of a vLLM engine, and what is refused before one is started."""

from dataclasses import replace
from pathlib import Path

import pytest

from runtime.capabilities import Batching, Capabilities
from runtime.errors import EngineStartError, Reason, SwitchError
from runtime.models import LayerRange, ModelSpec, Precision, Stage, Topology, uniform
from runtime.vllm_engine.launch import (
    OVERHEAD_BYTES,
    capabilities,
    engine_options,
    environment,
    made_format,
    refuse_without_memory,
    side_by_side,
    sized,
    surroundings,
    utilization,
    wanted_bytes,
)
from runtime.vllm_engine.models import VllmSettings
from tests.rows import rows
from tests.runtime.scripted import cluster_of, topology
from tests.runtime.vllm_engine.sides import MODEL

CHECKPOINT = Path("/models/m")
TEN_GB = cluster_of("cpu", 10_000_000_000)


def options_of(target: Topology, **options: object) -> dict[str, object]:
    return engine_options(CHECKPOINT, target, VllmSettings(options=options, kv_cache_bytes=1 << 20))


def test_a_topology_becomes_engine_options():
    """A step is never scheduled ahead, and prefixes are cached."""
    options = options_of(topology(2, 2))
    assert options.items() >= {
        "model": "/models/m", "tensor_parallel_size": 2, "pipeline_parallel_size": 2, "dtype": "float32",
        "kv_cache_dtype": "auto", "quantization": None, "kv_cache_memory_bytes": 1 << 20,
        "async_scheduling": False, "enable_prefix_caching": True,
    }.items()  # fmt: skip


def test_graphs_are_compiled_on_gpus_only():
    assert options_of(topology(1))["enforce_eager"] is True
    assert options_of(uniform(cluster_of("L40S"), "L40S", 2, 1, 8, "bf16"))["enforce_eager"] is False


@rows(
    ("kind", "name", "dtype", "kv", "quantization"),
    [
        ("cpu", "bf16", "bfloat16", "auto", None),
        ("A100", "fp16", "float16", "auto", None),
        ("L40S", "fp8", "bfloat16", "fp8", "fp8"),
        ("A100", "fp8", "bfloat16", "auto", "fp8"),
        ("A100", "int4", "bfloat16", "auto", None),  # vLLM reads of it in the folder
    ],
)
def test_precision_is_that_of_the_stages(kind, name, dtype, kv, quantization):
    options = options_of(uniform(cluster_of(kind), kind, 1, 1, 8, name))
    assert (options["dtype"], options["kv_cache_dtype"], options["quantization"]) == (dtype, kv, quantization)


def test_options_of_the_deployment_are_passed_through_and_win():
    options = options_of(topology(1), max_num_seqs=7, enable_prefix_caching=False, unheard_of="x")
    assert (options["max_num_seqs"], options["enable_prefix_caching"]) == (7, False)
    assert options["unheard_of"] == "x"


@rows(
    "name",
    [
        "model", "tensor_parallel_size", "pipeline_parallel_size", "dtype", "kv_cache_dtype", "quantization",
        "kv_transfer_config", "worker_extension_cls", "skip_tokenizer_init", "kv_cache_memory_bytes",
        "async_scheduling", "data_parallel_size", "speculative_config", "scheduler_cls", "worker_cls",
    ],
)  # fmt: skip
def test_an_option_that_is_not_the_deployments_is_refused_by_name(name):
    with pytest.raises(EngineStartError, match=rf"vLLM option {name} follows .* take it out"):
        options_of(topology(1), **{name: 1, "max_num_seqs": 7})


def test_all_options_that_are_refused_are_named_at_once():
    with pytest.raises(EngineStartError, match="vLLM option dtype, model follows"):
        options_of(topology(1), model="x", dtype="y")


@rows(
    "stages",
    [
        topology(2, 1).stages,
        (topology(1, 1).stages[0], replace(topology(1, 1).stages[1], precision=Precision("bf16", "bf16", "bf16"))),
        (replace(topology(1).stages[0], overrides=((LayerRange(0, 2), Precision("bf16", "bf16", "bf16")),)),),
    ],
    ids=["degrees", "precisions", "overrides"],
)  # fmt: skip
def test_stages_that_differ_are_refused_with_the_topology(stages):
    with pytest.raises(SwitchError, match="one TP degree and one precision in all stages") as refused:
        options_of(Topology(stages))
    assert refused.value.reason is Reason.UNSUPPORTED
    assert str(Topology(stages)) in refused.value.detail


def test_on_a_cpu_the_core_runs_in_the_driver_and_workers_are_bound_to_no_cores_and_see_no_gpus():
    assert surroundings(cluster_of("cpu"), VllmSettings()).items() >= {
        "VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": "1",
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_NO_USAGE_STATS": "1",
    }.items()  # fmt: skip
    assert "CUDA_VISIBLE_DEVICES" not in environment(topology(2), "")


def test_on_gpus_an_engine_sees_its_own_in_rank_order():
    stages = (
        Stage("L40S", (3, 1), LayerRange(0, 4), Precision.named("bf16", "L40S")),
        Stage("L40S", (0, 2), LayerRange(4, 8), Precision.named("bf16", "L40S")),
    )
    assert environment(Topology(stages), "")["CUDA_VISIBLE_DEVICES"] == "3,1,0,2"
    assert environment(Topology(stages), "4,GPU-5, 6,7")["CUDA_VISIBLE_DEVICES"] == "7,GPU-5,4,6"
    assert environment(Topology(stages), "GPU-9,GPU-8,7,6", 0)["CUDA_VISIBLE_DEVICES"] == "6,GPU-8,GPU-9,7"
    there = Topology((Stage("L40S", (5, 4), LayerRange(0, 8), Precision.named("bf16", "L40S")),))
    assert environment(there, "", 4)["CUDA_VISIBLE_DEVICES"] == "1,0"  # of a host whose first device is 4
    with pytest.raises(SwitchError, match="shows 2 devices to the service, but device 3 of its host is planned"):
        environment(Topology(stages), "4,5")
    assert "VLLM_CPU_OMP_THREADS_BIND" not in surroundings(cluster_of("L40S"), VllmSettings())


@rows(
    ("kind", "options", "is_disabled"),
    [("cpu", {}, True), ("cpu", {"enforce_eager": False}, False), ("L40S", {}, False)],
)
def test_nothing_is_compiled_where_graphs_are_not(kind, options, is_disabled):
    variables = surroundings(cluster_of(kind), VllmSettings(options))
    assert (variables.get("TORCH_COMPILE_DISABLE") == "1") is is_disabled


def test_layers_are_split_as_the_topology_says():
    first, second = topology(1, 1).stages
    uneven = Topology((replace(first, layers=LayerRange(0, 3)), replace(second, layers=LayerRange(3, 8))))
    assert environment(uneven, "")["VLLM_PP_LAYER_PARTITION"] == "3,5"


def test_sizes_follow_from_the_memory_of_a_gpu():
    wide, cluster = topology(2, 2), cluster_of("L40S", 48_000_000_000)
    found = sized(VllmSettings(), cluster, wide, weights=16_000_000_000)
    assert (found.kv_cache_bytes, found.staging_bytes, found.slice_bytes) == (
        12_000_000_000,
        48_000_000_000,
        4 << 20,
    )
    tight = sized(VllmSettings(), cluster, wide, weights=40_000_000_000)
    assert tight.kv_cache_bytes == 8_000_000_000 - (2 << 30)
    asked = VllmSettings(kv_cache_bytes=5, staging_bytes=6, slice_bytes=7)
    assert sized(asked, cluster, wide, weights=0) == asked
    on_cpu = sized(VllmSettings(), cluster_of("cpu"), wide, weights=0)
    assert (on_cpu.kv_cache_bytes, on_cpu.staging_bytes, on_cpu.slice_bytes) == (1 << 30, 1 << 30, 4 << 20)


def test_vllm_wants_as_much_free_as_this_engine_asks_for():
    settings, weights = VllmSettings(kv_cache_bytes=12_000_000_000), {0: 16_000_000_000, 1: 8_000_000_000}
    wanted = wanted_bytes(weights, settings)
    assert utilization(wanted, 48_000_000_000) == 0.63
    assert utilization(wanted, 24_000_000_000) == 1.0


def test_on_gpus_no_sampler_is_compiled_under_load_and_eager_keeps_the_warm_up_of_kernels():
    assert surroundings(cluster_of("L40S"), VllmSettings())["VLLM_USE_FLASHINFER_SAMPLER"] == "0"
    assert "VLLM_USE_FLASHINFER_SAMPLER" not in surroundings(cluster_of("cpu"), VllmSettings())
    found = options_of(uniform(cluster_of("L40S"), "L40S", 2, 1, 8, "bf16"), enforce_eager=True)
    assert (found["enforce_eager"], found["compilation_config"]) == (False, {"mode": 0, "cudagraph_mode": "NONE"})
    assert options_of(topology(1), enforce_eager=True)["enforce_eager"] is True


def test_engines_that_fit_side_by_side_are_not_refused():
    settings = VllmSettings(kv_cache_bytes=3_000_000_000)
    weights = {0: 4_000_000_000, 1: 2_000_000_000}
    refuse_without_memory([topology(1), topology(2)], TEN_GB, weights, settings)


def test_a_device_that_is_too_small_is_refused_with_the_figures():
    settings = VllmSettings(kv_cache_bytes=3_000_000_000)
    weights = {0: 4_000_000_001, 1: 2_000_000_000}
    with pytest.raises(SwitchError) as refused:
        refuse_without_memory([topology(2), topology(1)], TEN_GB, weights, settings)
    assert refused.value.reason is Reason.NO_MEMORY
    assert refused.value.detail == (
        "device 0 has 10.00 GB; 2 vLLM engines side by side need 10.00 GB there (3.00 GB of KV cache each, "
        "4.00 GB of weights); lower vllm.kv_cache_gb or use other devices"
    )


def test_only_engines_on_a_device_count_there():
    settings = VllmSettings(kv_cache_bytes=6_000_000_000)
    stage = topology(1).stages[0]
    elsewhere = Topology((replace(stage, devices=(1,)),))
    weights = {0: 1_000_000_000, 1: 1_000_000_000}
    refuse_without_memory([topology(1), elsewhere], TEN_GB, weights, settings)
    with pytest.raises(SwitchError, match="device 0"):
        refuse_without_memory([topology(1), topology(1)], TEN_GB, weights, settings)


def test_degrees_divide_heads_and_width_and_8_and_16_bit_floats_need_gpus():
    def found(model: ModelSpec, kind: str = "cpu") -> Capabilities:
        return capabilities(cluster_of(kind), model, VllmSettings())

    assert found(MODEL).tp_degrees == (1, 2, 4)
    assert found(replace(MODEL, intermediate_size=90)).tp_degrees == (1, 2)
    assert found(replace(MODEL, num_kv_heads=3)).tp_degrees == (1, 3)
    assert found(MODEL).precisions == ("fp32", "bf16", "int8", "int4")
    assert found(MODEL, "L40S").precisions == ("fp32", "bf16", "fp16", "fp8", "int8", "int4")
    assert found(replace(MODEL, hidden_size=80)).precisions == ("fp32", "bf16")


@rows(
    ("quantised", "kind", "served", "said"),
    [
        (None, "L40S", "fp8", ""),
        (None, "L40S", "int4", ""),
        (None, "cpu", "int8", ""),
        (None, "cpu", "fp8", "the engine vllm serves no fp8 here, but fp32, bf16, int8, int4"),
        ("int4", "L40S", "int4", ""),
        (
            "int4",
            "L40S",
            "bf16",
            "serves no bf16 here, but int4: the checkpoint is quantised to int4, which takes GPUs",
        ),
        (
            "int4",
            "cpu",
            "int4",
            "serves no int4 here, but nothing: the checkpoint is quantised to int4, which takes GPUs",
        ),
    ],
)
def test_a_format_that_is_not_served_is_named_with_the_reason(quantised, kind, served, said):
    why = capabilities(cluster_of(kind), replace(MODEL, quantised=quantised), VllmSettings()).serves_not(served)
    assert said in why
    assert bool(why) is bool(said)


def test_widths_that_no_group_divides_are_named():
    why = capabilities(cluster_of("L40S"), replace(MODEL, intermediate_size=88), VllmSettings()).serves_not("int8")
    assert why.endswith("but fp32, bf16, fp16, fp8: int8 and int4 take widths that 32 divides")


@rows(
    ("name", "quantised", "made"),
    [("int4", None, "int4"), ("int8", None, "int8"), ("bf16", None, None), ("fp8", None, None), ("int4", "int4", None)],
)
def test_a_checkpoint_is_quantised_to_int8_and_int4_unless_it_is_quantised_itself(name, quantised, made):
    target = uniform(cluster_of("L40S"), "L40S", 1, 1, 8, name)
    assert made_format(target, replace(MODEL, quantised=quantised)) == made


def test_steps_are_filled_as_the_options_say():
    settings = VllmSettings({"max_num_seqs": 24, "max_num_batched_tokens": 256})
    assert capabilities(cluster_of("cpu"), MODEL, settings).batching == Batching(24, 256)
    assert capabilities(cluster_of("cpu"), MODEL, VllmSettings()).batching == Batching(128, 2048)
    assert capabilities(cluster_of("cpu"), MODEL, VllmSettings(max_step_tokens=64)).batching == Batching(64, 64)
    assert capabilities(cluster_of("cpu"), MODEL, VllmSettings(max_sequences=4096)).batching == Batching(4096, 4096)


def test_vllm_is_told_how_far_steps_are_filled_and_a_plan_goes_before_the_deployment():
    known = VllmSettings({"max_num_seqs": 24})
    for batching, wanted in ((None, (24, 2048)), (Batching(8, 512), (8, 512))):
        options = engine_options(CHECKPOINT, topology(1), known, batching)
        assert (options["max_num_seqs"], options["max_num_batched_tokens"]) == wanted


def test_the_kv_cache_is_what_the_file_says_or_what_was_made_of_it():
    cluster = cluster_of("L40S", 48_000_000_000)
    assert capabilities(cluster, MODEL, VllmSettings(kv_cache_bytes=2_000_000_000)).kv_bytes == 2_000_000_000
    assert capabilities(cluster, MODEL, VllmSettings()).kv_bytes is None
    made = sized(VllmSettings(), cluster, topology(1), 10_000_000_000)
    assert capabilities(cluster, MODEL, made).kv_bytes == 12_000_000_000


@rows(
    ("topologies", "kind", "left"),
    [
        ([topology(1)], "cpu", 1),
        ([topology(1), topology(1)], "cpu", 2),
        ([topology(1), topology(2)], "cpu", 2),
        ([topology(1)], "L40S", 1),
    ],
    ids=["alone", "both there", "one beside", "a GPU has an overhead"],
)
def test_the_most_kv_is_what_weights_and_engines_side_by_side_leave(topologies, kind, left):
    """With a byte more for each engine it is refused."""
    cluster = cluster_of(kind, 10_000_000_000)
    weights = side_by_side(topologies, MODEL)
    most = (10_000_000_000 - weights[0]) // left - (OVERHEAD_BYTES if kind == "L40S" else 0)
    refuse_without_memory(topologies, cluster, weights, VllmSettings(kv_cache_bytes=most))
    with pytest.raises(SwitchError, match="device 0"):
        refuse_without_memory(topologies, cluster, weights, VllmSettings(kv_cache_bytes=most + 1))


def test_limits_become_vllms_options_unless_these_say_otherwise():
    limits = VllmSettings({"max_num_seqs": 8}, max_sequences=24, max_step_tokens=256)
    options = engine_options(CHECKPOINT, topology(1), limits)

    assert (options["max_num_seqs"], options["max_num_batched_tokens"]) == (8, 256)
    assert capabilities(cluster_of("cpu"), MODEL, limits).batching == Batching(8, 256)
