"""The service's side of a switch between hosts, with drivers that say what a test wants: nothing moves unless all is right."""

import asyncio
import re
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from runtime.capabilities import Batching
from runtime.engine import Lag, Moved
from runtime.errors import EngineLostError, Reason, SwitchError
from runtime.kv.carrier.messages import Fetched, PeerReached
from runtime.notation import parse_topology
from runtime.process.driver import DriverProcess
from runtime.process.messages import Command, Fatal, Prepared
from runtime.torch_engine import messages
from runtime.torch_engine.crossing import CrossingShadow, standing_in
from runtime.torch_engine.engine import TorchEngine
from runtime.torch_engine.models import EngineSettings
from tests.runtime.scripted import cluster_of
from tests.runtime.scripted_drivers import CHECKPOINT, World
from tests.runtime.test_submitted_once import done, quiet

CLUSTER = cluster_of("CPU", 1 << 30, 4)
HERE, THERE = (parse_topology(text, CLUSTER, 4, "fp32") for text in ("CPU[0]:0-4", "CPU[2]:0-4"))
COPIED = Fetched(0, 0.0, 0.0)


class Driver:
    """Answers orders as it was told to."""

    def __init__(self, name: str, heard: list[str], num_blocks: int = 16) -> None:
        self.name, self.heard, self.gone = name, heard, None
        self.ready = asyncio.get_running_loop().create_future()
        self.ready.set_result(SimpleNamespace(reserved_blocks=num_blocks))
        self.on_end: Callable[[Fatal], None] = lambda _: None
        self.on_stood_in: Callable[[Any], None] = lambda _: None
        self.answers: dict[type[Command], Any] = {
            messages.OpenDeparture: b"address",
            messages.BeginArrival: PeerReached(1.0, 1.0, "tcp"),
            messages.NextSlice: messages.Sliced(b"", [], Lag(0, 0)),
            messages.TakeSample: messages.Sample(b"", 1, b"same"),
            messages.CompareSample: True,
            messages.Leave: messages.Departed(b"", [], msgspec.Raw(b"\xc0"), 0.0, 0.0),
            messages.DigestPatch: b"same",
            messages.Arrive: messages.Arrived(("r",), b"same", COPIED),
        }
        self.hangs_at: type[Command] | None = None

    async def call(self, command: Command) -> Any:
        if self.gone:
            raise self.gone
        self.heard.append(f"{self.name}: {type(command).__name__}")
        if type(command) is self.hangs_at:
            await asyncio.Event().wait()
        answer = self.answers.get(type(command))
        if isinstance(answer, Exception):
            raise answer
        return answer

    in_a_switch = DriverProcess.in_a_switch

    def end(self, why: EngineLostError) -> None:
        self.gone = self.gone or why

    async def close(self, why: str = "closed") -> None:
        self.heard.append(f"{self.name}: closed")
        self.end(EngineLostError(why))


class Engine:
    """What a switch between hosts needs of one."""

    def __init__(self) -> None:
        self.heard: list[str] = []
        self.driver, self.target = Driver("source", self.heard), Driver("target", self.heard)
        self.settings, self.topology = EngineSettings(stop_timeout_s=0.05), HERE
        self.coming: Any = None
        self.gate: asyncio.Event | None = None
        self.standing: dict[Any, Any] = {}
        self.shadow: CrossingShadow

    async def up(self) -> None:
        pass

    async def clear(self, host: str) -> None:
        self.heard.append(f"clear {host}")

    def begin_driver(self, topology: Any) -> Driver:
        return self.target

    def commit(self, driver: Driver, epoch: int, request_ids: tuple[str, ...]) -> None:
        self.heard.append(f"commit to {driver.name} while the gate is {'closed' if self.gate else 'open'}")
        self.driver, self.shadow.moved = driver, Moved(epoch, request_ids)

    def stand_by(self, driver: Driver, topology: Any) -> None:
        self.standing[topology] = driver

    def address(self, host: str, seen_by: str) -> str:
        return "127.0.0.1"

    def renew_spare(self) -> None:
        pass


async def ready(engine: Engine) -> CrossingShadow:
    filled = Batching(8, 256)
    engine.shadow = await CrossingShadow.prepare(engine, THERE, ("a", "b"), filled)  # type: ignore[arg-type] - as much of one
    await engine.shadow.ready()
    return engine.shadow


async def refused(work: Awaitable[Any]) -> SwitchError:
    with pytest.raises(SwitchError) as error:
        await work
    return error.value


async def test_there_are_four_orders_from_the_fence_to_the_first_step_and_the_source_stands_by() -> None:
    engine = Engine()
    shadow = await ready(engine)
    cut = await shadow.cut(2, 1.0)
    assert (cut.epoch, cut.moved, engine.gate, engine.coming) == (2, ("r",), None, None)
    assert engine.heard[engine.heard.index("source: Leave") :] == [
        "source: Leave", "target: Arrive", "source: DigestPatch", "commit to target while the gate is closed", "target: Begin",
    ]  # fmt: skip
    await shadow.release()
    await shadow.release()
    await shadow.abort(Reason.CANCELLED)
    assert engine.heard[-2:] == ["target: EndSwitch", "source: EndSwitch"]
    assert [*engine.standing] == [HERE]


@pytest.mark.parametrize(
    ("side", "command", "answer", "reason", "words"),
    [
        ("target", messages.CompareSample, False, Reason.LOAD_FAILED, "a sample of the KV .* on host b than on host a"),
        ("source", messages.DigestPatch, b"other", Reason.LOAD_FAILED, "the last patch has other bytes on host b"),
        ("target", messages.Arrive, EngineLostError("killed"), Reason.RANK_LOST, "killed"),
        ("source", messages.Leave, SwitchError(Reason.DEADLINE, "a long step"), Reason.DEADLINE, "a long step"),
    ],
)
async def test_whatever_is_wrong_before_the_commit_requests_go_on_at_the_source(
    side, command, answer, reason, words
) -> None:
    engine = Engine()
    shadow = await ready(engine)
    (engine.target if side == "target" else engine.driver).answers[command] = answer
    error = await refused(shadow.cut(2, 1.0))
    assert error.reason is reason
    assert re.search(words, error.detail)
    assert engine.heard[-1] == "source: StayHere"
    assert (shadow.moved, engine.gate) == (None, None)
    await shadow.abort(reason)
    assert {"source: AbortSwitch", "target: closed"} <= {*engine.heard}


@pytest.mark.parametrize(("side", "command"), [("target", messages.Arrive), ("source", messages.DigestPatch)])
async def test_requests_stand_still_no_longer_than_a_stop_may_take(side, command) -> None:
    engine = Engine()
    shadow = await ready(engine)
    (engine.target if side == "target" else engine.driver).hangs_at = command
    error = await refused(shadow.cut(2, 60.0))
    assert (error.reason, engine.heard[-1]) == (Reason.DEADLINE, "source: StayHere")
    assert "the last patch took more than 0.05 s" in error.detail


async def test_a_source_that_is_lost_inside_the_cut_moves_nothing() -> None:
    engine = Engine()
    shadow = await ready(engine)

    async def arrive(command: Command) -> Any:
        engine.driver.end(EngineLostError("killed"))
        return engine.target.answers[type(command)]

    engine.target.call, answer = arrive, engine.target.call  # type: ignore[method-assign]
    error = await refused(shadow.cut(2, 1.0))
    assert (error.reason, shadow.moved) == (Reason.ENGINE_LOST, None)
    engine.target.call = answer  # type: ignore[method-assign]
    await shadow.abort(Reason.ENGINE_LOST)
    assert "target: closed" in engine.heard


async def test_a_target_that_is_lost_after_the_commit_has_the_requests_all_the_same() -> None:
    engine = Engine()
    shadow = await ready(engine)
    engine.target.answers[messages.Begin] = EngineLostError("killed")
    assert (await shadow.cut(2, 1.0)).moved == ("r",)


@pytest.mark.parametrize(("num_blocks", "is_taken"), [(16, True), (17, False)])
async def test_who_stands_by_is_taken_if_its_block_ids_mean_the_same(num_blocks, is_taken) -> None:
    engine = Engine()
    standing = Driver("standing", engine.heard, num_blocks)
    engine.standing[THERE] = standing
    shadow = await ready(engine)
    assert ("standing: BeginArrival" in engine.heard, "clear b" in engine.heard) == (is_taken, not is_taken)
    await shadow.abort(Reason.CANCELLED)
    assert engine.standing.get(THERE) is standing
    assert ("target: closed" in engine.heard) is not is_taken


async def test_the_newest_that_stands_by_and_can_serve_does() -> None:
    heard: list[str] = []
    old, new, small = Driver("old", heard), Driver("new", heard), Driver("small", heard)
    small.answers[messages.Serve] = SwitchError(Reason.NO_MEMORY, "too few blocks")
    assert await standing_in({HERE: old, THERE: new, 3: small}, 100) is THERE  # type: ignore[dict-item,arg-type]
    assert heard == ["small: Serve", "new: Serve"]
    old.end(EngineLostError("gone"))
    assert await standing_in({HERE: old}, 100) is None  # type: ignore[dict-item]


async def test_a_spare_that_was_ended_becomes_no_driver_and_who_waits_for_one_that_ends_hears_of_it() -> None:
    world = World()
    settings = EngineSettings(num_blocks=16, spare=True, stall_after_s=1800.0, lost_after_s=3600.0)
    engine = await done(world, TorchEngine.start(CHECKPOINT, HERE, CLUSTER, settings, world))
    world.drivers[-1].outbox.append(Prepared())
    await quiet(world)

    def away(*_: Any) -> Any:
        raise OSError("host b is lost")

    world.hosts["b"].start = away  # type: ignore[method-assign]
    engine._config = msgspec.structs.replace(engine._config, topology=THERE)
    engine.renew_spare()
    assert engine._take_spare("a") is None
    engine._config = msgspec.structs.replace(engine._config, topology=HERE)
    coming = engine.begin_driver(HERE)
    waiting = asyncio.ensure_future(coming.ready)
    coming.end(EngineLostError("its host is lost"))
    with pytest.raises(EngineLostError, match="its host is lost"):
        await waiting
    await engine.close()
