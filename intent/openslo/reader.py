"""Goals from OpenSLO documents. Pure."""

import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, Literal, get_args

from intent.document import window_of
from intent.errors import DocumentError, IntentError
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
from intent.openslo.export import (
    API_VERSION,
    BUCKET,
    COUNT,
    DURATIONS_S,
    ENGINES,
    KIND,
    OPS,
    OWN,
    PERIOD,
    QUANTILE,
    SHARE,
    SLICE,
    Loss,
    histogram,
    matchers,
    mean_query,
    query,
    say,
    tells_models_apart,
    thresholds,
    tight,
    values_of,
)
from intent.times.pieces import LONGEST_S

_LARGEST = 1e15


class OpenSloError(IntentError):
    """A document that cannot be read; names the path and what would do."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"{path or '/'}: {problem}")
        self.path = path
        self.problem = problem


def refuse_other_keys(data: Any, path: str, needed: Collection[str], optional: Collection[str] = ()) -> None:
    """An object with these keys and no others."""
    if not isinstance(data, Mapping):
        raise OpenSloError(path, "must be an object")
    for key in data:
        if key not in needed and key not in optional:
            known = listed((*sorted(needed), *sorted(optional)))
            raise OpenSloError(f"{path}/{key}", f"has no place in an intent; understood are {known}")
    for key in sorted(needed):
        if key not in data:
            raise OpenSloError(f"{path}/{key}", "is missing")


def only_one(data: Any, path: str) -> Any:
    """The one element of a list of one."""
    if not isinstance(data, list) or len(data) != 1:
        raise OpenSloError(path, "must be a list of exactly one")
    return data[0]


def share_of(objective: Mapping[str, Any], where: str) -> float:
    """The target as a share, from either of the keys for it."""
    given = [key for key in ("target", "targetPercent") if key in objective]
    if len(given) != 1:
        raise OpenSloError(f"{where}/target", "exactly one of target and targetPercent has to be given")
    value = number_of(objective[given[0]], f"{where}/{given[0]}")
    share_of = value if given[0] == "target" else round(value / 100, 12)
    if not 0 < share_of < 1:
        raise OpenSloError(f"{where}/{given[0]}", "must be between nothing and everything")
    return share_of


def number_of(data: Any, path: str) -> float:
    """A number that is one: no truth value, NaN or infinity."""
    if isinstance(data, bool) or not isinstance(data, int | float) or not abs(data) <= _LARGEST:
        raise OpenSloError(path, f"must be a number, not {shown(data)}")
    return float(data)


def text_of(data: Any, path: str) -> str:
    """Words, of whole characters."""
    if not isinstance(data, str) or not data.strip() or any("\ud800" <= character <= "\udfff" for character in data):
        raise OpenSloError(path, f"must be a text, not {shown(data)}")
    return data


def expect(data: Any, expected: str, path: str) -> None:
    """Exactly this."""
    if data != expected:
        raise OpenSloError(path, f"must be {expected!r} for this indicator, not {shown(data)}")


def query_form(form: str) -> str:
    """What to say of a query that has another form."""
    return f"the query must have the form {form}"


def shown(data: Any) -> str:
    """A value as it stands in a message."""
    text_of = repr(data)
    return text_of if len(text_of) <= 60 else f"{text_of[:57]}..."


def listed(names: Iterable[object]) -> str:
    """Names as they stand in a message."""
    return ", ".join(map(str, names))


_DURATION = re.compile(r"\d+(?:\.\d+)?(?:m|h|d|w|M|Q|Y)")
_STATS: Mapping[float, Stat] = {share: stat for stat, share in PERCENTILES.items()}
_ANNOTATIONS = ("metric", "window", "tenant", "model", "stat", "soft", "over")


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
    goals = []
    lost = []
    for place, document in enumerate(documents):
        goal, left_out = _goal(document, f"/{place}")
        goals.append(goal)
        lost += left_out
    text = "\n".join(dict.fromkeys(goal.evidence for goal in goals))
    language: Language = "zh" if is_chinese(text) else "en"
    translator = TranslatorInfo(name="rules", reason="read from OpenSLO")
    left_out_words = tuple(Loss(loss.pointer, say(language, loss.message, **facts)) for loss, facts in lost)
    return Imported(Intent(text, language, tuple(goals), translator), left_out_words)


_Lost = list[tuple[Loss, dict[str, object]]]


def _goal(document: Any, path: str) -> tuple[Objective, _Lost]:
    refuse_other_keys(document, path, {"apiVersion", "kind", "metadata", "spec"})
    for key, expected in (("apiVersion", API_VERSION), ("kind", KIND)):
        if document[key] != expected:
            raise OpenSloError(f"{path}/{key}", f"must be {expected!r}, not {shown(document[key])}")
    metadata = document["metadata"]
    spec = document["spec"]
    refuse_other_keys(metadata, f"{path}/metadata", {"name"}, {"displayName", "labels", "annotations"})
    wanted = {"service", "indicator", "timeWindow", "budgetingMethod", "objectives"}
    refuse_other_keys(spec, f"{path}/spec", wanted, {"description"})
    bound, lost = _bound(spec, f"{path}/spec")
    goal = Objective(
        bound.metric,
        bound.op,
        text_of(
            spec.get("description") or metadata.get("displayName") or metadata["name"],
            f"{path}/spec/description",
        ),
        stat=bound.stat,
        value=bound.value,
        unit=UNITS[bound.metric][0],
        model=bound.model,
    )
    notes = _own(metadata.get("annotations") or {}, f"{path}/metadata/annotations")
    duration = notes.get("over", spec["timeWindow"][0]["duration"])
    if "over" in notes or duration != PERIOD:
        goal = replace(goal, over_s=_over_s(duration))
    return _annotated(goal, notes, f"{path}/metadata/annotations"), lost


# -- indicator and objective ----------------------------------------------------------------------------


def _bound(spec: Mapping[str, Any], path: str) -> tuple[_Bound, _Lost]:
    lost = _period(only_one(spec["timeWindow"], f"{path}/timeWindow"), f"{path}/timeWindow/0")
    objective = only_one(spec["objectives"], f"{path}/objectives")
    where = f"{path}/objectives/0"
    indicator = spec["indicator"]
    refuse_other_keys(indicator, f"{path}/indicator", {"spec"}, {"metadata"})
    kinds = indicator["spec"]
    inside = f"{path}/indicator/spec"
    if isinstance(kinds, Mapping) and "ratioMetric" in kinds:
        refuse_other_keys(kinds, inside, {"ratioMetric"}, {"description"})
        expect(spec["budgetingMethod"], "Occurrences", f"{path}/budgetingMethod")
        return _ratio(kinds["ratioMetric"], f"{inside}/ratioMetric", objective, where), lost
    refuse_other_keys(kinds, inside, {"thresholdMetric"}, {"description"})
    expect(spec["budgetingMethod"], "Timeslices", f"{path}/budgetingMethod")
    bound, more = _threshold(kinds["thresholdMetric"], f"{inside}/thresholdMetric", objective, where)
    return bound, [*lost, *more]


def _ratio(metric: Any, path: str, objective: Any, where: str) -> _Bound:
    """Requests in the bucket up to the bound, of all requests."""
    refuse_other_keys(metric, path, {"good", "total"}, {"counter"})
    good, total = (_query(metric[key], f"{path}/{key}") for key in ("good", "total"))
    refuse_other_keys(objective, where, set(), {"displayName", "target", "targetPercent"})
    share = share_of(objective, where)
    if share not in _STATS:
        raise OpenSloError(f"{where}/target", f"{share:g} is none of the shares {listed(_STATS)}")
    upper = BUCKET.fullmatch(good)
    all_of = COUNT.fullmatch(total)
    if upper is None:
        raise OpenSloError(f"{path}/good", query_form('sum(rate(HISTOGRAM_bucket{le="SECONDS"}[5m]))'))
    if all_of is None:
        raise OpenSloError(f"{path}/total", query_form("sum(rate(HISTOGRAM_count[5m]))"))
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
    if not same or outside.get("le", "+Inf") != "+Inf" or (all_of["kind"] == "bucket" and "le" not in outside):
        raise OpenSloError(f"{path}/total", "must count all requests of the histogram in good, over the same range")
    bound = _seconds(inside.get("le"), f"{path}/good")
    return _Bound(_latency(upper["name"], f"{path}/good"), _STATS[share], "<=", bound, inside.get("model_name"))


def _threshold(metric: Any, path: str, objective: Any, where: str) -> tuple[_Bound, _Lost]:
    """A query whose value is bounded in every slice of time."""
    query = _query(metric, path)
    refuse_other_keys(
        objective,
        where,
        {"op", "value"},
        {"displayName", "target", "targetPercent", "timeSliceTarget", "timeSliceWindow"},
    )
    ops = {form: op for op, form in OPS.items()}
    if objective["op"] not in ops:
        raise OpenSloError(f"{where}/op", f"must be one of {listed(ops)}, not {shown(objective['op'])}")
    value = number_of(objective["value"], f"{where}/value")
    op: Literal["<=", ">="] = "<=" if objective["op"] == "lte" else ">="
    if (quantile := QUANTILE.fullmatch(query)) is not None:
        bound = _quantile(quantile, op, value, (path, where))
    else:
        name, stat, model = _known_query(query, path)
        bound = _Bound(name, stat, op, value, model)
    return bound, _budget(objective, where)


def _quantile(match: re.Match[str], op: Literal["<=", ">="], value: float, places: tuple[str, str]) -> _Bound:
    path, where = places
    share = float(match["share"])
    if share not in _STATS:
        raise OpenSloError(path, f"the quantile {share:g} is none of {listed(_STATS)}")
    if op != "<=":
        raise OpenSloError(f"{where}/op", "a latency is bounded from above: lte")
    labels = _labels(match["labels"], path, {"model_name"})
    return _Bound(_latency(match["name"], path), _STATS[share], op, value, labels.get("model_name"))


def _known_query(text: str, path: str) -> tuple[Metric, Stat | None, str | None]:
    """The metric of a query that is one of ours, of any engine and for any model."""
    model = next(iter(values_of("model_name", text)), None)
    for engine, metric in product(ENGINES, get_args(Metric)):
        if metric in LATENCIES and text == tight(mean_query(engine, metric, model)):
            return metric, "mean", model
        if metric in thresholds(engine) and text == tight(query(engine, metric, model)):
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
    share = share_of(objective, where)
    slice_said = objective.get("timeSliceWindow", SLICE)
    if number_of(objective.get("timeSliceTarget", 1.0), f"{where}/timeSliceTarget") != 1.0:
        raise OpenSloError(f"{where}/timeSliceTarget", "must be 1: a bound holds for a whole slice")
    if share == SHARE and slice_said == SLICE:
        return []
    return [(Loss(where, "budget_read"), {"target": share, "slice": slice_said})]


def _period(window: Any, path: str) -> _Lost:
    refuse_other_keys(window, path, {"duration"}, {"isRolling", "calendar"})
    duration = text_of(window["duration"], f"{path}/duration")
    if not _DURATION.fullmatch(duration):
        raise OpenSloError(f"{path}/duration", f"must be a duration as {PERIOD!r}, not {shown(duration)}")
    is_held = duration == PERIOD or _over_s(duration) is not None
    return [] if is_held and "calendar" not in window else [(Loss(path, "period_read"), {"window": duration})]


def _over_s(duration: str) -> int | None:
    """Seconds of a duration that is a whole number of minutes up to a year; None for months and the like."""
    size = (DURATIONS_S | {"w": 604_800}).get(duration[-1])
    seconds = float(duration[:-1]) * size if size else 0.0
    return int(seconds) if seconds % 60 == 0 and 60 <= seconds <= LONGEST_S else None


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
                    f"is none of ours; known are {listed(OWN + annotation for annotation in _ANNOTATIONS)}",
                )
            found[name] = text_of(value, f"{path}/{key}")
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
                "a latency's statistic is its target; for others it is one of " + listed(get_args(Stat)),
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


def _window(text: str, path: str) -> Window:
    if not text.startswith("{"):
        return text
    try:
        return window_of(json.loads(text), path)
    except DocumentError as error:
        raise OpenSloError(error.pointer, error.problem) from None
    except (ValueError, RecursionError):
        raise OpenSloError(path, "is no window: a name, or an object as JSON") from None


# -- values ---------------------------------------------------------------------------------------------


def _query(metric: Any, path: str) -> str:
    """A Prometheus query, without spaces that mean nothing."""
    refuse_other_keys(metric, path, {"metricSource"})
    source = metric["metricSource"]
    inside = f"{path}/metricSource"
    refuse_other_keys(source, inside, {"spec"}, {"type"})
    if str(source.get("type", "Prometheus")).lower() != "prometheus":
        raise OpenSloError(f"{inside}/type", f"must be 'Prometheus', not {shown(source['type'])}")
    refuse_other_keys(source["spec"], f"{inside}/spec", {"query"})
    return tight(text_of(source["spec"]["query"], f"{inside}/spec/query"))


def _labels(text: str | None, path: str, known: Collection[str]) -> dict[str, str]:
    labels = matchers(text, known)
    if labels is None:
        only = listed(sorted(known))
        raise OpenSloError(path, f"of its labels only {only} are understood, once each and with =, not {shown(text)}")
    return labels


def _latency(name: str, path: str) -> Metric:
    metrics = {histogram(engine, metric): metric for engine, metric in product(ENGINES, LATENCIES)}
    if name in metrics:
        return metrics[name]
    known = listed(metrics)
    raise OpenSloError(path, f"the histogram {shown(name)} is not one that I know: {known}")


def _seconds(text: str | None, path: str) -> float:
    try:
        value = float(text or "")
    except ValueError:
        raise OpenSloError(path, f'needs a label le="SECONDS", not {shown(text)}') from None
    return number_of(value, path)
