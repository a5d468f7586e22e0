"""``intentctl demo --day``: a day in minutes, with a peak and a surprise, kept by the controller.

Nothing is staged: the windows are minutes of the real clock, the service is the ordinary one in mode `act`, and every figure is
what clients measured. A slot has memory for the KV of half of the streams that a burst at peak has.
"""

import asyncio
import gc
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from intentctl import render
from intentctl.arguments import SWITCH_TIMEOUT_S, EngineName, Form
from intentctl.client import Client
from intentctl.commands import follow
from intentctl.demo import LOGPROB_TOLERANCE, started_service
from intentctl.local import EXAMPLES
from intentctl.measure import difference
from intentctl.render import Document
from intentctl.status import failure
from intentctl.streams import Load, Recording
from service.documents.plans import PlanRequest
from service.documents.promises import ActivateRequest, ControlRequest, OutcomeDocument, ReportQuery
from service.errors import ServiceError

if TYPE_CHECKING:
    from openai import AsyncOpenAI

TEXTS = (
    "keep P95 TTFT < 1 s at peak",
    "use at most 1 GPU overnight and off-peak",
    "keep P95 TTFT < 3 s during business hours",
)
STATICS = ("1x1", "pp2")
PROMPT_TOKENS, ANSWER_TOKENS, PROMPTS = 200, 100, 8
LEAST_NIGHT_S, SURPRISE_S = 25.0, 30.0
PEAK_BURST, PEAK_EVERY_S = 7, 4.0
SURPRISE_BURST, SURPRISE_EVERY_S = 7, 3.0
CALM_EVERY_S = 2.0
MINUTE = timedelta(minutes=1)

DEPLOYMENT = """\
apiVersion: intentctl/v1
kind: Deployment
timezone: UTC
auth: none
cluster:
  nodes:
    - name: local
      link: {{kind: shared-memory, bandwidth_gb_s: 5, latency_us: 30}}
      gpus: [{{kind: CPU, count: 2, memory_gb: 0.017}}]
models:
  - {{name: counting, path: {checkpoint}, precision: fp32, start: pp2}}
windows:
  overnight: {{start: "{night}", end: "{peak}"}}
  peak: {{start: "{peak}", end: "{off_peak}"}}
  off_peak: {{start: "{off_peak}", end: "{business}"}}
  business_hours: {{start: "{business}", end: "{end}"}}
workload:
  always: {{rate_rps: 0.5, input_tokens: 200, output_tokens: 100, concurrency: 1}}
  peak: {{rate_rps: 1.75, input_tokens: 200, output_tokens: 100, concurrency: 7}}
limits: {{allowed_tp: [1], allowed_pp: [1, 2], allowed_precisions: [fp32]}}
approval: {{by: person, within: {{most_stop_ms: 200, per_hour: 20}}}}
mode: act
promises: {{tick_s: 1, dwell_s: 8, calm_s: 20, patience_s: 1, lookback_s: 8, probation_s: 15, probation_requests: 12,
  retry_s: 3, data_s: 8}}
engine: torch
torch: {{kv_blocks: 84, prefix_caching: false}}
"""


@dataclass(frozen=True, slots=True)
class Day:
    """When each part of it begins."""

    peak: datetime

    @property
    def off_peak(self) -> datetime:
        """The first moment after peak."""
        return self.peak + MINUTE

    @property
    def business(self) -> datetime:
        """When the surprise comes."""
        return self.peak + 2 * MINUTE

    @property
    def end_s(self) -> float:
        """When nothing more is asked, in unix seconds."""
        return self.business.timestamp() + SURPRISE_S

    @property
    def deployment(self) -> str:
        """The deployment file."""
        moments = {
            "night": self.peak - 5 * MINUTE,
            "peak": self.peak,
            "off_peak": self.off_peak,
            "business": self.business,
            "end": self.business + 5 * MINUTE,
        }
        clocks = {name: f"{at:%H:%M}" for name, at in moments.items()}
        return DEPLOYMENT.format(checkpoint=EXAMPLES[EngineName.TORCH].parent / "counting", **clocks)

    @classmethod
    def soon(cls, now: datetime) -> "Day":
        """With a night that is long enough before its peak."""
        peak = (now + timedelta(seconds=LEAST_NIGHT_S + 60)).replace(second=0, microsecond=0)
        return cls(peak)

    def window_of(self, at_s: float) -> str:
        """The window in which something was asked."""
        begins = (("business_hours", self.business), ("off_peak", self.off_peak), ("peak", self.peak))
        return next((name for name, begin in begins if at_s >= begin.timestamp()), "overnight")


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
        """The share of requests, or of time, that met each goal in its window."""
        return {
            TEXTS[0]: self._requests("peak", 1.0),
            TEXTS[1]: self._time(("overnight", "off_peak")),
            TEXTS[2]: self._requests("business_hours", 3.0),
        }

    def _requests(self, window: str, bound_s: float) -> float:
        asked = [one for one in self.recordings if self.day.window_of(one.asked_s) == window]
        met = sum(bool(one.arrivals_s) and one.arrivals_s[0] - one.asked_s <= bound_s for one in asked)
        return round(met / len(asked), 4) if asked else 0.0

    def _time(self, windows: Sequence[str]) -> float:
        spans = [
            (self.begins_s, self.day.peak.timestamp()),
            (self.day.off_peak.timestamp(), self.day.business.timestamp()),
        ]
        assert len(spans) == len(windows)
        ends = [at_s for at_s, _ in self.ran[1:]] + [self.day.end_s]
        small = sum(
            max(0.0, min(end_s, last) - max(at_s, first))
            for (at_s, devices), end_s in zip(self.ran, ends, strict=True)
            for first, last in spans
            if devices <= 1
        )
        return round(small / sum(last - first for first, last in spans), 4)


def run(form: Form, *, statics: bool) -> None:
    """Live a day and report; with ``statics`` once more on each topology alone.

    Raises:
        CommandError: the service did not start, or a stream differs.
    """
    lived = _live(None)
    document = report(lived)
    if statics:
        document["static"] = {}
        for topology in STATICS:
            render.talk(f"the same day on {topology} alone")
            document["static"][topology] = _live(topology).attainment()
    render.emit(document, form, report_rows(document))
    if document["streams_equal"] != document["streams"] or document["tokens_lost"]:
        raise failure("error", "a stream differs from the same request on a service that nobody switches")


def _live(static: str | None) -> Lived:
    """A day under the controller, or on one topology."""
    day = Day.soon(datetime.now(UTC))
    with tempfile.TemporaryDirectory(prefix="intentctl-day-") as folder:
        file = Path(folder) / "day.yaml"
        file.write_text(day.deployment)
        with started_service(file) as client:
            render.talk(f"a service runs at {client.url}; peak begins at {day.peak:%H:%M} UTC")
            _prepare(client, static)
            return asyncio.run(_session(client, Lived(day, time.time()), compared=static is None))


def _prepare(client: Client, static: str | None) -> None:
    """Promise what the day is about; or switch to one topology, and have nobody change that."""
    if static is None:
        for text in TEXTS:
            promise = client.activate(client.keep(text).id, ActivateRequest())
            render.talk(f"promised: {promise.text}")
        return
    client.set_control(ControlRequest(paused=True))
    plan = client.plan(PlanRequest(target=static)).plan
    assert plan is not None, "a topology that is named has one plan"
    if plan.changes:
        *_, operation = follow(client, client.apply(plan.id).id, SWITCH_TIMEOUT_S)
        if operation.error:
            raise ServiceError.answered(operation.error)


async def _session(client: Client, lived: Lived, *, compared: bool) -> Lived:
    """Ask what the day asks, then the same requests once more while nothing happens."""
    from openai import AsyncOpenAI, DefaultAsyncHttpxClient

    http = DefaultAsyncHttpxClient(trust_env=False)
    async with AsyncOpenAI(
        base_url=f"{client.url}/openai/v1", api_key=client.key, http_client=http
    ) as openai:
        gc.freeze()
        watching = asyncio.create_task(_watch(client, lived))
        await _ask(openai, lived)
        watching.cancel()
        with suppress(asyncio.CancelledError):
            await watching
        lived.outcomes = (await asyncio.to_thread(client.report, ReportQuery(hours=1))).switches
        if compared:
            await asyncio.to_thread(client.set_control, ControlRequest(paused=True))
            lived.references = await Load(openai, "counting", prompts(), ANSWER_TOKENS).finish()
    return lived


def prompts() -> list[list[int]]:
    """Token ids that are nowhere else alike."""
    return [
        [2 + (7 * number + 3 * place * (number + 1)) % 90 for place in range(PROMPT_TOKENS)]
        for number in range(PROMPTS)
    ]


async def _ask(openai: "AsyncOpenAI", lived: Lived) -> None:
    """Requests as the day has them, until all have ended."""
    loads, known, asked = list[Load](), prompts(), 0
    while (now_s := time.time()) < lived.day.end_s:
        burst, every_s = _rate(lived.day, now_s)
        chosen = [known[(asked + number) % PROMPTS] for number in range(burst)]
        asked += burst
        loads.append(Load(openai, "counting", chosen, ANSWER_TOKENS))
        await asyncio.sleep(max(0.0, now_s + every_s - time.time()))
    for load in loads:
        lived.recordings += await load.finish()


def _rate(day: Day, now_s: float) -> tuple[int, float]:
    """How many requests come at once, and how long until the next."""
    window = day.window_of(now_s)
    if window == "peak":
        return PEAK_BURST, PEAK_EVERY_S
    if window == "business_hours" and now_s > day.business.timestamp() + 3:
        return SURPRISE_BURST, SURPRISE_EVERY_S
    begins_s = (
        min(at.timestamp() for at in (day.peak, day.off_peak, day.business) if at.timestamp() > now_s)
        if window != "business_hours"
        else now_s + CALM_EVERY_S
    )
    return 1, max(0.05, min(CALM_EVERY_S, begins_s - now_s))


async def _watch(client: Client, lived: Lived) -> None:
    """Note how many devices are in use."""
    while True:
        state = await asyncio.to_thread(client.topology)
        devices = len(state.topology.devices)
        if not lived.ran or lived.ran[-1][1] != devices:
            lived.ran.append((time.time() if lived.ran else lived.begins_s, devices))
            render.talk(
                f"{datetime.now(UTC):%H:%M:%S} runs as {state.topology.shape}, because of {state.origin}"
            )
        await asyncio.sleep(0.25)


def report(lived: Lived) -> Document:
    """The day as one document. Pure."""
    known = {tuple(one.prompt): one for one in lived.references}
    differences = [difference(one.stream(), known[tuple(one.prompt)].stream()) for one in lived.recordings]
    equal = [one.tokens_equal and one.worst_logprob <= LOGPROB_TOLERANCE for one in differences]
    return {
        "streams": len(lived.recordings),
        "streams_equal": sum(equal),
        "tokens_lost": sum(one.lost for one in differences),
        "tokens_duplicated": sum(one.duplicated for one in differences),
        "switches": [_switch(one, lived.day) for one in lived.outcomes],
        "attainment": lived.attainment(),
        "errors": [one.error for one in lived.recordings if one.error],
    }


def _switch(outcome: OutcomeDocument, day: Day) -> Document:
    since_peak_s = outcome.at_s - day.peak.timestamp()
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
    for one in document["switches"]:
        stop = "" if one["stop_ms"] is None else f"; stood still {one['stop_ms']} ms"
        when = f"{one['after_peak_begins_s']:+.1f} s of peak"
        rows.append(
            (f"{one['cause']}", f"{when}: {one['from']} to {one['to']}{stop}; {one['verdict']}: {one['why']}")
        )
    rows += [("attainment", f"{goal}: {share:.1%}") for goal, share in document["attainment"].items()]
    for topology, shares in document.get("static", {}).items():
        rows += [(f"{topology} alone", f"{goal}: {share:.1%}") for goal, share in shares.items()]
    lost = f"{document['tokens_lost']} tokens lost, {document['tokens_duplicated']} duplicated"
    equal = f"{document['streams_equal']} of {document['streams']} equal the same requests without a switch"
    return [*rows, ("streams", f"{equal}; {lost}"), *(("error", one) for one in document["errors"])]
