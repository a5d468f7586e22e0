"""A scripted engine: the protocol in one process, deterministic, with everything that can go wrong on demand.

For tests of what stands on an engine (router, coordinator, service). It computes nothing: its tokens repeat
the prompt. It passes the same conformance suite as real engines.
"""

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from runtime.capabilities import Batching, Capabilities
from runtime.engine import (
    Comeback,
    Cut,
    Engine,
    EngineState,
    EngineStats,
    Finish,
    GenerationRequest,
    Lag,
    Moved,
    Output,
    Token,
)
from runtime.errors import EngineLostError, Reason, RequestError, SwitchError
from runtime.models import (
    Cluster,
    CutTimings,
    Gpu,
    LayerRange,
    Link,
    Node,
    Phase,
    Precision,
    Stage,
    Topology,
)
from runtime.process.driver import SamePlace


def topology(*degrees: int, num_layers: int = 8) -> Topology:
    """A topology on CPU slots: one stage per TP degree, layers split evenly, devices in order."""
    ends = [num_layers * (number + 1) // len(degrees) for number in range(len(degrees))]
    devices = itertools.count()
    precision = Precision("fp32", "fp32", "fp32")
    stages = [
        Stage("cpu", tuple(itertools.islice(devices, tp)), LayerRange(start, end), precision)
        for tp, start, end in zip(degrees, [0, *ends[:-1]], ends, strict=True)
    ]
    return Topology(tuple(stages))


def cluster_of(kind: str = "CPU", memory_bytes: int = 1 << 30, count: int = 4) -> Cluster:
    """One node with so many devices."""
    gpus = tuple(Gpu(index, kind, memory_bytes) for index in range(count))
    return Cluster((Node("local", gpus, Link("shared-memory", 5e9, 1e-5)),))


@dataclass(frozen=True, slots=True)
class Script:
    """What it says, and what goes wrong with switches; the default is an engine that behaves."""

    says: tuple[int, ...] = ()
    """Token ids instead of those of the prompt."""

    lags: tuple[Lag, ...] = (Lag(0, 0),)
    """Answers to ``lag``, in turn; the last one is repeated."""
    lost_while: Phase | None = None
    """The shadow is lost in this phase (warming, syncing or cutting)."""
    silent_while: Phase | None = None
    """The engine does not answer in this phase (planned is ``prepare``) until ``answer`` is called."""
    bytes_between_hosts: int = 0
    """In all, as the cut says."""
    failed_releases: int = 0
    """Releases that fail before one works."""


@dataclass(slots=True)
class _Sequence:
    request: GenerationRequest
    epoch: int
    num_computed: int = 0
    num_outputs: int = 0


def train(weights: Path) -> None:
    """Put other weights of the same shape in the place of a file."""
    from safetensors.torch import load_file, save_file  # most tests do without torch

    new = weights.with_name("new.safetensors")
    save_file({name: -tensor for name, tensor in load_file(weights).items()}, new, {"format": "pt"})
    new.rename(weights)


async def reaches(engine: Engine, state: EngineState) -> None:
    """Wait until it is in this state, which other processes bring about."""
    async with asyncio.timeout(60):
        while engine.state is not state:  # noqa: ASYNC110 - other processes bring it about
            await asyncio.sleep(0.01)


class ScriptedEngine:
    """An engine that repeats the prompt, token by token. Use ``hold`` and ``turn`` to make steps by hand."""

    def __init__(
        self, topology: Topology, script: Script | None = None, *, max_running: int = 4, max_tokens: int = 256
    ) -> None:
        known = Capabilities(
            (1, 2, 4), 4, ("fp32",), tp_per_stage=True, replicated_kv_heads=False, logprobs_ignore_grammar=True
        )
        self.capabilities = replace(known, running=known.batching)
        self.topology = topology
        self.comeback: Comeback = SamePlace()
        self.state = EngineState.SERVING
        self.script = script or Script()
        self.calls: list[str] = []
        """What the coordinator asked for, in order; repeated ``lag`` once."""
        self._max_running, self._max_tokens, self._prefill_tokens = max_running, max_tokens, 4
        self.is_away = False
        """It was lost, and is being started anew."""
        self.heard: list[GenerationRequest] = []
        """Every request, ended ones too."""
        self._sequences: dict[str, _Sequence] = {}
        """In order of arrival: the first ``max_running`` run, the others wait."""
        self._outputs: asyncio.Queue[list[Output] | EngineLostError | None] = asyncio.Queue()
        self._shadow: _ScriptedShadow | None = None
        self._work, self._go, self._answer, self._asked = (asyncio.Event() for _ in range(4))
        self._go.set()
        self._is_closed = False
        self._runner = asyncio.create_task(self._run())

    @property
    def requests(self) -> tuple[GenerationRequest, ...]:
        """Requests that have not ended, oldest first."""
        return tuple(sequence.request for sequence in [*self._sequences.values()])

    # --- the protocol ---

    async def submit(self, request: GenerationRequest) -> None:
        """Queue a request; too long means over ``max_tokens`` in all."""
        self._check_open()
        if self.is_away:
            raise EngineLostError("it is being started anew")
        total = len(request.prompt) + request.sampling.max_tokens
        if not request.prompt or total > self._max_tokens:
            raise RequestError(f"{total} tokens in all, from 2 to {self._max_tokens} can be served; ask for fewer")
        self._sequences[request.request_id] = _Sequence(request, request.epoch, num_outputs=len(request.past))
        self.heard.append(request)
        self._work.set()
        self._asked.set()

    async def cancel(self, request_id: str) -> None:
        """End a request early."""
        if sequence := self._sequences.pop(request_id, None):
            self.emit([self._end(sequence, Finish.CANCELLED, "")])

    async def outputs(self) -> AsyncIterator[list[Output]]:
        """Batches in order."""
        while (batch := await self._outputs.get()) is not None:
            if isinstance(batch, EngineLostError):
                raise batch
            yield batch

    async def prepare(self, target: Topology, batching: Batching | None = None) -> "_ScriptedShadow":
        """Begin a switch, unless there is one."""
        self._check_open()
        batching = self.capabilities.accept(batching)
        if self._shadow is not None:
            raise SwitchError(Reason.BUSY, "a switch is already under way; wait for its end")
        await self.play("prepare", Phase.PLANNED)
        self._shadow = _ScriptedShadow(self, target, batching)
        return self._shadow

    async def succeed_by(self, target: Topology, batching: Batching | None = None) -> "_ScriptedShadow":
        """The same, for a target that starts when this has ended."""
        await self.play("succeed_by", Phase.PLANNED)
        return await self.prepare(target, batching)

    async def stats(self) -> EngineStats:
        """Every running request holds one of ``max_running`` blocks."""
        self._check_open()
        running = min(len(self._sequences), self._max_running)
        waiting = len(self._sequences) - running
        return EngineStats(running, waiting, self._max_running - running, self._max_running)

    async def exposition(self) -> str:
        """It counts nothing."""
        return ""

    async def close(self) -> None:
        """End every request."""
        if self._is_closed:
            return
        self.fail("the engine was closed")
        self._end_all(None)

    # --- the script ---

    async def until(self, is_so: Callable[[], bool]) -> None:
        """Wait for something that follows from what the engine is asked."""
        while not is_so():
            self._asked.clear()
            await self._asked.wait()

    def hold(self) -> None:
        """Make no steps until ``resume``."""
        self._go.clear()

    def resume(self) -> None:
        """Make steps again."""
        self._go.set()

    def answer(self) -> None:
        """Break the silence of ``Script.silent_while``."""
        self._answer.set()

    def emit(self, batch: Sequence[Output]) -> None:
        """Say this, right or wrong."""
        self._outputs.put_nowait(list(batch))

    def fail(self, detail: str, *, is_lost: bool = False) -> None:
        """Lose a rank that every request needs: they end with an error, or are to be submitted again."""
        ended = [
            replace(self._end(sequence, Finish.ERROR, detail), is_lost=is_lost) for sequence in self._sequences.values()
        ]
        self._sequences.clear()
        if ended:
            self.emit(ended)

    def lose(self, detail: str) -> None:
        """Lose the engine as a whole."""
        self._end_all(EngineLostError(detail))

    def turn(self) -> None:
        """One step of every running request: a chunk of prefill, or a token."""
        tokens = [
            token for sequence in list(self._sequences.values())[: self._max_running] if (token := self._step(sequence))
        ]
        if tokens:
            self.emit(tokens)

    async def play(self, call: str, phase: Phase) -> None:
        """Act out what the script has for a call."""
        self._check_open()
        if self.calls[-1:] != [call]:
            self.calls.append(call)
            self._asked.set()
        if self.script.silent_while is phase:
            await self._answer.wait()
            self._check_open()
        if self.script.lost_while is phase:
            raise SwitchError(Reason.RANK_LOST, f"a rank of the target was lost while {phase.value}")

    def move(self, epoch: int, target: Topology, batching: Batching | None = None) -> tuple[str, ...]:
        """Commit a cut: every request speaks under ``epoch`` from now on."""
        for sequence in self._sequences.values():
            sequence.epoch = epoch
        self.topology = target
        self.capabilities = replace(self.capabilities, running=batching)
        self.emit([Moved(epoch, tuple(self._sequences))])
        return tuple(self._sequences)

    def end_switch(self) -> None:
        """Another switch may begin."""
        self._shadow = None

    # --- inside ---

    async def _run(self) -> None:
        while True:
            await self._work.wait()
            await self._go.wait()
            self.turn()
            if not self._sequences:
                self._work.clear()
            await asyncio.sleep(0)

    def _step(self, sequence: _Sequence) -> Token | None:
        prompt, sampling = sequence.request.prompt, sequence.request.sampling
        if sequence.num_computed < len(prompt):
            sequence.num_computed += self._prefill_tokens
            return None
        index = sequence.num_outputs
        spoken = self.script.says or prompt
        token_id, finish = spoken[index % len(spoken)], None
        sequence.num_outputs += 1
        if token_id in sampling.stop_token_ids:
            finish = Finish.STOP
        elif sequence.num_outputs == sampling.max_tokens:
            finish = Finish.LENGTH
        if finish is not None:
            del self._sequences[sequence.request.request_id]
        alternatives = ((token_id, 0.0),) if sampling.num_logprobs else ()
        return Token(sequence.request.request_id, sequence.epoch, index, token_id, 0.0, alternatives, finish)

    def _end(self, sequence: _Sequence, finish: Finish, detail: str) -> Token:
        request_id, index = sequence.request.request_id, sequence.num_outputs
        return Token(request_id, sequence.epoch, index, None, finish=finish, detail=detail)

    def _end_all(self, last: EngineLostError | None) -> None:
        self._is_closed, self.state = True, EngineState.FAILED
        self._runner.cancel()
        self._outputs.put_nowait(last)
        self._answer.set()

    def _check_open(self) -> None:
        if self._is_closed:
            raise EngineLostError("the engine is closed; start it again")


class _ScriptedShadow:
    """The target side of a scripted switch."""

    def __init__(self, engine: ScriptedEngine, target: Topology, batching: Batching | None) -> None:
        self._engine, self._target, self._batching = engine, target, batching
        self._lags = iter(engine.script.lags)
        self._lag = engine.script.lags[-1]
        self._failures_left = engine.script.failed_releases

    async def ready(self) -> None:
        await self._engine.play("ready", Phase.WARMING)

    async def lag(self) -> Lag:
        await self._engine.play("lag", Phase.SYNCING)
        return next(self._lags, self._lag)

    async def cut(self, epoch: int, deadline_s: float) -> Cut:
        await self._engine.play("cut", Phase.CUTTING)
        moved = self._engine.move(epoch, self._target, self._batching)
        paths, size = {"patch": len(moved)}, self._engine.script.bytes_between_hosts
        return Cut(epoch, moved, (), 0, CutTimings(0.0, 0.0, 0.0, 0.0), paths=paths, bytes_between_hosts=size)

    async def drain(self) -> None:
        raise AssertionError("every request moves here")

    async def release(self) -> None:
        await self._engine.play("release", Phase.CLEANING)
        if self._failures_left:
            self._failures_left -= 1
            raise SwitchError(Reason.RANK_LOST, "the old topology does not let go")
        self._engine.end_switch()

    async def abort(self, reason: Reason) -> None:
        await self._engine.play(f"abort {reason.value}", Phase.ABORTED)
        self._engine.end_switch()
