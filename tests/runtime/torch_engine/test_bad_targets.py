"""A target that cannot be is refused before anything is touched, with the part and the reason named."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from runtime.engine import Request, SamplingParams, Token
from runtime.errors import SwitchError, TopologyError
from runtime.models import Cluster, Reason
from runtime.notation import parse_topology
from runtime.torch_engine.engine import TorchEngine
from runtime.torch_engine.models import EngineSettings

pytestmark = pytest.mark.slow

LAYERS = 5
UNREADABLE = [
    ("CPU[0]:0-5@int3", "unknown precision 'int3'; use one of"),
    ("CPU[-1]:0-5", "cannot read stage 'CPU\\[-1\\]:0-5'; write"),
    ("TP8", "8 free CPU on one node are needed; the inventory has 4"),
]
IMPOSSIBLE = [
    ("CPU[0]:0-3 > CPU[1]:2-5", r"stage 1 \(CPU\[1\]:2-5@fp32\): its layers should start at 3"),
    ("CPU[0]:0-2 > CPU[1]:3-5", r"stage 1 \(CPU\[1\]:3-5@fp32\): its layers should start at 2"),
    ("CPU[0]:1-5", "stage 0 .* layers should start at 0"),
    ("CPU[0]:0-2 > CPU[1]:2-4", "holds 4 layers, but .* has 5"),
    ("CPU[0]:0-2 > CPU[1]:2-6", "holds 6 layers, but .* has 5"),
    ("CPU[0]:0-2 > CPU[1]:2-2 > CPU[2]:2-5", "stage 1 .* not be empty"),
    ("CPU[0]:0-3 > CPU[0]:3-5", "stage 1 .* device 0 is used twice"),
    ("CPU[1,1]:0-5", "stage 0 .* device 1 is used twice"),
    ("CPU[0]:0-3 > CPU[7]:3-5", "device 7 is not in the inventory; it has 0"),
    ("CPU[0,1,2]:0-5", "TP 3 does not divide the 4 KV heads"),
    ("A100[0]:0-5", "device 0 is a CPU, not a A100"),
    ("CPU[0]:0-5@bf16", "computes in fp32"),
]


async def test_an_inventory_of_gpus_on_a_machine_without_one_is_refused_with_the_reason(
    checkpoints: dict[str, Path], cluster: Cluster
) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    gpus = tuple(replace(gpu, kind="A100") for gpu in cluster.gpus)
    inventory = Cluster((replace(cluster.nodes[0], gpus=gpus),))
    start = parse_topology("A100x2", inventory, LAYERS, "bf16")
    with pytest.raises(
        SwitchError, match=r"device \d cannot be used: .* torch finds none; on a CPU the kind is CPU"
    ):
        await TorchEngine.start(checkpoints["qwen3-tied"], start, inventory)


@pytest.mark.parametrize(("text", "reason"), UNREADABLE)
def test_what_cannot_be_read_or_bound_is_named(cluster: Cluster, text: str, reason: str) -> None:
    with pytest.raises(TopologyError, match=reason):
        parse_topology(text, cluster, LAYERS, "fp32")


async def test_what_cannot_be_is_refused_and_nothing_is_touched(
    checkpoints: dict[str, Path], cluster: Cluster
) -> None:
    settings = EngineSettings(
        block_size=8, num_blocks=64, max_running=4, max_batch_tokens=16, closing_batch_tokens=8
    )
    start = parse_topology("1x1", cluster, LAYERS, "fp32")
    engine = await TorchEngine.start(checkpoints["qwen3-tied"], start, cluster, settings)
    try:
        before = await engine.stats()
        for text, reason in IMPOSSIBLE:
            with pytest.raises(SwitchError, match=reason) as refused:
                await engine.prepare(parse_topology(text, cluster, LAYERS, "fp32"))
            assert refused.value.reason is Reason.UNSUPPORTED
        assert await engine.stats() == before
        shadow = await engine.prepare(parse_topology("tp2", cluster, LAYERS, "fp32"))
        with pytest.raises(SwitchError, match="another switch is under way") as refused:
            await engine.prepare(parse_topology("pp2", cluster, LAYERS, "fp32"))
        assert refused.value.reason is Reason.BUSY
        await shadow.abort(Reason.CANCELLED)
        await engine.submit(Request("after", (1, 2, 3), SamplingParams(2), epoch=1))
        async for batch in engine.outputs():
            if any(isinstance(item, Token) and item.finish for item in batch):
                break
        assert engine.topology == start
    finally:
        await engine.close()
