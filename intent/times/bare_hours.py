"""Whether two bare numbers ("9 to 17") are hours of the day or numbers of something else."""

import re

_UNIT = re.compile(
    r"""\s?(?:%|°|/|x\b|×|[$€£¥]|个|张|块|台|卡|副本|毫秒|秒|分|倍|元|美元|万|千|路|级|层|
    (?:percent|percentage|pct|points?|m?s|sec|secs|seconds?|min|mins|minutes?|m|h|d|days?|weeks?|months?|years?|k|
       tok|toks|tokens?|tps|rps|qps|rpm|req|reqs|requests?|queries|calls?|users?|streams?|tenants?|clients?|sessions?|
       gpus?|cards?|devices?|nodes?|machines?|hosts?|replicas?|instances?|copies|workers?|pods?|stages?|ranks?|shards?|
       models?|engines?|layers?|blocks?|batch|batches|prompts?|slots?|times|way|fold|bits?|bytes?|[kmgt]i?b|
       usd|eur|dollars?|bucks|euros?|cents?|million|thousand|hundred|tp|pp)(?![\w'])
    |(?<=\d)[a-z])""",
    re.VERBOSE | re.ASCII,
)
_FOLLOWER = re.compile(
    r"""\s*(?:$|[,.;:!?)\n。；、]|[^\x00-\x7f]|(?:
    and|but|or|with|on|at|for|in|the|all|keep|hold|no|never|do|don't|we|i|it|is|must|should|please|while|then|when|if|
    every|each|daily|our|my|p99|p95|p50|p90|p|ttft|tpot|itl|e2e|latency|throughput|use|run|stay|set|make|let|only|as|
    free|paid|not|leave|allow|because|so|to)(?!\w))""",
    re.VERBOSE | re.ASCII,
)
_BOUND = re.compile(
    r"""(?:[<>=≤≥$€£¥#/@~:-]|\b(?:most|least|under|below|above|over|than|exactly|about|roughly|max|min|tp|pp|
    replicas?|times|by|gpus?|version|v)|[为是到于过])\s*$""",
    re.VERBOSE | re.ASCII,
)
_COUNTED = re.compile(
    r"""\b(?:tp|pp|replicas|gpus|count|number|batch|size|concurrency|parallel\w*|stages|nodes|cards|score|version)\b
    |副本|数量|并发|显卡|卡数""",
    re.VERBOSE | re.ASCII,
)
_MEASURED = re.compile(
    r"""\b(?:ttft|tpot|itl|e2e|latency|latencies|delay|throughput|util\w*|usage|load|availability|rates?|errors?|quality|
    costs?|spend|budget|price|percentile|temperature|priority|limit|pauses?|value|range|seconds)\b
    |利用率|延迟|时延|吞吐|成本|预算""",
    re.VERBOSE | re.ASCII,
)
_CHANGE = re.compile(
    r"""\b(?:scal\w*|cut|reduc\w*|rais\w*|lower\w*|increas\w*|decreas\w*|drop\w*|grow\w*|(?<!topology\ )chang\w*|
    mov\w*|go|goes|going|switch\w*|bump\w*|shrink\w*|improv\w*|bring\w*|push\w*|down|up|set)\b|[从由]?(?:提高|降低|降|升|扩|缩|调|减)""",
    re.VERBOSE | re.ASCII,
)
_CLAUSE = re.compile(r"[,.;!?\n。；、]\s|[;!?\n。；、,]|\b(?:and|but|while|then)\b", re.ASCII)
_QUANTITY = re.compile(r"(?<![\w.-])\d+(?:\.\d+)?(?!\d)", re.ASCII)


def follows_a_bound(text: str, place: int) -> bool:
    """Whether a number here is the value of something: ``< 9``, ``at most 9``, ``tp 9``."""
    return _BOUND.search(text, max(0, place - 16), place) is not None


def is_counted(text: str, place: int) -> bool:
    """Whether the number that ends here counts or measures something: ``9 %``, ``9 gpus``."""
    return _UNIT.match(text, place) is not None


def are_hours(text: str, start: int, end: int, is_marked: bool) -> bool:
    """Whether bare numbers mean hours: what is said before ``start`` waits for no number, what follows ``end`` is no noun.

    ``is_marked``: a day, a zone or the like stands with them; else a preposition has to.
    """
    clause = _CLAUSE.split(text[max(0, start - 80) : start])[-1]
    quantities = list(_QUANTITY.finditer(clause))
    if _CHANGE.search(clause, quantities[-1].end() if quantities else 0):
        return False
    if not quantities and _COUNTED.search(clause):
        return False
    return is_marked or bool((quantities or not _MEASURED.search(clause)) and _FOLLOWER.match(text, end))
