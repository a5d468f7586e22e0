"""What is asked of a model now and in the last minutes, as documents."""

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import replace
from operator import attrgetter

from runtime.engine import EngineStats
from service.documents.promises import (
    LatencyDocument,
    MomentDocument,
    ObservedDocument,
    RecentDocument,
    RecentQuery,
    TenantLoadDocument,
)
from service.planning.lifecycle import Situation
from service.promises.attainment import Kind, RequestSample
from service.promises.planner import Planner
from service.promises.watch import (
    ObservedRequest,
    RecentRequests,
    TickSample,
    WatchHistory,
    measured,
    percentile,
    spread_of,
)


def recent_document(model: str, seen: WatchHistory, query: RecentQuery) -> RecentDocument:
    """Steps that lie in the last seconds, and the one that is not over.

    None of a time that is not kept whole.

    Streams and tokens are as the looks saw them, one at every tick of the loop (5 s where nobody says otherwise):
    a step in which nobody looked has none.
    """
    moments = tuple(_moment(seen, step * query.step_s, query.step_s) for step in _steps(seen, query))
    return RecentDocument(model=model, step_s=query.step_s, moments=moments)


def _steps(seen: WatchHistory, query: RecentQuery) -> range:
    """Numbers of the steps that are told, counted from the beginning of unix time."""
    step_s = query.step_s
    now_s = seen.unix(seen.at_s)
    last = math.ceil(now_s / step_s) - 1
    first = min(last, math.ceil((now_s - query.seconds) / step_s))
    first = max(first, math.floor(seen.unix(seen.began_s) / step_s))
    if seen.whole_since_s is not None:
        first = max(first, math.ceil(seen.unix(seen.whole_since_s) / step_s))
    return range(first, last + 1)


def _moment(seen: WatchHistory, unix_s: float, step_s: float) -> MomentDocument:
    """A step that begins at a unix time."""
    begins_s = unix_s - seen.unix_s
    passed_s = min(begins_s + step_s, seen.at_s) - max(begins_s, seen.began_s)
    come, measured, looks = (_within(kept, begins_s, step_s) for kept in (seen.asked, seen.samples, seen.looks))
    samples = seen.samples[measured.start : measured.stop]
    streams, tokens_s = _looked(seen.looks, looks)
    return MomentDocument(
        begins_s=unix_s,
        rate_rps=len(come) / passed_s if passed_s > 0 else 0.0,
        streams=streams,
        tokens_s=tokens_s,
        ttft_s=latency_document(samples, "ttft"),
        tpot_s=latency_document(samples, "tpot"),
        e2e_s=latency_document(samples, "e2e"),
    )


def _within(
    kept: Sequence[ObservedRequest] | Sequence[RequestSample] | Sequence[TickSample],
    begins_s: float,
    step_s: float,
) -> range:
    """Places of what was kept in a step."""
    return range(
        bisect_left(kept, begins_s, key=attrgetter("at_s")),
        bisect_left(kept, begins_s + step_s, key=attrgetter("at_s")),
    )


def _looked(looks: Sequence[TickSample], within: range) -> tuple[int | None, float | None]:
    """Most streams by the looks in a step, and tokens per second from the last look before it to its last."""
    if not within:
        return None, None
    streams = max(looks[place].streams for place in within)
    before = looks[max(0, within.start - 1)]
    after = looks[within.stop - 1]
    elapsed_s = after.at_s - before.at_s
    return streams, (after.tokens - before.tokens) / elapsed_s if elapsed_s > 0 else None


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
