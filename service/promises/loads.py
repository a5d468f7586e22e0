"""What is asked of a model now, and how it is served, as a document."""

from collections.abc import Sequence

from runtime.engine import EngineStats
from selector.models import Workload
from service.documents.promises import LatencyDocument, ObservedDocument, TenantLoadDocument
from service.promises.attainment import Kind, Sample
from service.promises.planner import Planner
from service.promises.watch import Seconds, percentile
from service.usecases import Situation


def observed_document(
    model: str, seen: Seconds, planner: Planner, situation: Situation, stats: EngineStats
) -> ObservedDocument:
    """What was asked of a model in the last seconds, by everybody and by each tenant."""
    tenants = tenant_loads(seen)
    load = tenants[0]
    predicted = None
    if situation.topology is not None and load.output_tokens:
        asked = Workload(load.rate_rps, max(1, round(load.input_tokens)), round(load.output_tokens), 1)
        predicted = planner.prediction(situation.topology, asked, situation.capabilities)
    return ObservedDocument(
        model=model,
        seconds=seen.seconds,
        tenants=tenants,
        gpu_util=seen.tokens_s / predicted.throughput_tok_s if predicted else None,
        kv_in_use=1 - stats.free_blocks / stats.total_blocks if stats.total_blocks else None,
    )


def tenant_loads(seen: Seconds) -> tuple[TenantLoadDocument, ...]:
    """Of everybody, then of each tenant."""
    named = [_tenant(name, seen, (name,)) for name in seen.tenants if name]
    return (_tenant("", seen, seen.tenants or ("",)), *named)


def _tenant(name: str, seen: Seconds, whose: Sequence[str]) -> TenantLoadDocument:
    mine = [one for one in seen.samples if one.tenant in whose]
    asked = [one.prompt_tokens for one in seen.asked if one.tenant in whose]
    answers = [one.completion_tokens for one in seen.answered if one.tenant in whose]
    return TenantLoadDocument(
        tenant=name,
        rate_rps=len(asked) / seen.seconds,
        input_tokens=sum(asked) / len(asked) if asked else 0,
        output_tokens=sum(answers) / len(answers) if answers else 0,
        concurrency=None if name else seen.concurrency,
        requests=len(answers),
        failed=sum(one.kind == "error_rate" and one.value > 0 for one in mine),
        waiting=sum(tenant in whose for tenant, _ in seen.waits_s),
        ttft_s=latency_document(mine, "ttft"),
        tpot_s=latency_document(mine, "tpot"),
        e2e_s=latency_document(mine, "e2e"),
    )


def latency_document(samples: Sequence[Sample], kind: Kind) -> LatencyDocument:
    """Percentiles of what was measured of a kind; null where nothing was."""
    values = sorted(one.value for one in samples if one.kind == kind and not one.is_cut_short)
    return LatencyDocument(
        p50=percentile(values, 0.5), p95=percentile(values, 0.95), p99=percentile(values, 0.99)
    )
