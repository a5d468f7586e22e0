"""A worker's roles: taken when loaded, unless dropped meanwhile."""

import mmap
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from runtime.engine import SamplingParams
from runtime.footprint import Piece
from runtime.kv.store import Slice
from runtime.models import LayerRange
from runtime.process.channel import BlockingChannel
from runtime.process.content import PinnedCheckpoint
from runtime.process.messages import Call, Reply, reply
from runtime.torch_engine.messages import (
    BatchFinished,
    Copy,
    Drop,
    Exchange,
    Forget,
    FromWorker,
    Gain,
    GiveBack,
    Hello,
    Loaded,
    LoadFailed,
    Loading,
    LoadShard,
    Order,
    Ping,
    Run,
    WarmUp,
    WorkerConfig,
)
from runtime.torch_engine.models import Span
from runtime.torch_engine.sampling_tasks import SamplingTask
from runtime.torch_engine.worker.backends import Backend
from runtime.torch_engine.worker.group import SOLO, GroupMemory, GroupShape
from runtime.torch_engine.worker.loop import _WARM_UP_ON_GPU, Worker
from runtime.torch_engine.worker.shard import IncompleteRoleError, Shard, ShardSpec
from tests.rows import rows

KV = (5, 4, 4, 8, 16, 1)


def call(subject: Worker, number: int, order: Order) -> None:
    subject._obey(Call(number, order))


@pytest.fixture
def worker(checkpoints: dict[str, Path]) -> Iterator[tuple[Worker, Iterator[object]]]:
    ours, theirs = socket.socketpair()
    yield (
        Worker(BlockingChannel(theirs), WorkerConfig(PinnedCheckpoint.of(checkpoints["qwen3-tied"]), KV, "fp32", 0)),
        (message for message in BlockingChannel(ours, FromWorker).messages() if not isinstance(message, Loading)),
    )
    ours.close()
    theirs.close()


def load(subject: Worker, last_layer: int = 5) -> None:
    memory = GroupMemory(GroupShape((1,), 4096))
    shard = ShardSpec(LayerRange(0, last_layer), 0, 1, is_first=True, is_last=True)
    subject._obey(LoadShard(7, shard, shard.layers, 0, memory.ranks))


@pytest.fixture
def loaded(worker):
    """A worker with a role."""
    subject, said = worker
    load(subject)
    assert next(said) == Loaded(7)
    assert set(subject._roles) == {7}
    return worker


def test_copies_are_warm_before_a_role_is_told_and_device_memory_goes_back_then_and_when_it_is_gone(
    worker, monkeypatch
):
    subject, said = worker
    noted = []
    for name in ("return_freed", "warm_up_copy"):
        monkeypatch.setattr(Backend, name, lambda _, name=name: noted.append((name, {*subject._roles})))
    load(subject)
    assert next(said) == Loaded(7)
    call(subject, 1, Exchange(sheds=7, takes=8, layers=LayerRange(0, 2)))
    assert next(said) == reply(1)
    call(subject, 2, Drop(7))
    assert next(said) == reply(2)
    assert [roles for name, roles in noted if name == "return_freed"] == [set(), {7}, set()]
    assert [roles for name, roles in noted if name == "warm_up_copy"] == [set()]


def test_a_role_that_cannot_be_loaded_is_told_with_the_reason(worker):
    subject, said = worker
    load(subject, last_layer=6)
    failed = next(said)
    assert isinstance(failed, LoadFailed)
    assert "model.layers.5" in failed.detail
    assert subject._roles == {}


def test_a_role_warms_up_again_alone_and_one_that_is_not_there_does_not(loaded, monkeypatch):
    subject, said = loaded
    steps = []
    monkeypatch.setattr(subject._roles[7].shard, "forward", lambda *given: steps.append(given))
    call(subject, 1, WarmUp(7))
    call(subject, 2, WarmUp(8))
    assert [next(said), next(said)] == [reply(1, True), reply(2, False)]
    ((tokens, _, ranks),) = steps
    assert (len(tokens), ranks) == (3, SOLO)


def test_a_role_dropped_while_it_loads_is_neither_taken_nor_told(loaded):
    subject, said = loaded
    role = subject._roles[7]
    subject._loading.add(8)  # as if a second load were under way
    call(subject, 1, Drop(8))
    subject._settle(Loaded(8), role)
    call(subject, 2, Drop(7))
    assert [next(said), next(said)] == [reply(1), reply(2)]
    assert subject._roles == {}


def test_a_role_that_is_dropped_is_not_loaded_to_its_end(worker, monkeypatch):
    subject, said = worker
    taken: list[LayerRange] = []
    dropped, take = threading.Event(), Shard.take

    def slow(self: Shard, layers: LayerRange) -> None:
        if layers == LayerRange(2, 3):
            dropped.wait(60)
        taken.append(layers)
        take(self, layers)

    monkeypatch.setattr(Shard, "take", slow)
    load(subject)
    call(subject, 1, Drop(7))
    assert next(said) == reply(1)
    dropped.set()
    load(subject)
    assert next(said) == Loaded(7)
    assert subject._roles.keys() == {7}


def test_an_order_that_fails_is_answered_with_why_and_the_worker_goes_on(worker, monkeypatch, capsys):
    subject, said = worker

    def fail(*_: object) -> None:
        raise RuntimeError("no peer access")

    monkeypatch.setattr(subject._store, "copy", fail)
    call(subject, 1, Copy((), np.zeros((0, 2), dtype=np.int64)))
    answer = next(said)
    assert isinstance(answer, Reply)
    assert answer.trouble
    assert str(answer.trouble.error) == "load_failed: RuntimeError: no peer access"
    call(subject, 2, Ping())
    assert next(said) == reply(2)


@rows(("step_s", "slice_s"), [(0.001, 0.003), (0.2, 0.04)])
def test_what_waits_between_steps_may_take_a_fifth_of_one_and_3_ms_at_least(loaded, monkeypatch, step_s, slice_s):
    subject, said = loaded
    asked, times = [], iter((0.0, step_s))
    store = SimpleNamespace(forget_peers=lambda seconds: asked.append(seconds) or Slice(None, 0, 0.0))
    with monkeypatch.context() as patch:
        patch.setattr(Backend, "clock_s", lambda _: next(times))
        patch.setattr(subject, "_store", store)
        subject._obey(Run(7, 1, [5], (Span(0, 1, (0,)),), [0], [SamplingTask(SamplingParams(max_tokens=1), 0)]))
        call(subject, 1, Forget(0))
    assert isinstance(next(said), BatchFinished)
    assert next(said) == reply(1, Slice(None, 0, 0.0))
    assert asked == [pytest.approx(slice_s)]


def test_a_role_on_a_gpu_warms_up_with_batches_of_many_sizes(loaded, monkeypatch):
    subject, _ = loaded
    role, sizes = subject._roles[7], list[int]()
    shard = SimpleNamespace(forward=lambda tokens, *_: sizes.append(len(tokens)))
    subject._warm_up(SimpleNamespace(shard=shard, heads=role.heads), _WARM_UP_ON_GPU)
    assert sizes == [3, 4, 8, 16, 32, 64, 128, 256, 512]


def test_a_role_that_lacks_a_layer_refuses_to_run(loaded):
    subject, said = loaded
    call(subject, 1, Exchange(sheds=7, takes=8, layers=LayerRange(2, 3)))
    assert next(said) == reply(1)
    span = Span(0, 1, (0,))
    with pytest.raises(IncompleteRoleError, match=r"weights of \[0, 1, 3, 4\] are there"):
        subject._obey(Run(7, 1, [0], (span,), [0], [SamplingTask(SamplingParams(1), 0)]))


@rows(("name", "kind"), [("gain", Gain), ("give_back", GiveBack)])
def test_memory_changes_beside_the_loop(worker, monkeypatch, name, kind):
    subject, said = worker
    may_end = threading.Event()
    monkeypatch.setattr(subject._store, name, lambda *_: Slice(None if may_end.wait(60) else 0, 0, 0.0))
    call(subject, 1, kind((Piece(0, 0),), ((0, 4),), 0))
    may_end.set()  # only now: the loop did not wait
    assert next(said) == reply(1, Slice(None, 0, 0.0))


def test_what_is_given_back_is_not_gained_again_at_once(worker, monkeypatch):
    subject, said = worker
    may_end, nothing = threading.Event(), Slice(None, 0, 0.0)
    monkeypatch.setattr(subject._store, "gain", lambda *_: may_end.wait(60) and nothing)
    monkeypatch.setattr(subject._store, "give_back", lambda *_: nothing)
    call(subject, 1, Gain((Piece(0, 0),), ((0, 4),), 0))
    call(subject, 2, GiveBack((Piece(0, 0),), ((0, 4),), 0))
    giving = subject._beside
    assert giving is not None
    giving.join(0.1)
    may_end.set()
    assert [next(said), next(said)] == [reply(1, nothing), reply(2, nothing)]


@pytest.mark.slow
def test_temporaries_of_a_step_are_not_faulted_in_anew():
    code = """
import resource, torch
from runtime.torch_engine.worker.loop import keep_freed_memory
keep_freed_memory()
step = lambda: [torch.ones(500_000) for _ in range(16)]
step()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20):
    step()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert int(done.stdout) < 20 * 16 * 2_000_000 // mmap.PAGESIZE / 50


def test_a_worker_greets_with_where_its_memory_is(worker):
    subject, _ = worker
    assert Path(Hello(subject._store.handle).handle.path).exists()
