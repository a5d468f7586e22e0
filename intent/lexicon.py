"""The words the rules know: phrases as people write them, to what they mean. Data, and the one splitter for data and text.

A phrase is split by the same ``split`` as the text, so ``off-peak``, ``off peak`` and ``Off Peak`` are one entry, and
``p99.9`` is the two words ``p`` and ``99.9``.
"""

import re
from collections.abc import Iterator, Mapping
from enum import StrEnum
from functools import cache
from itertools import product
from typing import Any

_WORD = re.compile(
    r"""(?P<sign>(?<![\w.)%])-(?=\.?\d))
      | (?:\d+(?:[.,]\d+)*|\.\d+)(?:e[+-]?\d+)?
      | [^\W\d_]+(?:'[^\W\d_]+)?
      | \n
      | <=|>=|=<|=>|==|!=
      | [^\s_]""",
    re.VERBOSE,
)

MINUS = "−"
"""The sign of a number; folding leaves no other of its kind in a text."""


def split(text: str) -> Iterator[tuple[str, int, int]]:
    """The words of folded text with their half-open spans.

    Hyphens that only bind letters are left out, and one that is the sign of a number becomes ``MINUS``.
    """
    for match in _WORD.finditer(text):
        start, end = match.span()
        before, after = text[start - 1 : start], text[end : end + 1]
        if match[0] == "-" and (before.isalpha() or after.isalpha()) and before.strip() and after.strip():
            continue
        yield MINUS if match["sign"] else match[0], start, end


def _words(text: str) -> list[str]:
    return text.split()


class Kind(StrEnum):
    """What a word or phrase does in a sentence."""

    METRIC = "metric"
    STAT = "stat"
    COMPARISON = "comparison"
    NUMBER = "number"
    MULTIPLIER = "multiplier"
    UNIT = "unit"
    CURRENCY = "currency"
    PERIOD = "period"
    PER_USER = "per user"
    QUANTITY = "quantity"
    RANGE = "range"
    BETWEEN = "between"
    WINDOW = "window"
    SETTING = "setting"
    COUNTED = "counted"
    OPTIMISE = "optimise"
    VAGUE = "vague"
    NEGATION = "negation"
    RELATIVE = "relative"
    JOIN = "join"
    STOP = "stop"
    TENANT = "tenant"
    MODEL = "model"
    ORDER = "order"
    FILLER = "filler"
    UNKNOWN = "unknown"


ANY_LATENCY = "latency"
ANY_THROUGHPUT = "throughput"
"""Metrics that a text can name without saying which one it means."""

METRICS = {
    "ttft": (
        "ttft", "time to first token", "time to the first token", "first token", "first token time",
        "first token latency", "first-token delay",
    ),
    "tpot": (
        "tpot", "itl", "time per output token", "time per token", "time between tokens", "inter-token latency",
        "inter-token time", "intertoken latency", "token latency", "per token latency", "latency per token",
    ),
    "e2e": (
        "e2e", "e2e latency", "end-to-end", "end to end latency", "end to end time", "response time", "request latency",
        "total latency", "total time", "full response",
    ),
    "reconfig_pause": (
        "pause", "pauses", "reconfiguration pause", "reconfig pause", "switch pause", "switching pause", "stop window",
        "switchover pause", "cutover pause", "cutover",
    ),
    "throughput_tok": ("token throughput", "output throughput", "throughput in tokens", "generation speed"),
    "throughput_req": ("request throughput", "request rate", "throughput in requests"),
    "gpu_util": (
        "gpu utilisation", "gpu utilization", "gpu util", "gpu usage", "gpu load", "utilisation", "utilization",
        "utilisation of the gpus", "utilization of the gpus",
    ),
    "gpu_count": ("gpu count", "number of gpus", "device count", "number of devices"),
    "cost": ("cost", "costs", "spend", "spending", "price", "bill", "expense", "expenses"),
    ANY_LATENCY: ("latency", "latencies", "delay", "delays"),
    ANY_THROUGHPUT: ("throughput",),
}  # fmt: skip

_PERCENTILES = ("50", "90", "95", "99", "99.9")
STATS: dict[str, tuple[str, ...]] = {
    f"p{n}": (
        f"p{n}",
        f"{n}th percentile",
        f"{n} percentile",
        f"percentile {n}",
        f"{n}%ile",
        f"{n}th %ile",
        f"{n}th",
    )
    for n in _PERCENTILES
} | {"mean": ("mean", "average", "avg", "averaged", "on average")}
STATS["p50"] += ("median",)

COMPARISONS = {
    "<=": (
        "<", "<=", "=<", "≤", "under", "below", "beneath", "less than", "lower than", "smaller than", "fewer than",
        "at most", "maximum", "maximum of", "max", "a maximum of", "up to", "within", "or less", "or lower", "or below",
        "or under", "or fewer", "cap", "cap at", "capped at", "limited to", "down to", "shorter than", "earlier than",
        "inside of", "less than or equal to", "lower than or equal to", "smaller than or equal to",
    ),
    ">=": (
        ">", ">=", "=>", "≥", "over", "above", "more than", "greater than", "higher than", "larger than", "at least",
        "minimum", "minimum of", "a minimum of", "min", "or more", "or higher", "or above", "exceed", "exceeds",
        "exceeding", "longer than", "later than", "beyond", "and up", "greater than or equal to", "more than or equal to",
        "higher than or equal to",
    ),
    "==": ("=", "==", "equal to", "equals", "exactly"),
    "better": ("or better", "better than", "or faster", "faster than", "quicker than", "or quicker", "cheaper than"),
    "worse": ("worse than", "slower than", "or worse"),
}  # fmt: skip
"""Operator to phrases; ``better`` and ``worse`` become ``<=`` or ``>=`` by the metric's direction."""

_SECONDS = {
    1e-6: ("us", "µs", "μs", "usec", "microsecond", "microseconds"),
    1e-3: ("ms", "msec", "msecs", "millisecond", "milliseconds", "millis"),
    1.0: ("s", "sec", "secs", "second", "seconds"),
    60.0: ("min", "mins", "minute", "minutes"),
    3600.0: ("h", "hr", "hrs", "hour", "hours"),
}
_PER = ("/", "per", "a", "an", "each", "every")


def _rates(nouns: tuple[str, ...]) -> Iterator[tuple[str, float]]:
    for noun, per, (factor, names) in product(nouns, _PER, _SECONDS.items()):
        if factor >= 1.0:
            yield from ((f"{noun} {per} {name}", 1 / factor) for name in names)


_TOKENS = ("tok", "toks", "token", "tokens", "output tokens", "t")
_REQUESTS = ("req", "reqs", "request", "requests", "query", "queries", "call", "calls")


def _units() -> Iterator[tuple[str, tuple[str, float]]]:
    for factor, names in _SECONDS.items():
        yield from ((name, ("s", factor)) for name in names)
        for name, per, token in product(names, _PER, ("tok", "token", "output token")):
            yield f"{name} {per} {token}", ("s/token", factor)
    for phrase, factor in _rates(_TOKENS):
        yield phrase, ("tokens/s", factor)
    yield from ((phrase, ("requests/s", factor)) for phrase, factor in _rates(_REQUESTS))
    yield "tps", ("tokens/s", 1.0)
    yield from ((name, ("requests/s", 1.0)) for name in ("rps", "qps"))
    yield from ((name, ("requests/s", 1 / 60)) for name in ("rpm", "qpm"))
    yield from ((name, ("ratio", 0.01)) for name in ("%", "percent", "per cent", "pct"))


PERIODS = {
    "USD/h": ("h", "hr", "hour"),
    "USD/day": ("day", "d"),
    "USD/month": ("month", "mo"),
    "USD/Mtok": ("mtok", "million tokens", "1m tokens", "m tokens", "million token", "1m tok", "mtokens"),
}
_EACH = ("/", "per", "for each", "for every")
_ADVERBS = {"hourly": "USD/h", "daily": "USD/day", "monthly": "USD/month"}

WINDOWS = {
    "always": (
        "always", "at all times", "all the time", "at any time", "any time", "24/7", "around the clock", "all day",
        "day and night",
    ),
    "peak": (
        "peak", "peak hours", "peak time", "peak times", "peak traffic", "peak load", "the peak",
        "rush hour", "rush hours", "on peak", "peaks",
    ),
    "off_peak": (
        "off peak", "offpeak", "off peak hours", "off peak times", "outside peak", "outside of peak",
        "outside peak hours", "outside of peak hours", "outside the peak", "not peak hours",
    ),
    "overnight": ("overnight", "at night", "nights", "night", "nighttime", "during the night"),
    "business_hours": (
        "business hours", "office hours", "working hours", "work hours",
    ),
}  # fmt: skip

SETTINGS = {
    "tp": (
        "tp", "tp size", "tp degree", "tensor parallel", "tensor parallelism", "tensor parallel size",
        "tensor parallel degree",
    ),
    "pp": (
        "pp", "pp size", "pp degree", "pipeline parallel", "pipeline parallelism", "pipeline parallel size",
        "pipeline parallel degree", "pipeline depth",
    ),
}  # fmt: skip
"""Topology settings whose number follows: ``tp=2``."""

COUNTED = {
    "tp": ("way tensor parallel", "way tensor parallelism", "way tp", "tensor parallel ranks", "tp ranks"),
    "pp": (
        "pipeline stages", "pipeline stage", "stages", "stage pipeline", "stage", "pp stages", "way pipeline parallel",
        "way pp", "way pipeline parallelism",
    ),
    "replicas": ("replica", "replicas"),
    "gpu_count": ("gpu", "gpus", "device", "devices", "cards"),
}  # fmt: skip
"""Things whose number stands before them: ``2 pipeline stages``."""

OPTIMISATIONS = {
    "minimize": ("minimise", "minimize", "minimal", "lowest", "smallest", "shortest", "as low as possible"),
    "maximize": ("maximise", "maximize", "maximal", "highest", "largest", "as high as possible"),
}

VAGUE = {
    "fast": (
        "as fast as possible", "as quick as possible", "as quickly as possible", "fast", "faster", "fastest", "quick",
        "quicker", "quickly", "snappy", "snappier", "responsive", "speed", "speed up", "performance",
    ),
    "cheap": ("as cheap as possible", "as cheaply as possible", "cheap", "cheaper", "cheapest", "save money"),
}  # fmt: skip
"""Wishes without a metric: what they could mean is asked."""

_NUMBER_WORDS = {
    word: float(value)
    for value, word in enumerate(
        _words(
            "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
            "seventeen eighteen nineteen twenty"
        )
    )
} | {
    "thirty": 30.0, "forty": 40.0, "fifty": 50.0, "sixty": 60.0, "seventy": 70.0, "eighty": 80.0, "ninety": 90.0,
    "half a": 0.5, "half": 0.5, "single": 1.0,
}  # fmt: skip

_NEGATIONS = _words(
    "not no never don't doesn't didn't mustn't shouldn't can't cannot won't isn't aren't nor without neither "
    "wouldn't"
)

_JOINS = (",", "and", "but", "while", "whilst", "plus", "also", "&", "then", "as well as", "with", "+")
_STOPS = (";", ".", "!", "?", "\n")

_FILLERS = _words(
    "a an the this that these those it its is are be been being will shall should must may might can could would do "
    "does i we you our my your they them their there all any each every keep keeps keeping kept hold holds holding "
    "held stay stays staying remain remains make makes sure ensure ensures guarantee guarantees guaranteed maintain "
    "set setting sets have has having get gets getting want wants need needs like please let lets let's allow allows "
    "run runs running use uses using switch switches go goes going move change put serve serves serving of to at in on "
    "for as than into during so target targets goal goals objective slo slos limit limits limiting bound bring brings "
    "drop drops push raise lower reduce increase rise fall size value values equal request requests "
    "response responses service system model models llm engine ok okay now thanks thank hey hi "
    "budget time times period token tokens take takes taking last lasts only just topology assumed across tenant window "
    "' \" ( ) [ ] ` * # :"
)

FUZZY_KINDS = frozenset(
    {Kind.METRIC, Kind.STAT, Kind.COMPARISON, Kind.UNIT, Kind.WINDOW, Kind.SETTING, Kind.COUNTED}
)


def _entries() -> Iterator[tuple[str, Kind, Any]]:
    for word in _FILLERS:
        yield word, Kind.FILLER, word
    yield from (
        (phrase, Kind.UNIT, unit) for phrase, unit in _units() if phrase != "min"
    )  # see tokens: also a comparison
    tables: Mapping[Kind, Mapping[str, tuple[str, ...]]] = {
        Kind.METRIC: METRICS,
        Kind.STAT: STATS,
        Kind.COMPARISON: COMPARISONS,
        Kind.WINDOW: WINDOWS,
        Kind.SETTING: SETTINGS,
        Kind.COUNTED: COUNTED,
        Kind.OPTIMISE: OPTIMISATIONS,
        Kind.VAGUE: VAGUE,
    }
    for kind, table in tables.items():
        for meaning, phrases in table.items():
            yield from ((phrase, kind, meaning) for phrase in phrases)
    yield from ((f"at {phrase}", Kind.WINDOW, "peak") for phrase in WINDOWS["peak"])
    for period, names in PERIODS.items():
        yield from ((f"{per} {name}", Kind.PERIOD, period) for per, name in product(_PER, names))
    yield from ((word, Kind.PERIOD, period) for word, period in _ADVERBS.items())
    yield from ((word, Kind.CURRENCY, "USD") for word in ("$", "usd", "us$", "dollar", "dollars", "bucks"))
    yield from ((word, Kind.NUMBER, value) for word, value in _NUMBER_WORDS.items())
    yield from (
        (word, Kind.MULTIPLIER, value) for word, value in (("k", 1e3), ("thousand", 1e3), ("hundred", 1e2))
    )
    yield from ((word, Kind.NEGATION, None) for word in _NEGATIONS)
    yield from ((word, Kind.RELATIVE, word) for word in ("by", "twice", "times as"))
    yield from ((word, Kind.JOIN, word) for word in _JOINS)
    yield from ((word, Kind.STOP, word) for word in _STOPS)
    yield from (
        (f"{per} {one}", Kind.PER_USER, None) for per, one in product(_EACH, ("user", "stream", "request"))
    )
    yield "between", Kind.BETWEEN, None


@cache
def phrases() -> Mapping[tuple[str, ...], tuple[Kind, Any]]:
    """Every known phrase, as its words, to its kind and meaning."""
    return {tuple(word for word, _, _ in split(phrase)): (kind, value) for phrase, kind, value in _entries()}


@cache
def longest_phrase() -> int:
    """Words in the longest phrase."""
    return max(map(len, phrases()))


@cache
def vocabulary() -> frozenset[str]:
    """Every single word that stands in some phrase."""
    return frozenset(word for phrase in phrases() for word in phrase)


@cache
def correctable() -> tuple[str, ...]:
    """Words worth a spelling correction: in phrases that carry meaning, and long enough not to be met by chance."""
    words = {word for phrase, (kind, _) in phrases().items() if kind in FUZZY_KINDS for word in phrase}
    return tuple(sorted(word for word in words if len(word) >= 5 or word in {"ttft", "tpot"}))
