"""A topology: who holds which pieces, and what happens to those who wait when a member is lost."""

import asyncio
import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from runtime.errors import Reason, SwitchError
from runtime.footprint import Piece
from runtime.kv.store import Slice
from runtime.models import Cluster
from runtime.notation import parse_topology
from runtime.process.content import PinnedCheckpoint
from runtime.process.launcher import Incarnation, LocalLauncher
from runtime.torch_engine.driver.workers import Ranks, WorkerLostError, load_failed
from runtime.torch_engine.driver.workers import Workers as RealWorkers
from runtime.torch_engine.messages import Drop, Forget, GiveBack, WarmUp, WorkerConfig
from runtime.torch_engine.worker.checkpoint import Checkpoint
from runtime.torch_engine.worker.group import GroupAborted
from tests.rows import rows
from tests.runtime.torch_engine.ears import MODEL, SETTINGS

pytestmark = pytest.mark.slow


@pytest.fixture
async def ranks(checkpoints: dict[str, Path], cluster: Cluster) -> Ranks:
    model = Checkpoint(checkpoints["qwen3-tied"]).spec
    return Ranks(3, parse_topology("tp2pp2", cluster, model.num_layers, "fp32"), model, SETTINGS)


async def test_each_device_holds_its_layers_and_heads(ranks):
    assert ranks.pieces(1) == {Piece(layer, head) for layer in range(3) for head in (2, 3)}
    assert ranks.pieces(2) == {Piece(layer, head) for layer in (3, 4) for head in (0, 1)}
    assert ranks.pieces(9) == frozenset()


async def test_it_is_loaded_when_every_device_is(ranks):
    for device in (0, 1, 2):
        ranks.loaded(device)
    assert not ranks.is_loaded
    ranks.loaded(3)
    assert ranks.is_loaded
    await ranks._loaded


async def test_losing_a_member_frees_those_who_wait_for_it(ranks):
    group = ranks._memory.ranks.join(0, 0).group
    ranks.lose(load_failed(3, "no such tensor"))
    with pytest.raises(SwitchError, match="load_failed: device 3 could not take its role: no such tensor"):
        await ranks._loaded
    with pytest.raises(GroupAborted):
        group.all_reduce(torch.ones(4))


async def test_losing_it_twice_or_late_is_no_error(ranks):
    for device in range(4):
        ranks.loaded(device)
    ranks.lose(SwitchError(Reason.RANK_LOST, "gone"))
    ranks._memory.close()
    ranks.lose(SwitchError(Reason.RANK_LOST, "gone"))
    await asyncio.wait_for(ranks._loaded, 1)


class Workers:
    """Workers that answer orders, or of which one is lost."""

    def __init__(self, answers: dict[int, bool | WorkerLostError]) -> None:
        self._answers = answers
        self.incarnations = {device: Incarnation("here", device, device) for device in answers}

    async def ensure(self, _: object) -> None:
        """All are there."""

    def stopped(self, _: object) -> list[int]:
        return []

    def broadcast(self, *_: object) -> None:
        """Roles are taken at once."""

    async def order(self, device: int, order: WarmUp) -> bool:
        assert order == WarmUp(3)
        answer = self._answers[device]
        if isinstance(answer, WorkerLostError):
            raise answer
        return answer


@rows(
    ("answer", "detail"),
    [
        (False, "the worker on device 2 has lost its role"),
        (WorkerLostError(2), "the worker on device 2 died"),
    ],
)
async def test_a_rank_that_cannot_warm_up_is_lost(ranks, answer, detail):
    await ranks.warm_up(Workers(dict.fromkeys(range(4), True)))  # type: ignore[arg-type] - what it needs of one
    with pytest.raises(SwitchError, match=f"rank_lost: {detail}"):
        await ranks.warm_up(Workers({**dict.fromkeys(range(4), True), 2: answer}))  # type: ignore[arg-type]


async def test_a_probe_is_a_step_of_decodes_and_short_prompts_on_one_block(ranks):
    """However short the contexts of a model are."""
    step = ranks.probe(9, scratch_block=4, decodes=2, prompts=3)
    assert [(span.start, span.count, {*span.table}) for span in step.spans] == [(0, 1, {4})] * 2 + [(0, 2, {4})] * 3
    assert (len(step.tokens), step.rows, len(step.tasks)) == (8, [0, 1], 2)
    assert len(ranks.probe(9, scratch_block=4, decodes=1, prompts=0).spans) == 1


async def test_it_is_whole_as_long_as_every_worker_is_the_one_it_was(ranks):
    workers: Any = Workers(dict.fromkeys(range(4), True))
    for device in range(4):
        ranks.loaded(device)
    await ranks.load_without_weights(workers)
    assert ranks.is_whole(workers)
    workers.incarnations[9] = Incarnation("here", 9, 9)
    assert ranks.is_whole(workers)
    workers.incarnations[2] = Incarnation("here", 2, 202)  # started since
    assert not ranks.is_whole(workers)
    del workers.incarnations[2]
    assert not ranks.is_whole(workers)


@rows(
    ("transport", "target", "could"),
    [
        ("torch_distributed", "CPU[1,2]:0-5", True),
        ("torch_distributed", "CPU[2,3]:0-5", False),
        ("shared_memory", "CPU[1,2]:0-5", False),
    ],
)
async def test_a_target_could_block_what_serves_where_they_share_workers_and_nobody_can_call_it_off(
    cluster, transport, target, could
):
    settings = dataclasses.replace(SETTINGS, rank_transport=transport)
    serving, coming = (
        Ranks(number, parse_topology(text, cluster, 5, "fp32"), MODEL, settings)
        for number, text in enumerate(("CPU[0,1]:0-5", target))
    )
    assert coming.could_block(serving) is could


async def test_where_nobody_can_tell_which_rank_hangs_it_may_be_any(cluster):
    settings = dataclasses.replace(SETTINGS, rank_transport="torch_distributed")
    topology = parse_topology("CPU[1,2]:0-5", cluster, 5, "fp32")
    workers: Any = Workers({})
    assert Ranks(1, topology, MODEL, settings).hung(workers) == [1, 2]
    workers.stopped = lambda _: [2]
    assert Ranks(1, topology, MODEL, settings).hung(workers) == [2]


@rows(
    ("failure", "asked"),
    [
        (None, [(1, Forget), (2, Forget), (1, Forget), (2, Forget), (0, GiveBack)]),
        (WorkerLostError(1), [(1, Forget), (2, Forget), (2, Forget), (0, GiveBack)]),
        (SwitchError(Reason.LOAD_FAILED, "cannot close"), None),
    ],
)
async def test_memory_is_given_back_when_every_peer_that_lives_has_closed_it(monkeypatch, failure, asked):
    """A peer closes slice by slice. What is freed while one has it open is undefined."""
    config = WorkerConfig(PinnedCheckpoint(Path(), {}), (1, 1, 4, 8, 16, 1), "fp32", 0, gains=True)
    workers = RealWorkers(LocalLauncher(), config, lambda *_: None, lambda *_: None)
    workers._workers = dict.fromkeys(range(3))  # type: ignore[arg-type] - nobody is talked to
    orders = list[tuple[int, type]]()

    async def order(device: int, order: Forget | GiveBack) -> Slice:
        orders.append((device, type(order)))
        await asyncio.sleep(0)
        if device == 1 and failure:
            raise failure
        return Slice(0 if orders.count((device, Forget)) == 1 else None, 0, 0.0)

    monkeypatch.setattr(workers, "order", order)
    if asked is None:
        with pytest.raises(SwitchError, match="cannot close"):
            await workers.give_back(0, [Piece(0, 0)], [(0, 4)])
        assert (0, GiveBack) not in orders
    else:
        await workers.give_back(0, [Piece(0, 0)], [(0, 4)])
        assert orders == asked


async def test_a_role_goes_though_the_memory_of_peers_cannot_be_closed(ranks):
    dropped = list[int]()

    async def order(device: int, order: Drop) -> None:
        dropped.append(device)

    async def forget(device: int) -> None:
        raise SwitchError(Reason.LOAD_FAILED, "cannot close")

    workers: Any = SimpleNamespace(order=order, forget=forget)
    with pytest.raises(SwitchError, match="cannot close"):
        await ranks.release(workers)
    assert dropped == [ranks.topology.devices[0]]
