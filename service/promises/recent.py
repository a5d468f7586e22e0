"""The last minutes of a model in steps of unix time, as a document."""

import math
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence

from service.documents.promises import MomentDocument, RecentDocument, RecentQuery
from service.promises.attainment import Kind
from service.promises.loads import latency_document
from service.promises.watch import Look, Minutes


def recent_document(model: str, seen: Minutes, asked: RecentQuery) -> RecentDocument:
    """Steps that lie in the last seconds, and the one that is not over; none of a time that is not kept whole.

    Streams and tokens are as the looks saw them, one at every tick of the loop (5 s where nobody says otherwise):
    a step in which nobody looked has none.
    """
    step_s, now_s = asked.step_s, seen.unix(seen.at_s)

    def step_of(at_s: float) -> int:
        return math.floor(seen.unix(at_s) / step_s)

    last = math.ceil(now_s / step_s) - 1
    first = min(last, math.ceil((now_s - asked.seconds) / step_s))
    first = max(first, step_of(seen.began_s))
    if seen.whole_since_s is not None:
        first = max(first, math.ceil(seen.unix(seen.whole_since_s) / step_s))
    steps = range(first, last + 1)
    requests = Counter(step_of(one.at_s) for one in seen.asked)
    values = _values(seen, step_of)
    moments = list[MomentDocument]()
    for step in steps:
        begins_s = step * step_s
        passed_s = min(begins_s + step_s, now_s) - max(begins_s, seen.unix(seen.began_s))
        streams, tokens_s = _looked(seen.looks, begins_s - seen.unix_s, step_s)
        moments.append(
            MomentDocument(
                begins_s=begins_s,
                rate_rps=requests[step] / passed_s if passed_s > 0 else 0.0,
                streams=streams,
                tokens_s=tokens_s,
                ttft_s=latency_document(values["ttft", step]),
                tpot_s=latency_document(values["tpot", step]),
                e2e_s=latency_document(values["e2e", step]),
            )
        )
    return RecentDocument(model=model, step_s=step_s, moments=tuple(moments))


def _values(seen: Minutes, step_of: Callable[[float], int]) -> defaultdict[tuple[Kind, int], list[float]]:
    """What was measured, by its kind and step."""
    found = defaultdict[tuple[Kind, int], list[float]](list)
    for one in seen.samples:
        found[one.kind, step_of(one.at_s)].append(one.value)
    return found


def _looked(looks: Sequence[Look], begins_s: float, step_s: float) -> tuple[int | None, float | None]:
    """Most streams in a step, and its tokens per second since the last look before it."""
    first = bisect_left(looks, begins_s, key=_at_s)
    end = bisect_left(looks, begins_s + step_s, key=_at_s)
    if first == end:
        return None, None
    streams = max(look.streams for look in looks[first:end])
    before, after = looks[max(0, first - 1)], looks[end - 1]
    elapsed_s = after.at_s - before.at_s
    return streams, (after.tokens - before.tokens) / elapsed_s if elapsed_s > 0 else None


def _at_s(look: Look) -> float:
    return look.at_s
