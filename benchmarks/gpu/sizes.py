"""What each part runs, on a GPU and, so that it can be rehearsed, tiny on a CPU."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from benchmarks.gpu.machine import Device, Machine
from benchmarks.gpu.room import Limits
from benchmarks.gpu.shapes import (
    LLAMA_2_13B,
    LLAMA_3_8B,
    QWEN_3_8B,
    SMALL_LLAMA,
    SMALL_QWEN,
    Config,
    few_layers,
)
from benchmarks.kv_copy import BLOCKS, SHAPES
from benchmarks.overhead import Parameters as Overhead
from intentctl.steps import Design
from runtime.kv.store import KvShape
from runtime.torch_engine.models import EngineSettings


@dataclass(frozen=True, slots=True)
class Logits:
    """Of whole prompts, beside transformers."""

    shapes: Mapping[str, Config]
    precisions: tuple[str, ...]
    chunks: tuple[int, ...]
    """The prompt is computed in these."""


@dataclass(frozen=True, slots=True)
class Walk:
    """Streams that go on over switches."""

    shape: Config
    settings: EngineSettings
    tokens: int
    """Of each stream: more than are said from when a target is up to the cut."""
    prompts: tuple[int, ...]
    """Tokens of each stream's prompt."""


@dataclass(frozen=True, slots=True)
class Formats:
    """Weights in fewer bits: their products, logits, and swaps under streams."""

    shape: Config
    chunks: tuple[int, ...]
    """The prompt whose logits are compared is computed in these."""
    settings: EngineSettings
    tokens: int
    """Of each stream."""
    prompts: tuple[int, ...]
    """Tokens of each stream's prompt."""


@dataclass(frozen=True, slots=True)
class Cutover:
    """One load of the cutover harness."""

    name: str
    shape: Config
    pair: tuple[str, str]
    active: int
    switches: int
    """There and back."""


@dataclass(frozen=True, slots=True)
class Resize:
    """A pool that gives memory back and takes it again."""

    shape: Config
    settings: EngineSettings
    streams: int
    prompt: int
    output: int
    quiet_tokens: int
    rounds: int


@dataclass(frozen=True, slots=True)
class Sizes:
    """All parts on one kind of device."""

    precision: str
    """Of what speeds are measured in."""
    most: Limits
    """Never more than this, however much there is."""
    logits: Logits
    walk: Walk
    formats: Formats
    kv: KvShape
    kv_blocks: int
    """Copied in one go."""
    cutovers: tuple[Cutover, ...]
    """Most valuable first."""
    resize: Resize
    overhead_shape: Config
    overhead: Overhead
    profile_shape: Config
    profile: Design

    def limits(self, machine: Machine) -> Limits:
        """What may be used: no more than there is, but for a little that nobody counts."""
        return Limits(
            min(self.most.device_bytes, machine.free_bytes - KEPT_BYTES),
            min(self.most.host_bytes, machine.host_bytes - KEPT_BYTES),
        )


KEPT_BYTES = 1_000_000_000

GPU = Sizes(
    precision="bf16",
    most=Limits(device_bytes=75_000_000_000, host_bytes=64_000_000_000),
    logits=Logits(
        {"Llama-3": few_layers(LLAMA_3_8B, 4), "Qwen3": few_layers(QWEN_3_8B, 4)},
        ("fp32", "bf16"),
        (100, 64, 1, 1, 33, 1),
    ),
    walk=Walk(
        few_layers(LLAMA_3_8B, 5),
        EngineSettings(
            block_size=16,
            num_blocks=2048,
            max_running=8,
            max_batch_tokens=256,
            closing_batch_tokens=64,
            stop_timeout_s=10,
        ),
        tokens=200,
        prompts=(5, 65, 400),
    ),
    formats=Formats(
        few_layers(LLAMA_3_8B, 4),
        (100, 1, 33, 1),
        EngineSettings(
            block_size=16,
            num_blocks=2048,
            max_running=8,
            max_batch_tokens=256,
            closing_batch_tokens=64,
            prefix_caching=False,
        ),
        tokens=300,
        prompts=(5, 65, 400),
    ),
    kv=SHAPES["cuda"],
    kv_blocks=BLOCKS["cuda"],
    cutovers=(
        Cutover("Llama-3-8B", LLAMA_3_8B, ("1x1", "pp2"), 100, 1),
        Cutover("Llama-3-8B", LLAMA_3_8B, ("1x1", "pp2"), 200, 1),
        Cutover("Llama-3-8B", LLAMA_3_8B, ("1x1", "pp2"), 1000, 1),
        Cutover("Llama-2-13B", LLAMA_2_13B, ("1x1", "pp2"), 100, 1),
        Cutover("Llama-3-8B", LLAMA_3_8B, ("1x1", "tp2"), 100, 1),
        Cutover("Llama-2-13B", LLAMA_2_13B, ("1x1", "pp2"), 200, 1),
        Cutover("Llama-2-13B", LLAMA_2_13B, ("1x1", "pp2"), 1000, 1),
    ),
    resize=Resize(
        few_layers(LLAMA_3_8B, 4),
        EngineSettings(
            block_size=16,
            num_blocks=32_768,
            max_running=16,
            max_batch_tokens=256,
            closing_batch_tokens=64,
            prefix_caching=False,
        ),
        streams=8,
        prompt=300,
        output=1600,
        quiet_tokens=60,
        rounds=2,
    ),
    overhead_shape=LLAMA_3_8B,
    overhead=Overhead(
        pairs=(("1x1", "pp2"),),
        streams=32,
        context=200,
        output=60,
        switches=1,
        requests=64,
        after=32,
        standby=1,
        seed=0,
    ),
    profile_shape=LLAMA_3_8B,
    profile=Design(rounds=2),
)

CPU = Sizes(
    precision="fp32",
    most=Limits(device_bytes=8_000_000_000, host_bytes=64_000_000_000),
    logits=Logits({"Llama-3": SMALL_LLAMA, "Qwen3": SMALL_QWEN}, ("fp32",), (13, 8, 1, 1, 16, 1)),
    walk=Walk(
        SMALL_LLAMA,
        EngineSettings(block_size=8, num_blocks=256, max_running=4, max_batch_tokens=64, closing_batch_tokens=16),
        tokens=200,
        prompts=(5, 65),
    ),
    formats=Formats(
        SMALL_LLAMA,
        (13, 1, 16, 1),
        EngineSettings(
            block_size=8,
            num_blocks=256,
            max_running=4,
            max_batch_tokens=64,
            closing_batch_tokens=16,
            prefix_caching=False,
        ),
        tokens=200,
        prompts=(5, 65),
    ),
    kv=KvShape(2, 4, 128, 16, 64, torch.float32),
    kv_blocks=64,
    cutovers=(Cutover("small", SMALL_LLAMA, ("1x1", "pp2"), 3, 1),),
    resize=Resize(
        SMALL_LLAMA,
        EngineSettings(block_size=8, num_blocks=4096, prefix_caching=False),
        streams=3,
        prompt=60,
        output=200,
        quiet_tokens=10,
        rounds=1,
    ),
    overhead_shape=SMALL_LLAMA,
    overhead=Overhead(
        pairs=(("1x1", "pp2"),),
        streams=3,
        context=30,
        output=20,
        switches=1,
        requests=6,
        after=6,
        standby=0,
        seed=0,
    ),
    profile_shape=SMALL_LLAMA,
    profile=Design(input_tokens=(128, 256, 384, 512, 768), batches=(1, 2), contexts=(32, 64), rounds=1),
)

SIZES: Mapping[Device, Sizes] = {"cuda": GPU, "cpu": CPU}
