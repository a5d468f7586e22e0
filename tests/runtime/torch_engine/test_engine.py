"""The torch engine with real processes: a live switch is right by digests, logprobs and tokens; faults stay contained."""

import asyncio
import contextlib
import os
import shutil
import signal
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from runtime.capabilities import Batching
from runtime.engine import EngineState, Finish, Moved, Request, SamplingParams, Token
from runtime.errors import EngineLostError, RequestError, SwitchError
from runtime.models import Cluster, Reason, Topology
from runtime.notation import parse_topology
from runtime.torch_engine.engine import TorchEngine, TorchShadow
from runtime.torch_engine.models import EngineSettings
from tests.runtime.scripted import reaches

pytestmark = pytest.mark.slow

SETTINGS = EngineSettings(
    block_size=8,
    num_blocks=256,
    max_running=6,
    max_batch_tokens=24,
    closing_batch_tokens=16,
    prefix_caching=False,  # what is submitted again is half-prefilled again
)
LAYERS = 5


class Ears:
    """Hears everything the engine says."""

    def __init__(self, engine: TorchEngine) -> None:
        self._engine = engine
        self._news = asyncio.Condition()
        self.tokens: dict[str, list[Token]] = {}
        self.moves: list[Moved] = []
        self._task = asyncio.create_task(self._listen())

    async def _listen(self) -> None:
        async for batch in self._engine.outputs():
            for item in batch:
                if isinstance(item, Moved):
                    self.moves.append(item)
                else:
                    self.tokens.setdefault(item.request_id, []).append(item)
            async with self._news:
                self._news.notify_all()

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(200), self._news:
            await self._news.wait_for(condition)

    async def have(self, request_id: str, count: int) -> None:
        await self.until(lambda: len(self.tokens.get(request_id, [])) >= count)

    async def all_ended(self, count: int) -> None:
        await self.until(lambda: sum(bool(t[-1].finish) for t in self.tokens.values()) == count)

    def said(self) -> dict[str, list[tuple[int | None, float]]]:
        return {
            name: [(t.token_id, t.logprob) for t in tokens] for name, tokens in sorted(self.tokens.items())
        }


@pytest.fixture
def engine_of(
    checkpoints: dict[str, Path], cluster: Cluster
) -> Callable[..., contextlib.AbstractAsyncContextManager]:
    @contextlib.asynccontextmanager
    async def start(
        shape: str, settings: EngineSettings = SETTINGS
    ) -> AsyncIterator[tuple[TorchEngine, Ears]]:
        topology = parse_topology(shape, cluster, LAYERS, "fp32")
        engine = await TorchEngine.start(checkpoints["qwen3-tied"], topology, cluster, settings)
        ears = Ears(engine)
        try:
            yield engine, ears
        finally:
            await engine.close()

    return start


def requests(tokens: int = 60, temperature: float = 0.0) -> list[Request]:
    """Eight, more than run at once; the fifth has a prompt of many prefill chunks."""
    lengths = [5, 8, 17, 30, 400, 1, 64, 23]
    params = SamplingParams(tokens, temperature=temperature, top_p=0.95, seed=11)
    return [
        Request(f"r{i}", tuple((31 * i + 7 * j) % 101 for j in range(length)), params, epoch=1)
        for i, length in enumerate(lengths)
    ]


async def submit_all(engine: TorchEngine, wanted: list[Request]) -> None:
    for request in wanted:
        await engine.submit(request)


def same(got: dict[str, list], want: dict[str, list]) -> None:
    assert {name: [t for t, _ in tokens] for name, tokens in got.items()} == {
        name: [t for t, _ in tokens] for name, tokens in want.items()
    }
    worst = max(abs(a - b) for name in want for (_, a), (_, b) in zip(got[name], want[name], strict=True))
    assert worst < 1e-4


async def synced(engine: TorchEngine, target: Topology) -> TorchShadow:
    shadow = await engine.prepare(target)
    await shadow.ready()
    while (await shadow.lag()).tokens > 6 * 8:
        pass
    return shadow


async def copy_forever(shadow: TorchShadow) -> None:
    await shadow.ready()
    while True:
        await shadow.lag()


@pytest.mark.parametrize(
    ("now", "target", "temperature"),
    [
        ("1x1", "tp2", 0.0),
        ("tp2", "1x1", 0.0),
        ("1x1", "pp2", 0.0),
        ("pp2", "1x1", 0.0),
        ("tp2", "pp2", 0.0),
        ("pp2", "tp2", 0.0),
        ("tp2pp2", "1x1", 0.0),
        ("pp2", "tp2", 0.8),
    ],
)
async def test_a_switch_changes_no_byte_no_logprob_and_no_token(
    engine_of: Callable, cluster: Cluster, now: str, target: str, temperature: float
) -> None:
    async with engine_of(now) as (engine, ears):
        await submit_all(engine, requests(100, temperature))
        await ears.all_ended(8)
        want = ears.said()
        ears.tokens.clear()

        shadow = await engine.prepare(parse_topology(target, cluster, LAYERS, "fp32"))
        await shadow.ready()  # on a busy host longer than requests last
        await submit_all(engine, requests(100, temperature))
        await ears.have("r0", 3)  # r4 is half-prefilled, r6 and r7 wait for a place
        for _ in range(3):
            await shadow.lag()
        await ears.have("r0", min(100, len(ears.tokens["r0"]) + 3))  # what was copied is written to again
        before = await engine.digests()
        cut = await shadow.cut(2, deadline_s=5)
        after = await engine.digests(before.positions)
        assert set(cut.moved) == {f"r{i}" for i in range(8)}
        assert len(before.digests) > 100
        assert after.digests == before.digests
        await shadow.release()
        await ears.all_ended(8)
        same(ears.said(), want)
        assert all([t.index for t in tokens] == list(range(100)) for tokens in ears.tokens.values())
        assert [move.epoch for move in ears.moves] == [2]
        assert {tokens[-1].epoch for tokens in ears.tokens.values()} == {2}
        stats = await engine.stats()
        assert stats.free_blocks == stats.total_blocks


async def test_half_prefilled_and_waiting_requests_were_among_the_moved(
    engine_of: Callable, cluster: Cluster
) -> None:
    async with engine_of("1x1") as (engine, ears):
        shadow = await engine.prepare(parse_topology("tp2", cluster, LAYERS, "fp32"))
        await shadow.ready()
        await submit_all(engine, requests())
        await ears.have("r0", 8)
        positions = (await engine.digests()).positions
        cut = await shadow.cut(2, deadline_s=5)
        assert 0 < positions["r4"] < 400
        assert "r7" not in positions
        assert "r7" in cut.moved
        await shadow.release()


async def test_switching_back_and_forth_leaves_nothing_behind(engine_of: Callable, cluster: Cluster) -> None:
    async with engine_of("pp2") as (engine, ears):
        await submit_all(engine, requests(tokens=150))
        await ears.have("r0", 1)
        open_files = []
        for epoch, shape in enumerate(["1x1", "tp2", "pp2", "1x1", "tp2", "pp2"], start=2):
            shadow = await synced(engine, parse_topology(shape, cluster, LAYERS, "fp32"))
            await shadow.cut(epoch, deadline_s=5)
            await shadow.release()
            open_files.append(open_files_of(engine))
        assert len(set(open_files)) == 1
        await ears.all_ended(8)
        stats = await engine.stats()
        assert stats.free_blocks == stats.total_blocks
        assert set(stats.worker_pids) == {0, 1}


async def test_batch_composition_and_chunking_change_nothing(engine_of: Callable) -> None:
    said = []
    for settings in (
        SETTINGS,
        EngineSettings(block_size=16, num_blocks=256, max_running=8, max_batch_tokens=512),
    ):
        async with engine_of("1x1", settings) as (engine, ears):
            await submit_all(engine, requests())
            await ears.all_ended(8)
            said.append(ears.said())
    async with engine_of("1x1") as (engine, ears):
        for count, request in enumerate(requests(), start=1):
            await engine.submit(request)
            await ears.all_ended(count)
        said.append(ears.said())
    same(said[1], said[0])
    same(said[2], said[0])


@pytest.mark.parametrize("moment", ["warming", "syncing"])
async def test_losing_a_rank_only_the_target_needs_aborts_the_switch_and_nothing_else(
    engine_of: Callable, cluster: Cluster, moment: str
) -> None:
    target = parse_topology("tp2", cluster, LAYERS, "fp32")
    async with engine_of("1x1") as (engine, ears):
        await submit_all(engine, requests())
        await ears.all_ended(8)
        want = ears.said()
        ears.tokens.clear()
        open_files = open_files_of(engine)

        await submit_all(engine, requests())
        await ears.have("r0", 3)
        shadow = await engine.prepare(target)
        if moment == "syncing":
            await shadow.ready()
            await shadow.lag()
        while 1 not in (pids := (await engine.stats()).worker_pids):
            pass
        os.kill(pids[1], signal.SIGKILL)
        with pytest.raises(SwitchError, match="device 1") as lost:
            await copy_forever(shadow)
        assert lost.value.reason is Reason.RANK_LOST
        await shadow.abort(lost.value.reason)
        assert set((await engine.stats()).worker_pids) == {0}
        assert open_files_of(engine) == open_files
        await ears.all_ended(8)
        same(ears.said(), want)
        assert engine.topology.shape == "1x1"

        shadow = await synced(engine, target)  # and the next switch works
        await shadow.cut(2, deadline_s=5)
        await shadow.release()
        stats = await engine.stats()
        assert stats.free_blocks == stats.total_blocks


async def test_a_bad_request_is_refused_and_harms_no_other(engine_of: Callable) -> None:
    async with engine_of("pp2") as (engine, ears):
        await engine.submit(Request("good", (1, 2, 3), SamplingParams(40), 1))
        for prompt, tokens in (((101,), 5), ((-1,), 5), ((1,), 0), ((), 5)):
            with pytest.raises(RequestError):
                await engine.submit(Request("bad", prompt, SamplingParams(tokens), 1))
        await engine.submit(Request("odd", (1,), SamplingParams(5, temperature=1e-38, top_p=0.1, seed=-1), 1))
        await ears.all_ended(2)
        assert {tokens[-1].finish for tokens in ears.tokens.values()} == {Finish.LENGTH}


async def test_a_switch_given_up_at_once_can_be_tried_again(engine_of: Callable, cluster: Cluster) -> None:
    async with engine_of("1x1") as (engine, _):
        target = parse_topology("tp2", cluster, LAYERS, "fp32")
        worker = (await engine.stats()).worker_pids[0]
        groups = mapped_groups(worker)
        for _ in range(3):
            shadow = await engine.prepare(target)
            await shadow.abort(Reason.CANCELLED)
        await (await engine.prepare(target)).ready()
        async with asyncio.timeout(20):  # what was being loaded for a dropped role goes when its loading ends
            while mapped_groups(worker) > groups + 1:
                await engine.stats()


async def test_calls_during_a_restart_wait_for_it(engine_of: Callable, cluster: Cluster) -> None:
    async with engine_of("1x1") as (engine, ears):
        await engine.submit(Request("a", (1, 2, 3), SamplingParams(1000), 1))
        os.kill(engine.driver_pid, signal.SIGKILL)
        await ears.all_ended(1)
        shadow = await engine.prepare(parse_topology("tp2", cluster, LAYERS, "fp32"))
        await shadow.ready()
        await shadow.cut(2, deadline_s=5)
        await engine.cancel("a")
        assert engine.topology.shape == "TP2"


def mapped_groups(pid: int) -> int:
    return Path(f"/proc/{pid}/maps").read_text().count("intentctl-group")


async def test_an_aborted_switch_gives_everything_back(engine_of: Callable, cluster: Cluster) -> None:
    async with engine_of("1x1") as (engine, ears):
        await submit_all(engine, requests())
        await ears.have("r0", 3)
        worker = (await engine.stats()).worker_pids[0]
        before = open_files_of(engine), mapped_groups(worker)
        for _ in range(2):
            shadow = await synced(engine, parse_topology("tp2", cluster, LAYERS, "fp32"))
            await shadow.abort(Reason.CANCELLED)
        pids = (await engine.stats()).worker_pids
        assert (open_files_of(engine) - 1, mapped_groups(worker)) == before  # one more worker stands by
        assert mapped_groups(pids[1]) == 0
        shadow = await synced(engine, parse_topology("tp2pp2", cluster, LAYERS, "fp32"))
        with pytest.raises(SwitchError, match="another switch"):
            await engine.prepare(parse_topology("pp2", cluster, LAYERS, "fp32"))
        await shadow.abort(Reason.CANCELLED)
        await shadow.abort(Reason.CANCELLED)
        await ears.all_ended(8)
        assert ears.moves == []
        assert {t.epoch for tokens in ears.tokens.values() for t in tokens} == {1}


async def test_a_request_sent_before_the_cut_was_known_speaks_for_the_new_topology(
    engine_of: Callable, cluster: Cluster
) -> None:
    async with engine_of("1x1") as (engine, ears):
        shadow = await engine.prepare(parse_topology("tp2", cluster, LAYERS, "fp32"))
        await shadow.ready()
        await shadow.cut(2, deadline_s=5)
        await engine.submit(Request("late", (1, 2, 3), SamplingParams(2), epoch=1))
        await ears.all_ended(1)
        assert [(move.epoch, move.request_ids) for move in ears.moves] == [(2, ()), (2, ("late",))]
        assert {token.epoch for token in ears.tokens["late"]} == {2}


async def test_a_rank_lost_right_after_the_commit_does_not_undo_it(
    engine_of: Callable, cluster: Cluster
) -> None:
    async with engine_of("1x1") as (engine, ears):
        await submit_all(engine, requests(tokens=500))
        await ears.have("r0", 3)
        shadow = await synced(engine, parse_topology("tp2", cluster, LAYERS, "fp32"))
        pids = (await engine.stats()).worker_pids
        cutting = asyncio.create_task(shadow.cut(2, deadline_s=5))
        await ears.until(lambda: bool(ears.moves))
        os.kill(pids[1], signal.SIGKILL)
        assert (await cutting).epoch == 2
        await ears.all_ended(8)
        assert {tokens[-1].finish for tokens in ears.tokens.values()} == {Finish.ERROR}
        assert engine.topology.shape == "TP2"


@pytest.mark.parametrize("trouble", ["deadline", "lost rank"])
async def test_a_cut_that_fails_leaves_the_source_serving(
    engine_of: Callable, cluster: Cluster, trouble: str
) -> None:
    async with engine_of("1x1") as (engine, ears):
        await submit_all(engine, requests())
        await ears.have("r0", 3)
        shadow = await engine.prepare(parse_topology("tp2", cluster, LAYERS, "fp32"))
        await shadow.ready()
        if trouble == "lost rank":
            os.kill((await engine.stats()).worker_pids[1], signal.SIGKILL)
        with pytest.raises(SwitchError) as failed:
            await shadow.cut(2, deadline_s=5 if trouble == "lost rank" else 0)
        assert failed.value.reason is (Reason.RANK_LOST if trouble == "lost rank" else Reason.DEADLINE)
        await shadow.abort(failed.value.reason)
        await ears.all_ended(8)
        assert ears.moves == []
        assert engine.topology.shape == "1x1"
        assert all(tokens[-1].finish is Finish.LENGTH for tokens in ears.tokens.values())


async def test_an_engine_that_cannot_start_anew_is_tried_again(
    checkpoints: dict[str, Path], cluster: Cluster, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(checkpoints["qwen3-tied"], tmp_path / "copy"))
    engine = await TorchEngine.start(
        folder, parse_topology("1x1", cluster, LAYERS, "fp32"), cluster, SETTINGS
    )
    ears = Ears(engine)
    await engine.submit(Request("a", (1, 2, 3), SamplingParams(1000), 1))
    (folder / "config.json").rename(tmp_path / "away")
    os.kill(engine.driver_pid, signal.SIGKILL)
    await ears.all_ended(1)
    assert ears.tokens["a"][-1].finish is Finish.ERROR
    await reaches(engine, EngineState.FAILED)
    await engine.cancel("a")
    with pytest.raises(EngineLostError, match=r"could not be started again: .*has no config\.json"):
        await engine.submit(Request("b", (1, 2, 3), SamplingParams(1), 1))
    (tmp_path / "away").rename(folder / "config.json")
    await reaches(engine, EngineState.SERVING)
    await engine.submit(Request("c", (1, 2, 3), SamplingParams(1), 1))
    await ears.all_ended(2)
    await engine.close()


@pytest.mark.parametrize("victim", ["worker", "driver"])
async def test_losing_what_the_topology_needs_ends_its_requests_with_an_error_and_serves_anew(
    engine_of: Callable, victim: str
) -> None:
    async with engine_of("pp2") as (engine, ears):
        await submit_all(engine, requests(tokens=500))
        await ears.have("r0", 3)
        workers = (await engine.stats()).worker_pids
        os.kill(workers[1] if victim == "worker" else engine.driver_pid, signal.SIGKILL)
        await ears.all_ended(8)
        for tokens in ears.tokens.values():
            assert tokens[-1].finish is Finish.ERROR
            assert "send the request again" in tokens[-1].detail
            assert [t.index for t in tokens] == list(range(len(tokens)))
        ears.tokens.clear()
        with contextlib.suppress(EngineLostError):
            await engine.submit(requests()[0])
        while not ears.tokens:
            with contextlib.suppress(EngineLostError):
                await engine.submit(Request("again", (1, 2, 3), SamplingParams(3), 1))
                await ears.have("again", 3)
        assert not any(_is_alive(pid) for pid in workers.values())


def open_files_of(engine: TorchEngine) -> int:
    return sum(1 for _ in Path(f"/proc/{engine.driver_pid}/fd").iterdir())


def _is_alive(pid: int) -> bool:
    """Runs; one that nobody has reaped yet does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


async def test_closing_ends_every_process(engine_of: Callable) -> None:
    async with engine_of("tp2") as (engine, ears):
        await submit_all(engine, requests())
        await ears.have("r0", 1)
        pids = [engine.driver_pid, *(await engine.stats()).worker_pids.values()]
    assert not any(_is_alive(pid) for pid in pids)


async def test_what_can_never_be_served_is_refused(engine_of: Callable, cluster: Cluster) -> None:
    async with engine_of("1x1") as (engine, _):
        assert engine.capabilities.batching == Batching(SETTINGS.max_running, SETTINGS.max_batch_tokens)
        with pytest.raises(RequestError, match="ask for fewer"):
            await engine.submit(Request("long", (1,) * 3000, SamplingParams(10), 1))
        for shape in ("CPUx3", "CPUx2@bf16"):
            with pytest.raises(SwitchError) as refused:
                await engine.prepare(parse_topology(shape, cluster, LAYERS, "fp32"))
            assert refused.value.reason is Reason.UNSUPPORTED


async def test_starting_refuses_what_a_switch_would_refuse(
    checkpoints: dict[str, Path], cluster: Cluster
) -> None:
    for text, settings, reason in (
        ("CPUx1@bf16", SETTINGS, Reason.UNSUPPORTED),
        ("CPUx1", EngineSettings(num_blocks=50_000), Reason.NO_MEMORY),
    ):
        topology = parse_topology(text, cluster, LAYERS, "fp32")
        with pytest.raises(SwitchError) as refused:
            await TorchEngine.start(checkpoints["qwen3-tied"], topology, cluster, settings)
        assert refused.value.reason is reason


def test_settings_under_which_some_streams_would_never_decode_are_refused() -> None:
    with pytest.raises(ValueError, match="max_running 100 <= closing_batch_tokens 64"):
        EngineSettings(max_running=100)


async def test_cancelling_ends_the_stream_and_frees_its_blocks(engine_of: Callable) -> None:
    async with engine_of("1x1") as (engine, ears):
        await engine.submit(Request("a", (1, 2, 3), SamplingParams(1000), 1))
        await ears.have("a", 2)
        await engine.cancel("a")
        await engine.cancel("unknown")
        await ears.all_ended(1)
        assert ears.tokens["a"][-1].finish is Finish.CANCELLED
        stats = await engine.stats()
        assert stats.free_blocks == stats.total_blocks
