"""A worker's shards share the slices they have in common, and let go of what none of them needs."""

import gc
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from runtime.models import LayerRange
from runtime.torch_engine.worker.checkpoint import Checkpoint
from runtime.torch_engine.worker.shard import Shard, ShardSpec
from runtime.torch_engine.worker.weights import LayerShare, Weights

NUM_LAYERS = 5
EMBEDDING, HEAD = "model.embed_tokens.weight", "lm_head.weight"

Take = Callable[[tuple[int, int], LayerShare], tuple[Shard, set[str]]]
"""A shard of so many layers, and which layers and other tensors were read for it."""


@pytest.fixture
def take(checkpoints: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> Take:
    checkpoint = Checkpoint(checkpoints["llama-untied"])
    assert checkpoint.spec.num_layers == NUM_LAYERS
    read: list[str] = []
    tensor = checkpoint.tensor

    def noted(name: str, rows: slice = slice(None), columns: slice = slice(None)) -> torch.Tensor:
        read.append(name.split(".")[2] if ".layers." in name else name)
        return tensor(name, rows, columns)

    monkeypatch.setattr(checkpoint, "tensor", noted)
    weights = Weights(checkpoint, torch.float32)

    def taken(layers: tuple[int, int], share: LayerShare) -> tuple[Shard, set[str]]:
        read.clear()
        spec = ShardSpec(LayerRange(*layers), *share, layers[0] == 0, layers[1] == NUM_LAYERS)
        return Shard(weights, spec, spec.layers), set(read)

    return taken


def test_a_shard_loads_only_what_no_other_of_its_process_holds(take):
    lower, _ = take((0, 2), LayerShare(1, 2))
    upper, _ = take((3, 5), LayerShare(0, 2))
    whole, missing = take((0, 5), LayerShare(1, 2))
    assert missing == {"2", "3", "4", HEAD}, "another rank's slices are others; the norm is whole on each"
    del lower, upper, whole


def test_the_embedding_is_shared_whatever_the_tensor_parallelism(take):
    one, _ = take((0, 2), LayerShare(0, 1))
    _, missing = take((0, 2), LayerShare(0, 2))
    assert missing == {"0", "1"}
    del one


def test_what_no_shard_holds_any_more_is_let_go(take):
    lower, _ = take((0, 2), LayerShare(0, 1))
    middle, _ = take((1, 3), LayerShare(0, 1))
    del lower
    gc.collect()
    _, missing = take((0, 3), LayerShare(0, 1))
    assert missing == {"0", EMBEDDING}
    del middle
