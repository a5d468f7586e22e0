"""What every engine must do: one suite, each engine a factory in ``ENGINES``.

Everything an engine says goes through the real ledger, so that a token lost, said twice or said by the wrong owner
shows up wherever it happens.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio

from runtime.engine import Cut, Engine, Finish, GenerationRequest, Moved, SamplingParams, Shadow, Token
from runtime.errors import EngineLostError, Reason, RequestError, SwitchError
from runtime.ledger import Accepted, Ledger
from runtime.models import Topology
from runtime.notation import parse_topology
from runtime.replicas.engine import ReplicaSet
from tests.runtime.scripted import ScriptedEngine, cluster_of, topology

pytestmark = pytest.mark.asyncio(loop_scope="module")

LIMIT_TOKENS = 512
"""What prompt and output may come to in all."""


@dataclass(frozen=True, slots=True)
class Subject:
    """An engine to test and where it can go. It runs at most two requests at once and prefills in small chunks."""

    engine: Engine
    topologies: tuple[Topology, ...]
    """What it was started with, and others."""


@contextlib.asynccontextmanager
async def scripted(folder: Path) -> AsyncIterator[Subject]:
    engine = ScriptedEngine(topology(1, 1), max_running=2, max_tokens=LIMIT_TOKENS)
    yield Subject(engine, (topology(1, 1), topology(2), topology(1)))
    await engine.close()


@contextlib.asynccontextmanager
async def replica_set(folder: Path) -> AsyncIterator[Subject]:
    """Of one replica: what a set adds changes nothing of what an engine does."""
    engine = ScriptedEngine(topology(1, 1), max_running=2, max_tokens=LIMIT_TOKENS)
    replicas = ReplicaSet([engine], lambda target, _: _started(target))
    yield Subject(replicas, (topology(1, 1), topology(2), topology(1)))
    await replicas.close()


async def _started(target: Topology) -> Engine:
    return ScriptedEngine(target, max_running=2, max_tokens=LIMIT_TOKENS)


@contextlib.asynccontextmanager
async def torch_engine(folder: Path) -> AsyncIterator[Subject]:
    from runtime.torch_engine.engine import TorchEngine
    from runtime.torch_engine.models import EngineSettings

    make_checkpoint(folder)
    cluster = cluster_of("cpu")
    topologies = tuple(parse_topology(text, cluster, 4, "fp32") for text in ("pp2", "tp2", "1x1"))
    settings = EngineSettings(block_size=8, num_blocks=256, max_running=2, max_batch_tokens=24, closing_batch_tokens=16)
    engine = await TorchEngine.start(folder, topologies[0], cluster, settings)
    yield Subject(engine, topologies)
    await engine.close()


@contextlib.asynccontextmanager
async def vllm_engine(folder: Path) -> AsyncIterator[Subject]:
    """With all its topologies on standby: they take longer to start than requests last."""
    from runtime.vllm_engine.engine import VllmEngine
    from runtime.vllm_engine.models import VllmSettings

    make_checkpoint(folder, head_dim=32)
    cluster = cluster_of("cpu", 4 << 30)
    topologies = tuple(parse_topology(text, cluster, 4, "fp32") for text in ("pp2", "tp2", "1x1"))
    options = {
        "max_num_seqs": 2,
        "max_num_batched_tokens": 24,
        "block_size": 32,
        "max_model_len": LIMIT_TOKENS,
    }
    settings = VllmSettings(options=options, kv_cache_bytes=8 << 20, num_standby=4, spare=False)
    engine = await VllmEngine.start(folder, topologies[0], cluster, settings)
    engine.standby += [await engine.launch(target) for target in topologies[1:]]
    yield Subject(engine, topologies)
    await engine.close()


def make_checkpoint(folder: Path, head_dim: int = 8) -> None:
    """A small model with random weights."""
    import torch
    import transformers

    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=64,
        hidden_size=4 * head_dim,
        intermediate_size=6 * head_dim,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=LIMIT_TOKENS,
        initializer_range=0.2,
        bos_token_id=None,
        eos_token_id=None,
    )
    transformers.utils.logging.disable_progress_bar()
    transformers.LlamaForCausalLM(config).save_pretrained(folder)


ENGINES = [
    scripted,
    replica_set,
    pytest.param(torch_engine, marks=pytest.mark.slow),
    pytest.param(vllm_engine, marks=[pytest.mark.slow, pytest.mark.vllm]),
]


class Listener:
    """Hears an engine and keeps the ledger, as the router does."""

    def __init__(self, subject: Subject) -> None:
        self.engine, self._topologies = subject.engine, subject.topologies
        self.ledger = Ledger("source")
        self.tokens: dict[str, list[Token]] = {}
        """What the ledger let pass."""
        self.dropped: list[Token] = []
        self.fences: list[Moved] = []
        self._news = asyncio.Condition()
        self.task = asyncio.create_task(self._listen())

    @property
    def targets(self) -> list[Topology]:
        """Topologies to be taken in turn; the last is what runs."""
        now = self._topologies.index(self.engine.topology) + 1
        return [*self._topologies[now:], *self._topologies[:now]]

    async def rest(self) -> None:
        """End what runs, and forget it."""
        left = [name for name in self.tokens if not self.finish(name)]
        for name in left:
            await self.engine.cancel(name)
        await self.ended(*left)
        self.tokens.clear()
        self.fences.clear()

    async def _listen(self) -> None:
        async for batch in self.engine.outputs():
            for output in batch:
                if isinstance(output, Moved):
                    self.fences.append(output)
                    self.ledger.move(output)
                elif isinstance(self.ledger.accept(output), Accepted):
                    self.tokens[output.request_id].append(output)
                else:
                    self.dropped.append(output)
            async with self._news:
                self._news.notify_all()

    async def submit(self, request_id: str, prompt: tuple[int, ...], max_tokens: int) -> None:
        self.tokens[request_id] = []
        epoch = self.ledger.open(request_id)
        await self.engine.submit(GenerationRequest(request_id, prompt, SamplingParams(max_tokens), epoch))

    async def until(self, is_so: Callable[[], bool]) -> None:
        async with asyncio.timeout(30), self._news:
            await self._news.wait_for(lambda: bool(self.dropped) or is_so())
        assert self.dropped == []

    async def have(self, request_id: str, count: int) -> None:
        await self.until(lambda: len(self.tokens[request_id]) >= count)

    async def ended(self, *request_ids: str) -> None:
        await self.until(lambda: all(self.finish(request_id) for request_id in request_ids))

    def finish(self, request_id: str) -> Finish | None:
        tokens = self.tokens[request_id]
        return tokens[-1].finish if tokens else None

    def said(self, request_id: str) -> list[int]:
        return [token.token_id for token in self.tokens[request_id] if token.token_id is not None]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Callable]:
    """The listener of an engine that tests have in turn; another once it was closed."""
    listeners: dict[Callable, Listener] = {}
    async with contextlib.AsyncExitStack() as engines:

        async def listener(start: Callable) -> Listener:
            if start not in listeners or listeners[start].task.done():
                folder = tmp_path_factory.mktemp(start.__name__)
                listeners[start] = Listener(await engines.enter_async_context(start(folder)))
            return listeners[start]

        yield listener
    for made in listeners.values():
        await made.task


@pytest_asyncio.fixture(params=ENGINES, loop_scope="module")
async def listener(request: pytest.FixtureRequest, running: Callable) -> AsyncIterator[Listener]:
    made = await running(request.param)
    yield made
    if not made.task.done():
        await made.rest()


async def cut(listener: Listener, shadow: Shadow) -> Cut:
    """Take a switch through its cut."""
    await shadow.ready()
    while (await shadow.lag()).tokens > 24:
        pass
    return await shadow.cut(listener.ledger.announce("target"), deadline_s=10.0)


async def switch(listener: Listener, target: Topology) -> Cut:
    """A whole switch."""
    shadow = await listener.engine.prepare(target)
    done = await cut(listener, shadow)
    await shadow.release()
    return done


def prompt_of(number: int, length: int = 3) -> tuple[int, ...]:
    return tuple((number * 7 + position * 5) % 60 + 1 for position in range(length))


# --- serving ---


async def test_outputs_count_up_from_0_to_the_limit(listener):
    for number in range(5):
        await listener.submit(f"r{number}", prompt_of(number), 10 + number)
    await listener.ended(*listener.tokens)
    for number, tokens in enumerate(listener.tokens.values()):
        assert [token.index for token in tokens] == list(range(10 + number))
        assert [token.finish for token in tokens] == [None] * (9 + number) + [Finish.LENGTH]


async def test_a_stop_token_ends_a_request_and_is_said(listener):
    await listener.submit("free", prompt_of(1), 8)
    await listener.ended("free")
    said = listener.said("free")
    stop = said[3]
    epoch = listener.ledger.open("stopped")
    listener.tokens["stopped"] = []
    sampling = SamplingParams(8, stop_token_ids=(stop,))
    await listener.engine.submit(GenerationRequest("stopped", prompt_of(1), sampling, epoch))
    await listener.ended("stopped")
    assert listener.said("stopped") == said[: said.index(stop) + 1]
    assert listener.finish("stopped") is Finish.STOP


async def test_the_same_request_alone_or_in_company_says_the_same(listener):
    await listener.submit("alone", prompt_of(2, 30), 20)
    await listener.ended("alone")
    for number in range(4):
        await listener.submit(f"r{number}", prompt_of(number, 30), 20)
    await listener.ended(*listener.tokens)
    assert listener.said("r2") == listener.said("alone")


async def test_cancelling_ends_a_running_request(listener):
    await listener.submit("long", prompt_of(1), 400)
    await listener.have("long", 3)
    await listener.engine.cancel("long")
    await listener.ended("long")
    assert listener.finish("long") is Finish.CANCELLED
    assert listener.tokens["long"][-1].token_id is None
    assert (await listener.engine.stats()).running == 0


async def test_cancelling_ends_a_waiting_request(listener):
    for number in range(3):
        await listener.submit(f"r{number}", prompt_of(number), 300)
    await listener.engine.cancel("r2")
    await listener.ended("r2")
    assert listener.said("r2") == []
    assert listener.finish("r0") is None


async def test_cancelling_what_is_not_there_does_nothing(listener):
    await listener.submit("short", prompt_of(1), 2)
    await listener.ended("short")
    await listener.engine.cancel("short")
    await listener.engine.cancel("never seen")
    await listener.submit("next", prompt_of(1), 2)
    await listener.ended("next")
    assert listener.finish("next") is Finish.LENGTH


async def test_what_can_never_be_served_is_refused(listener):
    for prompt in ((), (1,) * LIMIT_TOKENS):
        with pytest.raises(RequestError):
            await listener.submit("refused", prompt, 5)
    del listener.tokens["refused"]
    await listener.submit("next", prompt_of(1), 2)
    await listener.ended("next")


async def test_blocks_come_back_when_requests_end(listener):
    free = (await listener.engine.stats()).free_blocks
    for number in range(4):
        await listener.submit(f"r{number}", prompt_of(number, 20), 12)
    await listener.ended(*listener.tokens)
    stats = await listener.engine.stats()
    assert (stats.free_blocks, stats.running, stats.waiting) == (free, 0, 0)


# --- switching ---


async def test_a_switch_moves_running_half_prefilled_and_waiting_requests(listener):
    wanted = {"running": 120, "half-prefilled": 60, "waiting": 30}
    prompts = {"running": prompt_of(1), "half-prefilled": prompt_of(2, 300), "waiting": prompt_of(3)}
    await listener.submit("running", prompts["running"], wanted["running"])
    await listener.have("running", 2)
    shadow = await listener.engine.prepare(listener.targets[0])
    await shadow.ready()
    await listener.submit("half-prefilled", prompts["half-prefilled"], wanted["half-prefilled"])
    await listener.submit("waiting", prompts["waiting"], wanted["waiting"])
    done = await cut(listener, shadow)
    await shadow.release()
    assert set(done.moved) == set(wanted)
    assert done.left_to_drain == ()
    await listener.ended(*wanted)
    assert {name: len(listener.said(name)) for name in wanted} == wanted
    counts = listener.ledger.counts
    assert (counts.lost, counts.duplicates, counts.wrong_epoch) == (0, 0, 0)
    for name, prompt in prompts.items():
        await listener.submit(f"{name} again", prompt, wanted[name])
    await listener.ended(*listener.tokens)
    for name in wanted:
        assert listener.said(f"{name} again") == listener.said(name)


async def test_the_fence_comes_once_and_before_the_first_token_of_the_new_epoch(listener):
    await listener.submit("a", prompt_of(1), 200)
    await listener.have("a", 2)
    before = listener.ledger.epoch
    done = await switch(listener, listener.targets[0])
    await listener.ended("a")
    assert listener.fences == [Moved(done.epoch, done.moved)]
    epochs = [token.epoch for token in listener.tokens["a"]]
    assert epochs == sorted(epochs)
    assert set(epochs) == {before, done.epoch}


async def test_a_cut_without_requests_raises_the_epoch_too(listener):
    target = listener.targets[0]
    done = await switch(listener, target)
    await listener.until(lambda: bool(listener.fences))
    assert listener.fences == [Moved(done.epoch, ())]
    assert listener.engine.topology == target
    await listener.submit("a", prompt_of(1), 5)
    await listener.ended("a")
    assert {token.epoch for token in listener.tokens["a"]} == {done.epoch}


async def test_a_request_under_way_to_the_engine_during_a_cut_is_served_whole(listener):
    shadow = await listener.engine.prepare(listener.targets[0])
    late_epoch = listener.ledger.open("late")
    listener.tokens["late"] = []
    await cut(listener, shadow)
    await listener.engine.submit(GenerationRequest("late", prompt_of(1), SamplingParams(5), late_epoch))
    await listener.ended("late")
    assert len(listener.said("late")) == 5
    await shadow.release()


async def test_switching_on_and_on_keeps_every_stream_whole(listener):
    await listener.submit("a", prompt_of(1), 450)
    await listener.submit("b", prompt_of(2), 450)
    free = (await listener.engine.stats()).total_blocks
    for target in listener.targets:
        await switch(listener, target)
        assert listener.engine.topology == target
    for name in ("a", "b"):
        await listener.engine.cancel(name)
    await listener.ended("a", "b")
    stats = await listener.engine.stats()
    assert (stats.free_blocks, stats.total_blocks) == (free, free)


async def test_an_aborted_switch_leaves_the_old_topology_running(listener):
    before, epoch = listener.engine.topology, listener.ledger.epoch
    await listener.submit("a", prompt_of(1), 60)
    shadow = await listener.engine.prepare(listener.targets[0])
    await shadow.ready()
    await shadow.lag()
    await shadow.abort(Reason.CANCELLED)
    await shadow.abort(Reason.CANCELLED)
    await listener.ended("a")
    assert listener.engine.topology == before
    assert {token.epoch for token in listener.tokens["a"]} == {epoch}
    assert listener.fences == []
    assert (await switch(listener, listener.targets[0])).moved == ()


async def test_one_switch_at_a_time(listener):
    shadow = await listener.engine.prepare(listener.targets[0])
    with pytest.raises(SwitchError):
        await listener.engine.prepare(listener.targets[0])
    await cut(listener, shadow)
    await shadow.release()
    await shadow.release()
    again = await listener.engine.prepare(listener.targets[1])
    await again.abort(Reason.CANCELLED)


async def test_closing_ends_the_outputs_and_refuses_what_comes_after(listener):
    await listener.submit("a", prompt_of(1), 400)
    await listener.have("a", 1)
    await listener.engine.close()
    async with asyncio.timeout(60):
        await listener.task
    with pytest.raises(EngineLostError):
        await listener.submit("b", prompt_of(1), 2)
    await listener.engine.close()
