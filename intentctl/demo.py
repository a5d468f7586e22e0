"""``intentctl demo``: the main job on this machine, measured by eight streaming clients.

Nothing is staged: the service is the ordinary one, the selector chooses, the figures are what arrived here.
"""

import asyncio
import gc
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from intent.models import Outcome
from intentctl import render
from intentctl.arguments import SWITCH_TIMEOUT_S, EngineName, OutputFormat
from intentctl.client import Client
from intentctl.commands import to_its_end
from intentctl.credentials import ADMIN_KEY_FILE
from intentctl.local import EXAMPLES
from intentctl.measure import ClientStream, TimeInterval, difference, percentiles, sham_stops, stop_of
from intentctl.render import Document, plain
from intentctl.status import failure
from intentctl.streams import BackgroundLoad, ChatLoad, Recording, inference_at
from runtime.models import MeasuredLink
from selector.models import Plan
from service import api
from service import documents as docs
from service.documents.operations import OperationDocument
from service.documents.plans import PlanRequest

INTENTS = ("keep P99 TTFT < 2s at peak, as cheap as possible", "run it with tp=2")
STOP_TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True)
class DemoRequests:
    """What is asked while a service switches."""

    prompts: tuple[str, ...]
    load: type[BackgroundLoad] = BackgroundLoad
    max_tokens: int = 12_000
    """More than the slowest switches let pass: streams are left when the last one is measured."""
    quiet_tokens: int = 110
    """Per stream between switches: medians need 50 gaps on each side, sham cuts 101 in a row."""


COUNTING = DemoRequests(
    tuple(f"count by {step} from {start}:" for step, start in zip(range(3, 27, 3), range(11, 99, 11), strict=True))
)
CHATS = DemoRequests(
    prompts=(
        "Tell me a long story about a lighthouse keeper and a whale.",
        "Explain step by step how bread is made, from the field to the table.",
        "Write about a day in the life of a river, hour by hour.",
        "What should a beginner know about the night sky? Take your time.",
        "Describe a market in a small town on a rainy morning.",
        "List ten inventions, and say at length how each one changed the world.",
        "Write a long letter from a sailor to his sister.",
        "Explain how a bicycle works to a child, part by part.",
    ),
    load=ChatLoad,
    max_tokens=4_000,
)
"""For a real model."""
CHAT_INTENTS = ("run it with tp=1 and pp=2", "run it with tp=3 and pp=1", "run it with tp=1 and pp=1")
SHAMS = 20
"""Sham cuts per stream and quiet interval."""
LOGPROB_TOLERANCE = 1e-4
MOVED = ("moved", "paths", "stays", "tokens_recomputed")
ENGINE_KEYS = (
    "prepare_s",
    "bytes_before",
    "bytes_inside",
    *MOVED,
    "left_to_drain",
    "timings",
    "transport",
    "bytes_between_hosts",
    "link",
)
"""What the report takes over from the engine's own."""


@dataclass(frozen=True, slots=True)
class Switched:
    """One intent with its plan and the switch that followed (None: nothing to change)."""

    text: str
    plan: Plan
    operation: OperationDocument | None
    link_bytes: int | None = None
    """What a link between hosts counted from the one to the other meanwhile, where there is one."""

    @property
    def interval(self) -> TimeInterval | None:
        """From planned to the last phase; None without a switch."""
        if self.operation is None:
            return None
        phases = self.operation.phases
        return TimeInterval(phases[0].at, phases[-1].at)


def example(engine: EngineName) -> Path:
    """The deployment that shows an engine.

    Raises:
        CommandError: the engine is not installed.
    """
    if engine is EngineName.VLLM:
        from runtime.errors import EngineStartError
        from runtime.vllm_engine.driver.boot import installed_version

        try:
            installed_version()
        except EngineStartError as error:
            raise failure("error", str(error)) from error
    return EXAMPLES[engine]


Change = Callable[[Client], Switched]


def run(form: OutputFormat, deployment: Path) -> None:
    """Run the demo on a deployment and report.

    Raises:
        CommandError: the service did not start, a switch was given up, or a stream differs.
    """
    conclude(form, report(*watched(deployment, [partial(_change, text=text) for text in INTENTS], COUNTING)))


def run_real(form: OutputFormat) -> None:
    """Run the demo with a real model, or with the one that counts where it cannot be had.

    Raises:
        CommandError: as ``run``, or the model cannot be used.
    """
    from intentctl.real.smollm2 import UnreachableError, deployment
    from service.deployment.settings import read_settings

    try:
        file = deployment(read_settings().folder / "models")
    except UnreachableError as error:
        render.talk(f"the real model cannot be had ({error}); the model that counts is shown instead")
        return run(form, example(EngineName.TORCH))
    changes = [partial(_change, text=text) for text in CHAT_INTENTS]
    return conclude(form, report(*watched(file, changes, CHATS)))


def watched(
    deployment: Path, changes: Sequence[Change], wanted: DemoRequests
) -> tuple[list[Switched], list[Recording], list[Recording]]:
    """Switches of a service of its own, the streams meanwhile, and the same ones without a switch.

    Raises:
        CommandError: the service did not start, or a switch was refused.
    """
    with started_service(deployment) as client:
        render.talk(f"a service runs at {client.url}")
        return asyncio.run(_session(client, changes, wanted))


def conclude(form: OutputFormat, document: Document) -> None:
    """Show a report.

    Raises:
        CommandError: it says that something went wrong.
    """
    render.emit(document, form, report_rows(document))
    if document["streams_equal"] != document["streams"] or document["notes"]:
        raise failure("error", "; ".join(document["notes"]) or "a stream differs from the run without a switch")


@contextmanager
def started_service(deployment: Path) -> Iterator[Client]:
    """A service of its own: any free port, data in a folder that goes away.

    Raises:
        CommandError: it did not start; the message is the service's own.
    """
    with tempfile.TemporaryDirectory(prefix="intentctl-") as folder, (Path(folder) / "log").open("w+") as log:
        command = [sys.executable, "-P", "-m", "intentctl", "serve", "--port", "0", "--data-dir", folder]
        with subprocess.Popen(
            [*command, "--deployment", str(deployment)], stdout=subprocess.PIPE, stderr=log, text=True
        ) as process:
            try:
                assert process.stdout is not None
                url = process.stdout.readline().strip()
                if not url:
                    log.seek(0)
                    raise failure("error", f"the service did not start: {log.read().strip()}")
                key = Path(folder) / ADMIN_KEY_FILE
                yield Client(url, key.read_text().strip() if key.is_file() else None)
            finally:
                _stop(process)


def _stop(process: subprocess.Popen[str]) -> None:
    """End the service, which ends its engine; by force if it does not."""
    process.terminate()
    try:
        process.wait(timeout=STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()


async def _session(
    client: Client, changes: Sequence[Change], wanted: DemoRequests
) -> tuple[list[Switched], list[Recording], list[Recording]]:
    """Stream, make the changes, then run the same requests once more without a switch."""
    model = (await asyncio.to_thread(client, api.state.topology)).model
    async with inference_at(client.url, client.key) as openai:
        gc.freeze()  # the stamps are this process's: no long collection while it listens
        load = wanted.load(openai, model, wanted.prompts, wanted.max_tokens)
        await load.grow(wanted.quiet_tokens)
        switched = []
        for change in changes:
            _show(load)
            switched.append(await asyncio.to_thread(change, client))
            interval = switched[-1].interval
            await load.grow(wanted.quiet_tokens, interval.end_s if interval else 0.0)
        _show(load)
        live = await load.stop()
        render.talk("the same requests once more, without a switch")
        most = max(len(recording.tokens) for recording in live)
        return switched, live, await wanted.load(openai, model, wanted.prompts, most).finish()


def _show(load: BackgroundLoad) -> None:
    for recording in load.recordings:
        render.talk(f"  {recording.prompt:<18} ... {' '.join(recording.tail().split())}")


def _change(client: Client, text: str) -> Switched:
    """Say one intent and apply its plan."""
    render.talk(f"\nintentctl {text!r}")
    intent = client(api.intents.translate, docs.TranslateRequest(text=text))
    render.talk_rows(render.intent_rows(intent))
    if intent.outcome is not Outcome.OK:
        raise failure(intent.outcome.value, f"{text!r} was not understood: {intent.readback}")
    plan = client(api.plans.make_plan, PlanRequest(intent=intent)).plan
    assert plan is not None, "an intent without a question is planned for"
    render.talk_rows(render.plan_rows(plan))
    if not plan.changes:
        return Switched(text, plan, None)
    return Switched(text, plan, to_its_end(client, client(api.plans.apply, plan.id), SWITCH_TIMEOUT_S))


def report(switched: list[Switched], live: list[Recording], reference: list[Recording]) -> Document:
    """Everything that was measured, as one document; a stream that was left is compared as far as it came.

    Pure.
    """
    streams = [recording.stream() for recording in live]
    differences = [
        difference(recording.stream(), other.stream(None if recording.ended else len(recording.tokens)))
        for recording, other in zip(live, reference, strict=True)
    ]
    notes = [f"{r.prompt!r} broke: {r.error}" for r in (*live, *reference) if r.error]
    switches = [_switch_report(number, switched, streams, notes) for number in range(len(switched))]
    worst = max((d.worst_logprob for d in differences), default=0.0)
    equal = [d.tokens_equal and d.worst_logprob <= LOGPROB_TOLERANCE for d in differences]
    return {
        "streams": len(streams),
        "streams_equal": sum(equal),
        "tokens": sum(len(stream.tokens) for stream in streams),
        "tokens_lost": sum(d.lost for d in differences),
        "tokens_duplicated": sum(d.duplicated for d in differences),
        "tokens_changed": sum(d.changed for d in differences),
        "worst_logprob_difference": worst,
        "switches": switches,
        "notes": notes,
    }


def _switch_report(number: int, switched: list[Switched], streams: list[ClientStream], notes: list[str]) -> Document:
    """One switch; what could not be measured is said in ``notes`` and left null."""
    this = switched[number]
    document: Document = {
        "intent": this.text,
        "plan": this.plan.id,
        "from": this.plan.now.shape if this.plan.now else None,
        "to": this.plan.target.shape,
    }
    if this.operation is None or this.interval is None:
        notes.append(f"{this.text!r}: the plan changes nothing, so there was no switch to measure")
        return document
    result = this.operation.result
    if result is None:
        notes.append(f"{this.text!r}: {this.operation.error.detail if this.operation.error else 'it goes on'}")
        return document
    quiet = _quiet_around(number, switched)
    stops = [stop for stream in streams if (stop := stop_of(stream, this.interval, quiet))]
    shams = [stop for seed, stream in enumerate(streams) for stop in sham_stops(stream, quiet, SHAMS, seed)]
    if len(stops) < len(streams):
        missing = len(streams) - len(stops)
        notes.append(f"{this.text!r}: {missing} of {len(streams)} streams ended too early to measure the stop")
    return {
        **document,
        **{key: plain(getattr(result, key)) for key in ENGINE_KEYS},
        "streams_measured": len(stops),
        "gap_ms": _percentiles([stop.gap_ms for stop in stops]),
        "stop_ms": _percentiles([stop.stop_ms for stop in stops]),
        "worst_gap_ms": _percentiles([stop.worst_gap_ms for stop in stops]),
        "sham_stop_ms": _percentiles(shams),
    }


def _quiet_around(number: int, switched: list[Switched]) -> tuple[TimeInterval, TimeInterval]:
    """The undisturbed time before and after a switch: up to its neighbours."""
    intervals = [switched.interval for switched in switched]
    this = intervals[number]
    assert this is not None
    before = max((other.end_s for other in intervals[:number] if other), default=0.0)
    after = min((other.start_s for other in intervals[number + 1 :] if other), default=float("inf"))
    return TimeInterval(before, this.start_s), TimeInterval(this.end_s, after)


def _percentiles(values: list[float]) -> Document | None:
    found = percentiles(values)
    return {name: round(value, 2) for name, value in asdict(found).items()} if found else None


def report_rows(document: Document) -> list[render.Row]:
    """The report for people."""
    rows: list[render.Row] = []
    for switch in document["switches"]:
        rows.append((f"{switch['from']} to {switch['to']}", switch["intent"]))
        if "stop_ms" not in switch:
            continue
        copied = f"{render.size(switch['bytes_before'])} before the cut, {render.size(switch['bytes_inside'])} inside"
        rows += [("  prepared in", render.seconds(switch["prepare_s"])), ("  copied", copied)]
        rows.append(("  moved", render.moved(**{key: switch[key] for key in MOVED})))
        link = MeasuredLink(**switch["link"]) if switch["link"] else None
        between = render.between_hosts_rows(switch["transport"], switch["bytes_between_hosts"], link)
        rows += [(f"  {name}", text) for name, text in between]
        if switch.get("link_bytes") is not None:
            rows.append(("  link carried", f"{render.size(switch['link_bytes'])} meanwhile, by its own counter"))
        rows += [
            (f"  {label}", _figures(switch[key]))
            for label, key in (
                ("gap", "gap_ms"),
                ("stop", "stop_ms"),
                ("sham", "sham_stop_ms"),
                ("worst gap", "worst_gap_ms"),
            )
        ]
    rows.append(
        (
            "tokens",
            f"{document['tokens']}; {document['tokens_lost']} lost, {document['tokens_duplicated']} duplicated",
        )
    )
    equal = f"{document['streams_equal']} of {document['streams']} equal the same requests without a switch"
    rows.append(("streams", f"{equal} (logprobs within {document['worst_logprob_difference']:.1e})"))
    return [*rows, *(("note", note) for note in document["notes"])]


def _figures(figures: Document | None) -> str:
    if figures is None:
        return "not measured"
    return f"p50 {figures['p50']:.1f} ms, p99 {figures['p99']:.1f} ms, max {figures['max']:.1f} ms"
