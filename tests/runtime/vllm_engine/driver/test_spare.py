"""A process waits for orders: it is taken, replaced, done without, and never the reason why an engine does not start."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from runtime.engine import EngineState, GenerationRequest, Moved, SamplingParams
from runtime.errors import EngineStartError, Reason
from runtime.models import Cluster
from runtime.process.content import PinnedCheckpoint
from runtime.process.launcher import LocalLauncher, group_pids
from runtime.vllm_engine.engine import VllmEngine
from runtime.vllm_engine.instance import Instance, Spare
from runtime.vllm_engine.models import VllmSettings
from tests.rows import rows
from tests.runtime.scripted import cluster_of, topology
from tests.runtime.vllm_engine.sides import MODEL

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("scripted_drivers")]

CLUSTER = cluster_of("cpu", 8 << 30)


@pytest.fixture
async def spare() -> AsyncIterator[Spare]:
    made = Spare(LocalLauncher(), {}, VllmSettings())
    yield made
    await made.close()


def engine_of(**options: Any) -> VllmEngine:
    """An engine that serves nothing yet."""
    settings = VllmSettings(options=options, kv_cache_bytes=1 << 20)
    return VllmEngine(PinnedCheckpoint(Path("/models/m"), {}), MODEL, CLUSTER, settings)


@pytest.fixture
async def engine() -> AsyncIterator[VllmEngine]:
    """One that serves, whose spare is ready."""
    made = engine_of()
    made._serve(await made.launch(topology(1)))
    made._begin_spare()
    await until(lambda: ready(made.spare) is not None)
    yield made
    await made.close()


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not is_so():  # noqa: ASYNC110 - several things, of which some happen in other processes
            await asyncio.sleep(0)


def ready(spare: Spare | None) -> Instance | None:
    """The process that waits for orders."""
    process = spare._process if spare else None
    return process if process is not None and process.is_prepared else None


def waiting(spare: Spare | None) -> Instance:
    process = ready(spare)
    assert process is not None
    return process


async def test_one_that_is_ready_is_taken_once(spare):
    spare.begin()
    first = spare._process
    spare.begin()
    assert spare._process is first
    assert spare.take() is None
    await until(lambda: ready(spare) is not None)

    taken = spare.take()

    assert taken is first
    assert taken is not None
    assert spare.take() is None
    await taken.close()


async def test_one_that_is_killed_while_it_waits_is_replaced(spare):
    spare.begin()
    await until(lambda: ready(spare) is not None)
    killed = waiting(spare)
    os.killpg(killed.pid, signal.SIGKILL)
    await until(lambda: ready(spare) not in (None, killed))
    await until(lambda: not killed.process.folder.exists())


@rows("environment", [{"CANNOT_IMPORT": "1"}, {"NEVER_PREPARED": "1"}])
async def test_one_that_never_was_ready_is_done_without(environment, caplog):
    spare = Spare(LocalLauncher(), environment, VllmSettings())
    spare.begin()
    process = spare._process
    assert process is not None
    if "NEVER_PREPARED" in environment:
        os.killpg(process.pid, signal.SIGKILL)
    await until(lambda: spare._process is None)
    await until(lambda: not process.process.folder.exists())
    said = "ImportError: no vllm here" if "CANNOT_IMPORT" in environment else "its driver process ended"
    assert f"the spare vLLM process ended: {said}" in caplog.text
    await spare.close()


async def test_without_processes_to_be_had_there_is_none(spare, monkeypatch, caplog):
    def start(*_: object, **__: object) -> None:
        raise OSError(11, "Resource temporarily unavailable")

    monkeypatch.setattr("runtime.process.launcher.subprocess.Popen", start)
    spare.begin()
    assert spare.take() is None
    assert "no spare vLLM process can be started" in caplog.text


async def test_one_that_is_closed_leaves_nothing_and_begins_no_more(spare):
    spare.begin()
    process = spare._process
    assert process is not None
    await spare.close()
    spare.begin()
    assert spare._process is None
    assert group_pids(process.pid) == []
    assert not process.process.folder.exists()


async def test_a_target_starts_in_the_spare_and_the_next_begins_when_the_switch_is_over(engine):
    waited = waiting(engine.spare)
    shadow = await engine.prepare(topology(2))
    target = await shadow._starting

    assert target is waited
    assert target.topology == topology(2)
    assert engine.spare._process is None

    await shadow.abort(Reason.CANCELLED)
    assert engine.spare._process not in (None, waited)
    assert group_pids(waited.pid) == []


@pytest.mark.exhaustive
async def test_a_target_starts_in_a_new_process_while_the_spare_is_not_ready(engine):
    waited = waiting(engine.spare)
    waited.is_prepared = False
    target = await engine.launch(topology(2))
    assert target is not waited
    assert engine.spare._process is waited
    await target.close()


@pytest.mark.exhaustive
async def test_a_spare_that_is_dead_when_it_is_ordered_costs_a_new_process(engine):
    waited = waiting(engine.spare)
    os.killpg(waited.pid, signal.SIGKILL)  # nobody has heard of it yet
    target = await engine.launch(topology(2))
    assert target is not waited
    assert not waited.process.folder.exists()
    await target.close()


async def test_a_spare_that_is_killed_while_it_starts_the_engine_costs_a_new_process(engine):
    waited = waiting(engine.spare)
    engine.settings = replace(engine.settings, options={"ended": [waited.pid]})
    target = await engine.launch(topology(2))
    assert target is not waited
    assert not waited.process.folder.exists()
    await target.close()


async def test_what_vllm_refuses_is_told_and_not_tried_again(engine, monkeypatch):
    engine.settings = replace(engine.settings, options={"is_refused": True})
    monkeypatch.setattr(VllmEngine, "_fresh", lambda *_: pytest.fail("it was tried again"))
    with pytest.raises(EngineStartError, match="no such option"):
        await engine.launch(topology(2))


async def test_a_switch_given_up_while_the_spare_starts_leaves_no_process(engine):
    waited = waiting(engine.spare)
    shadow = await engine.prepare(topology(2))
    await asyncio.sleep(0)  # it has its orders
    await shadow.abort(Reason.CANCELLED)
    assert group_pids(waited.pid) == []
    assert not waited.process.folder.exists()
    assert group_pids(engine.active.pid) != []
    await until(lambda: ready(engine.spare) is not None)


async def test_an_engine_that_is_lost_starts_anew_in_the_spare(engine):
    waited, lost = waiting(engine.spare), engine.active
    os.killpg(lost.pid, signal.SIGKILL)
    await until(lambda: engine.active is not lost)
    assert engine.active is waited
    await until(lambda: ready(engine.spare) is not None)


@rows("kinds", [("cpu", "gpu"), ("cpu", "cpu")])
def test_the_spare_is_for_devices_of_one_kind(kinds):
    (node,) = CLUSTER.nodes
    gpus = tuple(replace(gpu, kind=kind) for gpu, kind in zip(node.gpus, kinds, strict=False))
    made = VllmEngine(PinnedCheckpoint(Path("/m"), {}), MODEL, Cluster((replace(node, gpus=gpus),)), VllmSettings())
    assert (made.spare is not None) == (len(set(kinds)) == 1)


async def test_the_file_may_do_without():
    made = VllmEngine(
        PinnedCheckpoint(Path("/m"), {}), MODEL, CLUSTER, VllmSettings(kv_cache_bytes=1 << 20, spare=False)
    )
    made._serve(await made.launch(topology(1)))
    made._begin_spare()
    assert made.spare is None
    await made.close()


async def test_what_follows_an_engine_that_has_to_end_starts_alone_and_its_requests_are_lost_to_be_resumed(engine):
    engine.standby.append(await engine.launch(topology(2)))
    ran = [engine.active, *engine.standby]
    await engine.submit(GenerationRequest("r", (1, 2), SamplingParams(8), 0))
    shadow = await engine.succeed_by(topology(1, 1))
    await shadow.ready()
    assert (await shadow.lag()).tokens == 0

    cut = await shadow.cut(3, 0.1)

    assert (cut.epoch, cut.moved, dict(cut.paths)) == (3, ("r",), {"anew": 1})
    assert (engine.topology, engine.state, engine.standby) == (topology(1, 1), EngineState.SERVING, [])
    assert all(instance.gone for instance in ran)
    batches = [engine._outputs.get_nowait() for _ in range(2)]
    assert batches[0] == [Moved(3, ())]
    assert [(token.request_id, token.is_lost) for token in batches[1]] == [("r", True)]
