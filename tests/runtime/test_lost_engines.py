"""A rank or a driver is lost under streams of every kind: each goes on, token for token, on the engine that comes back."""

import asyncio
import contextlib
import json
import os
import signal
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import jsonschema
import pytest
import pytest_asyncio

from runtime.capabilities import Batching
from runtime.coordinator import Coordinator
from runtime.engine import EngineState, Finish, SamplingParams
from runtime.errors import EngineStartError, Reason, RuntimeFault, StreamError
from runtime.machine import SwitchSettings
from runtime.models import CutoverReport, Phase, Progress, Topology
from runtime.notation import parse_topology
from runtime.process.liveness import Pauses
from runtime.recovery import RECOVERY_TIMEOUT_S
from runtime.router import Router
from runtime.stream import Delta, GenerationParams
from runtime.torch_engine.engine import TorchEngine
from runtime.torch_engine.models import EngineSettings
from runtime.vllm_engine.engine import VllmEngine
from tests.runtime.scripted import cluster_of, reaches
from tests.runtime.test_comeback import Forgetful
from tests.runtime.torch_engine.driver.test_sampling_tasks import CHECKPOINT, PLAIN, SCHEMA, TOKENIZER, WISHES
from tests.runtime.torch_engine.ears import started
from tests.runtime.vllm_engine.streams import CLUSTER, SETTINGS, topology

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]

GREEDY = {f"greedy {number}": PLAIN for number in range(2)}
UNSEEDED = {"unseeded": replace(PLAIN, temperature=1.0, min_p=0.05)}
STREAMS: dict[str, SamplingParams] = {**WISHES, **GREEDY, **UNSEEDED}
LOGPROB_TOLERANCE = 1e-4
PLACE = cluster_of("cpu", 2 << 30, 3)
SOURCE, TARGET = (parse_topology(one, PLACE, 8, "fp32") for one in ("pp2", "cpu[2]:0-8"))


def difference(ours: Sequence[Delta], theirs: Sequence[Delta]) -> float:
    """The largest of their logprobs; a share of those that are large, as float32 rounds by steps of other sizes."""
    return max(abs(a.logprob - b.logprob) / max(1, -b.logprob) for a, b in zip(ours, theirs, strict=True))


ENGINE = EngineSettings(num_blocks=256, max_running=12, stall_after_s=2.0, lost_after_s=3.0)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engine():
    async with started(CHECKPOINT, "pp2", PLACE, ENGINE) as made:
        yield made


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def router(engine):
    async with Router(engine, TOKENIZER) as made:
        yield made


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def unbroken(router):
    """What each stream says where nothing is lost."""
    return await said(router)


async def said(router: Router, spoken: dict[str, list[Delta]] | None = None) -> dict[str, list[Delta]]:
    """All deltas of each stream, also while they come."""
    spoken = {} if spoken is None else spoken

    async def listen(name: str, sampling: SamplingParams) -> None:
        async for delta in router.generate(f"count by {len(name)} from 11: 11 ", GenerationParams(sampling)):
            if not delta.is_pause:
                spoken.setdefault(name, []).append(delta)

    async with asyncio.TaskGroup() as group:
        for name, sampling in STREAMS.items():
            group.create_task(listen(name, sampling))
    return spoken


async def victim_of(engine: TorchEngine | VllmEngine, victim: str) -> int:
    if victim == "rank":
        return (await engine.stats()).worker_pids[1]
    return engine.active.pid if isinstance(engine, VllmEngine) else engine._driver.pid


ALL = [(victim, how) for victim in ("driver", "rank") for how in (signal.SIGKILL, signal.SIGSTOP)]


@pytest.mark.parametrize(
    "losses",
    [ALL[:1], pytest.param(ALL * 20, marks=[pytest.mark.exhaustive, pytest.mark.timeout(7200)])],
    ids=["one", "all"],
)
async def test_streams_of_every_kind_go_on_whatever_is_lost(engine, router, unbroken, losses):
    for victim, how in losses:
        await every_stream_goes_on(engine, router, unbroken, victim, how)


async def every_stream_goes_on(
    engine: TorchEngine | VllmEngine,
    router: Router,
    unbroken: dict[str, list[Delta]],
    victim: str,
    how: signal.Signals,
) -> None:
    await reaches(engine, EngineState.SERVING)
    engine._pauses = Pauses()  # as after a steady minute
    spoken: dict[str, list[Delta]] = {}
    all_of_it = asyncio.create_task(said(router, spoken))
    while len(spoken) < len(STREAMS) or min(map(len, spoken.values())) < 5:  # noqa: ASYNC110 - processes bring it about
        await asyncio.sleep(0.005)
    before = {name: deltas[0].fingerprint for name, deltas in spoken.items()}
    os.kill(await victim_of(engine, victim), how)
    await all_of_it
    for name, deltas in spoken.items():
        assert [delta.index for delta in deltas] == list(range(len(deltas))), name
        assert deltas[-1].finish in {Finish.STOP, Finish.LENGTH}, name
        assert deltas[-1].usage.completion_tokens == len(deltas), name
        assert deltas[-1].fingerprint != before[name], name
        if "unseeded" in name:
            continue
        assert [delta.token_id for delta in deltas] == [delta.token_id for delta in unbroken[name]], name
        assert difference(deltas, unbroken[name]) < LOGPROB_TOLERANCE, name
    document = "".join(delta.text for delta in spoken["document"])
    jsonschema.validate(json.loads(document), SCHEMA)
    counts = router.counts
    assert (counts.lost, counts.duplicates, counts.wrong_epoch) == (0, 0, 0)
    stats = await engine.stats()
    assert stats.running + stats.waiting <= router.num_streams


@pytest.mark.parametrize(
    "how",
    [pytest.param(how, marks=pytest.mark.exhaustive) for how in (signal.SIGSTOP, signal.SIGKILL)],
)
async def test_streams_go_on_where_ranks_share_no_memory(unbroken, how):
    settings = replace(ENGINE, rank_transport="torch_distributed")
    async with (
        started(CHECKPOINT, "pp2", cluster_of("cpu", 2 << 30, 2), settings) as engine,
        Router(engine, TOKENIZER) as router,
    ):
        await every_stream_goes_on(engine, router, unbroken, "rank", how)


class Poisoned(TorchEngine):
    driver_module = "tests.runtime.torch_engine.driver.faulty_driver"
    num_starts = 0

    async def _launch(self, topology: Topology, **changes: Any) -> None:
        self.num_starts += 1
        await super()._launch(topology, **changes)


@pytest.mark.exhaustive
async def test_one_request_that_loses_each_engine_ends_alone(tmp_path, monkeypatch):
    fault = tmp_path / "fault"
    monkeypatch.setenv("INTENTCTL_TEST_FAULT", str(fault))
    (poison,) = TOKENIZER.encode("~")
    fault.write_text(f"poison {poison}")
    async with started(CHECKPOINT, "1x1", PLACE, ENGINE, Poisoned) as engine, Router(engine, TOKENIZER) as router:
        unbroken, spoken = await eleven(router, {}), dict[int, list[Delta]]()
        others = asyncio.create_task(eleven(router, spoken))
        while len(spoken) < 11 or min(map(len, spoken.values())) < 30:  # noqa: ASYNC110 - processes bring it about
            await asyncio.sleep(0.005)
        engine.num_starts = 0
        with pytest.raises(StreamError, match="poison_request"):
            async for _ in router.generate("count ~ by 2: ", GenerationParams(PLAIN)):
                pass
        await others
        ids = {number: [delta.token_id for delta in deltas] for number, deltas in spoken.items()}
        assert ids == {number: [delta.token_id for delta in deltas] for number, deltas in unbroken.items()}
        assert engine.num_starts <= 3
        assert (router.counts.lost, router.counts.duplicates, router.counts.wrong_epoch) == (0, 0, 0)


async def eleven(router: Router, spoken: dict[int, list[Delta]]) -> dict[int, list[Delta]]:
    async def listen(number: int) -> None:
        params = GenerationParams(PLAIN, ignore_eos=True)
        async for delta in router.generate(f"count by {number + 1} from 11: 11 ", params):
            if not delta.is_pause:
                spoken.setdefault(number, []).append(delta)

    await asyncio.gather(*map(listen, range(11)))
    return spoken


BEFORE = (Phase.WARMING, Phase.SYNCING, Phase.CUTTING)
CELLS = [(victim, phase) for victim in ("driver", "source", "target") for phase in BEFORE]
CELLS += [("driver", Phase.COMMITTED), ("source", Phase.COMMITTED)]
FEW = [("source", Phase.SYNCING), ("driver", Phase.COMMITTED)]


@pytest.mark.parametrize(
    "cells", [FEW, pytest.param(CELLS, marks=[pytest.mark.exhaustive, pytest.mark.timeout(1800)])], ids=["few", "all"]
)
async def test_streams_go_on_whatever_a_switch_loses_in_whichever_phase(engine, router, unbroken, cells):
    """The switch ends as docs/faults.md states, and no stream notices more than a pause."""
    for cell in cells:
        spoken = await lost_in(engine, router, *cell)
        for name, deltas in spoken.items():
            assert [delta.index for delta in deltas] == list(range(len(deltas))), (cell, name)
            assert deltas[-1].finish in {Finish.STOP, Finish.LENGTH}, (cell, name)
            if "unseeded" not in name:
                ids = [delta.token_id for delta in deltas]
                assert ids == [delta.token_id for delta in unbroken[name]], (cell, name)
        assert (router.counts.lost, router.counts.duplicates) == (0, 0), cell
        victim, phase = cell
        ended = TARGET if phase is Phase.COMMITTED else SOURCE
        assert victim == "target" or engine.topology == ended, cell


async def lost_in(engine: TorchEngine, router: Router, victim: str, phase: Phase) -> dict[str, list[Delta]]:
    """What streams say while a switch loses a process in a phase, with nothing that could stand in."""
    await reaches(engine, EngineState.SERVING)
    engine._pauses = Pauses()
    coordinator = Coordinator(engine, router, Forgetful(), SwitchSettings())
    if engine.topology != SOURCE:
        await coordinator.switch(SOURCE, "back", lambda _: None)
    for standby in (await engine.stats()).standby:
        os.kill((await engine.stats()).worker_pids[standby.devices[-1]], signal.SIGKILL)
    while (await engine.stats()).standby:  # noqa: ASYNC110 - processes bring it about
        await asyncio.sleep(0.01)
    spoken: dict[str, list[Delta]] = {}
    all_of_it = asyncio.create_task(said(router, spoken))
    while len(spoken) < len(STREAMS) or min(map(len, spoken.values())) < 3:  # noqa: ASYNC110 - as above
        await asyncio.sleep(0.005)
    striking: list[asyncio.Task[None]] = []

    def on_progress(progress: Progress) -> None:
        if progress.phase is phase and not striking:
            striking.append(asyncio.create_task(strike(engine, victim)))

    with contextlib.suppress(RuntimeFault):
        await coordinator.switch(TARGET, "there", on_progress)
    await asyncio.gather(*striking, all_of_it)
    return spoken


async def strike(engine: TorchEngine, victim: str) -> None:
    device = {"source": 1, "target": 2}.get(victim)
    while device is not None and device not in (await engine.stats()).worker_pids:  # noqa: ASYNC110 - as above
        await asyncio.sleep(0.005)
    pid = engine._driver.pid if device is None else (await engine.stats()).worker_pids[device]
    os.kill(pid, signal.SIGKILL)


OUTAGE_S = 30.0


async def ended_first(
    engine: TorchEngine, router: Router, target: Topology
) -> tuple[CutoverReport, dict[str, list[Delta]]]:
    """A switch for which what runs ends first, under streams of every kind."""
    await reaches(engine, EngineState.SERVING)
    engine._pauses = Pauses()
    spoken: dict[str, list[Delta]] = {}
    all_of_it = asyncio.create_task(said(router, spoken))
    while len(spoken) < len(STREAMS) or min(map(len, spoken.values())) < 3:  # noqa: ASYNC110 - processes bring it about
        await asyncio.sleep(0.005)
    coordinator = Coordinator(engine, router, Forgetful(), SwitchSettings())
    report = await coordinator.switch(target, "anew", lambda _: None, outage_s=OUTAGE_S)
    await all_of_it
    return report, spoken


async def test_where_both_do_not_fit_what_runs_ends_first_and_no_token_is_lost(engine, router, unbroken):
    target = TARGET if engine.topology == SOURCE else SOURCE
    before_pid = engine._driver.pid
    report, spoken = await ended_first(engine, router, target)
    assert (report.phase, report.reason, engine.topology) == (Phase.DONE, None, target)
    assert engine._driver.pid != before_pid, "what ran has ended"
    assert report.paths == {"anew": len(STREAMS)} == {"anew": report.moved}
    assert report.timings is not None
    assert report.timings.commit_ms > 0, "the outage"
    for name, deltas in spoken.items():
        assert [delta.index for delta in deltas] == list(range(len(deltas))), name
        assert deltas[-1].fingerprint.endswith(target.shape), name
        if "unseeded" not in name:
            assert [delta.token_id for delta in deltas] == [delta.token_id for delta in unbroken[name]], name
    assert (router.counts.lost, router.counts.duplicates) == (0, 0)
    assert router._recovery.timeout_s == RECOVERY_TIMEOUT_S, "streams wait for a lost engine as long as before"


async def test_what_ran_serves_again_where_its_successor_does_not_start(engine, router, unbroken, monkeypatch):
    ran = engine.topology
    start = engine.start_anew
    tried = list[Topology]()

    async def fails(topology: Topology, batching: Batching | None = None) -> None:
        tried.append(topology)
        if topology != ran:
            raise EngineStartError("the disk is gone")
        await start(topology, batching)

    monkeypatch.setattr(engine, "start_anew", fails)
    report, spoken = await ended_first(engine, router, SOURCE if ran == TARGET else TARGET)
    assert (report.phase, report.reason, engine.topology) == (Phase.ABORTED, Reason.LOAD_FAILED, ran)
    assert "the disk is gone" in report.detail
    assert tried[-1] == ran
    for name, deltas in spoken.items():
        if "unseeded" not in name:
            assert [delta.token_id for delta in deltas] == [delta.token_id for delta in unbroken[name]], name
    assert (router.counts.lost, router.counts.duplicates) == (0, 0)


@pytest.mark.vllm
@pytest.mark.parametrize(
    ("shape", "losses"),
    [
        ("1x1", ALL[:1]),
        pytest.param("tp2", ALL * 5, marks=[pytest.mark.exhaustive, pytest.mark.timeout(3600)]),
    ],
)
async def test_streams_of_vllm_go_on_too(shape, losses):
    settings = replace(SETTINGS, stall_after_s=3.0, lost_after_s=5.0)
    engine = await VllmEngine.start(CHECKPOINT, topology(shape), CLUSTER, settings)
    try:
        async with Router(engine, TOKENIZER) as router:
            unbroken = await said(router)
            for victim, how in losses:
                await every_stream_goes_on(engine, router, unbroken, victim, how)
    finally:
        await engine.close()
