"""A target that cannot be is refused before anything is touched, with the part and the reason named."""

import pytest
import torch

from runtime.engine import GenerationRequest, SamplingParams
from runtime.errors import Reason, SwitchError
from runtime.notation import parse_topology
from runtime.torch_engine.engine import TorchEngine
from tests.runtime.scripted import cluster_of
from tests.runtime.torch_engine.ears import LAYERS

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="session")]

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
    ("CPU[0,1,2,3,0]:0-5", "device 0 is used twice"),
    ("A100[0]:0-5", "device 0 is a CPU, not a A100"),
    ("CPU[0]:0-5@bf16", "keeps activations and KV in fp32"),
]


async def test_an_inventory_of_gpus_on_a_machine_without_one_is_refused_with_the_reason(checkpoints):
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    inventory = cluster_of("A100")
    start = parse_topology("A100x2", inventory, LAYERS, "bf16")
    with pytest.raises(SwitchError, match=r"device \d cannot be used: .* torch finds none; on a CPU the kind is CPU"):
        await TorchEngine.start(checkpoints["qwen3-tied"], start, inventory)


async def test_what_cannot_be_is_refused_and_nothing_is_touched(engine, ears):
    await ears.be("1x1")
    before, start = await engine.stats(), engine.topology
    for text, reason in IMPOSSIBLE:
        with pytest.raises(SwitchError, match=reason) as refused:
            await engine.prepare(ears.topology(text))
        assert refused.value.reason is Reason.UNSUPPORTED
    assert await engine.stats() == before
    shadow = await engine.prepare(ears.topology("tp2"))
    with pytest.raises(SwitchError, match="another switch is under way") as refused:
        await engine.prepare(ears.topology("pp2"))
    assert refused.value.reason is Reason.BUSY
    await shadow.abort(Reason.CANCELLED)
    await ears.whole(GenerationRequest("after", (1, 2, 3), SamplingParams(2), epoch=1))
    assert engine.topology == start
