"""One mode between the two topologies of a pair: switches back and forth while streams run."""

import sys
import time
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from functools import partial

from benchmarks.counting import context_tokens, counting_text
from benchmarks.engines import Subject
from benchmarks.load import Load, Recording
from benchmarks.own_switch import own_switch
from benchmarks.parameters import MORE_TOKENS, SEEDED, SIDE_TOKENS, Mode, Parameters, tokens_before
from benchmarks.report import Measured, Run, Tally, fence_to_commit_ms
from benchmarks.restart import restart
from benchmarks.strategy import Strategy, Switched
from benchmarks.two_engines import Drain, Replay, two_engines
from intentctl.measure import TimeInterval
from runtime.engine import Finish
from runtime.errors import RuntimeFault
from runtime.footprint import transfer
from runtime.ledger import Counts
from runtime.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class Case:
    """What is measured in one go."""

    parameters: Parameters
    subject: Subject
    mode: Mode
    pair: tuple[str, str]
    active: int
    context: int

    def __str__(self) -> str:
        return f"{self.mode} {'-'.join(self.pair)} {self.active} active, {self.context} tokens"

    @property
    def layers_moved(self) -> int:
        """Layers of which a device of the target has to get some KV."""
        here, there = (self.subject.topology(text) for text in self.pair)
        boxes = transfer(here, there, self.subject.spec)
        return len({layer for box in boxes for layer in range(*box.layers)})

    def begin(self, tokenizer: Tokenizer, number: int, max_tokens: int) -> Recording:
        """A stream before its first token; what one of its age would have said by now is in its prompt."""
        said = self.parameters.output - max_tokens
        length = context_tokens(number, self.context) + said
        prompt = tokenizer.encode(counting_text(number, length))[:length]
        temperature = self.parameters.temperature
        seed = None if number % SEEDED else number
        return Recording(prompt, max_tokens, temperature=temperature, seed=seed)


@dataclass(slots=True)
class _Log:
    """What there is to report even when a case ends early."""

    measured: list[Measured] = field(default_factory=list)
    recordings: list[Recording] = field(default_factory=list)
    counts: Counts = field(default_factory=Counts)


async def run_case(case: Case) -> Run:
    """Run it to the end, or to what breaks it, which is part of the result."""
    log, error = _Log(), None
    _say(f"{case}: starting")
    try:
        await _run(case, log)
    except RuntimeFault as problem:
        error = f"{type(problem).__name__}: {problem}"
        _say(f"{case}: {error}")
    return Run(
        mode=case.mode,
        pair="-".join(case.pair),
        active=case.active,
        context=case.context,
        layers_moved=case.layers_moved,
        measured=tuple(log.measured),
        streams=tuple(recording.stream() for recording in log.recordings),
        tally=tally(log.recordings, log.counts),
        error=error,
    )


async def _run(case: Case, log: _Log) -> None:
    tokenizer = Tokenizer.load(case.subject.checkpoint)
    async with _strategy(case, tokenizer) as strategy:
        begin = partial(case.begin, tokenizer)
        load = Load(case.active, case.parameters.output, begin, strategy.deliver)
        log.recordings = load.recordings
        try:
            async with load:
                await _switch_repeatedly(case, load, strategy, log)
        finally:
            log.counts = strategy.counts


def _strategy(case: Case, tokenizer: Tokenizer) -> AbstractAsyncContextManager[Strategy]:
    source, demand = case.subject.topology(case.pair[0]), case.parameters.demand(case.active)
    start = partial(case.subject.start, path="patch", demand=demand)
    match case.mode:
        case "replay":
            return two_engines(Replay, start, source, tokenizer)
        case "drain":
            return two_engines(Drain, start, source, tokenizer)
        case "restart":
            return restart(start, source, tokenizer)
        case path:
            return own_switch(partial(case.subject.start, path=path, demand=demand), source, tokenizer)


async def _switch_repeatedly(case: Case, load: Load, strategy: Strategy, log: _Log) -> None:
    here, there = case.pair
    num_switches, before_s = 2 * case.parameters.switches_at(case.active), await _speaking(load)
    tokens_inside = 0
    for number in range(num_switches):
        if case.mode == "drain" and number:  # all began together after the last one, and would end together
            await load.renew()
            before_s = await _speaking(load)
        await load.grow(tokens_before(number), before_s)
        await load.replace(tokens_inside)  # no prompt but the switch's own is computed while it lasts
        switched = await load.watch(strategy.switch(case.subject.topology(there)))
        interval = switched.interval
        await load.grow(SIDE_TOKENS, interval.end_s)
        quiet = (TimeInterval(before_s, interval.start_s), TimeInterval(interval.end_s, time.time()))
        before_s = interval.end_s  # what came after this switch is what came before the next
        tokens_inside = load.tokens_within(interval) + MORE_TOKENS if case.mode != "drain" else 0
        log.measured.append(Measured(here, there, switched, quiet))
        _say(f"{case}: switch {number + 1} of {num_switches}, {here} to {there}, {_brief(switched)}")
        here, there = there, here


async def _speaking(load: Load) -> float:
    """When every slot has had a token of the streams that run."""
    since_s = time.time()
    await load.grow(1, since_s)
    return time.time()


def tally(recordings: list[Recording], counts: Counts) -> Tally:
    """Lost: tokens that a stream that ended lacks, and what the ledger missed. Duplicated: the reverse."""
    left = [r.tokens_left for r in recordings if r.finish is Finish.LENGTH]
    return Tally(
        tokens=sum(len(recording.token_ids) for recording in recordings),
        lost=sum(n for n in left if n > 0) + counts.lost,
        duplicated=sum(-n for n in left if n < 0) + counts.duplicates,
    )


def _brief(switched: Switched) -> str:
    seconds = f"{switched.interval.end_s - switched.interval.start_s:.2f} s"
    timings = switched.timings
    return f"{seconds}, fence to commit {fence_to_commit_ms(timings):.1f} ms" if timings else seconds


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
