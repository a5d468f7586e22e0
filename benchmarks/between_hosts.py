"""``python -m benchmarks.cutover --hosts 2``: what moving to another host costs streams.

Host a is this machine, host b a namespace of it; the link between them has the rate and the delay that were asked for. Beside
the engine's own switch: stop-and-copy (at the fence everything stops, and all KV is copied) and replay (computed anew).
"""

import argparse
import asyncio
import itertools
import json
import statistics
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from benchmarks.case import Case, run_case
from benchmarks.engines import OwnPath, Subject
from benchmarks.memcpy import memcpy_bytes_s
from benchmarks.namespaces import PORT
from benchmarks.parameters import Mode, Parameters, parse_numbers
from benchmarks.provenance import provenance
from benchmarks.report import Document, Run, figures, run_document
from benchmarks.strategy import Switched
from intentctl.arguments import EngineName
from intentctl.measure import TimeInterval, gaps_within
from runtime.capabilities import Batching
from runtime.engine import Lag
from runtime.hosts import certificates
from runtime.hosts.cluster import Expected, Hosts
from runtime.models import Cluster, Gpu, Link, Node, Phase, Topology
from runtime.process.launcher import Launchers
from runtime.torch_engine.crossing import CrossingShadow
from runtime.torch_engine.engine import TorchEngine, TorchShadow
from runtime.torch_engine.models import EngineSettings
from tests.runtime.hosts.machines import Machine, machine, why_impossible

PAIRS = (
    ("CPU[2]", "CPU[0]"),
    ("CPU[2]", "CPU[0,1]"),
    ("CPU[0,1]", "CPU[2]:0-4 > CPU[3]:4-8"),
)
"""From right to left and back; to TP2; from there to PP2."""
WITHIN = ("CPU[2]", "CPU[2,3]")
"""A switch of host b by itself: only its orders take the link."""
MODES: tuple[Mode, ...] = ("patch", "stop-and-copy", "replay")
ROUND_TRIPS, WITHIN_ROUND_TRIPS, ALLOWED_MS = 4, 2, 10.0
DELAYED_RATE = "200mbit"
UNITS = {"kbit": 1e3, "mbit": 1e6, "gbit": 1e9}


class StopAndCopyCrossing(CrossingShadow):
    """Nothing is copied before the fence."""

    async def lag(self) -> Lag:
        """As if all were there."""
        return Lag(0, 0)

    async def _approach(self) -> None:
        """Nothing to compare."""


class StopAndCopyEngine(TorchEngine):
    """An engine that switches so, however long it takes: that is what is measured."""

    @classmethod
    async def start(
        cls,
        checkpoint: Path,
        topology: Topology,
        cluster: Cluster,
        settings: EngineSettings | None = None,
        launchers: Launchers | None = None,
        batching: Batching | None = None,
    ) -> TorchEngine:
        """Start it; see the engine."""
        patient = replace(settings or EngineSettings(), stop_timeout_s=60.0)
        return await super().start(checkpoint, topology, cluster, patient, launchers, batching)

    async def prepare(self, target: Topology, batching: Batching | None = None) -> TorchShadow | CrossingShadow:
        """Begin to build the target; see the protocol."""
        here, there = map(self._launchers.host_of, (self.topology.devices, target.devices))
        filled = self.capabilities.accept(batching)
        self._shadow = await StopAndCopyCrossing.prepare(self, target, (here, there), filled)
        return self._shadow


def engine_of(path: OwnPath) -> type[TorchEngine]:
    """The built-in engine that switches between hosts by a path."""
    return StopAndCopyEngine if path == "stop-and-copy" else TorchEngine


def run_hosts(options: argparse.Namespace) -> int:
    """Run what the command line says.

    The exit status is 1 when a run ended early, 2 when nothing could begin.
    """
    if why := why_impossible():
        print(f"error: {why}", file=sys.stderr)
        return 2
    rate = DELAYED_RATE if options.delay_ms else options.rate
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        certificates.write(folder, ("b",))
        with machine("b", folder / "b.pem", folder, options.delay_ms / 1000) as there:
            there.shape(rate)
            document = asyncio.run(_run(options, there, folder, rate))
    print(json.dumps(document, indent=1) if options.format == "json" else table(document))
    return int(any(row["error"] for row in document["rows"]))


async def _run(options: argparse.Namespace, there: Machine, folder: Path, rate: str) -> Document:
    parameters = Parameters(
        engine=EngineName.TORCH,
        modes=MODES,
        pairs=PAIRS,
        active=parse_numbers("--active", options.active),
        switches=parse_numbers("--switches", options.switches),
        context=parse_numbers("--context", options.context),
        output=options.output,
    )
    given = {
        "rate": rate,
        "delay_ms": options.delay_ms,
        "bytes_s": bytes_s(rate),
        "round_trip_ms": 2 * options.delay_ms,
    }
    rows: list[Document] = []
    document: Document = {"benchmark": "cutover between hosts", **provenance(), "link": given, "rows": rows}
    memcpy = memcpy_bytes_s()
    async with reached(there, folder) as subject:
        for pair, mode in [*itertools.product(PAIRS, MODES), (WITHIN, MODES[0])]:
            case = Case(parameters, subject, mode, pair, parameters.active[0], parameters.context[0])
            run = await run_case(case)
            rows.append(run_document(run, memcpy) | of_hosts(run, given))
            if options.json:
                options.json.write_text(json.dumps(document, indent=1) + "\n")  # no stream runs between cases
    return document


@asynccontextmanager
async def reached(there: Machine, folder: Path) -> AsyncIterator[Subject]:
    """The counting model on both hosts."""
    example = Subject.example(EngineName.TORCH)
    (node,) = example.cluster.nodes
    link, memory_bytes = Link("shared-memory", 5e9, 3e-5), node.gpus[0].memory_bytes
    nodes = (
        Node(name, tuple(Gpu(device, "CPU", memory_bytes) for device in devices), link)
        for name, devices in (("a", (0, 1)), ("b", (2, 3)))
    )
    cluster = Cluster(tuple(nodes))
    agents = {"b": (there.address, PORT)}
    expected = Expected(cluster, agents, (str(example.checkpoint.resolve()),), needs_vllm=False, visible="")
    hosts = Hosts(expected, folder / "service.pem")
    await hosts.open()
    try:
        yield replace(example, cluster=cluster, torch_engine=engine_of, launchers=hosts)
    finally:
        await hosts.close()


def bytes_s(rate: str) -> float:
    """What a rate of ``tc`` is in bytes a second: ``8gbit`` is 1e9. Pure."""
    unit = next(unit for unit in UNITS if rate.endswith(unit))
    return float(rate.removesuffix(unit)) * UNITS[unit] / 8


def of_hosts(run: Run, link: Document) -> Document:
    """What concerns two hosts, of a run: bars, and streams while KV is copied. Pure."""
    switched = [measured.switched for measured in run.measured]
    bars = [bar_ms(each, link) for each in switched if each.timings]
    return {
        "bytes_between_hosts": sum(each.bytes_between_hosts for each in switched),
        "bar_ms": figures(bars),
        "syncing_gap_ms": figures(_syncing_gaps_ms(run)),
    }


def bar_ms(switched: Switched, link: Document) -> float:
    """How long fence to commit may take beyond a sham. Pure.

    Round trips, the patch over the link, and 10 ms; within a host no patch takes the link.
    """
    if not switched.bytes_between_hosts:
        return float(WITHIN_ROUND_TRIPS * link["round_trip_ms"] + ALLOWED_MS)
    return float(ROUND_TRIPS * link["round_trip_ms"] + switched.bytes_inside / link["bytes_s"] * 1e3 + ALLOWED_MS)


def _syncing_gaps_ms(run: Run) -> Iterator[float]:
    for measured in run.measured:
        phases_s = measured.switched.phases_s or {}
        if Phase.SYNCING not in phases_s or Phase.CUTTING not in phases_s:
            continue
        syncing = TimeInterval(phases_s[Phase.SYNCING], phases_s[Phase.CUTTING])
        for stream in run.streams:
            if gaps_s := gaps_within(stream, syncing):
                yield statistics.fmean(gaps_s) * 1e3


def table(document: Document) -> str:
    """A line for each pair and mode."""
    head = ("pair", "mode", "fence to commit", "bar", "sham", "stop", "gap", "gap in sync", "MB over", "lost")
    lines = [head, *(_line(row) for row in document["rows"])]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    errors = [f"{row['pair']} {row['mode']} ended early: {row['error']}" for row in document["rows"] if row["error"]]
    rows = ["  ".join(map(str.ljust, line, widths)).rstrip() for line in lines]
    return "\n".join([f"{document['link']}; ms as p50/max", *rows, *errors])


def _line(row: Document) -> tuple[str, ...]:
    def of(key: str) -> str:
        found = row[key]
        return f"{found['p50']:.1f}/{found['max']:.1f}" if found else "-"

    keys = ("fence_to_commit_ms", "bar_ms", "sham_stop_ms", "stop_ms")
    gap = f"{row['median_gap_ms']}"
    over = f"{row['bytes_between_hosts'] / 1e6:.1f}"
    return row["pair"], row["mode"], *map(of, keys), gap, of("syncing_gap_ms"), over, str(row["tokens_lost"])
