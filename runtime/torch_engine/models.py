"""Settings and nouns of the torch engine.

Imports no torch, so that pure parts and the service can use it.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from runtime.capabilities import BUILT_IN_START, IMPORTS, Batching, Capabilities, together
from runtime.errors import TopologyError
from runtime.footprint import blocks
from runtime.models import FP8_KINDS, FULL, Cluster, ModelSpec, Topology, uniform

SCRATCH = 1
"""Blocks that hold memory on every device and are never in the pool."""


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """How the engine runs; nothing here changes what it computes."""

    block_size: int = 32
    """Tokens per KV block."""
    layers_per_slab: int = 1
    """Layers whose KV is allocated together: more where a device allocates more at once than one layer's part of a block.
    Stages can only begin at multiples of it."""
    num_blocks: int | None = None
    """KV blocks; None takes half of what one device could hold, so that a switch finds room."""
    max_running: int = 64
    """Sequences with KV at once."""
    max_batch_tokens: int = 256
    """Tokens a step computes at most; prompts are prefilled in chunks of this."""
    closing_batch_tokens: int = 64
    """The same when a cut is near, so that no step delays it for long."""
    copy_slice_bytes: int = 2 << 20
    """Bytes a worker copies between two steps."""
    copy_share: float = 0.04
    """Share of its time that a device which serves may spend on copying for a switch; steps take longer by that."""
    beside_copy_share: float = 0.15
    """The same where the devices that copy serve nothing yet; on a CPU, of a core's time."""
    check_copies: bool = False
    """Compare digests of copied KV on both sides before a cut commits: a sample before the fence, the last patch behind it, or a
    sample of that if it is large."""
    stop_timeout_s: float = 0.5
    """How long a cut waits for its last patch, for which requests stand still; then they go on where they were."""
    hold_back_s: float = 5.0
    """How long a switch may keep new requests from starting, in all, while copying does not gain; then they start."""
    stall_after_s: float = 10.0
    """Without progress for so long the engine counts as stalled, and a target's first step is given up."""
    lost_after_s: float = 20.0
    """Without progress, or an answer, for so long a process counts as lost and is ended; more where steps take long."""
    load_after_s: float = 60.0
    """How long a role may take to load one layer, and a new worker to open its device."""
    num_standby: int = 1
    """Topologies that keep their weights and group after a switch away, so that the way back loads nothing."""
    rank_transport: Literal["shared_memory", "torch_distributed"] = "shared_memory"
    """How ranks exchange what they compute: through memory of this host, or by gloo (CPUs) or NCCL (GPUs)."""
    spare: bool = False
    """Keep a process that has imported what a driver needs, so that a lost one is replaced in a part of the time."""
    prefix_caching: bool = True
    """KV of a prefix that was computed before is used again while it is in the cache."""

    def __post_init__(self) -> None:
        """Every running sequence must fit a step, or some would never decode.

        Raises:
            ValueError: they do not.
        """
        if not self.max_running <= self.closing_batch_tokens <= self.max_batch_tokens:
            raise ValueError(
                f"max_running {self.max_running} <= closing_batch_tokens {self.closing_batch_tokens} <= "
                f"max_batch_tokens {self.max_batch_tokens} does not hold"
            )


@dataclass(frozen=True, slots=True)
class Span:
    """One sequence's part in a step."""

    start: int
    """Positions before this one are in the cache already."""
    count: int
    """Tokens computed in this step."""
    table: tuple[int, ...]
    """Block ids, enough for ``start + count`` tokens."""


@dataclass(frozen=True, slots=True)
class Resized:
    """What a change of the number of KV blocks did."""

    num_blocks: int
    """KV blocks there are now."""
    owed: int
    """How many of them will still retire, as they come free."""
    returned_bytes: int
    """By how much the workers' memory shrank."""
    slices_s: tuple[float, ...]
    """How long each slice took, seconds; on a GPU it kept the worker from its steps."""


def is_on_gpus(topology: Topology) -> bool:
    """Whether it runs on GPUs: on every kind but ``CPU``.

    Raises:
        TopologyError: on both; one's ranks cannot read the other's KV.
    """
    kinds = {stage.kind.upper() for stage in topology.stages}
    if len(kinds) > 1 and "CPU" in kinds:
        raise TopologyError(f"{topology}: the torch engine runs on CPUs or on GPUs, not on both at once")
    return "CPU" not in kinds


def base_of(topology: Topology) -> str:
    """The one format in which a topology keeps activations and KV, whatever its weights are in.

    Raises:
        TopologyError: it has several, one that its devices do not compute in here, or weights that they cannot multiply by.
    """
    layers = [(stage.kind, stage.precision_of(layer)) for stage in topology.stages for layer in stage.layers]
    known = FULL if is_on_gpus(topology) else ("fp32", "bf16")
    bases = {precision.kv for _, precision in layers}
    if len(bases) > 1 or not bases <= {*known}:
        raise TopologyError(
            f"the torch engine keeps KV in {' or '.join(known)} here, in one of them, not as {topology}; "
            f"write `precision: {known[0]}`, and other formats of weights as KIND[0]:0-8@{known[0]},2-6=int8"
        )
    base = bases.pop()
    for kind, precision in layers:
        if precision.weights not in {base, *quantised_on(kind)} or precision.activations not in {base, "fp8"}:
            raise TopologyError(
                f"{topology}: beside {base} the torch engine has weights in {', '.join(quantised_on(kind))} on {kind}, "
                f"and none in {precision.weights}"
            )
    return base


def quantised_on(kind: str) -> tuple[str, ...]:
    """The weight formats beside the full ones that devices of a kind multiply by."""
    return ("int8", "int4", "fp8") if kind in FP8_KINDS else ("int8", "int4")


def capabilities(model: ModelSpec, base: str, kinds: Iterable[str], settings: EngineSettings) -> Capabilities:
    """As many TP ranks as KV heads, and any number of stages up to the slabs.

    Activations and KV stay in ``base``; weights may be in it, and in fewer bits where all ``kinds`` of devices can. There are as
    many KV blocks as the settings say: with another topology fewer, and more by what quantised weights free.
    """
    quantised = [name for name in ("int8", "int4", "fp8") if all(name in quantised_on(kind) for kind in kinds)]
    return Capabilities(
        tuple(range(1, model.num_kv_heads + 1)),
        -(-model.num_layers // settings.layers_per_slab),
        () if model.quantised else (base, *quantised),
        tp_per_stage=True,
        replicated_kv_heads=False,
        base=base,
        batching=Batching(settings.max_running, settings.max_batch_tokens),
        wants_seed=True,
        logprobs_ignore_grammar=True,
        streams=True,
        carries=True,
        name="torch",
        lacks="it reads no checkpoint that is quantised"
        if model.quantised
        else "it keeps KV in the format that it was started with",
        kv_tokens=None if settings.num_blocks is None else (settings.num_blocks - SCRATCH) * settings.block_size,
        start_s=BUILT_IN_START if settings.spare else together(BUILT_IN_START, IMPORTS),
    )


def default_blocks(model: ModelSpec, cluster: Cluster, topology: Topology, block_size: int) -> int:
    """KV blocks when the deployment says none: half of what one device alone could hold.

    So every topology holds as many, and old and new fit side by side. A model that needs several devices gets half of
    what its topology holds. At most 8,192 blocks.
    """
    stage = topology.stages[0]
    alone = uniform(cluster, stage.kind, 1, 1, model.num_layers, stage.precision.kv)
    most = blocks(alone, model, cluster, block_size) or blocks(topology, model, cluster, block_size)
    return min(most // 2, 8192)
