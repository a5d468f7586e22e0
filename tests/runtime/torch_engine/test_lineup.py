"""A lineup: who holds which pieces, and what happens to those who wait when a member is lost."""

import asyncio
from pathlib import Path

import pytest
import torch

from runtime.errors import SwitchError
from runtime.footprint import Piece
from runtime.models import Cluster, Reason
from runtime.notation import parse_topology
from runtime.torch_engine.checkpoint import Checkpoint
from runtime.torch_engine.group import Group, GroupAborted
from runtime.torch_engine.lineup import BatchLimits, Lineup, load_failed


@pytest.fixture
async def lineup(checkpoints: dict[str, Path], cluster: Cluster) -> Lineup:
    model = Checkpoint(checkpoints["qwen3-tied"]).spec
    return Lineup(3, parse_topology("tp2pp2", cluster, model.num_layers, "fp32"), model, BatchLimits(32, 8))


async def test_each_device_holds_its_layers_and_heads(lineup: Lineup) -> None:
    assert lineup.pieces(1) == {Piece(layer, head) for layer in range(3) for head in (2, 3)}
    assert lineup.pieces(2) == {Piece(layer, head) for layer in (3, 4) for head in (0, 1)}
    assert lineup.pieces(9) == frozenset()


async def test_it_is_loaded_when_every_device_is(lineup: Lineup) -> None:
    for device in (0, 1, 2):
        lineup.loaded(device)
    assert not lineup.is_loaded
    lineup.loaded(3)
    assert lineup.is_loaded
    await lineup._loaded


async def test_losing_a_member_frees_those_who_wait_for_it(lineup: Lineup) -> None:
    shape, path = lineup._memory.shape, lineup._memory.path
    lineup.lose(load_failed(3, "no such tensor"))
    with pytest.raises(SwitchError, match="load_failed: device 3 could not take its role: no such tensor"):
        await lineup._loaded
    with pytest.raises(GroupAborted):
        Group(path, shape, 0, 0).all_reduce(torch.ones(4))


async def test_losing_it_twice_or_late_is_no_error(lineup: Lineup) -> None:
    for device in range(4):
        lineup.loaded(device)
    lineup.lose(SwitchError(Reason.RANK_LOST, "gone"))
    lineup._memory.close()
    lineup.lose(SwitchError(Reason.RANK_LOST, "gone"))
    await asyncio.wait_for(lineup._loaded, 1)
