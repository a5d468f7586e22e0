"""Prometheus metrics, one registry per app; each carries the name of the model, as vLLM's do."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import get_args

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from intent.openslo.export import buckets, histogram
from runtime.engine import EngineState, EngineStats, Finish
from runtime.models import CutoverReport, Phase, Reason
from runtime.process.supervised import ERRORS
from runtime.stream import Usage
from service.access.refusals import TurnedAway
from service.documents.state import ReplicaDocument
from service.promises.active import Active
from service.store.lease import Lease


def merged(expositions: Iterable[str]) -> str:
    """Several text expositions as one: each family stands once, with the samples of all."""
    families: dict[str, dict[str, None]] = {}
    for text in expositions:
        name = ""
        for line in text.splitlines():
            if line.startswith(("# HELP ", "# TYPE ")):
                name = line.split(" ", 3)[2]
            if line:
                families.setdefault(name, {}).setdefault(line)
    lines = (line for family in families.values() for line in sorted(family, key=lambda line: not line.startswith("#")))
    return "\n".join((*lines, ""))


FAILURES = frozenset({"connections", "stopping"})
"""Those that are the service's fault, not their client's."""
KEPT = {
    "share": "Share of what was counted in the last 28 days that met the goal, since it was promised",
    "needed": "Share that keeps the goal",
    "budget_left": "Share that is left of what may miss the goal; below 0 it is spent",
}
"""What is told of each goal that is promised; names are those of its ``AttainmentDocument``."""


class ServiceMetrics(Collector):
    """What the service counts of no model: clients, unforeseen errors, certificates."""

    def __init__(self, lease: Lease | None = None) -> None:
        self.certificate_ends: Mapping[str, float] = {}
        """Of those between hosts, Unix seconds by the files' names."""
        self.lease = lease
        self.active: Active | None = None
        self._registry = CollectorRegistry()
        self._registry.register(self)
        self._family = Counter(
            "intentctl_turned_away_total",
            "Requests and connections refused or ended because of their client, by reason",
            ["reason"],
            registry=self._registry,
        )
        for reason in get_args(TurnedAway):
            self._family.labels(reason)
        about = "1 while the database does not answer, and what needs it is refused"
        self.store_stalled = Gauge("intentctl_store_stalled", about, registry=self._registry)
        self.on_failure: list[Callable[[], None]] = []
        """Called for each client that was refused with a 5xx."""

    def turned_away(self, reason: TurnedAway) -> None:
        """A client was refused, or its connection ended."""
        self._family.labels(reason).inc()
        if reason in FAILURES:
            for call in self.on_failure:
                call()

    def collect(self) -> Iterator[Metric]:
        """What others count; see ``Collector``."""
        about = "Errors that nobody foresaw in background work, by task; the work goes on or begins again"
        errors = CounterMetricFamily("intentctl_background_errors", about, labels=["task"])
        for task, count in sorted(ERRORS.items()):
            errors.add_metric([task], count)
        about = "Seconds until a certificate between hosts ends, by its file"
        left_s = GaugeMetricFamily("intentctl_certificate_left_seconds", about, labels=["certificate"])
        for name, end_s in sorted(self.certificate_ends.items()):
            left_s.add_metric([name], end_s - time.time())
        about = "1 while this service owns its database, 0 once another one does"
        owns = GaugeMetricFamily("intentctl_owns_database", about, int(self.lease is None or not self.lease.lost_to))
        yield from (errors, left_s, owns)
        for name, about in KEPT.items():
            family = GaugeMetricFamily(
                f"intentctl_goal_{name}", about, labels=["model_name", "intent_id", "goal", "window"]
            )
            for goal in self.active.attained if self.active else ():
                if (value := getattr(goal, name)) is not None:
                    family.add_metric([goal.model, goal.intent_id, goal.words, goal.window], value)
            yield family

    def render(self) -> str:
        """The text exposition."""
        return generate_latest(self._registry).decode()


OUTCOMES = (Phase.DONE, *Reason)
CUT_PARTS = ("drain", "patch", "commit", "first_step")
CUT_BUCKETS_S = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
GAUGES = {
    "engine_serving": "1 while the engine can serve",
    "running_requests": "Requests in the batch",
    "waiting_requests": "Requests in the queue",
    "open_streams": "Streams whose client waits for tokens",
    "free_kv_blocks": "KV blocks not in use",
    "kv_blocks": "KV blocks in all",
}
"""What a model's present state is told in."""
REPLICAS = {
    "serving": ("state", "1 while the replica can serve"),
    "running_requests": ("running", "Requests that have their first token, by replica"),
    "waiting_requests": ("waiting", "Requests that have none, by replica"),
    "planned_share": ("share", "Share of the requests that the plan gives the replica"),
    "taken_share": ("taken", "Share of the requests that the replica took since that plan"),
}
"""What each replica is told in, by the field of its ``ReplicaDocument``."""
PREFIX_CACHE = {
    "prefix_cache_queries": "Tokens looked up in the prefix cache",
    "prefix_cache_hits": "Tokens found in the prefix cache",
}
"""What its engine counts itself, by the names that it has there."""


class Metrics:
    """What the service counts of a model; it observes the router, tenant by tenant."""

    def __init__(self, model: str) -> None:
        self._registry = CollectorRegistry()
        self._model = model
        self._families = Families(self._registry)
        self._tenants: dict[str, TenantMetrics] = {}
        self.of("")
        self._gauges = {
            name: Gauge(f"intentctl_{name}", about, ["model_name"], registry=self._registry).labels(model)
            for name, about in GAUGES.items()
        }
        self._replicas = {
            field: Gauge(f"intentctl_replica_{name}", about, ["model_name", "replica"], registry=self._registry)
            for name, (field, about) in REPLICAS.items()
        }
        self._prefix_cache = {
            name: Counter(f"intentctl_{name}_total", about, ["model_name"], registry=self._registry).labels(model)
            for name, about in PREFIX_CACHE.items()
        }
        self._counted = dict.fromkeys(self._prefix_cache, 0)
        self._switches = Counter(
            "intentctl_switches_total",
            "Switches by outcome",
            ["model_name", "outcome"],
            registry=self._registry,
        )
        self._cut_s = Histogram(
            "intentctl_cut_seconds",
            "Parts of the cut as the engine saw them",
            ["model_name", "part"],
            buckets=CUT_BUCKETS_S,
            registry=self._registry,
        )
        for outcome in OUTCOMES:  # at nothing from the start, or a query of what rose would miss the first
            self._switches.labels(model, outcome.value)
        for part in CUT_PARTS:
            self._cut_s.labels(model, part)

    def of(self, tenant: str) -> "TenantMetrics":
        """What is counted of a tenant's requests; of nobody's in particular where it is empty."""
        if tenant not in self._tenants:
            self._tenants[tenant] = TenantMetrics(self._families, (self._model, tenant))
        return self._tenants[tenant]

    def switched(self, report: CutoverReport) -> None:
        """Count one switch, with the parts of its cut if it committed."""
        outcome = report.phase.value if report.reason is None else report.reason.value
        self._switches.labels(self._model, outcome).inc()
        if report.reason is None:
            for part in CUT_PARTS:
                self._cut_s.labels(self._model, part).observe(getattr(report.timings, f"{part}_ms") / 1000)

    def render(self, stats: EngineStats | None, num_streams: int = 0, replicas: Sequence[ReplicaDocument] = ()) -> str:
        """The text exposition, with the engine's present state; None: it cannot serve.

        ``num_streams`` are open in the router, whatever the engine has of them.
        """
        is_told = stats is not None
        stats = stats or EngineStats(0, 0, 0, 0)
        present = {
            "engine_serving": is_told,
            "running_requests": stats.running,
            "waiting_requests": stats.waiting,
            "open_streams": num_streams,
            "free_kv_blocks": stats.free_blocks,
            "kv_blocks": stats.total_blocks,
        }
        for name, value in present.items():
            self._gauges[name].set(value)
        for field, gauge in self._replicas.items():
            gauge.clear()  # some may be gone
            for replica in (each for each in replicas if getattr(each, field) is not None):
                value = replica.state is EngineState.SERVING if field == "state" else getattr(replica, field)
                gauge.labels(self._model, replica.topology.text).set(value)
        for name, counter in self._prefix_cache.items() if is_told else ():
            now = getattr(stats, name)
            before = self._counted[name]
            counter.inc(now - before if now >= before else now)  # an engine that started anew counts from 0
            self._counted[name] = now
        return generate_latest(self._registry).decode()


LABELS = ("model_name", "tenant")


class Families:
    """The metrics that requests are counted in, whosever they are."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        self.ttft_s = self._latency("ttft", "Arrival to first token")
        self.tpot_s = self._latency("tpot", "Mean time between the tokens of a finished request")
        self.e2e_s = self._latency("e2e", "Arrival to last token of a finished request")
        self.itl_s = self._histogram(
            "intentctl_itl_seconds", "Time between tokens of a stream", buckets("torch", "tpot")
        )
        self.requests = self._counter("intentctl_requests_total", "Requests by how they ended", "finish")
        self.refused = self._counter("intentctl_refused_requests_total", "Requests that could never be served")
        self.tokens = self._counter("intentctl_tokens_total", "Tokens served, by kind", "kind")

    def _latency(self, metric: str, about: str) -> Histogram:
        return self._histogram(histogram("torch", metric), about, buckets("torch", metric))

    def _histogram(self, name: str, about: str, bounds: Sequence[float]) -> Histogram:
        return Histogram(name, about, LABELS, buckets=bounds, registry=self._registry)

    def _counter(self, name: str, about: str, *labels: str) -> Counter:
        return Counter(name, about, (*LABELS, *labels), registry=self._registry)


class TenantMetrics:
    """What is counted of one tenant's requests to one model: everything at nothing from the start."""

    def __init__(self, families: Families, labels: tuple[str, str]) -> None:
        self._ttft_s = families.ttft_s.labels(*labels)
        self._tpot_s = families.tpot_s.labels(*labels)
        self._e2e_s = families.e2e_s.labels(*labels)
        self._itl_s = families.itl_s.labels(*labels)
        self._refused = families.refused.labels(*labels)
        self._requests = {finish: families.requests.labels(*labels, finish) for finish in Finish}
        self._tokens = {kind: families.tokens.labels(*labels, kind) for kind in ("prompt", "completion")}

    def arrived(self, prompt_tokens: int) -> None:
        """A request came; it is counted when it ends."""

    def first_token(self, ttft_s: float) -> None:
        """A request's first token came."""
        self._ttft_s.observe(ttft_s)

    def next_token(self, itl_s: float) -> None:
        """A stream's next token came."""
        self._itl_s.observe(itl_s)

    def refused(self) -> None:
        """A request can never be served."""
        self._refused.inc()

    def finished(self, finish: Finish, usage: Usage, *, e2e_s: float, tpot_s: float | None) -> None:
        """A stream ended; its prompt was served if a token came. Times are those of answers that are whole."""
        self._requests[finish].inc()
        self._tokens["prompt"].inc(usage.prompt_tokens if usage.completion_tokens else 0)
        self._tokens["completion"].inc(usage.completion_tokens)
        if finish in (Finish.STOP, Finish.LENGTH):
            self._e2e_s.observe(e2e_s)
            if tpot_s is not None:
                self._tpot_s.observe(tpot_s)
