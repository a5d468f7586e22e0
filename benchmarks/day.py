"""A day in minutes, with a peak and a surprise, kept by the controller: ``python -m benchmarks.day``.

Nothing is staged: the windows are minutes of the real clock, the service is the ordinary one in mode `act`, and every figure is
what clients measured. A slot has memory for the KV of half of the streams that a burst at peak has.
"""

import argparse
import asyncio
import gc
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from intentctl import render
from intentctl.arguments import SWITCH_TIMEOUT_S, EngineName, OutputFormat
from intentctl.client import Client
from intentctl.commands import follow
from intentctl.demo import LOGPROB_TOLERANCE, started_service
from intentctl.lines import visible_lines
from intentctl.local import EXAMPLES
from intentctl.measure import difference
from intentctl.render import Document
from intentctl.status import CommandError, failure
from intentctl.streams import BackgroundLoad, Recording, inference_at
from service import api
from service import documents as docs
from service.documents.errors import ServiceError
from service.documents.plans import PlanRequest
from service.documents.promises import ControlRequest, OutcomeDocument, ReportQuery

if TYPE_CHECKING:
    from openai import AsyncOpenAI

STATICS = ("1x1", "pp2")
SMALLEST = STATICS[0]
BURSTS_MEASURED = 3
READY_S = 2.0
PROMPT_TOKENS = 200
ANSWER_TOKENS = 100
PROMPTS = 8
LEAST_NIGHT_S = 25.0
MINUTE = timedelta(minutes=1)
LEAD_S = 10.0
"""Before a surge."""
SURGE_S = 24.0
AFTER_S = 10.0
"""After a surge."""
CALM_EVERY_S = 5.0
"""Between two requests before and after a surge."""
SURGE_BURST = 5
"""Requests that come at once, as many as two devices hold."""
SURGE_SHARE = 0.8
"""Share of the time between two bursts that a burst takes on two devices."""

DEPLOYMENT = """\
apiVersion: intentctl/v1
kind: Deployment
timezone: UTC
auth: none
cluster:
  nodes:
    - name: local
      link: {{kind: shared-memory, bandwidth_gb_s: 5, latency_us: 30}}
      gpus: [{{kind: CPU, count: 2, memory_gb: {memory_gb}}}]
models:
  - {{name: counting, path: {checkpoint}, precision: fp32, start: pp2}}
{times}
limits: {{allowed_tp: [1], allowed_pp: [1, 2], allowed_precisions: [fp32]}}
approval: {{by: person, within: {{most_stop_ms: 200, per_hour: 20}}}}
mode: act
promises: {{tick_s: 1, dwell_s: 8, calm_s: 20, patience_s: 1, lookback_s: 8, probation_s: 15, probation_requests: 12,
  retry_s: 3, data_s: 8}}
engine: torch
torch: {{kv_blocks: {kv_blocks}, prefix_caching: false}}
"""
DAY_TIMES = """\
windows:
  overnight: {{start: "{overnight}", end: "{peak}"}}
  peak: {{start: "{peak}", end: "{off_peak}"}}
  off_peak: {{start: "{off_peak}", end: "{business_hours}"}}
  business_hours: {{start: "{business_hours}", end: "{end}"}}
workload:
  always: {{rate_rps: 0.5, input_tokens: {{mean: 200, p95: 200}}, output_tokens: {{mean: 100, p95: 100}}, concurrency: 1}}
  peak: {{rate_rps: 1.75, input_tokens: {{mean: 200, p95: 200}}, output_tokens: {{mean: 100, p95: 100}}, concurrency: 7}}"""
SURGE_TIMES = """\
workload:
  always: {rate_rps: 0.2, input_tokens: {mean: 200, p95: 200}, output_tokens: {mean: 100, p95: 100}, concurrency: 1}"""


@dataclass(frozen=True, slots=True)
class Goal:
    """What is promised, and how its clients see it."""

    text: str
    windows: tuple[str, ...]
    ttft_s: float | None = None
    """The bound of a request in these windows; None: at most one device is in use in them."""


@dataclass(frozen=True, slots=True)
class Part:
    """A time of the day with one load, until the next one begins."""

    begins_s: float
    """Unix seconds."""
    window: str
    burst: int = 1
    """Requests that come at once."""
    every_s: float = 2.0


@dataclass(frozen=True, slots=True)
class Day:
    """What is promised, and what is asked when."""

    goals: tuple[Goal, ...]
    parts: tuple[Part, ...]
    end_s: float
    """When nothing more is asked, in unix seconds."""

    @property
    def peak_s(self) -> float:
        """When the peak begins, in unix seconds."""
        return next(part.begins_s for part in self.parts if part.window == "peak")

    def part_at(self, at_s: float) -> Part:
        """The part in which something was asked."""
        return next((part for part in reversed(self.parts) if at_s >= part.begins_s), self.parts[0])

    def arrivals(self, from_s: float) -> Iterator[tuple[float, int]]:
        """When requests come, in unix seconds, and how many at once."""
        at_s = max(from_s, self.parts[0].begins_s)
        while at_s < self.end_s:
            part = self.part_at(at_s)
            yield at_s, part.burst
            at_s = min([at_s + part.every_s, *(part.begins_s for part in self.parts if part.begins_s > at_s)])


def usual(now: datetime) -> Day:
    """A night that is long enough, a peak, a calm minute, a surprise."""
    peak = (now + timedelta(seconds=LEAST_NIGHT_S + 60)).replace(second=0, microsecond=0)
    night_s, peak_s, off_peak_s, surprise_s = ((peak + minutes * MINUTE).timestamp() for minutes in (-5, 0, 1, 2))
    return Day(
        (
            Goal("keep P95 TTFT < 1 s at peak", ("peak",), 1.0),
            Goal("use at most 1 GPU overnight and off-peak", ("overnight", "off_peak")),
            Goal("keep P95 TTFT < 3 s during business hours", ("business_hours",), 3.0),
        ),
        (
            Part(night_s, "overnight"),
            Part(peak_s, "peak", 7, 4.0),
            Part(off_peak_s, "off_peak"),
            Part(surprise_s, "business_hours"),
            Part(surprise_s + 3, "business_hours", 7, 3.0),
        ),
        surprise_s + 30,
    )


def usual_deployment(day: Day) -> str:
    """The deployment file of a usual day: a slot holds the KV of half of a burst at peak."""
    begins = {part.window: datetime.fromtimestamp(part.begins_s, UTC) for part in reversed(day.parts)}
    begins["end"] = begins["business_hours"] + 5 * MINUTE
    return _deployment(0.017, 84, DAY_TIMES.format(**{name: f"{at:%H:%M}" for name, at in begins.items()}))


def surging(begins_s: float, burst_s: float) -> Day:
    """A calm, a surge, a calm; ``burst_s`` is how long the requests that come at once take on two devices."""
    peak_s = begins_s + LEAD_S
    return Day(
        (Goal("keep P95 TTFT < 1.5 s, as cheap as possible", ("calm", "peak"), 1.5),),
        (
            Part(begins_s, "calm", every_s=CALM_EVERY_S),
            Part(peak_s, "peak", SURGE_BURST, burst_s / SURGE_SHARE),
            Part(peak_s + SURGE_S, "calm", every_s=CALM_EVERY_S),
        ),
        peak_s + SURGE_S + AFTER_S,
    )


def surge_deployment() -> str:
    """The deployment file of a surge: a slot holds the KV of one request, two hold that of a burst."""
    return _deployment(0.012, 54, SURGE_TIMES)


def _deployment(memory_gb: float, kv_blocks: int, times: str) -> str:
    checkpoint = EXAMPLES[EngineName.TORCH].parent / "counting"
    return DEPLOYMENT.format(checkpoint=checkpoint, memory_gb=memory_gb, kv_blocks=kv_blocks, times=times)


@dataclass(slots=True)
class Lived:
    """A day as its clients saw it."""

    day: Day
    begins_s: float
    recordings: list[Recording] = field(default_factory=list)
    ran: list[tuple[float, int]] = field(default_factory=list)
    """Unix seconds, and how many devices were in use from then on."""
    outcomes: Sequence[OutcomeDocument] = ()
    references: list[Recording] = field(default_factory=list)

    def attainment(self) -> dict[str, float]:
        """The share of requests, or of time, that met each goal in its windows."""
        return {goal.text: round(self._share(goal), 4) for goal in self.day.goals}

    def over_bound(self) -> int:
        """How many requests waited longer for their first token than was promised, or had none."""
        return sum(not met for goal in self.day.goals if goal.ttft_s for met in self._met(goal, goal.ttft_s))

    def _share(self, goal: Goal) -> float:
        if goal.ttft_s is None:
            return self._time(goal.windows)
        met = self._met(goal, goal.ttft_s)
        return sum(met) / len(met) if met else 0.0

    def _met(self, goal: Goal, bound_s: float) -> list[bool]:
        recordings = [
            recording for recording in self.recordings if self.day.part_at(recording.asked_s).window in goal.windows
        ]
        return [
            bool(recording.arrivals_s) and recording.arrivals_s[0] - recording.asked_s <= bound_s
            for recording in recordings
        ]

    def _time(self, windows: Sequence[str]) -> float:
        ends_s = [*(part.begins_s for part in self.day.parts[1:]), self.day.end_s]
        spans = [
            (max(part.begins_s, self.begins_s), end_s)
            for part, end_s in zip(self.day.parts, ends_s, strict=True)
            if part.window in windows
        ]
        until_s = [at_s for at_s, _ in self.ran[1:]] + [self.day.end_s]
        small = sum(
            max(0.0, min(end_s, last) - max(at_s, first))
            for (at_s, devices), end_s in zip(self.ran, until_s, strict=True)
            for first, last in spans
            if devices <= 1
        )
        return small / sum(last - first for first, last in spans)


def main(arguments: Sequence[str] | None = None) -> int:
    """Live what the command line says; another status than 0 when it did not go well."""
    found = argparse.ArgumentParser("python -m benchmarks.day", description=__doc__)
    which = found.add_mutually_exclusive_group()
    which.add_argument("--statics", action="store_true", help="the same day on each topology alone, too")
    which.add_argument("--surge", action="store_true", help="a surge twice instead: with the controller off, then on")
    found.add_argument("-o", "--output", type=OutputFormat, choices=tuple(OutputFormat), default=OutputFormat.TABLE)
    options = found.parse_args(arguments)
    try:
        if options.surge:
            run_surge(options.output)
        else:
            run(options.output, statics=options.statics)
    except (CommandError, ServiceError) as error:
        print(f"error: {visible_lines(str(error))}", file=sys.stderr)
        return error.exit if isinstance(error, CommandError) else 1
    return 0


def run(form: OutputFormat, *, statics: bool) -> None:
    """Live a day and report; with ``statics`` once more on each topology alone.

    Raises:
        CommandError: the service did not start, or a stream differs.
    """

    def live(static: str | None) -> Lived:
        day = usual(datetime.now(UTC))
        with _service(usual_deployment(day)) as client:
            render.talk(f"peak begins at {datetime.fromtimestamp(day.peak_s, UTC):%H:%M} UTC")
            return _lived(client, lambda: day, static, is_kept=static is None)

    lived = live(None)
    alone = dict[str, Lived]()
    for topology in STATICS if statics else ():
        render.talk(f"the same day on {topology} alone")
        alone[topology] = live(topology)
    _tell(form, lived, alone)


def run_surge(form: OutputFormat) -> None:
    """Live a surge with the controller off, then the same requests with it, and report.

    Raises:
        CommandError: the service did not start, or a stream differs.
    """
    with _service(surge_deployment()) as client:
        burst_s = asyncio.run(_burst_s(client))
        render.talk(f"two devices answer {SURGE_BURST} requests in {burst_s:.1f} s; the controller is off")
        alone = _lived(client, lambda: surging(time.time() + READY_S, burst_s), SMALLEST, is_kept=False)
    with _service(surge_deployment()) as client:
        render.talk("the same requests with the controller")
        lived = _lived(client, lambda: surging(time.time() + READY_S, burst_s), SMALLEST, is_kept=True)
    _tell(form, lived, {SMALLEST: alone})


def _tell(form: OutputFormat, lived: Lived, alone: Mapping[str, Lived]) -> None:
    """Report a day, and the same one on each topology alone."""
    document = report(lived)
    if alone:
        document["static"] = {topology: lived.attainment() for topology, lived in alone.items()}
        document["static_over_bound"] = {topology: lived.over_bound() for topology, lived in alone.items()}
    render.emit(document, form, report_rows(document))
    if document["streams_equal"] != document["streams"] or document["tokens_lost"]:
        raise failure("error", "a stream differs from the same request on a service that nobody switches")


@contextmanager
def _service(deployment: str) -> Iterator[Client]:
    """A service of its own for the time of one day."""
    with tempfile.TemporaryDirectory(prefix="intentctl-day-") as folder:
        file = Path(folder) / "day.yaml"
        file.write_text(deployment)
        with started_service(file) as client:
            render.talk(f"a service runs at {client.url}")
            yield client


def _lived(client: Client, begin: Callable[[], Day], topology: str | None, *, is_kept: bool) -> Lived:
    """A day that begins on a topology (None: on the one that runs).

    Kept by the controller, or with the controller off.
    """
    if topology:
        _switch_to(client, topology)
    if not is_kept:
        client(api.promises.set_control, ControlRequest(paused=True))
    lived = Lived(begin(), time.time())
    for goal in lived.day.goals if is_kept else ():
        kept = client(api.intents.create_intent, docs.TranslateRequest(text=goal.text))
        render.talk(f"promised: {client(api.promises.activate, kept.id).text}")
    return asyncio.run(_session(client, lived, compared=is_kept))


def _switch_to(client: Client, topology: str) -> None:
    """Have one topology run."""
    plan = client(api.plans.make_plan, PlanRequest(target=topology)).plan
    assert plan is not None, "a topology that is named has one plan"
    if plan.changes:
        *_, operation = follow(client, client(api.plans.apply, plan.id).id, SWITCH_TIMEOUT_S)
        if operation.error:
            raise ServiceError.answered(operation.error)


async def _burst_s(client: Client) -> float:
    """How long the requests of a surge that come at once take on what runs, on average."""
    async with inference_at(client.url, client.key) as openai:
        began_s = time.time()
        for _ in range(BURSTS_MEASURED):
            recordings = await BackgroundLoad(openai, "counting", prompts()[:SURGE_BURST], ANSWER_TOKENS).finish()
            if errors := [recording.error for recording in recordings if recording.error]:
                raise failure("error", f"the service did not answer: {errors[0]}")
        return (time.time() - began_s) / BURSTS_MEASURED


async def _session(client: Client, lived: Lived, *, compared: bool) -> Lived:
    """Ask what the day asks, then the same requests once more while nothing happens."""
    async with inference_at(client.url, client.key) as openai:
        gc.freeze()
        watching = asyncio.create_task(_watch(client, lived))
        await _ask(openai, lived)
        watching.cancel()
        with suppress(asyncio.CancelledError):
            await watching
        lived.outcomes = (await asyncio.to_thread(client, api.promises.report, ReportQuery(hours=1))).switches
        if compared:
            await asyncio.to_thread(client, api.promises.set_control, ControlRequest(paused=True))
            lived.references = await BackgroundLoad(openai, "counting", prompts(), ANSWER_TOKENS).finish()
    return lived


def prompts() -> list[list[int]]:
    """Token ids that are nowhere else alike."""
    return [
        [2 + (7 * number + 3 * place * (number + 1)) % 90 for place in range(PROMPT_TOKENS)]
        for number in range(PROMPTS)
    ]


async def _ask(openai: "AsyncOpenAI", lived: Lived) -> None:
    """Requests as the day has them, until all have ended."""
    loads = list[BackgroundLoad]()
    known = prompts()
    count = 0
    for at_s, burst in lived.day.arrivals(time.time()):
        await asyncio.sleep(max(0.0, at_s - time.time()))
        chosen = [known[(count + number) % PROMPTS] for number in range(burst)]
        count += burst
        loads.append(BackgroundLoad(openai, "counting", chosen, ANSWER_TOKENS))
    for load in loads:
        lived.recordings += await load.finish()


async def _watch(client: Client, lived: Lived) -> None:
    """Note how many devices are in use."""
    while True:
        state = await asyncio.to_thread(client, api.state.topology)
        devices = len(state.topology.devices)
        if not lived.ran or lived.ran[-1][1] != devices:
            lived.ran.append((time.time() if lived.ran else lived.begins_s, devices))
            render.talk(f"{datetime.now(UTC):%H:%M:%S} runs as {state.topology.shape}, because of {state.origin}")
        await asyncio.sleep(0.25)


def report(lived: Lived) -> Document:
    """The day as one document. Pure."""
    known = {tuple(reference.prompt): reference for reference in lived.references}
    differences = [
        difference(recording.stream(), known[tuple(recording.prompt)].stream()) for recording in lived.recordings
    ]
    equal = [difference.tokens_equal and difference.worst_logprob <= LOGPROB_TOLERANCE for difference in differences]
    return {
        "streams": len(lived.recordings),
        "streams_equal": sum(equal),
        "tokens_lost": sum(difference.lost for difference in differences),
        "tokens_duplicated": sum(difference.duplicated for difference in differences),
        "switches": [_switch(outcome, lived.day) for outcome in lived.outcomes if outcome.at_s >= lived.begins_s],
        "attainment": lived.attainment(),
        "over_bound": lived.over_bound(),
        "errors": [recording.error for recording in lived.recordings if recording.error],
    }


def _switch(outcome: OutcomeDocument, day: Day) -> Document:
    since_peak_s = outcome.at_s - day.peak_s
    return {
        "cause": outcome.cause,
        "from": outcome.source,
        "to": outcome.target,
        "ended": outcome.ended,
        "verdict": outcome.verdict,
        "stop_ms": None if outcome.stop_ms is None else round(outcome.stop_ms, 2),
        "after_peak_begins_s": round(since_peak_s, 1),
        "prepare_s": outcome.prepare_s,
        "why": outcome.why or outcome.reason,
    }


def report_rows(document: Document) -> list[render.Row]:
    """The day for people."""
    rows: list[render.Row] = []
    for switch in document["switches"]:
        stop = "" if switch["stop_ms"] is None else f"; stood still {switch['stop_ms']} ms"
        when = f"{switch['after_peak_begins_s']:+.1f} s of peak"
        rows.append(
            (
                f"{switch['cause']}",
                f"{when}: {switch['from']} to {switch['to']}{stop}; {switch['verdict'] or 'no verdict'}: {switch['why']}",
            )
        )
    rows += [("attainment", f"{goal}: {share:.1%}") for goal, share in document["attainment"].items()]
    for topology, shares in document.get("static", {}).items():
        rows += [(f"{topology} alone", f"{goal}: {share:.1%}") for goal, share in shares.items()]
    others = [f"; {n} on {topology} alone" for topology, n in document.get("static_over_bound", {}).items()]
    waited = f"{document['over_bound']} of {document['streams']} requests waited longer than promised"
    rows.append(("over bound", waited + "".join(others)))
    lost = f"{document['tokens_lost']} tokens lost, {document['tokens_duplicated']} duplicated"
    equal = f"{document['streams_equal']} of {document['streams']} equal the same requests without a switch"
    return [*rows, ("streams", f"{equal}; {lost}"), *(("error", error) for error in document["errors"])]


if __name__ == "__main__":
    sys.exit(main())
