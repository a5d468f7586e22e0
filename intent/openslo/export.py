"""Goals as OpenSLO documents: the metrics of engines, and queries about them. Pure."""

import json
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from intent.document import goal_document
from intent.messages import Language
from intent.models import LATENCIES, METRIC_LABELS, PERCENTILES, Goal, Intent, Metric, Objective
from intent.tables import table

_MATCHERS = r'(?:\{(?P<labels>(?:"(?:[^"\\]|\\.)*"|[^{}"])*)\})?'
_RATE = r"(?:rate|increase)\((?P<name>[\w:]+)_"
_RANGE = r"\[(?P<range>\w+)\]\)"
BUCKET = re.compile(rf"sum\({_RATE}bucket{_MATCHERS}{_RANGE}\)")
"""Requests up to a bound; all forms are without spaces (``tight``)."""
COUNT = re.compile(rf"sum\({_RATE}(?P<kind>count|bucket){_MATCHERS}{_RANGE}\)")
"""All requests of a histogram."""
QUANTILE = re.compile(
    rf"histogram_quantile\((?P<share>0\.\d+),sum(?:by\(le\))?\({_RATE}bucket{_MATCHERS}{_RANGE}\)(?:by\(le\))?\)"
)
"""A percentile of a histogram."""
_QUOTED = r'"(?P<value>(?:[^"\\]|\\.)*)"'
_MATCHER = re.compile(rf"(?P<name>\w+)={_QUOTED}(?:,|$)")


def tight(text: str) -> str:
    """A query without the spaces outside quotation marks."""
    parts = re.split(r'("(?:[^"\\]|\\.)*")', text)
    return "".join(part if place % 2 else re.sub(r"\s+", "", part) for place, part in enumerate(parts))


def quoted(name: str) -> str:
    """A label's value as PromQL writes it."""
    return '"' + name.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def matchers(text: str | None, known: Collection[str]) -> dict[str, str] | None:
    """Labels and the values they must equal.

    None if there are others than the known ones, or other comparisons.
    """
    found: dict[str, str] = {}
    place = 0
    while text and place < len(text):
        match = _MATCHER.match(text, place)
        if match is None or match["name"] not in known or match["name"] in found:
            return None
        found[match["name"]], place = _plain(match["value"]), match.end()
    return found


def values_of(label: str, text: str) -> set[str]:
    """Every value that a label must equal somewhere in a query."""
    return {_plain(match["value"]) for match in re.finditer(rf"\b{label}={_QUOTED}", text)}


def _plain(value: str) -> str:
    return re.sub(r"\\(.)", lambda match: {"n": "\n"}.get(match[1], match[1]), value)


EngineName = Literal["torch", "vllm"]
ENGINES: tuple[EngineName, ...] = get_args(EngineName)
SLICE = "5m"
"""What the queries look back on, and the slice of time that a threshold holds in."""


def histogram(engine: EngineName, metric: str) -> str:
    """The name of the histogram of a latency."""
    return str(_exposed(engine)["histograms"][metric]["name"])


def buckets(engine: EngineName, metric: str) -> tuple[float, ...]:
    """The bounds of a latency's histogram, in seconds."""
    return tuple(_exposed(engine)["histograms"][metric]["buckets"])


def thresholds(engine: EngineName) -> Mapping[Metric, str]:
    """Patterns of the queries whose value a bound can be held against."""
    patterns: Mapping[Metric, str] = _exposed(engine)["thresholds"]
    return patterns


def tells_models_apart(engine: EngineName, metric: Metric) -> bool:
    """Whether the query of a metric can be about one model."""
    pattern = thresholds(engine).get(metric)
    return pattern is None or "model}" in pattern


def query(engine: EngineName, metric: Metric, model: str | None) -> str:
    """The query whose value a threshold bounds."""
    matcher = f"model_name={quoted(model)}" if model else ""
    braces, behind = (f"{{{matcher}}}", f",{matcher}") if matcher else ("", "")
    return thresholds(engine)[metric].format(model=braces, and_model=behind)


def mean_query(engine: EngineName, metric: Metric, model: str | None) -> str:
    """The query of a latency's mean."""
    labels = f"{{model_name={quoted(model)}}}" if model else ""
    name = histogram(engine, metric)
    return f"sum(rate({name}_sum{labels}[{SLICE}])) / sum(rate({name}_count{labels}[{SLICE}]))"


def _exposed(engine: EngineName) -> Mapping[str, Any]:
    found: Mapping[str, Any] = table(__package__, "tables")["engines"][engine]
    return found


API_VERSION = "openslo/v1"
KIND = "SLO"
OWN = "intentctl.dev/"
"""Prefix of annotations and labels that are ours."""
PERIOD = "28d"
"""Of a time window where the intent says none: OpenSLO asks for one. An annotation tells one that was said."""
DURATIONS_S = {"d": 86_400, "h": 3_600, "m": 60}
"""Units of a duration to their seconds."""
SHARE = 0.99
"""Of a budget, the same."""
OPS = {"<=": "lte", ">=": "gte"}


@dataclass(frozen=True, slots=True)
class Loss:
    """What one goal or document says that the other form cannot; ``pointer`` is into what was given."""

    pointer: str
    message: str


@dataclass(frozen=True, slots=True)
class Exported:
    """SLO documents, and what they do not say of the intent."""

    slos: tuple[dict[str, Any], ...]
    left_out: tuple[Loss, ...]


def say(language: Language, key: str, **facts: object) -> str:
    """What is said about a loss."""
    return str(table(__package__, "tables")["messages"][key][language]).format(**facts)


def export(intent: Intent, engine: EngineName) -> Exported:
    """One SLO per goal that can be measured, by the metrics of the engine."""
    slos = []
    lost = []
    for place, goal in enumerate(intent.goals):
        pointer = f"/goals/{place}"
        why = _inexpressible(goal, engine, intent.language)
        if why is not None or not isinstance(goal, Objective):
            lost.append(Loss(pointer, why or ""))
            continue
        slos.append(_slo(goal, engine, f"goal-{place + 1}-{_slug(f'{goal.stat or str()} {goal.metric}')}"))
        lost += [Loss(pointer, message) for message in _half_said(goal, engine, intent.language)]
    return Exported(tuple(slos), tuple(lost))


def _slug(words: str) -> str:
    """A part of a DNS label (RFC 1123)."""
    return re.sub(r"[^a-z0-9]+", "-", words.lower()).strip("-")


# -- what cannot be said --------------------------------------------------------------------------------


def _inexpressible(goal: Goal, engine: EngineName, language: Language) -> str | None:
    """Why there is no SLO for a goal; None if there is one."""
    if not isinstance(goal, Objective):
        return say(language, "no_slo", type=goal.type)
    label = METRIC_LABELS[goal.metric]
    if goal.value is None:
        return say(language, "optimum", op=goal.op)
    if goal.metric not in LATENCIES and goal.metric not in thresholds(engine):
        return say(language, "no_metric", metric=label)
    if goal.metric in LATENCIES and goal.stat is None:
        return say(language, "no_stat")
    if goal.op not in OPS or (goal.metric in LATENCIES and goal.op != "<=" and goal.stat != "mean"):
        return say(language, "no_side", metric=label, op=goal.op)
    return None


def _half_said(goal: Objective, engine: EngineName, language: Language) -> Iterable[str]:
    """What an SLO keeps without acting on it, or had to make up."""
    if goal.window != "always":
        yield say(language, "window")
    if goal.tenant:
        yield say(language, "tenant")
    if goal.model and not tells_models_apart(engine, goal.metric):
        yield say(language, "model", metric=METRIC_LABELS[goal.metric])
    if goal.soft:
        yield say(language, "soft")
    if goal.metric in LATENCIES and goal.stat != "mean":
        yield from _between(goal, engine, language)
        return
    yield say(language, "budget", target=SHARE, slice=SLICE, window=PERIOD)
    if goal.stat and goal.metric not in LATENCIES:
        yield say(language, "stat", metric=METRIC_LABELS[goal.metric])


def _between(goal: Objective, engine: EngineName, language: Language) -> Iterable[str]:
    bounds = buckets(engine, goal.metric)
    value = goal.value or 0.0
    if value in bounds:
        return
    near = [
        max((bound for bound in bounds if bound < value), default=None),
        min((bound for bound in bounds if bound > value), default=None),
    ]
    listed = " / ".join(f"{value:g}" for value in near if value is not None)
    or_else = say(language, f"or_else_{engine}")
    name = histogram(engine, goal.metric)
    yield say(language, "between_buckets", value=f"{value:g}", histogram=name, near=listed, or_else=or_else)


# -- an SLO ---------------------------------------------------------------------------------------------


def _slo(goal: Objective, engine: EngineName, name: str) -> dict[str, Any]:
    ratio = goal.metric in LATENCIES and goal.stat != "mean"
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {
            "name": name,
            "displayName": _title(goal),
            "labels": _labels(goal),
            "annotations": _annotations(goal),
        },
        "spec": {
            "description": goal.evidence,
            "service": goal.model or "llm-service",
            "indicator": {
                "metadata": {"name": f"{name}-sli"},
                "spec": _ratio(goal, engine) if ratio else _threshold(goal, engine),
            },
            "timeWindow": [{"duration": _duration(goal.over_s) if goal.over_s else PERIOD, "isRolling": True}],
            "budgetingMethod": "Occurrences" if ratio else "Timeslices",
            "objectives": [_ratio_objective(goal) if ratio else _threshold_objective(goal)],
        },
    }


def _title(goal: Objective) -> str:
    return " ".join(filter(None, (goal.stat, METRIC_LABELS[goal.metric], goal.op, f"{goal.value:g}", goal.unit)))


def _duration(seconds: int) -> str:
    """``28d``, in the largest unit of which it is a whole number."""
    return next(f"{seconds // size}{unit}" for unit, size in DURATIONS_S.items() if seconds % size == 0)


def _labels(goal: Objective) -> dict[str, str]:
    window = goal.window if isinstance(goal.window, str) else "said"
    fields = {"window": window, "tenant": goal.tenant, "model": goal.model}
    return {name: _slug(value) for name, value in fields.items() if value}


def _annotations(goal: Objective) -> dict[str, str]:
    """What OpenSLO has no place for, as text; a goal of every hour for everybody has none but its metric."""
    body = goal_document(goal)
    fields = {"metric": goal.metric, "tenant": goal.tenant, "model": goal.model}
    if goal.window != "always":
        fields["window"] = goal.window if isinstance(goal.window, str) else json.dumps(body["window"])
    if goal.stat and goal.metric not in LATENCIES:
        fields["stat"] = goal.stat
    if goal.over_s and _duration(goal.over_s) == PERIOD:
        fields["over"] = PERIOD
    if goal.soft:
        fields["soft"] = "true"
    return {f"{OWN}{name}": value for name, value in fields.items() if value}


def _source(text: str) -> dict[str, Any]:
    return {"metricSource": {"type": "Prometheus", "spec": {"query": text}}}


def _ratio(goal: Objective, engine: EngineName) -> dict[str, Any]:
    model = [f"model_name={quoted(goal.model)}"] if goal.model else []
    name = histogram(engine, goal.metric)
    bound = f'le="{float(goal.value or 0)!r}"'
    good = f"sum(rate({name}_bucket{{{','.join([bound, *model])}}}[{SLICE}]))"
    labels = f"{{{model[0]}}}" if model else ""
    total = f"sum(rate({name}_count{labels}[{SLICE}]))"
    return {"ratioMetric": {"counter": True, "good": _source(good), "total": _source(total)}}


def _ratio_objective(goal: Objective) -> dict[str, Any]:
    return {"displayName": _title(goal), "target": PERCENTILES[goal.stat or "p95"]}


def _threshold(goal: Objective, engine: EngineName) -> dict[str, Any]:
    ask = mean_query if goal.metric in LATENCIES else query
    return {"thresholdMetric": _source(ask(engine, goal.metric, goal.model))}


def _threshold_objective(goal: Objective) -> dict[str, Any]:
    return {
        "displayName": _title(goal),
        "op": OPS[goal.op],
        "value": goal.value,
        "target": SHARE,
        "timeSliceTarget": 1.0,
        "timeSliceWindow": SLICE,
    }
