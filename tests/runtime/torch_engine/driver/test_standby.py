"""What served before stands by, with real processes; that streams do not notice is what the walk shows."""

import os
import signal
from types import SimpleNamespace
from typing import Any

import pytest

from runtime.engine import GenerationRequest, SamplingParams
from runtime.errors import Reason
from runtime.footprint import HEADROOM, peak_bytes
from runtime.notation import parse_topology
from runtime.torch_engine.driver.standby import Standby
from runtime.torch_engine.models import EngineSettings
from runtime.torch_engine.worker.checkpoint import Checkpoint
from tests.rows import rows
from tests.runtime.torch_engine.ears import CUT_S, LAYERS, hearing, started

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="session")]

STREAM = GenerationRequest("r", (1, 2, 3), SamplingParams(1000), epoch=1)


async def standing_by(engine) -> list[str]:
    return [topology.shape for topology in (await engine.stats()).standby]


async def test_what_served_before_stands_by_for_the_way_back(engine, ears):
    await ears.be("pp2")
    await ears.submit(STREAM)
    for target, standby in (("TP2", "PP2"), ("PP2", "TP2"), ("1x1", "PP2")):
        await ears.switch(target)
        assert await standing_by(engine) == [standby]
        assert engine.topology.shape == target


async def test_a_standby_that_lost_a_worker_is_forgotten(engine, ears):
    await ears.be("tp2")
    await ears.submit(STREAM)
    await ears.switch("1x1")
    os.kill((await engine.stats()).worker_pids[1], signal.SIGKILL)
    while await standing_by(engine):
        pass
    await ears.switch("tp2")  # anew, on a new worker


async def test_what_lost_a_worker_after_the_cut_does_not_stand_by(engine, ears):
    """A switch back to it would commit to ranks that are not there."""
    await ears.be("tp2")
    await ears.submit(STREAM)
    shadow = await ears.synced("1x1")
    ears.epoch += 1
    await shadow.cut(ears.epoch, deadline_s=CUT_S)
    os.kill((await engine.stats()).worker_pids[1], signal.SIGKILL)
    while 1 in (await engine.stats()).worker_pids:
        pass
    await shadow.release()
    assert await standing_by(engine) == []
    await ears.switch("tp2")  # anew, on a new worker


@rows("is_whole", [True, False])
async def test_only_what_is_whole_is_taken_though_a_loss_may_not_be_told_yet(cluster, is_whole):
    whole = parse_topology("1x1", cluster, LAYERS, "fp32")
    kept: Any = SimpleNamespace(topology=whole, is_whole=lambda _: is_whole)
    standby = Standby(None, None, cluster, 1)  # type: ignore[arg-type] - it asks them nothing
    standby._rank_sets.append(kept)
    assert standby.take(whole) is (kept if is_whole else None)


async def test_a_switch_back_that_is_given_up_leaves_the_standby_as_it_was(engine, ears):
    await ears.be("tp2")
    await ears.submit(STREAM)
    await ears.switch("1x1")
    for is_up in (False, True):
        shadow = await engine.prepare(ears.topology("tp2"))
        if is_up:
            await shadow.ready()
            await shadow.lag()
        await shadow.abort(Reason.CANCELLED)
        assert await standing_by(engine) == ["TP2"]
    await ears.switch("tp2")


async def test_a_standby_gives_way_to_what_needs_its_memory(checkpoints, cluster):
    ways = ("tp2", "pp2", "CPU[1]:0-2 > CPU[0]:2-5")
    _, second, third = (parse_topology(text, cluster, LAYERS, "fp32") for text in ways)
    model = Checkpoint(checkpoints["qwen3-tied"]).spec
    usable = cluster.gpu(0).memory_bytes * (1 - HEADROOM)
    most = max(n for n in range(20_000) if max(peak_bytes(second, third, model, n, 32).values()) <= usable)
    settings = EngineSettings(num_blocks=most)
    async with started(checkpoints["qwen3-tied"], ways[0], cluster, settings) as full, hearing(full) as ears:
        await ears.submit(STREAM)
        await ears.switch(ways[1])
        assert await standing_by(full) == ["TP2"]
        await ears.prepared(ways[2])
        assert await standing_by(full) == []
