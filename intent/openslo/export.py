"""Goals as OpenSLO v1 documents and back, with a list of what gets lost on the way. Pure: dicts in, dicts out.

A latency bound is a ratio: requests in the engine's histogram bucket up to the bound, of all requests, with the percentile as
target. Other bounds are thresholds on a query. What OpenSLO has no words for stands in ``intentctl.dev/*`` annotations, or is
not exported.
"""

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from intent.document import goal_document
from intent.messages import Language
from intent.models import LATENCIES, METRIC_LABELS, PERCENTILES, Goal, Intent, Objective
from intent.openslo.metrics import (
    SLICE,
    EngineName,
    buckets,
    histogram,
    mean_query,
    query,
    tells_models_apart,
    thresholds,
)
from intent.openslo.promql import quoted
from intent.tables import table

API_VERSION, KIND = "openslo/v1", "SLO"
OWN = "intentctl.dev/"
"""Prefix of annotations and labels that are ours."""
PERIOD, SHARE = "28d", 0.99
"""What OpenSLO asks for and an intent does not say."""
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
    slos, lost = [], []
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
        max((one for one in bounds if one < value), default=None),
        min((one for one in bounds if one > value), default=None),
    ]
    listed = " / ".join(f"{one:g}" for one in near if one is not None)
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
            "timeWindow": [{"duration": PERIOD, "isRolling": True}],
            "budgetingMethod": "Occurrences" if ratio else "Timeslices",
            "objectives": [_ratio_objective(goal) if ratio else _threshold_objective(goal)],
        },
    }


def _title(goal: Objective) -> str:
    return " ".join(
        filter(None, (goal.stat, METRIC_LABELS[goal.metric], goal.op, f"{goal.value:g}", goal.unit))
    )


def _labels(goal: Objective) -> dict[str, str]:
    window = goal.window if isinstance(goal.window, str) else "said"
    said = {"window": window, "tenant": goal.tenant, "model": goal.model}
    return {name: _slug(value) for name, value in said.items() if value}


def _annotations(goal: Objective) -> dict[str, str]:
    """What OpenSLO has no place for, as text; a goal of every hour for everybody has none but its metric."""
    body = goal_document(goal)
    said = {"metric": goal.metric, "tenant": goal.tenant, "model": goal.model}
    if goal.window != "always":
        said["window"] = goal.window if isinstance(goal.window, str) else json.dumps(body["window"])
    if goal.stat and goal.metric not in LATENCIES:
        said["stat"] = goal.stat
    if goal.soft:
        said["soft"] = "true"
    return {f"{OWN}{name}": value for name, value in said.items() if value}


def _source(text: str) -> dict[str, Any]:
    return {"metricSource": {"type": "Prometheus", "spec": {"query": text}}}


def _ratio(goal: Objective, engine: EngineName) -> dict[str, Any]:
    model = [f"model_name={quoted(goal.model)}"] if goal.model else []
    name, bound = histogram(engine, goal.metric), f'le="{float(goal.value or 0)!r}"'
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
