"""Frames that are no messages: refused by name, on every channel there is; nothing hangs, nothing grows, nothing runs."""

import ast
import asyncio
import gc
import random
import re
import socket
import tracemalloc
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from runtime.engine import GenerationRequest, Moved, SamplingParams, Token
from runtime.errors import EngineLostError, Reason, RequestError, RuntimeFault, SwitchError
from runtime.footprint import Transfer
from runtime.hosts import messages as host_messages
from runtime.kv.carrier.layout import KvLayout
from runtime.kv.store import KvHandle
from runtime.process import messages as wire
from runtime.process.channel import (
    HEAD,
    MARK,
    MAX_FRAME_BYTES,
    VERSION,
    AsyncChannel,
    BlockingChannel,
    FrameError,
    Frames,
    encode,
)
from runtime.process.launcher import LocalLauncher, Program
from runtime.torch_engine import messages as torch_messages
from runtime.torch_engine.models import Span
from runtime.torch_engine.sampling_tasks import SamplingTask
from runtime.vllm_engine import messages as vllm_messages
from tests.rows import rows

ROOT = Path(__file__).parents[3]
CHANNELS = {
    "service to the torch driver": torch_messages.ToDriver,
    "torch driver to the service": torch_messages.FromDriver,
    "driver to a worker": torch_messages.ToWorker,
    "worker to its driver": torch_messages.FromWorker,
    "service to a vllm driver": vllm_messages.ToDriver,
    "vllm driver to the service": vllm_messages.FromDriver,
    "service to an agent": host_messages.ToAgent,
    "agent to the service": host_messages.FromAgent,
}
RUNS = np.array([[0, 8], [40, 41]], dtype=np.int64)
RUN = torch_messages.Run(
    1, 2, [3, 4], (Span(0, 2, (7,)),), [1],
    [SamplingTask(SamplingParams(5, logit_bias=((3, 1.5),)), 4, known=np.arange(6, dtype=np.int32))],
)  # fmt: skip
COPY = wire.Call(4, torch_messages.Copy(((Transfer(0, 1, (0, 2), (0, 1)), KvHandle("/x")),), RUNS))
WAITING = {"driver to a worker", "service to a vllm driver"}
"""Whose reader waits for messages; the others have an event loop."""
SEEDS = {
    "service to the torch driver": [
        wire.Call(1, wire.Submit(GenerationRequest("r", (1, 2), SamplingParams(3), 1))),
        wire.Call(2, torch_messages.CutOver(3, 1.5)),
    ],
    "torch driver to the service": [
        wire.Tokens([Token("r", 1, 0, 5, -0.5, ((5, -0.5),))]),
        wire.Fenced(Moved(2, ("r",))),
        wire.reply(1, 2.5),
        wire.Fatal(Reason.RANK_LOST, "gone", wire.Trouble.of(RequestError("no"))),
    ],
    "driver to a worker": [RUN, COPY],
    "worker to its driver": [torch_messages.Hello(KvHandle("/x")), wire.reply(3, True)],
    "service to a vllm driver": [
        vllm_messages.Preparation({"A": "b"}, 0, 1.0, 2.0),
        wire.Call(1, vllm_messages.Sync(("r",))),
    ],
    "vllm driver to the service": [wire.Beat(1.0), wire.Prepared()],
    "service to an agent": [
        host_messages.Launch(1, "m", 3, has_folder=True),
        wire.Call(1, host_messages.Inspect(("/m",))),
        wire.Call(2, host_messages.Claim("d", 3, "http://a:1")),
        host_messages.Relay(1, b"ic"),
    ],
    "agent to the service": [host_messages.Ended(1, "", ("a line",)), host_messages.Heartbeat(3)],
}


def frame(body: bytes, mark: bytes = MARK, version: int = VERSION, count: int = 0) -> bytes:
    return HEAD.pack(mark, version, count, len(body)) + body


def refused(kind: Any, data: bytes) -> str | None:
    """Why these bytes are refused; None where they are messages, or the begin of one."""
    try:
        for _ in Frames(kind).feed(data):
            pass
    except FrameError as error:
        return error.why
    return None


def spoilt(chance: random.Random, data: bytes) -> bytes:
    """A frame after an accident, or another's work."""
    changed = bytearray(data)
    for _ in range(chance.randint(1, 6)):
        at = chance.randrange(len(changed))
        match chance.randrange(4):
            case 0:
                changed[at] = chance.randrange(256)
            case 1:
                del changed[at : at + chance.randint(1, 9)]
            case 2:
                changed[at:at] = chance.randbytes(chance.randint(1, 9))
            case _:
                changed[at] ^= 1 << chance.randrange(8)
        changed = changed or bytearray(b"\0")
    if chance.random() < 0.3:  # the head tells the truth: what is wrong lies inside
        changed = bytearray(frame(bytes(changed[HEAD.size :])))
    return bytes(changed)


def fuzzed(name: str, count: int, seed: int) -> dict[str | None, int]:
    """How frames on a channel were refused."""
    chance, seen, data = random.Random(seed), dict[str | None, int](), [*map(encode, SEEDS[name])]
    for _ in range(count):
        why = refused(CHANNELS[name], spoilt(chance, chance.choice(data)))
        seen[why] = seen.get(why, 0) + 1
    return seen


@rows("name", [*CHANNELS])
def test_spoilt_frames_are_refused_by_name_on_every_channel(name):
    seen = fuzzed(name, 200, 1)
    assert {"mark", "type", "body"} <= seen.keys()
    assert seen.keys() <= {"mark", "version", "size", "body", "type", None}


async def taken(name: str, data: bytes) -> str | None:
    """How a real end of a channel takes these bytes and the end of their sender: why it refused them, if it did."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(data)
        theirs.shutdown(socket.SHUT_WR)
        if name in WAITING:
            try:
                for _ in BlockingChannel(ours, CHANNELS[name]).messages():
                    pass
            except FrameError as error:
                return error.why
            return None
        told = asyncio.get_running_loop().create_future()
        AsyncChannel(ours, lambda _: None, told.set_result, CHANNELS[name])
        why = re.search(r"refused \((\w+)\)", await asyncio.wait_for(told, 20))
        assert theirs.recv(1) == b"", "it is closed"
        return why and why[1]


def open_files() -> int:
    return len([*Path("/proc/self/fd").iterdir()])


async def all_taken(name: str, count: int, seed: int) -> set[str | None]:
    chance, data = random.Random(seed), [*map(encode, SEEDS[name])]
    return {await taken(name, spoilt(chance, chance.choice(data))) for _ in range(count)}


@pytest.mark.slow
@pytest.mark.parametrize("count", [100, pytest.param(10_000, marks=pytest.mark.exhaustive)])
@rows("name", [*CHANNELS])
async def test_spoilt_frames_leave_no_end_hanging_and_nothing_behind(name, count):
    await all_taken(name, 50, 2)
    gc.collect()
    files = open_files()
    seen, grown = set[str | None](), list[int]()
    tracemalloc.start()
    try:
        for seed in (3, 4):  # what stays behind does so each time, and what else runs in this process takes memory once
            before = tracemalloc.get_traced_memory()[0]
            seen |= await all_taken(name, count, seed)
            gc.collect()
            grown.append(tracemalloc.get_traced_memory()[0] - before)
    finally:
        tracemalloc.stop()
    assert min(grown) < 200_000
    assert {"mark", "type", "body"} <= seen <= {"mark", "version", "size", "body", "type", None}
    assert open_files() <= files, "a collection may close what others left open, and opens nothing"


PROCESSES = {
    "driver to a worker": Program("runtime.torch_engine.worker.loop", torch_messages.FromWorker, 0, is_warm=True),
    "service to the torch driver": Program("runtime.torch_engine.driver.loop", torch_messages.FromDriver),
    "service to a vllm driver": Program("runtime.vllm_engine.driver.boot", vllm_messages.FromDriver, has_folder=True),
}
"""What reads each channel of the service, and of a driver to its workers."""


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("count", [1, pytest.param(60, marks=pytest.mark.exhaustive)])
@rows("name", [*PROCESSES])
async def test_a_process_that_hears_a_spoilt_frame_ends(name, count):
    chance, data, launcher = random.Random(4), [*map(encode, SEEDS[name])], LocalLauncher()
    for _ in range(count):
        while not refused(CHANNELS[name], frame := spoilt(chance, chance.choice(data))):
            pass
        ended, heard = asyncio.get_running_loop().create_future(), list[Any]()
        process = launcher.start(PROCESSES[name], heard.append, ended.set_result)
        process.send_encoded(frame)
        assert await asyncio.wait_for(ended, 60) == "", "it said nothing odd itself"
        if PROCESSES[name].device is None:  # the service has to know why; a driver is its workers' code
            assert isinstance(heard[0], wire.Greeting)
            assert isinstance(heard[-1], wire.Fatal)
            assert re.search(r"a frame was refused \(\w+\)", heard[-1].detail)
        process.end()
        await process.close()


@rows(
    ("data", "why"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "mark"),
        (frame(b"", version=9), "version"),
        (HEAD.pack(MARK, VERSION, 0, MAX_FRAME_BYTES + 1), "size"),
        (HEAD.pack(MARK, VERSION, 1, 9) + b"\xff\xff\xff\xff", "size"),
        (frame(b"\xc1"), "body"),
        (frame(b"\x91" * 100_000), "type"),
        (frame(msgspec.msgpack.encode({"type": "Drop", "generation": 1})), "type"),
        (frame(msgspec.msgpack.encode({"type": "Run", "generation": "x"})), "type"),
        (frame(b"\x80\x04\x95\x0c\x00\x00\x00"), "type"),  # a pickle
    ],
)
def test_what_is_no_message_is_named(data, why):
    assert refused(torch_messages.ToWorker, data) == why


@rows(
    "array",
    [
        (0, "<i8", [3]),
        (1, "<i8", [2, 2]),
        (-1, "<i8", [2, 2]),
        (0, "|O", [4]),
        (0, "<i8", "x"),
        (0, 5, [4]),
        None,
        [0],
        7,
    ],
)
def test_an_array_that_is_not_as_it_says_is_refused(array):
    data = encode(COPY)
    at = data.index(b"\xa4runs") + 5
    said = msgspec.msgpack.encode((0, "<i8", (2, 2)))
    assert data[at : at + len(said)] == said
    body = data[HEAD.size + 4 : at] + msgspec.msgpack.encode(array) + data[at + len(said) : -RUNS.nbytes]
    changed = HEAD.pack(MARK, VERSION, 1, len(body)) + data[HEAD.size : HEAD.size + 4] + body + RUNS.tobytes()
    assert refused(torch_messages.ToWorker, changed) == "type"


@rows("name", [*CHANNELS])
def test_messages_arrive_as_they_were(name):
    for message in SEEDS[name]:
        (there,) = Frames(CHANNELS[name]).feed(encode(message))
        assert type(there) is type(message)
        assert encode(there) == encode(message)


def test_arrays_travel_beside_the_body():
    data = encode(COPY)
    assert data.endswith(RUNS.tobytes())
    ((there,),) = [[*Frames(torch_messages.ToWorker).feed(data)]]
    assert (there.command.runs == RUNS).all()
    assert there.command.runs.flags.writeable


@rows(
    "error",
    [
        SwitchError(Reason.BUSY, "wait"),
        RequestError("too long"),
        EngineLostError("gone"),
        RuntimeFault("odd"),
    ],
)
def test_an_error_arrives_as_it_was(error):
    there = wire.Trouble.of(error).error
    assert (type(there), str(there)) == (type(error), str(error))


def test_a_bug_arrives_as_a_fault_that_names_it():
    assert str(wire.Trouble.of(KeyError("x")).error) == "KeyError: 'x'"


@rows("trouble", [("NoSuchError", None), ("SwitchError", None), ("RequestError", "busy")])
def test_errors_are_a_closed_set(trouble):
    code, reason = trouble
    body = {"type": "Reply", "call_id": 1, "value": None}
    body["trouble"] = {"type": "Trouble", "code": code, "detail": "", "reason": reason}
    assert refused(torch_messages.FromDriver, frame(msgspec.msgpack.encode(body))) == "type"


async def test_who_heard_what_is_no_message_can_say_so_before_it_closes():
    ours, theirs = socket.socketpair()
    told = asyncio.get_running_loop().create_future()

    def closed(why: str) -> None:
        channel.send(wire.Fatal(Reason.ENGINE_LOST, why))
        told.set_result(why)

    channel = AsyncChannel(ours, lambda _: None, closed, torch_messages.ToDriver)
    theirs.sendall(frame(b"\xc1"))
    why = await asyncio.wait_for(told, 20)
    (said,) = Frames(torch_messages.FromDriver).feed(theirs.recv(1 << 12))
    assert said == wire.Fatal(Reason.ENGINE_LOST, why)
    assert theirs.recv(1) == b""
    theirs.close()


async def test_an_end_that_says_what_is_no_message_is_closed_and_why_is_told():
    ours, theirs = socket.socketpair()
    heard, told = list[Any](), asyncio.get_running_loop().create_future()
    AsyncChannel(ours, heard.append, told.set_result, torch_messages.FromWorker)
    theirs.sendall(encode(torch_messages.Loaded(1)) + frame(b"\xc1"))
    assert "a frame was refused (body)" in await asyncio.wait_for(told, 20)
    assert heard == [torch_messages.Loaded(1)]
    assert theirs.recv(1) == b""
    theirs.close()


def structs(kind: type[msgspec.Struct] = msgspec.Struct) -> Iterator[type[msgspec.Struct]]:
    """All that a process of ours has defined."""
    for each in kind.__subclasses__():
        yield from structs(each)
        if each.__module__.startswith("runtime."):
            yield each


def test_no_message_and_no_part_of_one_ignores_what_it_does_not_know():
    for room in ("torch_engine.driver.station", "kv.carrier.transfer_side"):  # those that no channel above has
        import_module(f"runtime.{room}")
    kinds = {*structs()}
    assert {wire.Fatal, torch_messages.TorchDriverConfig, torch_messages.Sliced, KvLayout} <= kinds
    assert [kind.__name__ for kind in kinds if not kind.__struct_config__.forbid_unknown_fields] == []
    for name, messages in SEEDS.items():
        for message in messages:
            body = msgspec.msgpack.decode(msgspec.msgpack.encode(message, enc_hook=str))
            assert refused(CHANNELS[name], frame(msgspec.msgpack.encode({**body, "no_such_field": 1}))) == "type"


async def test_an_answer_of_another_type_than_its_command_has_is_refused():
    calls = wire.Calls()
    call, done = calls.begin(torch_messages.WarmUp(1))
    with pytest.raises(FrameError, match="type"):
        calls.settle(wire.reply(call.call_id, "yes"))
    with pytest.raises(FrameError, match="nobody made"):
        calls.settle(wire.reply(call.call_id + 1, True))
    calls.fail(EngineLostError("it said what is no answer"))
    with pytest.raises(EngineLostError):
        await done


def test_a_worker_reads_no_further_than_the_first_bad_frame():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.sendall(encode(torch_messages.Run(1, 2, [], (), [], [])) + b"junk and more junk")
        messages = BlockingChannel(theirs, torch_messages.ToWorker).messages()
        assert next(messages).batch_id == 2
        with pytest.raises(FrameError, match="mark"):
            next(messages)


@cache
def imports(file: Path) -> frozenset[str]:
    nodes = [*ast.walk(ast.parse(file.read_text(encoding="utf-8")))]
    named = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    return frozenset(named | {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)})


def files() -> Iterator[Path]:
    yield from (ROOT / "runtime").rglob("*.py")


def test_nothing_of_the_runtime_pickles():
    runs_what_it_reads = {"pickle", "cPickle", "dill", "cloudpickle", "marshal", "shelve"}
    assert [str(file) for file in files() if not runs_what_it_reads.isdisjoint(imports(file))] == []
