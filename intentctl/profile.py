"""``intentctl profile``.

Measure a running engine, fit the profile of its device kind to that, and write it.
"""

import asyncio
import gc
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import yaml

from intentctl import render
from intentctl.arguments import OutputFormat
from intentctl.render import Document
from intentctl.status import failure
from intentctl.steps import Bench, Design, Readings
from intentctl.streams import inference_at
from runtime.footprint import blocks
from runtime.models import Cluster, Node
from selector.models import Profile, SelectorError
from selector.performance.fit import Running, StepSample, figure, fit
from selector.pipelines.operating import BLOCK_TOKENS
from selector.profiles import NODE_LINK, available, load

if TYPE_CHECKING:
    from intentctl.client import Client
    from service.documents.state import NodeDocument


KV_SHARE = 0.5
"""Share of the KV that memory has room for by our arithmetic that is counted on: engines keep some for switches."""


@dataclass(frozen=True, slots=True)
class Subject:
    """What runs, and the profile that a fit starts from."""

    running: Running
    start: Profile


@dataclass(frozen=True, slots=True)
class ProfileOptions:
    """What is to be measured, and from which profile a fit starts.

    None for the only model, and for the service's own.
    """

    model: str | None = None
    like: str | None = None


def run(client: "Client", form: OutputFormat, out: Path | None, options: ProfileOptions, design: Design) -> None:
    """Measure, fit, write the profile to ``out`` if it is named, and report.

    Raises:
        CommandError: nothing can be measured or fitted, or ``out`` cannot be written; then no file is left.
    """
    with new_file(out) as file:
        subject = find_subject(client, options)
        readings = asyncio.run(_measure(client, subject.running, design))
        document = report(subject, readings)
        if file is not None:
            file.write(profile_text(document))
    render.emit({**document, "file": str(out) if out else None}, form, report_rows(document, out))


@contextmanager
def new_file(file: Path | None) -> Iterator[TextIO | None]:
    """A file opened for writing before anything slow begins, and taken away again if that fails."""
    if file is None:
        yield None
        return
    if file.suffix not in {".yaml", ".yml"}:
        raise failure("error", f"{file}: a deployment knows a profile's file by its ending; write .yaml")
    try:
        opened = file.open("x", encoding="utf-8")
    except FileExistsError:
        raise failure("error", f"{file} exists; name another file, or remove it first") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise failure("error", f"{file} cannot be written: {reason}") from error
    try:
        with opened:
            yield opened
    except BaseException:
        file.unlink(missing_ok=True)
        raise


def find_subject(client: "Client", options: ProfileOptions) -> Subject:
    """What the service runs, with the profile it plans with or the one that is named.

    Raises:
        CommandError: no service or engine answers, it is in use, or it runs what one profile cannot describe.
    """
    from service import api

    client.readiness()
    name = options.model
    state = client(api.state.topology_of, name) if name else client(api.state.topology)
    if state.operation or state.streams:
        busy = state.operation or f"{state.streams} streams"
        raise failure("error", f"{client.url} is in use ({busy}); measure when nothing else runs")
    described = client(api.state.profiles_of, name) if name else client(api.state.profiles)
    cluster = _cluster(state.inventory)
    topology = state.topology
    kinds = sorted({stage.kind for stage in topology.stages})
    nodes = [node.name for node in cluster.nodes if {gpu.index for gpu in node.gpus} & {*topology.devices}]
    if len(kinds) > 1 or len(nodes) > 1:
        raise failure(
            "error",
            f"{topology} spans {', '.join(kinds)} on {', '.join(nodes)}; switch to one kind on one machine",
        )
    try:
        start = _start(kinds[0], described.profiles, options.like)
    except SelectorError as error:
        raise failure("error", str(error)) from error
    return Subject(Running(topology, described.model, cluster), start)


def _cluster(inventory: Sequence["NodeDocument"]) -> Cluster:
    """The inventory that a service shows; what a profile says of links goes before these."""
    return Cluster(tuple(Node(node.name, node.gpus, NODE_LINK) for node in inventory))


def _start(kind: str, profiles: Mapping[str, Profile], like: str | None) -> Profile:
    if like is not None:
        return replace(load(like), kind=kind)
    if kind not in profiles:
        raise failure(
            "error",
            f"there is no profile of {kind} to start from; name a similar device with --like: {', '.join(available())}",
        )
    return profiles[kind]


async def _measure(client: "Client", running: Running, design: Design) -> Readings:
    kv_tokens = blocks(running.topology, running.model, running.cluster, BLOCK_TOKENS) * BLOCK_TOKENS
    async with inference_at(client.url, client.key, retries=0) as openai:
        gc.freeze()  # the stamps are this process's: no long collection while it listens
        return await Bench(client, openai, running.model).run(design, int(kv_tokens * KV_SHARE))


def report(subject: Subject, readings: Readings) -> Document:
    """The fitted profile, what changed in it, and how well it fits, as one document. Pure.

    Raises:
        CommandError: the readings are too few, or the starting profile lacks a format that runs.
    """
    samples = readings.samples()
    left_out = [f"{point}: {reason}" for point, reason in readings.left_out.items()]
    try:
        found = fit(samples, subject.running, subject.start)
    except SelectorError as error:
        raise failure("error", "; ".join([str(error), *left_out])) from error
    return {
        "model": subject.running.model.name,
        "topology": str(subject.running.topology),
        "kind": found.profile.kind,
        "figures": [
            {"figure": name, "before": figure(subject.start, name), "after": figure(found.profile, name)}
            for name in found.fitted
        ],
        "kept": list(found.kept),
        "samples": [
            _sample(sample, predicted_s) for sample, predicted_s in zip(samples, found.predicted_s, strict=True)
        ],
        "left_out": left_out,
        "request_s": readings.request_s(),
        "scatter": readings.scatter(),
        "error_band": found.profile.error_band,
        "profile": found.profile.to_mapping(),
    }


def _sample(sample: StepSample, predicted_s: float) -> Document:
    return {
        "step": "prefill" if sample.is_prefill else "decode",
        "sequences": sample.sequences,
        "tokens": sample.new_tokens if sample.is_prefill else sample.cached_tokens,
        "measured_s": sample.seconds,
        "predicted_s": predicted_s,
        "residual": predicted_s / sample.seconds - 1,
    }


def profile_text(document: Document) -> str:
    """The profile as a YAML file that says where its figures come from. Pure."""
    fitted = ", ".join(entry["figure"] for entry in document["figures"]) or "nothing"
    day = datetime.now(UTC).date()
    lines = [
        f"{document['kind']}, measured by `intentctl profile` on {day}: {document['model']} as {document['topology']}.",
        f"Fitted to {len(document['samples'])} step times: {fitted}.",
        f"As before: {', '.join(document['kept'])}.",
    ]
    body = yaml.safe_dump(document["profile"], sort_keys=False, allow_unicode=True)
    return "".join(f"# {line}\n" for line in lines) + body


def report_rows(document: Document, out: Path | None) -> list[render.Row]:
    """The report for people."""
    rows = [("measured", f"{document['model']} as {document['topology']}")]
    rows += [
        (entry["figure"], f"{entry['before']:.4g} before, {entry['after']:.4g} now") for entry in document["figures"]
    ]
    rows.append(("as before", ", ".join(document["kept"])))
    for entry in document["samples"]:
        batch = f"{entry['sequences']} at " if entry["step"] == "decode" else ""
        times = f"measured {render.seconds(entry['measured_s'])}, predicted {render.seconds(entry['predicted_s'])}"
        rows.append((f"{entry['step']} {batch}{entry['tokens']}", f"{times} ({entry['residual']:+.1%})"))
    rows += [("left out", reason) for reason in document["left_out"]]
    rows.append(("beside steps", f"{render.seconds(document['request_s'])} a request, in no figure"))
    rows.append(("error band", f"{document['error_band']:.1%}, the worst at steps that were held out"))
    rows.append(("rounds", f"{document['scatter']:.1%} apart; less on a machine that does nothing else"))
    written = (
        f"{out}; use it with `profiles: {{{document['kind']}: {out}}}`" if out else "nowhere; name a file with --out"
    )
    return [*rows, ("written", written)]
