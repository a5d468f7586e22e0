"""Prometheus metrics, one registry per app."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from runtime.engine import EngineStats, Finish
from runtime.models import CutoverReport
from runtime.router import Usage

LATENCY_BUCKETS_S = (
    0.001, 0.002, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 10.0, 20.0, 40.0,
)  # fmt: skip
CUT_BUCKETS_S = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)


class Metrics:
    """What the service counts; it observes the router."""

    def __init__(self) -> None:
        self._registry = registry = CollectorRegistry()
        self._ttft_s = Histogram(
            "intentctl_ttft_seconds", "Arrival to first token", buckets=LATENCY_BUCKETS_S, registry=registry
        )
        self._itl_s = Histogram(
            "intentctl_itl_seconds",
            "Time between tokens of a stream",
            buckets=LATENCY_BUCKETS_S,
            registry=registry,
        )
        self._requests = Counter(
            "intentctl_requests_total", "Requests by how they ended", ["finish"], registry=registry
        )
        self._refused = Counter(
            "intentctl_refused_requests_total", "Requests that could never be served", registry=registry
        )
        self._tokens = Counter(
            "intentctl_tokens_total", "Tokens served, by kind", ["kind"], registry=registry
        )
        self._running = Gauge("intentctl_running_requests", "Requests in the batch", registry=registry)
        self._waiting = Gauge("intentctl_waiting_requests", "Requests in the queue", registry=registry)
        self._free_blocks = Gauge("intentctl_free_kv_blocks", "KV blocks not in use", registry=registry)
        self._total_blocks = Gauge("intentctl_kv_blocks", "KV blocks in all", registry=registry)
        self._prefix_cache = {
            "prefix_cache_queries": Counter(
                "intentctl_prefix_cache_queries_total",
                "Tokens looked up in the prefix cache",
                registry=registry,
            ),
            "prefix_cache_hits": Counter(
                "intentctl_prefix_cache_hits_total", "Tokens found in the prefix cache", registry=registry
            ),
        }
        self._counted = dict.fromkeys(self._prefix_cache, 0)
        self._switches = Counter(
            "intentctl_switches_total", "Switches by outcome", ["outcome"], registry=registry
        )
        self._cut_s = Histogram(
            "intentctl_cut_seconds",
            "Parts of the cut as the engine saw them",
            ["part"],
            buckets=CUT_BUCKETS_S,
            registry=registry,
        )

    def first_token(self, ttft_s: float) -> None:
        """A request's first token came."""
        self._ttft_s.observe(ttft_s)

    def next_token(self, itl_s: float) -> None:
        """A stream's next token came."""
        self._itl_s.observe(itl_s)

    def refused(self) -> None:
        """A request can never be served."""
        self._refused.inc()

    def finished(self, finish: Finish, usage: Usage) -> None:
        """A stream ended; its prompt was served if a token came."""
        self._requests.labels(finish.value).inc()
        self._tokens.labels("prompt").inc(usage.prompt_tokens if usage.completion_tokens else 0)
        self._tokens.labels("completion").inc(usage.completion_tokens)

    def switched(self, report: CutoverReport) -> None:
        """Count one switch, with the parts of its cut if it committed."""
        self._switches.labels(report.phase.value if report.reason is None else report.reason.value).inc()
        if report.reason is None:
            for part in ("drain_ms", "patch_ms", "commit_ms", "first_step_ms"):
                self._cut_s.labels(part.removesuffix("_ms")).observe(getattr(report.timings, part) / 1000)

    def render(self, stats: EngineStats) -> bytes:
        """The text exposition, with the engine's present state."""
        self._running.set(stats.running)
        self._waiting.set(stats.waiting)
        self._free_blocks.set(stats.free_blocks)
        self._total_blocks.set(stats.total_blocks)
        for name, counter in self._prefix_cache.items():
            now, before = getattr(stats, name), self._counted[name]
            counter.inc(now - before if now >= before else now)  # an engine that started anew counts from 0
            self._counted[name] = now
        return generate_latest(self._registry)
