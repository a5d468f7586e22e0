"""A packed weight gives what the weight itself gives."""

import torch
import torch.nn.functional as F  # noqa: N812

from runtime.torch_engine.worker.weights import Linear
from tests.rows import rows


@rows("rows", [1, 16, 200])
@rows("shape", [(24, 64), (1024, 512)], ids=["small", "packed"])
@rows("has_bias", [False, True])
def test_it_multiplies_and_adds(rows, shape, has_bias):
    generator = torch.Generator().manual_seed(0)
    weight, x = torch.randn(shape, generator=generator), torch.randn(rows, shape[1], generator=generator)
    bias = torch.randn(shape[0], generator=generator) if has_bias else None
    with torch.inference_mode():
        got = Linear(weight, bias)(x)
    assert torch.allclose(got, F.linear(x, weight, bias), atol=1e-3)
