"""What a switch costs requests before, during and after it: ``python -m benchmarks.overhead [--pairs 1x1-tp2] [--streams N]``.

A steady load of N streams, each followed by the next, while the built-in engine switches back and forth between two topologies.
TTFT and TPOT, stamped at the client, go by the span of the switch that they fall into; benchmarks/README.md says how.
"""

import argparse
import asyncio
import json
import os
import random
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.counting import counting_text
from benchmarks.engines import Demand, Subject
from benchmarks.load import Load, Recording
from benchmarks.own_switch import own_switch
from benchmarks.parameters import SHORTEST_CONTEXT, UsageError, parse_pair
from benchmarks.provenance import provenance
from benchmarks.spans import Name, Request, Watched, directions, each, switch_spans, table
from benchmarks.strategy import Strategy
from intentctl.arguments import EngineName
from intentctl.measure import TimeInterval
from runtime.errors import RuntimeFault
from runtime.tokenizer import Tokenizer

Document = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Parameters:
    """What is run."""

    pairs: tuple[tuple[str, str], ...]
    """Topologies in text form."""
    streams: int
    """At any time."""
    context: int
    """Prompt tokens of every request."""
    output: int
    """Tokens each generates."""
    switches: int
    """There and back, per pair."""
    requests: int
    """That begin before each switch, and as many again in the sham span."""
    after: int
    """That begin after each switch."""
    standby: int
    """Topologies kept warm for the way back; with 0 every switch loads its target."""
    seed: int
    """Where the prompts begin to count."""

    def check(self, subject: Subject) -> None:
        """Refuse what cannot be run.

        Raises:
            UsageError, TopologyError: naming the value.
        """
        for option in ("streams", "output", "switches", "requests", "after"):
            if getattr(self, option) < 1:
                raise UsageError(f"--{option} must be at least 1")
        if min(self.standby, self.seed) < 0:
            raise UsageError("--standby and --seed must be 0 or more")
        if self.context < SHORTEST_CONTEXT:
            raise UsageError(f"--context {self.context}: the shortest prompt has {SHORTEST_CONTEXT} tokens")
        most = subject.spec.max_position_embeddings
        if self.context + self.output > most:
            raise UsageError(
                f"--context {self.context} and --output {self.output} make {self.context + self.output} tokens, over "
                f"the model's {most}; ask for fewer"
            )
        for text in {text for pair in self.pairs for text in pair}:
            subject.topology(text)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the command line says; the exit status is 1 when a run ended early, 2 when nothing could begin."""
    options = parser().parse_args(arguments)
    subject = Subject.example(EngineName.TORCH)
    try:
        parameters = parameters_of(options)
        parameters.check(subject)
    except (UsageError, RuntimeFault) as problem:
        print(f"error: {problem}", file=sys.stderr)
        return 2
    document = asyncio.run(run_all(parameters, subject))
    text = json.dumps(document, indent=1) + "\n"
    if options.json:
        options.json.write_text(text, encoding="utf-8")
    print(text if options.format == "json" else table(document["directions"]))
    for error in document["errors"]:
        print(f"error: {error}", file=sys.stderr)
    return int(bool(document["errors"]))


def parser() -> argparse.ArgumentParser:
    """The command line."""
    found = argparse.ArgumentParser("python -m benchmarks.overhead", description=__doc__)
    found.add_argument("--pairs", default="1x1-tp2,1x1-pp2", help="topologies to switch between")
    found.add_argument("--streams", type=int, default=12, help="requests that run at any time")
    found.add_argument("--context", type=int, default=300, help="prompt tokens of every request")
    found.add_argument("--output", type=int, default=100, help="tokens each request generates")
    found.add_argument("--switches", type=int, default=6, help="there and back, per pair")
    found.add_argument("--requests", type=int, default=40, help="that begin before each switch, and in the sham span")
    found.add_argument("--after", type=int, default=100, help="requests that begin after each switch")
    found.add_argument("--standby", type=int, default=0, help="topologies kept warm for the way back")
    found.add_argument("--seed", type=int, default=0, help="where the prompts begin to count")
    found.add_argument("-o", choices=("table", "json"), default="table", dest="format", help="what to print")
    found.add_argument("--json", type=Path, metavar="FILE", help="where to write everything that was measured")
    return found


def parameters_of(options: argparse.Namespace) -> Parameters:
    """What the command line means.

    Raises:
        UsageError: a pair that is none.
    """
    numbers = ("streams", "context", "output", "switches", "requests", "after", "standby", "seed")
    return Parameters(
        pairs=tuple(map(parse_pair, options.pairs.split(","))),
        **{name: getattr(options, name) for name in numbers},
    )


async def run_all(parameters: Parameters, subject: Subject) -> Document:
    """Every pair, one after the other; one that ends early has what it got to."""
    document: Document = {
        "benchmark": "overhead",
        **provenance(),
        "parameters": asdict(parameters),
        "load_average": os.getloadavg(),
        "directions": [],
        "switches": [],
        "errors": [],
    }
    for pair in parameters.pairs:
        watched, recordings = list[Watched](), list[Recording]()
        try:
            await run_pair(pair, (parameters, subject), watched, recordings)
        except RuntimeFault as problem:
            document["errors"].append(f"{'-'.join(pair)}: {type(problem).__name__}: {problem}")
        requests = [Request(one.started_s, tuple(one.arrivals_s)) for one in recordings]
        document["directions"] += directions(watched, requests)
        document["switches"] += each(watched, requests)
    return document | {"load_average_after": os.getloadavg()}


async def run_pair(
    pair: tuple[str, str],
    case: tuple[Parameters, Subject],
    watched: list[Watched],
    recordings: list[Recording],
) -> None:
    """Switch back and forth under the load; what is seen goes into the two lists as it comes.

    Raises:
        RuntimeFault: the engine, a stream or a switch broke.
    """
    parameters, subject = case
    tokenizer, count = Tokenizer.load(subject.checkpoint), parameters.streams

    def make(number: int, max_tokens: int) -> Recording:
        prompt = tokenizer.encode(counting_text(parameters.seed + number, parameters.context))
        recordings.append(Recording(prompt[: parameters.context], max_tokens))
        return recordings[-1]

    demand = Demand(count, parameters.context + parameters.output, parameters.standby)
    start = partial(subject.start, path="patch", demand=demand)
    chance = random.Random(parameters.seed)
    async with own_switch(start, subject.topology(pair[0]), tokenizer) as strategy:
        load = Load(count, parameters.output, make, strategy.deliver)
        async with load:
            await load.begin(parameters.requests)  # warms the engine up
            for number in range(2 * parameters.switches):
                here, there = pair if number % 2 == 0 else (pair[1], pair[0])
                tokens = chance.randrange(parameters.output)
                spans = await watch(load, strategy, there, (parameters, subject), tokens)
                watched.append(Watched(here, there, spans))
                print(
                    f"{here} to {there}: switch {number + 1} of {2 * parameters.switches}",
                    file=sys.stderr,
                    flush=True,
                )


async def watch(
    load: Load, strategy: Strategy, target: str, case: tuple[Parameters, Subject], tokens: int
) -> dict[Name, TimeInterval]:
    """One switch and the time on its two sides; it begins when every slot has had ``tokens`` more after the sham span.

    That span ends as a request begins, whose prompt would be in every switch otherwise.

    Raises:
        RuntimeFault: a stream or the switch broke.
    """
    parameters, subject = case
    moments = [time.time()]
    for _ in ("before", "sham"):
        await load.begin(parameters.requests)
        moments.append(time.time())
    await load.grow(tokens, moments[-1])
    switched = await load.watch(strategy.switch(subject.topology(target)))
    during = switch_spans(switched.phases_s or {})
    await load.begin(parameters.after)
    before, sham, end = moments
    after = TimeInterval(during["cutting"].end_s, time.time())
    return {"before": TimeInterval(before, sham), "sham": TimeInterval(sham, end), **during, "after": after}


if __name__ == "__main__":
    sys.exit(main())
