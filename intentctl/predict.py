"""What a topology will do, without a deployment file.

``predict`` in closed form, ``simulate`` by replaying a trace.
"""

import json
import re
from collections import Counter
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from selector.performance.latency import reading_of

from intentctl.render import Document, Row, seconds
from intentctl.status import failure
from runtime.errors import TopologyError, UnsupportedModelError
from runtime.footprint import HEADROOM
from runtime.models import Cluster, Gpu, Link, ModelSpec, Node, Topology
from runtime.notation import parse_topology
from selector.models import Profile, SelectorError, shape
from selector.performance.load import LoadFigures, closed_loop, open_loop, static_batch
from selector.performance.simulator import ServerModel, simulate
from selector.performance.traces import Trace, read_trace
from selector.performance.work import Lengths
from selector.prediction import confidence, server_of
from selector.profiles import load

NETWORK = Link("network", 12.5e9, 25e-6)
"""Between device kinds, which are taken to stand in a machine each: 100 Gb/s."""
NODE_LINK = Link("node", 25e9, 10e-6)
"""Within a machine; what a profile says of its links goes before it."""
USED = 0.95
"""Share of a device's memory that a serving engine gets; a deployment's own devices keep back ``HEADROOM``."""
MOST = 1024
"""Devices of a stage."""
PRECISION = "bf16"
_PART = re.compile(r"(?P<kind>[A-Za-z][A-Za-z0-9-]*?)(?:x(?P<count>\d+)|\[(?P<ids>[\d,]+)\])")


@dataclass(frozen=True, slots=True)
class Case:
    """A topology with what it stands on."""

    topology: Topology
    model: ModelSpec
    cluster: Cluster
    profiles: dict[str, Profile]

    @property
    def server(self) -> ServerModel:
        """The server it is."""
        return server_of(self.topology, self.model, self.cluster, self.profiles)


@dataclass(frozen=True, slots=True)
class Offered:
    """The load of a prediction; one of the three is said."""

    batch: int | None = None
    rate_rps: float | None = None
    concurrency: int | None = None


def case(topology: str, model: str) -> Case:
    """Bind a topology in text form to devices made up for it.

    Raises:
        CommandError: the text, the model or a device kind is not known, or they do not go together.
    """
    try:
        spec = _model(model)
        profiles = {kind: load(kind) for kind in dict.fromkeys(found["kind"] for found in _parts(topology))}
        cluster = _cluster(topology, profiles)
        bound = parse_topology(topology, cluster, spec.num_layers, PRECISION)
        bound.check(cluster, spec)
    except (SelectorError, TopologyError, UnsupportedModelError) as error:
        raise failure("error", str(error)) from error
    return Case(bound, spec, cluster, profiles)


def _model(name: str) -> ModelSpec:
    file = Path(name)
    if file.suffix != ".json" and not file.is_dir():
        return shape(name)
    config = file / "config.json" if file.is_dir() else file
    try:
        data = json.loads(config.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UnsupportedModelError(f"{config} cannot be read: {error}") from error
    if not isinstance(data, dict):
        raise UnsupportedModelError(f"{config} is not a JSON object")
    return ModelSpec.from_config(data, config.parent.name)


def _parts(topology: str) -> list[re.Match[str]]:
    found = [match for part in topology.split(">") if (match := _PART.match(part.strip()))]
    if len(found) != len(topology.split(">")):
        raise TopologyError(f"cannot read topology {topology!r}; write for example A100x4@fp16")
    return found


def _cluster(topology: str, profiles: dict[str, Profile]) -> Cluster:
    """One machine for each device kind, with as many devices as the topology names."""
    named: dict[str, set[int]] = {kind: set() for kind in profiles}
    counts = Counter(dict.fromkeys(profiles, 0))
    for part in _parts(topology):
        if part["ids"]:
            named[part["kind"]] |= {int(index) for index in part["ids"].split(",") if index}
        elif not 1 <= int(part["count"]) <= MOST:
            raise TopologyError(f"{part[0]!r} names {int(part['count'])} devices; write 1 to {MOST}")
        else:
            counts[part["kind"]] += int(part["count"])
    taken = set().union(*named.values())
    nodes = []
    for kind, profile in profiles.items():
        free = (number for number in range(10**6) if number not in taken)
        indices = sorted(named[kind] | {next(free) for _ in range(counts[kind])})
        taken |= set(indices)
        memory = int(profile.memory_bytes * USED / (1 - HEADROOM))
        gpus = tuple(Gpu(index, kind, memory) for index in indices)
        nodes.append(Node(kind, gpus, NODE_LINK))
    return Cluster(tuple(nodes), NETWORK)


def predict(case: Case, tokens: tuple[int, int], offered: Offered) -> Document:
    """The SLIs of a load of requests that are all alike.

    Raises:
        CommandError: lengths or a load that are none.
    """
    try:
        server = case.server
        lengths = Lengths.fixed(*tokens)
        slis = _slis(server, lengths, offered)
    except SelectorError as error:
        raise failure("error", str(error)) from error
    source, band = confidence(case.topology, case.profiles)
    needed = (offered.batch or 1) * lengths.total
    return {
        "topology": str(case.topology),
        "model": case.model.name,
        "input_tokens": tokens[0],
        "output_tokens": tokens[1],
        **{key: value for key, value in asdict(offered).items() if value is not None},
        **asdict(slis),
        "fits": needed <= server.kv_tokens,
        "kv_tokens": server.kv_tokens,
        "source": source,
        "error_band": band,
    }


def _slis(server: ServerModel, lengths: Lengths, offered: Offered) -> LoadFigures:
    if offered.batch is not None:
        return static_batch(replace(server, share=1.0), offered.batch, lengths)
    if offered.rate_rps is not None:
        return open_loop(server, offered.rate_rps, lengths)
    return closed_loop(server, offered.concurrency or 1, lengths)


def replay(case: Case, file: Path) -> Document:
    """The SLIs of every request of a trace, served in virtual time.

    Raises:
        CommandError: the trace cannot be read, or holds no request.
    """
    try:
        trace: Trace = read_trace(file.read_text(encoding="utf-8", errors="replace"), file.name)
    except OSError as error:
        raise failure("error", f"{file} cannot be read: {error}") from error
    except SelectorError as error:
        raise failure("error", str(error)) from error
    results = simulate(case.server, trace.arrivals)
    answered = [(arrival, found) for arrival, found in zip(trace.arrivals, results, strict=True) if found]
    served = [found for _, found in answered]
    if not served:
        raise failure("error", f"{file}: not one of its {len(trace.arrivals)} requests fits into {case.topology}")
    source, band = confidence(case.topology, case.profiles)
    return {
        "topology": str(case.topology),
        "model": case.model.name,
        "trace": file.name,
        "requests": len(trace.arrivals),
        "too_long": len(trace.arrivals) - len(served),
        "bad_rows": trace.bad_rows,
        "first_bad_rows": list(trace.examples),
        "offered_rps": len(trace.arrivals) / max(trace.arrivals[-1].at_s, 1e-9),
        "ttft_s": reading_of([found.ttft_s for found in served]),
        "tpot_s": reading_of([found.tpot_s for found in served if found.tpot_s]),
        "e2e_s": reading_of([found.e2e_s for found in served]),
        "throughput_tok_s": sum(arrival.output_tokens for arrival, _ in answered)
        / max(arrival.at_s + found.e2e_s for arrival, found in answered),
        "source": source,
        "error_band": band,
    }


def rows(document: Document) -> list[Row]:
    """A prediction for people."""
    shown = [("topology", document["topology"]), ("model", document["model"])]
    for key in ("ttft_s", "tpot_s", "e2e_s"):
        reading = document[key]
        words = (
            ", ".join(f"{name} {seconds(value)}" for name, value in reading.items()) if reading else "no steady state"
        )
        shown.append((key.removesuffix("_s").upper(), words))
    shown.append(("throughput", f"{document['throughput_tok_s']:.4g} output tokens/s"))
    if document.get("saturated"):
        shown.append(("saturated", "the load is beyond what it can serve"))
    if document.get("fits") is False:
        shown.append(("memory", f"does not fit: there is room for the KV of {document['kv_tokens']} tokens"))
    if document.get("bad_rows"):
        shown.append(("bad rows", f"{document['bad_rows']} left out: {'; '.join(document['first_bad_rows'])}"))
    if document.get("too_long"):
        shown.append(("too long", f"{document['too_long']} requests would never fit"))
    shown.append(("source", f"{document['source']}, within {document['error_band']:.0%} expected"))
    return shown
