"""The last minutes of a model in steps of unix time, as a document."""

import math
from bisect import bisect_left
from collections.abc import Sequence
from operator import attrgetter

from service.documents.promises import MomentDocument, RecentDocument, RecentQuery
from service.promises.attainment import RequestSample
from service.promises.loads import latency_document
from service.promises.watch import ObservedRequest, TickSample, WatchHistory


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
