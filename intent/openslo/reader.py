"""Goals from OpenSLO v1 documents: the forms that ``intent.openslo.export`` writes, and what others write about the same metrics.

Nothing is guessed and nothing passed over: what has no place in an intent is refused with its path, or listed as left out. Pure.
"""

import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, Literal, get_args

from intent.document import window_of
from intent.errors import DocumentError
from intent.fold import is_chinese
from intent.messages import Language
from intent.models import (
    LATENCIES,
    PERCENTILES,
    UNITS,
    Intent,
    Metric,
    Objective,
    Stat,
    TranslatorInfo,
    Window,
)
from intent.openslo import values
from intent.openslo.export import (
    API_VERSION,
    KIND,
    OPS,
    OWN,
    PERIOD,
    SHARE,
    Loss,
    say,
)
from intent.openslo.metrics import (
    ENGINES,
    SLICE,
    histogram,
    mean_query,
    query,
    tells_models_apart,
    thresholds,
)
from intent.openslo.promql import BUCKET, COUNT, QUANTILE, matchers, tight, values_of
from intent.openslo.values import OpenSloError

_DURATION = re.compile(r"\d+(?:\.\d+)?(?:m|h|d|w|M|Q|Y)")
_STATS: Mapping[float, Stat] = {share: stat for stat, share in PERCENTILES.items()}
_ANNOTATIONS = ("metric", "window", "tenant", "model", "stat", "soft")


@dataclass(frozen=True, slots=True)
class Imported:
    """The intent of SLO documents, not checked yet, and what they say that it does not."""

    intent: Intent
    left_out: tuple[Loss, ...]


@dataclass(frozen=True, slots=True)
class _Bound:
    """What indicator and objective say."""

    metric: Metric
    stat: Stat | None
    op: Literal["<=", ">="]
    value: float
    model: str | None


def read(documents: Sequence[object]) -> Imported:
    """The goals of SLO documents, in order.

    Raises:
        OpenSloError: anything that has no place in an intent; the path begins with the number of the document.
    """
    if not documents:
        raise OpenSloError("", "there is no document")
    goals, lost = [], []
    for place, document in enumerate(documents):
        goal, left_out = _goal(document, f"/{place}")
        goals.append(goal)
        lost += left_out
    text = "\n".join(dict.fromkeys(goal.evidence for goal in goals))
    language: Language = "zh" if is_chinese(text) else "en"
    translator = TranslatorInfo(name="rules", reason="read from OpenSLO")
    left_out_words = tuple(Loss(one.pointer, say(language, one.message, **facts)) for one, facts in lost)
    return Imported(Intent(text, language, tuple(goals), translator), left_out_words)


_Lost = list[tuple[Loss, dict[str, object]]]


def _goal(document: Any, path: str) -> tuple[Objective, _Lost]:
    values.keys(document, path, {"apiVersion", "kind", "metadata", "spec"})
    for key, expected in (("apiVersion", API_VERSION), ("kind", KIND)):
        if document[key] != expected:
            raise OpenSloError(f"{path}/{key}", f"must be {expected!r}, not {values.shown(document[key])}")
    metadata, spec = document["metadata"], document["spec"]
    values.keys(metadata, f"{path}/metadata", {"name"}, {"displayName", "labels", "annotations"})
    wanted = {"service", "indicator", "timeWindow", "budgetingMethod", "objectives"}
    values.keys(spec, f"{path}/spec", wanted, {"description"})
    bound, lost = _bound(spec, f"{path}/spec")
    goal = Objective(
        bound.metric,
        bound.op,
        values.text(
            spec.get("description") or metadata.get("displayName") or metadata["name"],
            f"{path}/spec/description",
        ),
        stat=bound.stat,
        value=bound.value,
        unit=UNITS[bound.metric][0],
        model=bound.model,
    )
    notes = _own(metadata.get("annotations") or {}, f"{path}/metadata/annotations")
    return _annotated(goal, notes, f"{path}/metadata/annotations"), lost


# -- indicator and objective ----------------------------------------------------------------------------


def _bound(spec: Mapping[str, Any], path: str) -> tuple[_Bound, _Lost]:
    lost = _period(values.only(spec["timeWindow"], f"{path}/timeWindow"), f"{path}/timeWindow/0")
    objective, where = values.only(spec["objectives"], f"{path}/objectives"), f"{path}/objectives/0"
    indicator = spec["indicator"]
    values.keys(indicator, f"{path}/indicator", {"spec"}, {"metadata"})
    kinds, inside = indicator["spec"], f"{path}/indicator/spec"
    if isinstance(kinds, Mapping) and "ratioMetric" in kinds:
        values.keys(kinds, inside, {"ratioMetric"}, {"description"})
        values.expect(spec["budgetingMethod"], "Occurrences", f"{path}/budgetingMethod")
        return _ratio(kinds["ratioMetric"], f"{inside}/ratioMetric", objective, where), lost
    values.keys(kinds, inside, {"thresholdMetric"}, {"description"})
    values.expect(spec["budgetingMethod"], "Timeslices", f"{path}/budgetingMethod")
    bound, more = _threshold(kinds["thresholdMetric"], f"{inside}/thresholdMetric", objective, where)
    return bound, [*lost, *more]


def _ratio(metric: Any, path: str, objective: Any, where: str) -> _Bound:
    """Requests in the bucket up to the bound, of all requests."""
    values.keys(metric, path, {"good", "total"}, {"counter"})
    good, total = (_query(metric[key], f"{path}/{key}") for key in ("good", "total"))
    values.keys(objective, where, set(), {"displayName", "target", "targetPercent"})
    share = values.share(objective, where)
    if share not in _STATS:
        raise OpenSloError(f"{where}/target", f"{share:g} is none of the shares {values.listed(_STATS)}")
    upper, all_of = BUCKET.fullmatch(good), COUNT.fullmatch(total)
    if upper is None:
        raise OpenSloError(f"{path}/good", values.query_form('sum(rate(HISTOGRAM_bucket{le="SECONDS"}[5m]))'))
    if all_of is None:
        raise OpenSloError(f"{path}/total", values.query_form("sum(rate(HISTOGRAM_count[5m]))"))
    inside = _labels(upper["labels"], f"{path}/good", {"le", "model_name"})
    outside = _labels(
        all_of["labels"],
        f"{path}/total",
        {"le", "model_name"} if all_of["kind"] == "bucket" else {"model_name"},
    )
    same = (upper["name"], upper["range"], inside.get("model_name")) == (
        all_of["name"],
        all_of["range"],
        outside.get("model_name"),
    )
    if (
        not same
        or outside.get("le", "+Inf") != "+Inf"
        or (all_of["kind"] == "bucket" and "le" not in outside)
    ):
        raise OpenSloError(
            f"{path}/total", "must count all requests of the histogram in good, over the same range"
        )
    bound = _seconds(inside.get("le"), f"{path}/good")
    return _Bound(
        _latency(upper["name"], f"{path}/good"), _STATS[share], "<=", bound, inside.get("model_name")
    )


def _threshold(metric: Any, path: str, objective: Any, where: str) -> tuple[_Bound, _Lost]:
    """A query whose value is bounded in every slice of time."""
    said = _query(metric, path)
    values.keys(
        objective,
        where,
        {"op", "value"},
        {"displayName", "target", "targetPercent", "timeSliceTarget", "timeSliceWindow"},
    )
    ops = {form: op for op, form in OPS.items()}
    if objective["op"] not in ops:
        raise OpenSloError(
            f"{where}/op", f"must be one of {values.listed(ops)}, not {values.shown(objective['op'])}"
        )
    value = values.number(objective["value"], f"{where}/value")
    op: Literal["<=", ">="] = "<=" if objective["op"] == "lte" else ">="
    if (quantile := QUANTILE.fullmatch(said)) is not None:
        bound = _quantile(quantile, op, value, (path, where))
    else:
        name, stat, model = _known_query(said, path)
        bound = _Bound(name, stat, op, value, model)
    return bound, _budget(objective, where)


def _quantile(match: re.Match[str], op: Literal["<=", ">="], value: float, places: tuple[str, str]) -> _Bound:
    path, where = places
    share = float(match["share"])
    if share not in _STATS:
        raise OpenSloError(path, f"the quantile {share:g} is none of {values.listed(_STATS)}")
    if op != "<=":
        raise OpenSloError(f"{where}/op", "a latency is bounded from above: lte")
    labels = _labels(match["labels"], path, {"model_name"})
    return _Bound(_latency(match["name"], path), _STATS[share], op, value, labels.get("model_name"))


def _known_query(said: str, path: str) -> tuple[Metric, Stat | None, str | None]:
    """The metric of a query that is one of ours, of any engine and for any model."""
    model = next(iter(values_of("model_name", said)), None)
    for engine, metric in product(ENGINES, get_args(Metric)):
        if metric in LATENCIES and said == tight(mean_query(engine, metric, model)):
            return metric, "mean", model
        if metric in thresholds(engine) and said == tight(query(engine, metric, model)):
            return metric, None, model
    raise OpenSloError(
        f"{path}/metricSource/spec/query",
        f"is no query that I know; known are: {'; '.join(_known_queries())}",
    )


def _known_queries() -> Iterable[str]:
    """Every query without a model, once."""
    found = [query(engine, metric, None) for engine in ENGINES for metric in thresholds(engine)]
    found += [mean_query(engine, metric, None) for engine in ENGINES for metric in sorted(LATENCIES)]
    return dict.fromkeys(found)


def _budget(objective: Mapping[str, Any], where: str) -> _Lost:
    share = values.share(objective, where)
    slice_said = objective.get("timeSliceWindow", SLICE)
    if values.number(objective.get("timeSliceTarget", 1.0), f"{where}/timeSliceTarget") != 1.0:
        raise OpenSloError(f"{where}/timeSliceTarget", "must be 1: a bound holds for a whole slice")
    if share == SHARE and slice_said == SLICE:
        return []
    return [(Loss(where, "budget_read"), {"target": share, "slice": slice_said})]


def _period(window: Any, path: str) -> _Lost:
    values.keys(window, path, {"duration"}, {"isRolling", "calendar"})
    duration = values.text(window["duration"], f"{path}/duration")
    if not _DURATION.fullmatch(duration):
        raise OpenSloError(
            f"{path}/duration", f"must be a duration as {PERIOD!r}, not {values.shown(duration)}"
        )
    return (
        []
        if duration == PERIOD and "calendar" not in window
        else [(Loss(path, "period_read"), {"window": duration})]
    )


# -- what stands in annotations -------------------------------------------------------------------------


def _own(annotations: Any, path: str) -> dict[str, str]:
    if not isinstance(annotations, Mapping):
        raise OpenSloError(path, "must be an object")
    found = {}
    for key, value in annotations.items():
        if str(key).startswith(OWN):
            name = str(key).removeprefix(OWN)
            if name not in _ANNOTATIONS:
                raise OpenSloError(
                    f"{path}/{key}",
                    f"is none of ours; known are {values.listed(OWN + one for one in _ANNOTATIONS)}",
                )
            found[name] = values.text(value, f"{path}/{key}")
    return found


def _annotated(goal: Objective, notes: Mapping[str, str], path: str) -> Objective:
    """The goal with what its annotations add; where both speak they must say the same."""
    if not all(tells_models_apart(engine, goal.metric) for engine in ENGINES):
        goal = replace(goal, model=notes.get("model"))
    for slot in ("metric", "model"):
        if notes.get(slot, getattr(goal, slot)) != getattr(goal, slot):
            raise OpenSloError(
                f"{path}/{OWN}{slot}", f"says {notes[slot]!r}, but the query is about {getattr(goal, slot)!r}"
            )
    stat = goal.stat
    if "stat" in notes:
        if goal.metric in LATENCIES or notes["stat"] not in get_args(Stat):
            raise OpenSloError(
                f"{path}/{OWN}stat",
                "a latency's statistic is its target; for others it is one of "
                + values.listed(get_args(Stat)),
            )
        stat = notes["stat"]  # type: ignore[assignment] # one of Stat, checked above
    if notes.get("soft", "true") != "true":
        raise OpenSloError(f"{path}/{OWN}soft", "must be 'true', or left out")
    return replace(
        goal,
        stat=stat,
        tenant=notes.get("tenant"),
        soft="soft" in notes,
        window=_window(notes.get("window", "always"), f"{path}/{OWN}window"),
    )


def _window(said: str, path: str) -> Window:
    if not said.startswith("{"):
        return said
    try:
        return window_of(json.loads(said), path)
    except DocumentError as error:
        raise OpenSloError(error.pointer, error.problem) from None
    except (ValueError, RecursionError):
        raise OpenSloError(path, "is no window: a name, or an object as JSON") from None


# -- values ---------------------------------------------------------------------------------------------


def _query(metric: Any, path: str) -> str:
    """A Prometheus query, without spaces that mean nothing."""
    values.keys(metric, path, {"metricSource"})
    source, inside = metric["metricSource"], f"{path}/metricSource"
    values.keys(source, inside, {"spec"}, {"type"})
    if str(source.get("type", "Prometheus")).lower() != "prometheus":
        raise OpenSloError(f"{inside}/type", f"must be 'Prometheus', not {values.shown(source['type'])}")
    values.keys(source["spec"], f"{inside}/spec", {"query"})
    return tight(values.text(source["spec"]["query"], f"{inside}/spec/query"))


def _labels(said: str | None, path: str, known: Collection[str]) -> dict[str, str]:
    labels = matchers(said, known)
    if labels is None:
        only = values.listed(sorted(known))
        raise OpenSloError(
            path, f"of its labels only {only} are understood, once each and with =, not {values.shown(said)}"
        )
    return labels


def _latency(name: str, path: str) -> Metric:
    metrics = {histogram(engine, metric): metric for engine, metric in product(ENGINES, LATENCIES)}
    if name in metrics:
        return metrics[name]
    known = values.listed(metrics)
    raise OpenSloError(path, f"the histogram {values.shown(name)} is not one that I know: {known}")


def _seconds(said: str | None, path: str) -> float:
    try:
        value = float(said or "")
    except ValueError:
        raise OpenSloError(path, f'needs a label le="SECONDS", not {values.shown(said)}') from None
    return values.number(value, path)
