"""What is asked of a model now, and how it is served, as a document."""

from collections.abc import Sequence
from dataclasses import replace

from runtime.engine import EngineStats
from service.documents.promises import LatencyDocument, ObservedDocument, TenantLoadDocument
from service.promises.attainment import Kind, RequestSample
from service.promises.planner import Planner
from service.promises.watch import RecentRequests, measured, percentile, spread_of
from service.usecases import Situation


def observed_document(
    model: str, seen: RecentRequests, planner: Planner, situation: Situation, stats: EngineStats
) -> ObservedDocument:
    """What was asked of a model in the last seconds, by everybody and by each tenant."""
    tenants = tenant_loads(seen)
    load = measured(seen)
    runs = situation.topology
    predicted = (
        planner.prediction(runs, replace(load, concurrency=1), situation.capabilities)
        if runs is not None and load and load.output_tokens
        else None
    )
    return ObservedDocument(
        model=model,
        seconds=seen.seconds,
        tenants=tenants,
        gpu_util=seen.tokens_s / predicted.throughput_tok_s if predicted else None,
        kv_in_use=1 - stats.free_blocks / stats.total_blocks if stats.total_blocks else None,
    )


def tenant_loads(seen: RecentRequests) -> tuple[TenantLoadDocument, ...]:
    """Of everybody, then of each tenant."""
    named = [_tenant(name, seen, (name,)) for name in seen.tenants if name]
    return (_tenant("", seen, seen.tenants or ("",)), *named)


def _tenant(name: str, seen: RecentRequests, whose: Sequence[str]) -> TenantLoadDocument:
    mine = [sample for sample in seen.samples if sample.tenant in whose]
    prompt_tokens = [request.prompt_tokens for request in seen.asked if request.tenant in whose]
    answers = [answered.completion_tokens for answered in seen.answered if answered.tenant in whose]
    return TenantLoadDocument(
        tenant=name,
        rate_rps=len(prompt_tokens) / seen.seconds,
        input_tokens=sum(prompt_tokens) / len(prompt_tokens) if prompt_tokens else 0,
        output_tokens=sum(answers) / len(answers) if answers else 0,
        concurrency=None if name else seen.concurrency,
        inputs=spread_of(prompt_tokens),
        outputs=spread_of(answers),
        burstiness=None if name else seen.burstiness,
        prefix_hit=None if name else seen.prefix_hit,
        requests=len(answers),
        failed=sum(sample.kind == "error_rate" and sample.value > 0 for sample in mine),
        waiting=sum(tenant in whose for tenant, _ in seen.waits_s),
        ttft_s=latency_document(mine, "ttft"),
        tpot_s=latency_document(mine, "tpot"),
        e2e_s=latency_document(mine, "e2e"),
    )


def latency_document(samples: Sequence[RequestSample], kind: Kind) -> LatencyDocument:
    """Percentiles of what was measured of a kind; null where nothing was."""
    values = sorted(sample.value for sample in samples if sample.kind == kind and not sample.is_cut_short)
    return LatencyDocument(p50=percentile(values, 0.5), p95=percentile(values, 0.95), p99=percentile(values, 0.99))
