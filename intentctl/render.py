"""What people see: tables on stdout, talk on stderr. Documents in, nothing decided here."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, is_dataclass
from datetime import UTC, datetime
from itertools import groupby
from typing import TYPE_CHECKING, Any
from unicodedata import east_asian_width

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from intent.models import Finding, Intent, TranslatorInfo, Turn
from intentctl.arguments import OutputFormat
from intentctl.lines import visible, visible_lines
from runtime.capabilities import Batching
from runtime.models import Cluster, CutoverReport, MeasuredLink, Topology
from runtime.notation import parse_topology
from runtime.sync.swap import in_words
from selector.models import CrossingPrediction, Infeasible, Margin, Plan, Prediction, SwitchPrediction

if TYPE_CHECKING:  # measuring talks, too, on machines without what documents need
    from pydantic import JsonValue

    from selector.models import Workload
    from service import documents as docs

Row = tuple[str, str]
Document = dict[str, Any]
"""What is printed as JSON or YAML."""


def _console(stderr: bool = False) -> Console:
    """No markup: texts and names come from outside."""
    return Console(stderr=stderr, markup=False, highlight=False, emoji=False)


def talk(message: str) -> None:
    """Say something to the person, on stderr."""
    _console(stderr=True).print(visible_lines(message), soft_wrap=True)


def emit(document: object, form: OutputFormat, rows: Sequence[Row]) -> None:
    """Print one document on stdout: as data, or the rows that stand for it."""
    match form:
        case OutputFormat.JSON:
            print(_json(document, indent=2))
        case OutputFormat.YAML:
            print(_yaml(document), end="")
        case OutputFormat.TABLE:
            grid(rows)


def emit_documents(documents: Sequence[object]) -> None:
    """Print documents as one YAML stream."""
    for document in documents:
        print(f"---\n{_yaml(document)}", end="")


def plain(document: object) -> JsonValue:
    """A document, or a collection that holds some, as JSON."""
    from pydantic import BaseModel

    from intent.document import to_document
    from service.documents.forms import json_of

    match document:
        case Intent():
            return to_document(document)
        case BaseModel():
            return dict(document.model_dump(mode="json"))
        case Mapping():
            return {str(key): plain(value) for key, value in document.items()}
        case list() | tuple():
            return [plain(item) for item in document]
        case str() | int() | float() | None:
            return document
    if is_dataclass(document) and not isinstance(document, type):
        return json_of(document)
    raise TypeError(f"a {type(document).__name__} is no document")


def _yaml(document: object) -> str:
    """YAML as people read it; in ASCII where a character would be lost (PyYAML writes NEL as a line end)."""
    import yaml

    data = json.dumps(plain(document), ensure_ascii=False)
    lossless = _LINE_ENDS.keys().isdisjoint(map(ord, data))
    return str(yaml.safe_dump(json.loads(data), sort_keys=False, allow_unicode=lossless))


def emit_next(document: object, form: OutputFormat, rows: Sequence[Row]) -> None:
    """Print one document of several, at once: a line of JSON, a YAML document, or rows and an empty line."""
    match form:
        case OutputFormat.JSON:
            emit_line(document)
        case OutputFormat.YAML:
            print("---")
            emit(document, form, rows)
        case OutputFormat.TABLE:
            grid(rows)
            print()
    sys.stdout.flush()


def emit_line(document: object) -> None:
    """One document as one line of JSON, at once, for streams of them."""
    print(_json(document).translate(_LINE_ENDS), flush=True)


_LINE_ENDS = {ord(mark): f"\\u{ord(mark):04x}" for mark in "\x85\u2028\u2029"}
"""Characters that JSON may carry as they are, but that end a line for some readers."""


def _json(document: object, indent: int | None = None) -> str:
    """JSON as people read it where standard output can carry every character, in ASCII elsewhere."""
    unicode = (sys.stdout.encoding or "").lower().startswith("utf")
    return json.dumps(plain(document), indent=indent, ensure_ascii=not unicode)


def grid(rows: Sequence[Row]) -> None:
    """Names and values, a row each; repeated names are shown once."""
    if rows:
        _console().print(_table(rows))


def talk_rows(rows: Sequence[Row]) -> None:
    """The same as talk, on stderr."""
    _console(stderr=True).print(_table(rows))


def _table(rows: Sequence[Row]) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for (name, value), previous in zip(rows, [("", ""), *rows], strict=False):
        table.add_row("" if name == previous[0] else name, visible(value))
    return table


def line(text: str) -> None:
    """One line on stdout."""
    _console().print(visible(text), soft_wrap=True)


def problem_rows(problem: docs.Problem) -> list[Row]:
    """Why no plan could be made: for the model that it was for, or for each of several."""
    return [*_refused(problem.refused or ()), *(_infeasible(problem.infeasible) if problem.infeasible else ())]


def _refused(refused: Sequence[docs.RefusedModel]) -> Iterator[Row]:
    """Each model for which nothing holds the goals, and why."""
    for each in refused:
        yield "refused", f"{each.model}: no topology holds these goals"
        yield from _infeasible(each.infeasible)


def _infeasible(infeasible: Infeasible) -> list[Row]:
    """Why nothing holds the goals, and what comes closest."""
    rows = _left_out(infeasible)
    rows += [("why", reason) for reason in infeasible.reasons]
    if nearest := infeasible.nearest:
        rows.append(("nearest", f"{_topology(nearest.topology, nearest.batching)}: {prediction(nearest.prediction)}"))
    return [*rows, *(("feasible", target) for target in infeasible.feasible_targets)]


def _left_out(answer: Plan | Infeasible) -> list[Row]:
    """The goals that were not weighed, with the reasons."""
    return [("left out", f"{item.goal}: {item.reason}") for item in answer.left_out]


_SENTENCE = 100
"""Characters of a text that is shown whole beside the option that makes it."""


def intent_rows(intent: Intent) -> list[Row]:
    """An intent's read-back, what was assumed, and what is wrong with it."""
    rows = [("understood", intent.readback or "nothing"), ("outcome", intent.outcome.value)]
    rows += [("assumed", text) for text in dict.fromkeys(item.text for item in intent.assumptions)]
    questions = {question.text for question in intent.questions}
    rows += [("finding", _finding(item)) for item in intent.findings if item.message not in questions]
    for question in intent.questions:
        rows.append(("question", question.text))
        for number, option in enumerate(question.options):
            text = question.stands_for(number)
            sentence = f': "{text}"' if text != option and len(text) <= _SENTENCE else ""
            default = " (default)" if option == question.default else ""
            rows.append(("options", f"{number + 1}. {option}{sentence}{default}"))
    return [*rows, ("translator", _translator(intent.translator))]


def ledger_rows(intent: Intent) -> list[Row]:
    """Each word that turns a meaning, with the goal that used it, or what else became of it."""
    return [("turns", f"{turn.words!r} ({turn.turns}): {_use(turn)}") for turn in intent.ledger]


def _use(turn: Turn) -> str:
    goal = turn.became.removeprefix("/goals/")
    return f"goal {int(goal) + 1}, {turn.sign}" if goal != turn.became else turn.became.replace("_", " ")


def marked(intent: Intent) -> list[tuple[str, int | None]]:
    """The text in stretches, each with the number of the goal that quotes it, from 1.

    None for what no goal took.
    """
    owners: list[int | None] = [None] * len(intent.text)
    for number, goal in reversed(list(enumerate(intent.goals, 1))):
        start = intent.text.find(goal.evidence)
        if start >= 0:
            owners[start : start + len(goal.evidence)] = [number] * len(goal.evidence)
    parts = groupby(zip(intent.text, owners, strict=True), key=lambda field: field[1])
    return [("".join(letter for letter, _ in part), number) for number, part in parts]


def mark_lines(intent: Intent) -> Iterator[str]:
    """Each line of the text, and under it the number of the goal that took a word."""
    marks = [(letter, number) for words, number in marked(intent) for letter in words]
    for is_end, line in groupby(marks, key=lambda field: field[0] == "\n"):
        if not is_end:
            text = list(line)
            yield visible("".join(letter for letter, _ in text))
            cells = (2 if east_asian_width(letter) in "WF" else 1 for letter, _ in text)
            owners = (" " if number is None else "^" * (number > 9) or str(number) for _, number in text)
            yield "".join(owner * width for owner, width in zip(owners, cells, strict=True)).rstrip()


def amendment_rows(answer: docs.AmendmentDocument) -> list[Row]:
    """A version of an intent: what is different from the one before, and the intent itself."""
    from service.documents.plans import VersionDocument

    rows = [("intent", f"{answer.id} version {answer.version}")] if isinstance(answer, VersionDocument) else []
    rows += [(change.change, _change(change)) for change in answer.diff]
    return [*rows, *intent_rows(answer.intent)]


def _change(change: docs.ChangeDocument) -> str:
    """What became of a goal: its slots before and after, or the words it came from."""
    if change.before is None or change.after is None:
        goal = change.before or change.after
        return f'"{goal.evidence}"' if goal else ""
    from intent.document import goal_document

    before = goal_document(change.before)
    after = goal_document(change.after)
    slots = [slot for slot in after if slot != "evidence" and before.get(slot) != after[slot]]
    name = next((after[key] for key in ("metric", "key", "value", "selector") if key in after), after["type"])
    return f"{name}: " + ", ".join(f"{slot} {_slot(before.get(slot))} -> {_slot(after[slot])}" for slot in slots)


def _slot(value: object) -> str:
    return "not said" if value is None else str(value)


def _finding(item: Finding) -> str:
    return f"{item.code}: {item.message}" + (f" ({item.suggestion})" if item.suggestion else "")


def _translator(info: TranslatorInfo) -> str:
    name = f"{info.name} ({info.model})" if info.model else info.name
    return f"{name}, because {info.reason}" if info.reason else name


def answer_rows(answer: docs.PlanAnswer) -> list[Row]:
    """Several plans, one below the other, and then the models that have none."""
    return [*(row for plan in answer.plans for row in plan_rows(plan)), *_refused(answer.refused)]


def plan_rows(plan: Plan) -> list[Row]:
    """From what to what, what it is predicted to do, and why the others lost."""
    rows = [("plan", f"{plan.id} for {plan.model}, window {plan.window}, generation {plan.generation}")]
    if plan.intent_version is not None:
        rows.append(("intent", f"{plan.intent_id} version {plan.intent_version}"))
    rows += _left_out(plan)
    if plan.workload:
        rows.append(("load", load(plan.workload)))
    rows += [
        ("breaks" if item.code == "breaks_promise" else "finding", f"{item.message} ({item.evidence!r})")
        for item in plan.to_acknowledge
    ]
    rows += [("now", _topology(plan.now, plan.now_batching)), ("target", _topology(plan.target, plan.batching))]
    if not plan.changes:
        rows.append(("change", "nothing to change: the target is what runs"))
    rows += [("on offer", offer) for offer in plan.offers]
    rows.append(("predicted", prediction(plan.prediction)))
    if plan.now_prediction and plan.changes:
        rows.append(("today", prediction(plan.now_prediction)))
    if found := plan.simulation:
        words = f"TTFT {_latency(found.ttft_s)}, TPOT {_latency(found.tpot_s)}"
        over = "more come than are served" if found.waits_grow else f"over {found.requests} requests in virtual time"
        rows.append(("simulated", f"{words}: {over}"))
    rows += [("goal", _margin(margin)) for margin in plan.margins]
    rows += [("weighed", rule) for rule in plan.rules]
    if runner := plan.runner_up:
        rows.append(("runner-up", f"{_topology(runner.topology, runner.batching)}: {runner.reason}"))
    rows += [("why", reason) for reason in plan.reasons]
    rows += [("certificate", reason) for reason in plan.certificate]
    if plan.bytes_to_move and plan.changes:
        rows.append(("to move", to_move(plan.bytes_to_move)))
    if plan.switch and plan.changes:
        rows.append(("switch", switch(plan.switch, _overloaded(plan))))
    return rows


def _topology(topology: Topology | None, batching: Batching | None = None) -> str:
    words = f"{topology.shape}  {topology.text}" if topology else "nothing"
    return f"{words}, {batching}" if topology and batching else words


def load(load: Workload) -> str:
    """What is asked."""
    return f"{load.rate_rps:.4g} requests/s, {load.concurrency} at once: {requests(load)}"


def requests(load: Workload) -> str:
    """What requests are like, and where the spread of their lengths comes from."""
    lengths = [("tokens in", load.input_tokens, load.inputs), ("out", load.output_tokens, load.outputs)]
    words = [f"{mean} {way} (P95 {mean * spread.p95_by_mean:.0f}, {spread.source})" for way, mean, spread in lengths]
    return f"{', '.join(words)}; burstiness {load.burstiness:g}, prefix hit {load.prefix_hit:.0%}"


def prediction(prediction: Prediction) -> str:
    """What a topology is predicted to do, in a line."""
    parts = [
        f"TTFT {_latency(prediction.ttft_s)}",
        f"TPOT {_latency(prediction.tpot_s)}",
        f"up to {prediction.throughput_tok_s:.4g} tokens/s with {prediction.batch} sequences at once",
        f"{prediction.usd_per_hour:.2f} USD/h" if prediction.usd_per_hour else "",
    ]
    return f"{', '.join(filter(None, parts))} (±{prediction.error_band:.0%}, {prediction.source})"


def _latency(reading: Mapping[str, float]) -> str:
    """Mean and p99."""
    mean, p99 = (seconds(reading[name]) for name in ("mean", "p99"))
    return mean if mean == p99 else f"{mean} (p99 {p99})"


def _margin(margin: Margin) -> str:
    if math.isinf(margin.predicted):
        return f"{margin.goal}: without end, missed"
    figures = " against ".join(_amount(value, margin) for value in (margin.predicted, margin.bound))
    verdict = (
        f"held, {margin.margin * 100:.0f} % to spare"
        if margin.margin > 0
        else "held"
        if margin.margin == 0
        else "missed"
    )
    if margin.is_knife_edge:
        verdict = f"on a knife's edge: {_amount(margin.worst, margin)} is within the error band"
    return f"{margin.goal}: {figures}, {verdict}"


def _amount(value: float, margin: Margin) -> str:
    """A reading or a bound in the unit that suits the bound."""
    match margin.unit:
        case "s":
            return f"{value * 1000:.3g} ms" if margin.bound < 1 else f"{value:.3g} s"
        case "ratio":
            return f"{value * 100:.3g} %"
        case "gpus" | "":
            return f"{value:.3g}"
        case unit:
            return f"{value:.4g} {unit}"


STRATEGIES = {
    "shadow": "the target comes up beside what runs",
    "stream": "layers move one by one while requests stand still, for only one copy of the weights fits",
    "restart": "the running engine ends first, and requests stand still until the target is up",
}
"""How a switch goes, in words."""


def _overloaded(plan: Plan) -> str:
    """Who of the two sides of a plan has requests that pile up, so that nobody can predict a standstill."""
    sides = {"what runs": plan.now_prediction, "the target": plan.prediction}
    names = [name for name, found in sides.items() if found and math.isinf(found.tpot_s["mean"])]
    return f": {' and '.join(names)} {'is' if len(names) == 1 else 'are'} overloaded" if names else ""


def switch(switch: SwitchPrediction, why: str = "") -> str:
    """What a switch is predicted to take; ``why`` a standstill cannot be predicted."""
    parts = {
        "to prepare": switch.prepare_s,
        "of standing still": switch.stop_s,
        "of that beyond the usual gap between tokens": switch.pause_s if math.isfinite(switch.stop_s) else None,
        "until it has paid for itself": switch.payback_s,
    }
    bands = {
        "to prepare": _band(switch.prepare_least_s, switch.prepare_most_s),
        "of standing still": f" (at most {seconds(switch.stop_most_s)})" if 0 < switch.stop_most_s < math.inf else "",
    }
    figures = ", ".join(
        f"{seconds(value)}{bands.get(words, '')} {words}"
        for words, value in parts.items()
        if value and math.isfinite(value)
    )
    if math.isinf(switch.stop_s):
        figures += f", a standstill that nobody can predict{why}"
    over = f"; {_crossing(switch.between_hosts)}" if switch.between_hosts else ""
    if switch.swap:
        return (
            f"a swap: {switch.swap}; requests go on, no KV moves; {figures.partition(', ')[0] or 'at once'} (predicted)"
        )
    return f"{STRATEGIES[switch.strategy]}: {figures or 'at once'}{over} (predicted)"


def _band(least_s: float, most_s: float) -> str:
    """In which a figure lies, where that is known and more than the figure."""
    ends = [seconds(end) for end in (least_s, most_s) if math.isfinite(end)]
    return f" ({' to '.join(ends)})" if most_s and len({*ends}) == 2 else ""


def _crossing(over: CrossingPrediction) -> str:
    """What another node takes of that, and whether computing KV anew would be quicker."""
    if over.path == "anew":
        took = seconds(over.anew_s) if math.isfinite(over.anew_s) else "a time without end"
        return f"the other node computes {size(over.kv_bytes)} of KV anew in {took}"
    if math.isinf(over.sync_s):
        return f"{size(over.kv_bytes)} of KV would not get to the other node: it is written faster than the network takes it"
    quicker = f", computing it anew there {seconds(over.anew_s)}" if math.isfinite(over.anew_s) else ""
    took = f"{size(over.kv_bytes)} of KV take {seconds(over.sync_s)} to the other node{quicker}"
    return f"{took}, and the standstill is {seconds(over.cut_s)} longer"


def to_move(sizes: Mapping[str, float]) -> str:
    """What a switch has to move, by name."""
    return ", ".join(f"{name.replace('_', ' ')} {size(value)}" for name, value in sizes.items())


def moment(at_s: float) -> str:
    """A moment for people."""
    return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def seconds(value: float) -> str:
    """A duration in the unit that reads best."""
    if math.isinf(value):
        return "without end"
    return f"{value * 1000:.3g} ms" if value < 1 else f"{value:.3g} s"


def size(num_bytes: float) -> str:
    """Bytes in the unit that reads best."""
    for unit in ("B", "kB", "MB", "GB"):
        if num_bytes < 1000:
            return f"{num_bytes:.3g} {unit}"
        num_bytes /= 1000
    return f"{num_bytes:.3g} TB"


def operation_rows(operation: docs.OperationDocument) -> list[Row]:
    """How far a switch is, or what it did."""
    model = f" for {operation.model}" if operation.model else ""
    rows = [("operation", f"{operation.id} of {operation.plan_id}{model}"), ("phase", operation.phase.value)]
    if operation.words:
        rows.append(("for", f'"{operation.words}"'))
    if operation.applied_by:
        rows.append(("applied by", f"{operation.applied_by}, approved by {operation.approved_by}"))
    known = operation.result or operation
    target = f"{known.target}, {operation.batching}" if known.target and operation.batching else known.target
    rows += [(name, text) for name, text in (("from", known.source), ("to", target)) if text]
    if operation.result:
        rows += report_rows(operation.result)
    if error := operation.error:
        rows.append(("error", error.detail))
    return rows


def copied(operation: docs.OperationDocument) -> str:
    """How far the copying is."""
    progress = operation.progress
    if operation.phase in {"done", "aborted"}:
        return f"{size(progress.copied_bytes)} copied"
    return f"{size(progress.copied_bytes)} copied, {size(progress.lag.bytes)} to go"


def report_rows(result: CutoverReport) -> list[Row]:
    """What a switch did, as the engine saw it."""
    parts = ", ".join(
        f"{name.removesuffix('_ms').replace('_', ' ')} {value:.1f}" for name, value in asdict(result.timings).items()
    )
    sides = [parse_topology(text, Cluster(()), 0) for text in (result.source, result.target) if "swap" in result.paths]
    return [
        ("prepared in", seconds(result.prepare_s)),
        *([("new requests held back for", seconds(result.held_s))] if result.held_s else []),
        *(
            [("swap", f"{in_words(*sides)}; {result.moved} requests stay where they are, with their KV")]
            if sides
            else []
        ),
        *(
            []
            if sides
            else [("copied", f"{size(result.bytes_before)} before the cut, {size(result.bytes_inside)} inside")]
        ),
        *between_hosts_rows(result.transport, result.bytes_between_hosts, result.link),
        *([] if sides else [("moved", moved(result.moved, result.paths, result.stays, result.tokens_recomputed))]),
        ("cut (ms)", parts),
    ]


def between_hosts_rows(transport: str, num_bytes: int, link: MeasuredLink | None) -> list[Row]:
    """How KV came from one host to another and over what, or that none did; nothing on one host."""
    if transport == "file":
        return []
    if link is None:
        return [("between hosts", "no KV; the target computed it anew")]
    over = f" over {link.lane}" if link.lane else ""
    measured = f"measured {size(link.bytes_s)}/s, round trip {seconds(link.round_trip_s)}"
    return [("between hosts", f"{size(num_bytes)} by {transport}{over}; {measured}")]


def moved(moved: int, paths: Mapping[str, int], stays: Mapping[str, int], tokens_recomputed: int) -> str:
    """How many requests came over, by which path, and how many stayed and why."""
    by_path = ", ".join(f"{count} by {path}" for path, count in paths.items() if count)
    why = ", ".join(f"{count} {reason}" for reason, count in stays.items())
    left = f"; {sum(stays.values())} left to drain ({why})" if stays else ""
    return f"{by_path or f'{moved} requests'}; {tokens_recomputed} tokens recomputed{left}"


def topology_rows(state: docs.StateDocument) -> list[Row]:
    """What runs and on what."""
    rows = [
        ("model", state.model),
        ("topology", _topology(state.topology, state.batching)),
        ("generation", str(state.generation)),
        ("streams", str(state.streams)),
    ]
    if state.origin:
        rows.insert(3, ("because of", state.origin))
    if state.operation:
        rows.append(("switching", state.operation))
    rows += _replica_rows(state)
    for node in state.inventory:
        kinds = [gpu.kind for gpu in node.gpus]
        counts = ", ".join(f"{kinds.count(kind)} x {kind}" for kind in dict.fromkeys(kinds))
        rows.append(("inventory", f"{node.name}: {counts} ({node.link})"))
    return rows


def _replica_rows(state: docs.StateDocument) -> Iterator[Row]:
    """Each replica where there are several, or one leaves: by its place, which `drain` takes."""
    for place, each in enumerate(state.replicas if len(state.replicas) > 1 else (), start=1):
        doing = "leaving" if each.is_leaving else "changing" if each.is_changing else each.state.value
        planned = "" if each.share is None else f" of {each.share:.0%} planned"
        load = f"{each.running} running, {each.waiting} waiting, {each.taken:.0%} taken{planned}"
        yield f"{state.model}/{place}", f"{each.topology.text}: {doing}, {load}"


class SwitchProgress:
    """A bar for warm-up and sync on stderr; plain lines where that is no terminal."""

    def __init__(self, progress: Progress | None) -> None:
        self._progress = progress
        self._task = progress.add_task("planned", total=None) if progress else None
        self._phase = ""

    def show(self, operation: docs.OperationDocument) -> None:
        """Bring the display to an operation's state."""
        copied = operation.progress.copied_bytes
        if self._progress is not None and self._task is not None:
            total = copied + operation.progress.lag.bytes or None
            self._progress.update(self._task, description=operation.phase.value, completed=copied, total=total)
        elif operation.phase != self._phase:
            talk(f"{operation.phase}: {size(copied)} copied" if copied else operation.phase.value)
        self._phase = operation.phase


@contextmanager
def switch_progress() -> Iterator[SwitchProgress]:
    """Show a switch while it goes on."""
    if not sys.stderr.isatty():
        yield SwitchProgress(None)
        return
    columns = (SpinnerColumn(), TextColumn("{task.description:<10}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=_console(stderr=True), transient=True) as progress:
        yield SwitchProgress(progress)
