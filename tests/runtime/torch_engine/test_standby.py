"""What served before stands by, with real processes; that streams do not notice is what the walk shows."""

import json
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from runtime.engine import Request, SamplingParams
from runtime.footprint import HEADROOM, peak_bytes
from runtime.models import Cluster, ModelSpec, Reason, Topology
from runtime.notation import parse_topology
from runtime.torch_engine.engine import TorchEngine
from runtime.torch_engine.models import EngineSettings
from runtime.torch_engine.standby import Standby

pytestmark = pytest.mark.slow

LAYERS = 5
Start = Callable[[Topology, int], Awaitable[TorchEngine]]


@pytest.fixture
async def start(checkpoints: dict[str, Path], cluster: Cluster) -> AsyncIterator[Start]:
    """An engine with so many KV blocks, in which one stream runs."""
    engines = []

    async def started(topology: Topology, num_blocks: int) -> TorchEngine:
        settings = EngineSettings(num_blocks=num_blocks)
        engine = await TorchEngine.start(checkpoints["qwen3-tied"], topology, cluster, settings)
        engines.append(engine)
        await engine.submit(Request("r", (1, 2, 3), SamplingParams(1000), epoch=1))
        return engine

    yield started
    for engine in engines:
        await engine.close()


async def go(engine: TorchEngine, target: Topology, epoch: int) -> None:
    shadow = await engine.prepare(target)
    await shadow.ready()
    await shadow.lag()
    await shadow.cut(epoch, deadline_s=5)
    await shadow.release()


async def test_what_served_before_stands_by_for_the_way_back(start: Start, cluster: Cluster) -> None:
    pp2, tp2, whole = (parse_topology(shape, cluster, LAYERS, "fp32") for shape in ("pp2", "tp2", "1x1"))
    engine = await start(pp2, 256)
    for epoch, (target, standby) in enumerate([(tp2, pp2), (pp2, tp2), (whole, pp2)], start=2):
        await go(engine, target, epoch)
        assert (await engine.stats()).standby == (standby,)
        assert engine.topology == target


async def test_a_standby_that_lost_a_worker_is_forgotten(start: Start, cluster: Cluster) -> None:
    tp2, whole = (parse_topology(shape, cluster, LAYERS, "fp32") for shape in ("tp2", "1x1"))
    engine = await start(tp2, 256)
    await go(engine, whole, 2)
    os.kill((await engine.stats()).worker_pids[1], signal.SIGKILL)
    while (await engine.stats()).standby:
        pass
    await go(engine, tp2, 3)  # anew, on a new worker
    assert engine.topology == tp2


async def test_what_lost_a_worker_after_the_cut_does_not_stand_by(start: Start, cluster: Cluster) -> None:
    """A switch back to it would commit to ranks that are not there."""
    tp2, whole = (parse_topology(shape, cluster, LAYERS, "fp32") for shape in ("tp2", "1x1"))
    engine = await start(tp2, 256)
    shadow = await engine.prepare(whole)
    await shadow.ready()
    await shadow.lag()
    await shadow.cut(2, deadline_s=5)
    os.kill((await engine.stats()).worker_pids[1], signal.SIGKILL)
    while 1 in (await engine.stats()).worker_pids:
        pass
    await shadow.release()
    assert (await engine.stats()).standby == ()
    await go(engine, tp2, 3)  # anew, on a new worker
    assert engine.topology == tp2


@pytest.mark.parametrize("is_whole", [True, False])
async def test_only_what_is_whole_is_taken_though_a_loss_may_not_be_told_yet(
    cluster: Cluster, is_whole: bool
) -> None:
    whole = parse_topology("1x1", cluster, LAYERS, "fp32")
    kept: Any = SimpleNamespace(topology=whole, is_whole=lambda _: is_whole)
    standby = Standby(None, None, cluster, 1)  # type: ignore[arg-type] - it asks them nothing
    standby._lineups.append(kept)
    assert standby.take(whole) is (kept if is_whole else None)


async def test_a_switch_back_that_is_given_up_leaves_the_standby_as_it_was(
    start: Start, cluster: Cluster
) -> None:
    tp2, whole = (parse_topology(shape, cluster, LAYERS, "fp32") for shape in ("tp2", "1x1"))
    engine = await start(tp2, 256)
    await go(engine, whole, 2)
    for is_up in (False, True):
        shadow = await engine.prepare(tp2)
        if is_up:
            await shadow.ready()
            await shadow.lag()
        await shadow.abort(Reason.CANCELLED)
        assert (await engine.stats()).standby == (tp2,)
    await go(engine, tp2, 3)
    assert engine.topology == tp2


async def test_a_standby_gives_way_to_what_needs_its_memory(
    start: Start, checkpoints: dict[str, Path], cluster: Cluster
) -> None:
    first, second, third = (
        parse_topology(text, cluster, LAYERS, "fp32") for text in ("tp2", "pp2", "CPU[1]:0-2 > CPU[0]:2-5")
    )
    model = ModelSpec.from_config(json.loads((checkpoints["qwen3-tied"] / "config.json").read_text()), "m")
    usable = cluster.gpu(0).memory_bytes * (1 - HEADROOM)
    most = max(n for n in range(20_000) if max(peak_bytes(second, third, model, n, 32).values()) <= usable)
    engine = await start(first, most)
    await go(engine, second, 2)
    assert (await engine.stats()).standby == (first,)
    shadow = await engine.prepare(third)
    await shadow.ready()
    assert (await engine.stats()).standby == ()
