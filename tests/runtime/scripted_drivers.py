"""Driver processes of both engines in one process: what they hear, say and end of comes when a test wants it.

They have the drivers' books and no model: a sequence's next token follows from its prompt and its length. An id that
they have they take a second time, so that a test sees what an engine asks of them.
"""

from collections import deque
from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from runtime.capabilities import Batching
from runtime.engine import Cut, EngineStats, Finish, GenerationRequest, Lag, Moved, Token
from runtime.errors import Reason, RuntimeFault, SwitchError
from runtime.kv.carrier.messages import Fetched, PeerReached
from runtime.models import CutTimings
from runtime.process import messages as wire
from runtime.process.channel import Ends, Hears, packed
from runtime.process.launcher import Incarnation, Program
from runtime.torch_engine import messages as torch_wire
from runtime.torch_engine.engine import DRIVER_MODULE, SPARE_MODULE
from runtime.vllm_engine import messages as vllm_wire
from tests.runtime.torch_engine.ears import MODEL


def right(request: GenerationRequest, count: int) -> list[int]:
    """Its first tokens, whoever says them."""
    return [(7 * request.prompt[0] + 3 * index) % 90 + 5 for index in range(count)]


@dataclass(slots=True)
class Sequence:
    """A request that a driver computes."""

    request: GenerationRequest
    epoch: int
    said: int

    def step(self) -> Token:
        (*_, token_id) = right(self.request, self.said + 1)
        self.said += 1
        is_last = self.said == self.request.sampling.max_tokens
        finish = Finish.LENGTH if is_last else None
        return Token(self.request.request_id, self.epoch, self.said - 1, token_id, finish=finish)


class Driver:
    """A process as its parent has it, and the driver in it."""

    folder = None

    def __init__(self, world: "World", host: str, hear: Hears, ended: Ends) -> None:
        self.world, self.hear, self.ended = world, hear, ended
        self.pid = len(world.drivers)
        self.incarnation = Incarnation(host, None, self.pid)
        self.litter = set[str]()
        self.inbox, self.outbox = deque[Any](), deque[Any]()
        self.sequences: list[Sequence] = []
        self.held: list[wire.Call[Any]] = []
        """Submitted inside a cut to another host."""
        self.followed: dict[str, tuple[GenerationRequest, list[int]]] = {}
        self.epoch = 0
        self.is_alive = self.is_heard = True
        self.is_fenced = self.is_leaving = self.has_left = False

    # --- as a process ---

    def send(self, message: Any) -> None:
        if self.is_alive:
            self.inbox.append(message)

    def kill(self) -> None:
        """What it has said is heard before its end is."""
        if self.is_alive:
            self.is_alive = False
            self.inbox.clear()
            self.outbox.append(None)

    def end(self) -> None:
        self.is_heard = False
        self.outbox.clear()
        self.kill()

    async def close(self) -> None:
        pass

    def log(self) -> list[str]:
        return []

    # --- in the world's hands ---

    def deliver(self) -> None:
        """Let its parent hear the next thing that it said, or its end."""
        said = self.outbox.popleft()
        if not self.is_heard:
            return
        if said is None:
            self.ended("killed")
        else:
            self.hear(said)

    def turn(self) -> None:
        """Do the next thing that it was told."""
        match self.inbox.popleft():
            case wire.Call() as call:
                self.answer(call)
            case torch_wire.TorchDriverConfig(topology=topology):
                self.topology = topology
                self.outbox.append(torch_wire.TorchStarted(MODEL, 16, 16))
            case vllm_wire.Preparation():
                self.outbox.append(wire.Prepared())
            case vllm_wire.VllmDriverConfig():
                started = vllm_wire.VllmStarted("not told", 8, 32, 256, (self.pid,), (), 1e3, "scripted", Batching())
                self.outbox.append(started)

    def step(self) -> None:
        """One token of each sequence."""
        if self.sequences and not self.is_fenced:
            self.outbox.append(wire.Tokens([sequence.step() for sequence in self.sequences]))
            self.sequences = [each for each in self.sequences if each.said < each.request.sampling.max_tokens]

    # --- as a driver ---

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(each.request.request_id for each in self.sequences)

    def answer(self, call: wire.Call[Any]) -> None:
        if self.is_leaving and isinstance(call.command, wire.Submit):
            self.held.append(call)
            return
        try:
            reply = wire.reply(call.call_id, self.obey(call.command))
        except RuntimeFault as error:
            reply = wire.Reply(call.call_id, trouble=wire.Trouble.of(error))
        self.outbox.append(reply)

    def obey(self, command: Any) -> Any:
        match command:
            case wire.Submit(request):
                return self.submit(request)
            case wire.CancelStream(name):
                return self.cancel(name)
            case wire.Stats():
                return EngineStats(len(self.sequences), 0, 8, 16)
            case torch_wire.Crossing():
                return self.cross(command)
            case _ if type(command).__module__ == vllm_wire.__name__:
                return self.follow(command)
        return self.switch(command)

    def submit(self, request: GenerationRequest) -> None:
        if self.has_left:
            raise SwitchError(Reason.BUSY, "requests have moved to another host")
        self.sequences.append(Sequence(request, max(request.epoch, self.epoch), len(request.past)))
        if request.epoch < self.epoch:
            self.outbox.append(wire.Fenced(Moved(self.epoch, (request.request_id,))))

    def cancel(self, name: str) -> None:
        """The first of this name, as the drivers do."""
        for each in self.sequences:
            if each.request.request_id == name:
                self.outbox.append(wire.Tokens([Token(name, each.epoch, each.said, None, finish=Finish.CANCELLED)]))
                self.sequences.remove(each)
                return

    def stay(self) -> None:
        held = self.held
        self.held = []
        self.is_leaving = self.is_fenced = False
        for call in held:
            self.answer(call)

    def take(self, sequences: list[Sequence], epoch: int) -> None:
        self.epoch = epoch
        self.sequences = [replace(each, epoch=epoch) for each in sequences]

    def switch(self, command: Any) -> Any:
        """Within the host."""
        match command:
            case torch_wire.CopyAhead():
                return Lag(0, 0)
            case torch_wire.CutOver(epoch):
                self.take(self.sequences, epoch)
                self.outbox.append(wire.Fenced(Moved(epoch, self.names)))
                return Cut(epoch, self.names, (), 0, CutTimings(0.0, 0.0, 0.0, 0.0), paths={})
            case torch_wire.EndSwitch() if self.is_leaving:
                self.has_left = True
                self.sequences = []
                self.stay()
            case torch_wire.AbortSwitch():
                self.stay()
        return None

    def cross(self, command: Any) -> Any:  # noqa: PLR0911 - one list of all that is asked
        """To another host."""
        match command:
            case torch_wire.OpenDeparture():
                return b"address"
            case torch_wire.BeginArrival():
                return PeerReached(1.0, 1.0, "tcp")
            case torch_wire.NextSlice():
                return torch_wire.Sliced(b"", [], Lag(0, 0))
            case torch_wire.TakeSample():
                return torch_wire.Sample(b"", 1, b"same")
            case torch_wire.CompareSample():
                return True
            case torch_wire.Leave():
                self.is_leaving = self.is_fenced = True
                self.world.travelling = [*self.sequences]
                return torch_wire.Departed(b"", [], packed(None), 0.0, 0.0)
            case torch_wire.DigestPatch():
                return b"same"
            case torch_wire.Arrive(_, epoch):
                self.is_fenced = True
                self.take(self.world.travelling, epoch)
                return torch_wire.Arrived(self.names, b"same", Fetched(0, 0.0, 0.0))
            case torch_wire.StayHere():
                self.stay()
            case torch_wire.Begin() | torch_wire.Serve():
                self.has_left = False
                self.stay()
        return None

    def follow(self, command: Any) -> Any:
        """To another engine of vLLM, which computes KV from the tokens."""
        match command:
            case vllm_wire.Suspend() | vllm_wire.Sync():
                self.is_fenced = isinstance(command, vllm_wire.Suspend)
                extents = {each.request.request_id: vllm_wire.Extent(9, 8, 0, ()) for each in self.sequences}
                return vllm_wire.SourceState(extents, 0, 0)
            case vllm_wire.Resume(moved):
                self.is_fenced = False
                self.sequences = [each for each in self.sequences if each.request.request_id not in moved]
            case vllm_wire.Park(parkings):
                self.followed |= {each.request.request_id: (each.request, [*each.emitted]) for each in parkings}
            case vllm_wire.Advance(_, news):
                self.learn(news)
                return vllm_wire.TargetState({}, 0)
            case vllm_wire.Takeover(releases, news):
                self.learn(news)
                for release in releases:
                    request, said = self.followed.pop(release.request_id)
                    assert release.index == len(said)
                    self.sequences.append(Sequence(request, release.epoch, len(said)))
                return vllm_wire.TargetReleased(0.0, 0.0, 0)
            case vllm_wire.Abandon(names):
                self.followed = {name: each for name, each in self.followed.items() if name not in names}
                self.sequences = [each for each in self.sequences if each.request.request_id not in names]
        return None

    def learn(self, news: vllm_wire.News) -> None:
        for name, tokens in news.items():
            if name in self.followed:
                self.followed[name][1].extend(tokens)


class World:
    """Two hosts, the first with devices 0 and 1, and all the drivers that were started there."""

    first_device = 0
    visible = ""

    def __init__(self) -> None:
        self.drivers: list[Driver] = []
        self.travelling: list[Sequence] = []
        self.hosts = {name: Launcher(self, name) for name in "ab"}

    def host_of(self, devices: Collection[int]) -> str:
        return "a" if max(devices) < 2 else "b"

    def on(self, host: str) -> "Launcher":
        return self.hosts[host or "a"]

    def address(self, host: str, seen_by: str) -> str:
        return "127.0.0.1"

    @property
    def alive(self) -> list[Driver]:
        return [driver for driver in self.drivers if driver.is_alive]


class Launcher:
    """Of one host."""

    first_device = 0
    visible = ""

    def __init__(self, world: World, host: str) -> None:
        self._world, self.host = world, host

    def start(self, program: Program, on_message: Hears, on_end: Ends) -> Driver:
        assert program.module in {DRIVER_MODULE, SPARE_MODULE, "runtime.vllm_engine.driver.boot"}
        driver = Driver(self._world, self.host, on_message, on_end)
        self._world.drivers.append(driver)
        return driver


CHECKPOINT = Path("/models/m")
