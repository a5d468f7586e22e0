"""The shifting load on the built-in engine: two CPU slots of unequal memory, so that compute and KV ask for different splits."""

import asyncio
import sys
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.counting import counting_text
from benchmarks.engines import Subject
from benchmarks.load import Recording, listen
from benchmarks.own_switch import OwnSwitch
from benchmarks.parameters import UsageError
from benchmarks.patterns import (
    DECODE,
    PREFILL,
    Answered,
    Document,
    Outcome,
    Pattern,
    alternating,
    compared,
    middle,
    outcome,
    pattern_of,
)
from benchmarks.strategy import running
from runtime.engine import Engine
from runtime.errors import Reason, StreamError, SwitchError
from runtime.footprint import blocks, blocks_beside
from runtime.models import Cluster, Gpu, Link, ModelSpec, Node, Topology
from runtime.notation import parse_topology
from runtime.router import Router
from runtime.tokenizer import Tokenizer
from runtime.torch_engine.engine import TorchEngine
from runtime.torch_engine.models import EngineSettings

RETRY_S = 0.05
"""How often a switch that finds no room is asked for again."""
SCRATCH = 1
"""Blocks that are the engine's own."""
BLOCK_SIZE = EngineSettings().block_size


@dataclass(frozen=True, slots=True)
class Live:
    """What is run."""

    memory_mb: tuple[float, float]
    """Of the two CPU slots."""
    clients: int
    """Each asks for its next request when its last has ended."""
    phases: int
    num_requests: int
    """In each phase."""
    scale: float
    """Of the lengths of the patterns."""
    rounds: int
    """Every choice serves the load so often, by turns."""
    seed: int
    """Where the prompts begin to count."""

    def lengths(self, pattern: Pattern) -> tuple[int, int]:
        """Prompt and output tokens of a pattern's requests: two outputs at least, for a TPOT."""
        scaled = round(pattern.input_tokens * self.scale), round(pattern.output_tokens * self.scale)
        return max(1, scaled[0]), max(2, scaled[1])


@dataclass(frozen=True, slots=True)
class Splits:
    """The choices: how many of the layers the first slot holds."""

    even: Topology
    """Compute in balance: for prompts."""
    roomy: Topology
    """The one with the most KV blocks: for answers."""
    between: Topology
    cluster: Cluster
    model: ModelSpec

    def held(self, topology: Topology) -> int:
        """KV blocks with a topology alone."""
        return blocks(topology, self.model, self.cluster, BLOCK_SIZE)

    @property
    def beside(self) -> int:
        """KV blocks while one of the two comes up beside the other."""
        return blocks_beside(self.even, self.roomy, self.model, self.cluster, BLOCK_SIZE)

    def of(self, pattern: Pattern) -> Topology:
        """What switching runs in a pattern."""
        return self.roomy if pattern is DECODE else self.even


def splits(live: Live, model: ModelSpec) -> Splits:
    """The choices on two slots with so much memory.

    Raises:
        UsageError: a request would not fit one of them, the two not each other, or they are the same.
    """
    gpus = tuple(Gpu(number, "CPU", int(size * 1e6)) for number, size in enumerate(live.memory_mb))
    cluster = Cluster((Node("local", gpus, Link("shared-memory", 5e9, 30e-6)),))
    layers = model.num_layers
    found = [
        parse_topology(f"CPU[0]:0-{first} > CPU[1]:{first}-{layers}", cluster, layers, "fp32")
        for first in range(1, layers)
    ]
    held = [blocks(one, model, cluster, BLOCK_SIZE) for one in found]
    even, roomy = (layers - 1) // 2, held.index(max(held))
    chosen = Splits(found[even], found[roomy], found[(even + roomy) // 2], cluster, model)
    longest = max(sum(live.lengths(pattern)) for pattern in (PREFILL, DECODE))
    needed = -(-longest // BLOCK_SIZE) + SCRATCH
    least = min(chosen.beside, *map(chosen.held, (chosen.even, chosen.roomy, chosen.between)))
    if even == roomy:
        raise UsageError(
            f"--memory-mb: {chosen.even} has the most KV and is even too; give the slots memory less alike"
        )
    if least < needed:
        raise UsageError(
            f"--memory-mb: {least} KV blocks fit, and a request of {longest} tokens needs {needed}; give more"
        )
    return chosen


async def run_live(live: Live, subject: Subject) -> Document:
    """Every static choice and both ways of switching by turns, each time on an engine of its own; the order turns each round.

    Raises:
        UsageError, RuntimeFault: it cannot be run, or broke.
    """
    found = splits(live, subject.spec)
    static = {"prefill-optimal": found.even, "decode-optimal": found.roomy, "balanced": found.between}
    shifting = {"switching, KV resized": True, "switching, KV fixed": False}
    names = [*static, *shifting]
    runs: dict[str, list[Run]] = {name: [] for name in names}
    for number in range(live.rounds):
        turn = number % len(names)
        for name in names[turn:] + names[:turn]:
            run = Run(live, found, name, shifting.get(name))
            print(f"round {number + 1} of {live.rounds}: {name}", file=sys.stderr, flush=True)
            await run.serve(subject.checkpoint, static.get(name, found.roomy))
            runs[name].append(run)
    outcomes = {name: middle([run.outcome for run in done]) for name, done in runs.items()}
    return {
        "kind": "live",
        **asdict(live),
        "lengths": {pattern.name: live.lengths(pattern) for pattern in (PREFILL, DECODE)},
        "choices": {name: str(topology) for name, topology in static.items()},
        "kv_blocks": {name: found.held(topology) for name, topology in static.items()},
        "kv_blocks_beside": found.beside,
        **compared({name: outcomes[name] for name in static}, {name: outcomes[name] for name in shifting}),
        "runs": [run.document() for done in runs.values() for run in done],
    }


class Run:
    """One choice under the load; ``resizes`` says how it switches, None that it does not."""

    def __init__(self, live: Live, choices: Splits, name: str, resizes: bool | None = None) -> None:
        self.live, self.choices, self.name, self.resizes = live, choices, name, resizes
        self.recordings: list[tuple[int, Recording]] = []
        """Phase and request, in the order in which they were asked for."""
        self.switched_s: list[float] = []
        """From asking for each switch to its end."""
        self.refused = 0
        """Times that a switch found no room and was asked for again."""

    async def serve(self, checkpoint: Path, topology: Topology) -> None:
        """Serve the load from first to last, starting at a topology.

        Raises:
            RuntimeFault: the engine, a stream or a switch broke.
        """
        tokenizer = Tokenizer.load(checkpoint)
        settings = EngineSettings(
            num_blocks=self.choices.beside if self.resizes is False else self.choices.held(topology),
            max_running=self.live.clients,
            closing_batch_tokens=max(EngineSettings().closing_batch_tokens, self.live.clients),
        )

        async def start(at: Topology) -> Engine:
            return await TorchEngine.start(checkpoint, at, self.choices.cluster, settings)

        async with AsyncExitStack() as stack:
            engine, router = await stack.enter_async_context(running(start, topology, tokenizer))
            await listen(router, self._recording(tokenizer, 0, PREFILL))  # warms it up
            shift = Shift(engine, OwnSwitch(engine, router), self)
            if self.resizes is not None:
                await shift.to(self.choices.of(pattern_of(0)))
                self.switched_s.clear()
            await self._all(router, tokenizer, shift)

    async def _all(self, router: Router, tokenizer: Tokenizer, shift: "Shift") -> None:
        load = self._load(tokenizer, shift)
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(self.live.clients):
                    group.create_task(self._client(router, load))
        except ExceptionGroup as broken:
            raise broken.exceptions[0] from broken
        await shift.ended()

    async def _client(self, router: Router, load: Iterator[Recording]) -> None:
        for recording in load:
            await listen(router, recording)

    def _load(self, tokenizer: Tokenizer, shift: "Shift") -> Iterator[Recording]:
        """Every request when a client asks for it; the first of a phase begins a switch."""
        seen = 0
        load = alternating(self.live.phases, self.live.num_requests)
        for number, (phase, pattern) in enumerate(load):
            if phase != seen and self.resizes is not None:
                shift.begin(self.choices.of(pattern))
            seen = phase
            recording = self._recording(tokenizer, number, pattern)
            self.recordings.append((phase, recording))
            yield recording

    def _recording(self, tokenizer: Tokenizer, number: int, pattern: Pattern) -> Recording:
        prompt, output = self.live.lengths(pattern)
        text = counting_text(self.live.seed + number, prompt)
        return Recording(tokenizer.encode(text)[:prompt], output)

    @property
    def outcome(self) -> Outcome:
        """Over all phases."""
        return outcome([answered(one) for _, one in self.recordings])

    def document(self) -> Document:
        """What there is to say of it by phase."""
        phases = range(self.live.phases)
        each = [[answered(one) for at, one in self.recordings if at == phase] for phase in phases]
        return {
            "choice": self.name,
            "phases": [{"pattern": pattern_of(n).name, **asdict(outcome(found))} for n, found in enumerate(each)],
            "switch_s": [round(seconds, 3) for seconds in self.switched_s],
            "refused": self.refused,
        }


def answered(recording: Recording) -> Answered:
    """A request that has ended.

    Raises:
        StreamError: it got no token.
    """
    if not recording.arrivals_s:
        raise StreamError("a request ended without a token")
    arrivals = recording.arrivals_s
    return Answered(recording.started_s, arrivals[0], arrivals[-1], len(arrivals))


class Shift:
    """Switches while the load goes on, one at a time."""

    def __init__(self, engine: Engine, switcher: OwnSwitch, run: Run) -> None:
        self._engine, self._switcher, self._run = engine, switcher, run
        self._task: asyncio.Task[None] | None = None

    def begin(self, target: Topology) -> None:
        """Go to a topology once the switch before has ended."""
        self._task = asyncio.create_task(self._after(self._task, target))

    async def ended(self) -> None:
        """Return when no switch is under way."""
        if self._task:
            await self._task

    async def _after(self, before: asyncio.Task[None] | None, target: Topology) -> None:
        if before:
            await before
        await self.to(target)

    async def to(self, target: Topology) -> None:
        """Switch; with resizing the pool gives way first, and then takes what the target holds.

        Where what runs is too much to stand beside the target, the switch is asked for again until enough has ended.
        """
        began, choices = time.monotonic(), self._run.choices
        if self._engine.topology == target:
            return
        await self._resize(choices.beside)
        while not await self._switched(target):  # noqa: ASYNC110 - nothing tells when enough has ended
            await asyncio.sleep(RETRY_S)
        await self._resize(choices.held(target))
        self._run.switched_s.append(time.monotonic() - began)

    async def _resize(self, num_blocks: int) -> None:
        if self._run.resizes and isinstance(self._engine, TorchEngine):
            await self._engine.resize(num_blocks - SCRATCH)

    async def _switched(self, target: Topology) -> bool:
        try:
            await self._switcher.switch(target)
        except SwitchError as problem:
            if problem.reason is not Reason.NO_MEMORY:
                raise
            self._run.refused += 1
            return False
        return True
