"""The picture of the README: eight streams of ``intentctl demo`` while the service switches twice.

``python -m benchmarks.switch_under_load`` draws it from a result file; ``--record`` runs the demo's two intents first (20 s) and
writes that file. Times are the client's.
"""

import argparse
import asyncio
import json
import os
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.provenance import ROOT, provenance
from intentctl import demo, render
from intentctl.arguments import SWITCH_TIMEOUT_S, EngineName, OutputFormat
from intentctl.client import Client
from intentctl.commands import follow
from intentctl.demo import Switched
from intentctl.plots import COLOURS, GREY, looks, picture
from intentctl.streams import BackgroundLoad, Recording
from service import api
from service import documents as docs
from service.documents.plans import PlanRequest

if TYPE_CHECKING:
    from matplotlib.axes import Axes

RESULT = ROOT / "benchmarks" / "results" / "switch-under-load.json"
PICTURE = ROOT / "docs" / "pictures" / "switch-under-load.svg"
RATE_BIN_S, GAP_BIN_S = 0.1, 0.05
MARGIN_S = 2.0
"""What is shown before the first switch and after the last."""
_LONG = re.compile(r"(?m)^([ML] -?\d+\.\d)\d*( -?\d+\.\d)\d*")
"""A point of a path: a tenth of a point of paper is enough."""
Document = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Switch:
    """One switch, in seconds of the picture."""

    label: str
    planned_s: float
    cut_s: float
    done_s: float


def main(arguments: Sequence[str] | None = None) -> int:
    """Record if asked to, then draw."""
    options = parser().parse_args(arguments)
    if options.record:
        document = record()
        render.emit(document["report"], OutputFormat.TABLE, demo.report_rows(document["report"]))
        options.json.write_text(_lines(document), encoding="utf-8")
    draw(json.loads(options.json.read_text(encoding="utf-8")), options.out)
    return 0


def parser() -> argparse.ArgumentParser:
    """The command line."""
    found = argparse.ArgumentParser("python -m benchmarks.switch_under_load", description=__doc__)
    found.add_argument("--record", action="store_true", help="run the demo's intents and write the file first")
    found.add_argument("--json", type=Path, metavar="FILE", default=RESULT)
    found.add_argument("--out", type=Path, metavar="SVG", default=PICTURE)
    return found


def record() -> Document:
    """Run the intents of the demo on the built-in engine, and return every token's arrival.

    Raises:
        CommandError: the service did not start, or a text was not understood.
    """
    with demo.started_service(demo.example(EngineName.TORCH)) as client:
        switched, live, reference = asyncio.run(_session(client))
    start_s = min(one.arrivals_s[0] for one in live)
    return {
        "benchmark": "switch_under_load",
        **provenance(),
        "load_average": os.getloadavg(),
        "niceness": os.getpriority(os.PRIO_PROCESS, 0),
        "report": demo.report(switched, live, reference),
        "switches": [_switch(one, start_s) for one in switched if one.operation],
        "streams": [_stream(one, start_s) for one in live],
    }


async def _session(client: Client) -> tuple[list[Switched], list[Recording], list[Recording]]:
    """Switches, the streams that ran meanwhile, and the same requests without a switch."""
    from openai import AsyncOpenAI, DefaultAsyncHttpxClient

    model = (await asyncio.to_thread(client, api.state.topology)).model
    http = DefaultAsyncHttpxClient(trust_env=False)
    async with AsyncOpenAI(base_url=f"{client.url}/openai/v1", api_key=client.key, http_client=http) as openai:
        load = BackgroundLoad(openai, model, demo.COUNTING.prompts, demo.COUNTING.max_tokens)
        await load.grow(demo.COUNTING.quiet_tokens)
        switched = []
        for text in demo.INTENTS:
            switched.append(await asyncio.to_thread(_change, client, text))
            interval = switched[-1].interval
            await load.grow(demo.COUNTING.quiet_tokens, interval.end_s if interval else 0.0)
        live = await load.stop()
        most = max(len(one.tokens) for one in live)
        return switched, live, await BackgroundLoad(openai, model, demo.COUNTING.prompts, most).finish()


def _change(client: Client, text: str) -> Switched:
    """Say one intent, apply its plan, and wait for the end of the switch."""
    plan = client(
        api.plans.make_plan, PlanRequest(intent=client(api.intents.translate, docs.TranslateRequest(text=text)))
    ).plan
    assert plan is not None, "an intent of the demo is planned for"
    operation = client(api.plans.apply, plan.id)
    for state in follow(client, operation.id, SWITCH_TIMEOUT_S):
        operation = state
    return Switched(text, plan, operation)


def _switch(switched: Switched, start_s: float) -> Document:
    assert switched.operation is not None
    now = switched.plan.now
    phases = {str(phase.phase): round(phase.at - start_s, 4) for phase in switched.operation.phases}
    return {
        "intent": switched.text,
        "from": now.shape if now else None,
        "to": switched.plan.target.shape,
        "phases_s": phases,
    }


def _stream(recording: Recording, start_s: float) -> Document:
    gaps = [round((after - before) * 1000, 1) for before, after in pairwise(recording.arrivals_s)]
    first_ms = round((recording.arrivals_s[0] - start_s) * 1000, 1)
    return {"prompt": recording.prompt, "first_ms": first_ms, "gaps_ms": gaps}


def _lines(document: Document) -> str:
    """JSON with a line for each switch and each stream."""
    long = ("switches", "streams")
    head = json.dumps({key: value for key, value in document.items() if key not in long}, indent=1)
    parts = [head.removesuffix("\n}")]
    for key in long:
        rows = ",\n  ".join(map(json.dumps, document[key]))
        parts.append(f' "{key}": [\n  {rows}\n ]')
    return ",\n".join(parts) + "\n}\n"


def arrivals_s(stream: Document) -> list[float]:
    """When each token of a stream came, in seconds since the first token of all."""
    return [one / 1000 for one in accumulate(stream["gaps_ms"], initial=stream["first_ms"])]


def rates(streams: Sequence[Sequence[float]], end_s: float, bin_s: float = RATE_BIN_S) -> list[float]:
    """Tokens per second of all streams, in each whole bin from zero to an end."""
    counts = [0] * int(end_s / bin_s)
    for at_s in (at_s for stream in streams for at_s in stream):
        if 0 <= at_s < len(counts) * bin_s:
            counts[int(at_s / bin_s)] += 1
    return [count / bin_s for count in counts]


def longest_gaps(stream: Sequence[float], bin_s: float = GAP_BIN_S) -> Iterator[tuple[float, float]]:
    """The longest gap that ends in each bin, in milliseconds, at the middle of the bin."""
    longest: dict[int, float] = {}
    for before, after in pairwise(stream):
        number = int(after / bin_s)
        longest[number] = max(longest.get(number, 0.0), (after - before) * 1000)
    return (((number + 0.5) * bin_s, gap_ms) for number, gap_ms in longest.items())


def draw(document: Document, path: Path) -> None:
    """Tokens per second above the gaps of each stream; a switch is shaded, its cut a line.

    Raises:
        CommandError: the path is no SVG's, or cannot be written.
    """
    switches, streams = _shown(document)
    end_s = min(*(stream[-1] for stream in streams), switches[-1].done_s + MARGIN_S)
    with picture(path, (8.0, 4.2)) as figure:
        upper, lower = figure.subplots(2, sharex=True)
        _rates(upper, streams, end_s)
        _gaps(lower, streams, end_s)
        for switch in switches:
            _shade((upper, lower), switch)
    path.write_text(_LONG.sub(r"\1\2", path.read_text(encoding="utf-8")), encoding="utf-8")


def _shown(document: Document) -> tuple[list[Switch], list[list[float]]]:
    """Switches, and arrivals of streams, in seconds since shortly before the first switch."""
    start_s = max(0.0, document["switches"][0]["phases_s"]["planned"] - MARGIN_S)
    switches = [_timed(switch, start_s) for switch in document["switches"]]
    streams = [[at_s - start_s for at_s in arrivals_s(stream)] for stream in document["streams"]]
    return switches, streams


def _timed(switch: Document, start_s: float) -> Switch:
    phases = switch["phases_s"]
    planned_s, cut_s, done_s = (phases[name] - start_s for name in ("planned", "committed", "done"))
    return Switch(f"{switch['from']} → {switch['to']}", planned_s, cut_s, done_s)


def _rates(axes: "Axes", streams: Sequence[Sequence[float]], end_s: float) -> None:
    tokens_s = rates(streams, end_s)
    axes.stairs(
        tokens_s,
        [number * RATE_BIN_S for number in range(len(tokens_s) + 1)],
        color=COLOURS[0],
        linewidth=1.2,
    )
    axes.set_ylim(bottom=0)
    axes.set_ylabel("tokens per second,\nall streams")


def _gaps(axes: "Axes", streams: Sequence[Sequence[float]], end_s: float) -> None:
    for stream, (colour, _) in zip(streams, looks(), strict=False):
        shown = [at_s for at_s in stream if 0 <= at_s <= end_s]
        axes.plot(*zip(*longest_gaps(shown), strict=True), color=colour, linewidth=0.8)
    axes.set_ylim(bottom=0)
    axes.set_ylabel("gap between tokens (ms),\na line for each stream")
    axes.set_xlabel(f"seconds; a point is the longest gap of a stream in {GAP_BIN_S * 1000:.0f} ms")
    axes.set_xlim(0, end_s)


def _shade(panels: Sequence["Axes"], switch: Switch) -> None:
    """A switch from planned to done, its cut, and its name above the first panel."""
    for axes in panels:
        axes.axvspan(switch.planned_s, switch.done_s, color="#E8E8E8", linewidth=0, zorder=0)
        axes.axvline(switch.cut_s, color=GREY, linewidth=1.0, linestyle=(0, (4, 2)), zorder=1)
    panels[0].annotate(
        switch.label, (switch.cut_s, 1.0), (0, 3), xycoords=("data", "axes fraction"), textcoords="offset points",
        ha="center", color=GREY,
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
