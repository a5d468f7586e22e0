"""What a topology will do, without a deployment file: under a load, or replaying a trace."""

import json
import re
from collections import Counter
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from intentctl.render import Document, Row, requests, seconds
from intentctl.status import failure
from runtime.capabilities import USUAL_BATCHING, Batching
from runtime.errors import TopologyError, UnsupportedModelError
from runtime.footprint import HEADROOM, blocks
from runtime.models import Cluster, Gpu, Link, ModelSpec, Node, Topology
from runtime.notation import parse_topology
from selector.models import Profile, ProfileError, SelectorError, Workload, shape
from selector.performance.judge import closed, judged, reading_of
from selector.performance.load import static_batch
from selector.performance.perf import ServerModel
from selector.performance.simulator import Arrivals, simulate
from selector.performance.traces import read_trace
from selector.pipelines.operating import BLOCK_TOKENS
from selector.prediction import confidence, server_of
from selector.profiles import NODE_LINK, load

NETWORK = Link("network", 12.5e9, 25e-6)
"""Between device kinds, which are taken to stand in a machine each: 100 Gb/s."""
USED = 0.95
"""Share of a device's memory that a serving engine gets; a deployment's own devices keep back ``HEADROOM``."""
LATENCIES = ("ttft_s", "tpot_s", "e2e_s")
MOST = 1024
"""Devices of a stage."""
PRECISION = "bf16"
_PART = re.compile(r"(?P<kind>[A-Za-z][A-Za-z0-9-]*?)(?:x(?P<count>\d+)|\[(?P<ids>[\d,]+)\])?(?=[:@]|$)")


@dataclass(frozen=True, slots=True)
class Case:
    """A topology with what it stands on."""

    topology: Topology
    model: ModelSpec
    cluster: Cluster
    profiles: dict[str, Profile]
    batching: Batching = USUAL_BATCHING
    kv_gb: float | None = None
    """Of each device; None: what memory leaves."""

    @property
    def server(self) -> ServerModel:
        """The server it is."""
        server = server_of(self.topology, self.model, self.cluster, self.profiles, self.batching)
        kv_bytes = None if self.kv_gb is None else round(self.kv_gb * 1e9)
        held = blocks(self.topology, self.model, self.cluster, BLOCK_TOKENS, kv_bytes=kv_bytes)
        return replace(server, kv_tokens=held * BLOCK_TOKENS)


def case(topology: str, model: str, batching: Batching = USUAL_BATCHING, kv_gb: float | None = None) -> Case:
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
        _refuse_undivided(bound, spec)
    except ProfileError as error:
        how = (
            "; a CPU is measured by `intentctl plan --deployment FILE` of a file with CPUs"
            if "'CPU'" in str(error)
            else ""
        )
        raise failure("error", f"{error}{how}") from error
    except (SelectorError, TopologyError, UnsupportedModelError) as error:
        raise failure("error", str(error)) from error
    return Case(bound, spec, cluster, profiles, batching, kv_gb)


def _refuse_undivided(topology: Topology, model: ModelSpec) -> None:
    for stage in topology.stages:
        if why := model.undivided(stage.tp_size):
            raise TopologyError(why)


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
        elif not 1 <= (count := int(part["count"] or 1)) <= MOST:
            raise TopologyError(f"{part[0]!r} names {count} devices; write 1 to {MOST}")
        else:
            counts[part["kind"]] += count
    taken = set().union(*named.values())
    nodes = []
    for kind, profile in profiles.items():
        free = (number for number in range(10**6) if number not in taken)
        indices = sorted(named[kind] | {next(free) for _ in range(counts[kind])})
        taken |= set(indices)
        memory = int(profile.memory_bytes * USED / (1 - HEADROOM))
        nodes.append(Node(kind, tuple(Gpu(index, kind, memory) for index in indices), NODE_LINK))
    return Cluster(tuple(nodes), NETWORK)


def predict(case: Case, load: Workload, batch: int | None = None, clients: int | None = None) -> Document:
    """The SLIs of a static batch, of so many clients that wait for their answers, or of arrivals.

    Raises:
        CommandError: a rate that is none, or lengths over the model's context.
    """
    if not load.rate_rps > 0:
        raise failure("error", f"a rate of {load.rate_rps:g} requests/s is no load; it has to be more than 0")
    length = load.input_tokens + load.output_tokens
    most_tokens = case.model.max_position_embeddings
    if length > most_tokens:
        words = f"{load.input_tokens} tokens in and {load.output_tokens} out"
        raise failure("error", f"{words}: {case.model.name} holds {most_tokens} of a request")
    server = case.server
    if batch is not None:
        times_s = static_batch(replace(server, share=1.0), batch, load.input_tokens, load.output_tokens)
        found: Document = {name: {"mean": time_s} for name, time_s in zip(LATENCIES, times_s, strict=True)}
        found |= {"throughput_tok_s": batch * load.output_tokens / times_s[2], "saturated": False}
    else:
        found = _figures(server, load, clients, most_tokens)
    source, band = confidence(case.topology, case.profiles)
    return {
        "topology": str(case.topology),
        "model": case.model.name,
        **{key: value for key, value in asdict(load).items() if key not in {"rate_rps", "concurrency"}},
        **{key: value for key, value in (("batch", batch), ("concurrency", clients)) if value is not None},
        **found,
        "fits": server.kv_tokens >= (batch or 1) * length,
        "kv_tokens": server.kv_tokens,
        "source": source,
        "error_band": band,
    }


def _figures(server: ServerModel, load: Workload, clients: int | None, most_tokens: int) -> Document:
    """Of arrivals at the load's rate, or of so many clients; no latencies where nothing is steady."""
    if clients is None:
        outcome = judged(server, load, most_tokens)
        rate_rps = min(load.rate_rps, outcome.sustained_rps)
        facts = {"rate_rps": load.rate_rps, "sustained_tok_s": outcome.sustained_rps * load.output_tokens}
    else:
        outcome = closed(server, load, clients, most_tokens)
        rate_rps = outcome.sustained_rps
        facts = {}
    return {
        **facts,
        **{name: getattr(outcome, name) if outcome.requests else None for name in LATENCIES},
        "throughput_tok_s": rate_rps * load.output_tokens,
        "saturated": clients > outcome.batch if clients else load.rate_rps >= outcome.sustained_rps,
    }


def replay(case: Case, file: Path, prefix_hit: float | None = None) -> Document:
    """The SLIs of every request of a trace, served in virtual time.

    Raises:
        CommandError: the trace cannot be read, or holds no request that fits into the model or the topology.
    """
    try:
        trace = read_trace(file.read_text(encoding="utf-8", errors="replace"), file.name)
    except OSError as error:
        raise failure("error", f"{file} cannot be read: {error}") from error
    except SelectorError as error:
        raise failure("error", str(error)) from error
    hit = trace.prefix_hit if prefix_hit is None else prefix_hit
    most = case.model.max_position_embeddings
    short = [arrival for arrival in trace.arrivals if arrival.input_tokens + arrival.output_tokens <= most]
    if not short:
        raise failure("infeasible", f"{file}: {case.model.name} holds {most} tokens of a request, and each has more")
    arrivals = Arrivals.of(short)
    found = simulate(
        case.server, replace(arrivals, cached=np.minimum(arrivals.inputs - 1, (arrivals.inputs * hit).astype(int)))
    )
    is_served = ~found.never
    if not is_served.any():
        raise failure("infeasible", f"{file}: not one of its {len(arrivals)} requests fits into {case.topology}")
    source, band = confidence(case.topology, case.profiles)
    return {
        "topology": str(case.topology),
        "model": case.model.name,
        "trace": file.name,
        "requests": len(trace.arrivals),
        "too_long": len(trace.arrivals) - int(is_served.sum()),
        "bad_rows": trace.bad_rows,
        "first_bad_rows": list(trace.examples),
        "offered_rps": len(arrivals) / max(short[-1].at_s, 1e-9),
        "prefix_hit": hit,
        "ttft_s": reading_of(found.ttft_s[is_served]),
        "tpot_s": reading_of(found.tpot_s[is_served & (found.outputs > 1)]),
        "e2e_s": reading_of(found.e2e_s[is_served]),
        "throughput_tok_s": float(found.outputs[is_served].sum() / found.last_s[is_served].max()),
        "source": source,
        "error_band": band,
    }


def rows(document: Document, load: Workload | None = None) -> list[Row]:
    """A prediction for people; a trace has no load to tell of."""
    shown = [("topology", document["topology"]), ("model", document["model"])]
    if load:
        shown.append(("requests", requests(load)))
    for key in LATENCIES:
        reading = document[key]
        none = "no steady state" if document.get("fits", True) else "not served"
        words = ", ".join(f"{name} {seconds(value)}" for name, value in reading.items()) if reading else none
        shown.append((key.removesuffix("_s").upper(), words))
    most = f", {document['sustained_tok_s']:.4g} at most" if "sustained_tok_s" in document else ""
    shown.append(("throughput", f"{document['throughput_tok_s']:.4g} output tokens/s{most}"))
    if document.get("saturated") and document.get("fits", True):
        shown.append(("saturated", "the load is beyond what it can serve"))
    if document.get("fits") is False:
        shown.append(("memory", f"does not fit: there is room for the KV of {document['kv_tokens']} tokens"))
    if document.get("bad_rows"):
        shown.append(("bad rows", f"{document['bad_rows']} left out: {'; '.join(document['first_bad_rows'])}"))
    if document.get("too_long"):
        shown.append(("too long", f"{document['too_long']} requests would never fit"))
    shown.append(("source", f"{document['source']}, within {document['error_band']:.0%} expected"))
    return shown
