"""What a switch takes when the devices of both topologies are one, and the longest requests that fit. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from benchmarks.engines import Demand, Subject
from benchmarks.parameters import SHAM_TOKENS, SHORTEST_CONTEXT, SIDE_TOKENS
from runtime.footprint import peak_bytes, weight_bytes
from runtime.kv.pages import chunk_blocks
from runtime.models import BYTES_PER_VALUE, ModelSpec, Topology
from runtime.torch_engine.worker.group import GroupShape

CONTEXT_BYTES = 800_000_000
"""Of device memory that CUDA, its libraries and kernels take in each process."""
HOST_BYTES = 2_500_000_000
"""Of host memory that a process with torch and CUDA takes."""
ALLOCATED_AT_ONCE = 2 << 20
"""By the device (``kv.memory.CudaMemory``)."""

SHORTEST_OUTPUT = SHAM_TOKENS + SIDE_TOKENS
SHORTEST = SHORTEST_CONTEXT + 3
"""Tokens of a prompt, at least."""
LONGEST = 600
"""Tokens of a request, prompt and output; longer ones say nothing new."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What may be used."""

    device_bytes: int
    host_bytes: int


@dataclass(frozen=True, slots=True)
class Needed:
    """What streams of a length take while old and new topology stand side by side."""

    context: int
    output: int
    device_bytes: int
    host_bytes: int

    def fits(self, limits: Limits) -> bool:
        """Within both."""
        return self.device_bytes <= limits.device_bytes and self.host_bytes <= limits.host_bytes

    def __str__(self) -> str:
        return (
            f"{self.context} + {self.output} tokens need {self.device_bytes / 1e9:.1f} GB of device memory and "
            f"{self.host_bytes / 1e9:.1f} GB of the host's"
        )


def choose(subject: Subject, pair: tuple[str, str], active: int, limits: Limits) -> Needed:
    """The longest streams that fit, or the shortest that can be measured, which then do not."""
    every = (
        needed_for(subject, pair, Demand(active, context + output), (context, output)) for context, output in lengths()
    )
    for needed in every:
        if needed.fits(limits):
            break
    return needed


def lengths() -> Iterator[tuple[int, int]]:
    """Prompt and output, longest first."""
    for total in range(LONGEST, SHORTEST + SHORTEST_OUTPUT, -15):
        output = max(SHORTEST_OUTPUT, total // 2)
        yield total - output, output
    yield SHORTEST, SHORTEST_OUTPUT


def needed_for(subject: Subject, pair: tuple[str, str], demand: Demand, tokens: tuple[int, int]) -> Needed:
    """The project's own footprint of both topologies over all their devices, and what stands beside it in each process."""
    now, target = (subject.topology(text) for text in pair)
    settings = subject.settings(demand)
    assert settings.num_blocks is not None, "it follows from the demand"
    size = settings.block_size
    blocks = _allocated_blocks(subject, settings.num_blocks)
    peak = sum(peak_bytes(now, target, subject.spec, blocks, size).values())
    ranks = len({*now.devices, *target.devices})
    beside = CONTEXT_BYTES + max(_step_bytes(subject, demand), _load_bytes(subject))
    groups = sum(_group_bytes(subject, demand, topology) for topology in (now, target))
    host = (ranks + 2) * HOST_BYTES + groups  # and the driver, and whoever asks
    return Needed(*tokens, peak + ranks * beside, host)


def standing_bytes(model: ModelSpec, ways: Sequence[Topology], num_blocks: int, block_size: int) -> int:
    """Device memory of a walk over topologies, the last but one still warm; of one that stays, if it is alone."""
    pairs = pairwise(ways) if len(ways) > 1 else ((ways[0], ways[0]),)
    peak = max(sum(peak_bytes(*pair, model, num_blocks, block_size).values()) for pair in pairs)
    warm = max(sum(weight_bytes(way, model).values()) for way in ways) if len(ways) > 1 else 0
    largest = 8 * max(model.vocab_size, model.intermediate_size) * model.hidden_size
    ranks = len({device for way in ways for device in way.devices})
    return peak + warm + ranks * (CONTEXT_BYTES + largest)


def too_little(limits: Limits, device_bytes: int) -> str | None:
    """Why a part cannot be run, if it cannot."""
    if device_bytes <= limits.device_bytes:
        return None
    return f"needs {device_bytes / 1e9:.1f} GB of device memory, {limits.device_bytes / 1e9:.1f} GB may be used"


def _allocated_blocks(subject: Subject, num_blocks: int) -> int:
    """Neighbouring blocks of a slab are allocated together."""
    width = BYTES_PER_VALUE[subject.precision]
    block_bytes = round(2 * subject.block_tokens * subject.spec.head_dim * width)
    together = chunk_blocks(block_bytes, ALLOCATED_AT_ONCE)
    return -(-num_blocks // together) * together


def _step_bytes(subject: Subject, demand: Demand) -> int:
    """What one step has in hand at most: of its tokens, and logits as computed, in float32 and as logarithms."""
    spec, width = subject.spec, BYTES_PER_VALUE[subject.precision]
    values = 3 * spec.intermediate_size + 6 * spec.hidden_size
    tokens = subject.settings(demand).max_batch_tokens
    return round(tokens * values * width + demand.streams * spec.vocab_size * (width + 8))


def _load_bytes(subject: Subject) -> int:
    """The largest tensor as it is made, and a copy of it."""
    spec = subject.spec
    largest = max(spec.vocab_size, spec.intermediate_size) * spec.hidden_size
    return round(2 * largest * BYTES_PER_VALUE[subject.precision])


def _group_bytes(subject: Subject, demand: Demand, topology: Topology) -> int:
    """What the ranks of a topology hand each other in, as ``workers`` sizes it; the host gives it as it is touched."""
    spec, settings = subject.spec, subject.settings(demand)
    widest = max(-(-spec.vocab_size // stage.tp_size) for stage in topology.stages)
    values = max(settings.max_batch_tokens * spec.hidden_size, settings.max_running * widest)
    return GroupShape(tuple(stage.tp_size for stage in topology.stages), values).total_bytes
