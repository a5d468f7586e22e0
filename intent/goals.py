"""Readings to goals: the one place that decides what words mean, which defaults hold and what has to be asked.

A slot that a documented default covers is assumed and said so; one that could mean two things becomes a question,
whose options are complete texts to say instead.
"""

from typing import Any

from intent.draft import KNOWN_METRICS, Draft
from intent.lexicon import ANY_LATENCY, ANY_THROUGHPUT, Kind
from intent.models import (
    DEFAULT_STAT,
    HIGHER_IS_BETTER,
    LATENCIES,
    LOWER_IS_BETTER,
    METRIC_LABELS,
    Config,
    Goal,
    Objective,
)
from intent.quantities import Quantity, normalise
from intent.readings import Reading
from intent.tokens import Token

_STATS = ("p50", "p90", "p95", "p99", "p99.9", "mean")
_SAYABLE_UNITS = {
    "ttft": ("s", "ms"),
    "tpot": ("ms", "s"),
    "e2e": ("s", "ms"),
    "reconfig_pause": ("ms", "s"),
    "throughput_tok": ("tokens/s", "tokens/min"),
    "throughput_req": ("requests/s", "requests/min"),
    "gpu_util": ("%",),
    "cost": ("USD/h", "USD/day", "USD/month"),
}
"""Units to offer when the one that was said is missing or impossible, the likeliest first."""
_SAYABLE_METRICS = {
    "s": ("TTFT", "TPOT", "E2E"),
    "ratio": ("GPU utilisation",),
    "tokens/s": ("token throughput",),
    "requests/s": ("request throughput",),
}
_AT = {"<=": "at most", ">=": "at least"}


def add_goal(draft: Draft, reading: Reading) -> None:
    """Append the goal of one reading with its assumptions, or the question that keeps it from being one."""
    mark = len(draft.assumptions)
    for slot, words in reading.notes:
        draft.assume(slot, words)
    goal = _goal(draft, reading)
    if goal is None:
        del draft.assumptions[mark:]
    elif goal not in draft.goals:
        draft.goals.append(goal)


def _goal(draft: Draft, reading: Reading) -> Goal | None:
    head = reading.head
    if head is not None and (
        head.kind is Kind.SETTING or (head.kind is Kind.COUNTED and head.value != "gpu_count")
    ):
        return _config(draft, reading, head)
    metric = _metric(draft, reading)
    if metric is None:
        return None
    if reading.comparison is not None and reading.comparison.kind is Kind.OPTIMISE:
        return _optimisation(draft, reading, metric)
    return _bound(draft, reading, metric)


# -- the metric ------------------------------------------------------------------------------------


def _metric(draft: Draft, reading: Reading) -> str | None:
    head, unit = reading.head, _unit(reading)
    if head is None or head.kind is Kind.UNKNOWN:
        _ask_metric(draft, reading)
        return None
    if head.value == ANY_LATENCY:
        if unit in {"s/token", "tokens/s/user"}:
            return "tpot"
        options = tuple(draft.instead(head, label) for label in _SAYABLE_METRICS["s"])
        draft.ask(
            "metric_ambiguous",
            head,
            "Which latency: TTFT (first token), TPOT (each next token) or E2E (whole answer)?",
            options,
        )
        return None
    if head.value == ANY_THROUGHPUT:
        return _throughput(draft, reading, head, unit)
    if unit == "tokens/s/user" and head.value == "throughput_tok":
        return "tpot"
    return str(head.value)


def _throughput(draft: Draft, reading: Reading, head: Token, unit: str | None) -> str | None:
    if unit == "tokens/s/user":
        return "tpot"
    if unit == "requests/s":
        return "throughput_req"
    if unit is not None:
        return "throughput_tok"
    if reading.quantity is None:
        draft.assume("metric", "throughput counted in tokens")
        return "throughput_tok"
    _ask_unit(draft, head, reading.quantity, ("tokens/s", "requests/s"))
    return None


def _ask_metric(draft: Draft, reading: Reading) -> None:
    """A bound on nothing that is measured here: name what is."""
    unit, head = _unit(reading), reading.head
    labels = _SAYABLE_METRICS.get(unit or "s", _SAYABLE_METRICS["s"])
    place = head or reading.comparison or reading.quantity
    assert place is not None  # a reading has at least a number
    options = tuple(draft.instead(place, label) if head else draft.before(place, label) for label in labels)
    unknown = (
        f"{draft.text[head.start : head.end]!r} is no metric I know" if head else "The bound names no metric"
    )
    draft.ask(
        "unknown_metric", place, f"{unknown}. The metrics are {KNOWN_METRICS}. Which one is meant?", options
    )


def _unit(reading: Reading) -> str | None:
    return reading.quantity.value.unit if reading.quantity else None


# -- objectives ------------------------------------------------------------------------------------


def _optimisation(draft: Draft, reading: Reading, metric: str) -> Goal | None:
    assert reading.comparison is not None
    op = reading.comparison.value
    wrong = LOWER_IS_BETTER if op == "maximize" else HIGHER_IS_BETTER
    if metric in wrong:
        other = "minimise" if op == "maximize" else "maximise"
        label = METRIC_LABELS[metric]
        options = (draft.instead(reading.comparison, other), f"{other} {label}")
        draft.ask(
            "direction_unusual",
            reading.comparison,
            f"Nobody wants to {op} {label}: is {other} meant?",
            options,
        )
        return None
    if reading.quantity is not None:
        draft.ask(
            "bound_and_optimum",
            reading.quantity,
            f"Is {draft.text[reading.start : reading.end]!r} a bound, or should {METRIC_LABELS[metric]} be {op}d?",
            (f"{op} {METRIC_LABELS[metric]}", draft.instead(reading.comparison, "keep")),
        )
        return None
    return _objective(draft, reading, metric, {"op": op})


def _bound(draft: Draft, reading: Reading, metric: str) -> Goal | None:
    amount = reading.quantity
    if amount is None:
        _ask_bound(draft, reading, metric)
        return None
    quantity = _normalised(draft, reading, metric, amount)
    op = _operator(draft, reading, metric, amount) if quantity else None
    if quantity is None or op is None:
        return None
    if metric == "gpu_count" and quantity.value != int(quantity.value):
        _ask_whole(draft, amount, METRIC_LABELS[metric])
        return None
    return _objective(draft, reading, metric, {"op": op, "value": quantity.value, "unit": quantity.unit})


def _objective(draft: Draft, reading: Reading, metric: str, bound: dict[str, Any]) -> Goal | None:
    window = _window(draft, reading)
    stat, known = _stat(draft, reading, metric)
    if window is None or not known:
        return None
    return Objective(metric=metric, stat=stat, window=window, **_common(draft, reading), **bound)  # type: ignore[arg-type] # names come from closed tables


def _common(draft: Draft, reading: Reading) -> dict[str, Any]:
    """Evidence and names, which every goal has; spelling corrections are noted on the way."""
    slots = (reading.head, reading.stat, reading.comparison, reading.quantity, reading.window)
    for token in slots:
        if token is not None and token.misspelt:
            was, taken = token.misspelt
            draft.assume("evidence", f"understood {was!r} as {taken!r}")
    return {
        "evidence": draft.text[reading.start : reading.end],
        "tenant": reading.tenant.value if reading.tenant else None,
        "model": reading.model.value if reading.model else None,
    }


def _normalised(draft: Draft, reading: Reading, metric: str, amount: Token) -> Quantity | None:
    said: Quantity = amount.value
    quantity = normalise(metric, said)
    if quantity is not None:
        if said.unit is None and metric == "gpu_util":
            draft.assume("unit", f"{said.number:g} read as {quantity.value * 100:g} %")
        return quantity
    units = _SAYABLE_UNITS.get(metric, ())
    if said.unit is None or said.unit == "USD":
        _ask_unit(draft, amount, amount, units)
    else:
        _ask_impossible_unit(draft, reading, metric, amount)
    return None


def _ask_unit(draft: Draft, at: Token, amount: Token, units: tuple[str, ...]) -> None:
    number = f"{amount.value.number:.12g}"
    options = [draft.instead(amount, f"{number} {unit}") for unit in units]
    if len(options) == 1:
        options.append(draft.instead(amount, f"{amount.value.number * 100:.12g} %"))
    said = draft.text[amount.start : amount.end]
    draft.ask("unit_missing", at, f"{said!r} has no complete unit. Which one is meant?", tuple(options))


def _ask_impossible_unit(draft: Draft, reading: Reading, metric: str, amount: Token) -> None:
    label, said = METRIC_LABELS[metric], draft.text[amount.start : amount.end]
    units = _SAYABLE_UNITS.get(metric, ())
    options = [draft.instead(amount, f"{amount.value.number:.12g} {unit}") for unit in units]
    if reading.head is not None:
        others = _SAYABLE_METRICS.get(amount.value.unit, ("E2E",))
        options += [draft.instead(reading.head, other) for other in others]
    allowed = " or ".join(units) or "a whole number"
    draft.ask(
        "unit_impossible",
        amount,
        f"{said!r} cannot be a {label}, which is said in {allowed}. What is meant?",
        tuple(options),
    )


def _operator(draft: Draft, reading: Reading, metric: str, amount: Token) -> str | None:
    """``<=`` or ``>=`` by what was said, or by the metric's good direction where that leaves no doubt."""
    said = reading.comparison
    good = ">=" if metric in HIGHER_IS_BETTER else "<=" if metric in LOWER_IS_BETTER else None
    if metric == "gpu_count":
        return _counted_operator(said)
    if said is None or said.value == "==":
        if good is None:
            options = tuple(
                (draft.instead(said, words) if said else draft.before(amount, words))
                for words in _AT.values()
            )
            draft.ask(
                "comparison_missing",
                amount,
                f"At most or at least {draft.text[amount.start : amount.end]}?",
                options[::-1],
            )
            return None
        shown = _turned(good) if _unit(reading) == "tokens/s/user" else good
        draft.assume("op", f"{_AT[shown]} {draft.text[amount.start : amount.end]}")
        return good
    op = {"better": good or ">=", "worse": _turned(good or ">=")}.get(said.value, said.value)
    if _unit(reading) == "tokens/s/user":  # a rate per user bounds its inverse
        op = _turned(op)
    if good is not None and op != good:
        _ask_direction(draft, metric, said, good)
        return None
    return str(op)


def _counted_operator(said: Token | None) -> str:
    if said is None or said.value == "==":
        return "=="
    return {"better": "<=", "worse": ">="}.get(said.value, str(said.value))


def _turned(op: str) -> str:
    return {"<=": ">=", ">=": "<="}[op]


def _ask_direction(draft: Draft, metric: str, said: Token, good: str) -> None:
    label = METRIC_LABELS[metric]
    best = "minimise" if good == "<=" else "maximise"
    words = f"A {label} is wanted {_AT[good]} some value, not the other way round. What is meant?"
    draft.ask("direction_unusual", said, words, (draft.instead(said, _AT[good]), f"{best} {label}"))


def _ask_bound(draft: Draft, reading: Reading, metric: str) -> None:
    label = METRIC_LABELS[metric]
    best = "maximise" if metric in HIGHER_IS_BETTER or metric == "gpu_util" else "minimise"
    example = {
        "s": "2 s",
        "ratio": "70 %",
        "tokens/s": "500 tokens/s",
        "requests/s": "5 requests/s",
        "USD/h": "10 USD/h",
    }
    units = {
        "gpu_util": "ratio",
        "throughput_tok": "tokens/s",
        "throughput_req": "requests/s",
        "cost": "USD/h",
    }
    words = (
        "2 GPUs"
        if metric == "gpu_count"
        else f"{label} {_AT['>=' if best == 'maximise' else '<=']} {example[units.get(metric, 's')]}"
    )
    said = draft.text[reading.start : reading.end]
    draft.ask(
        "bound_missing",
        reading.head,
        f"{said!r} says no bound. What should {label} be?",
        (f"{best} {label}", words),
    )


def _stat(draft: Draft, reading: Reading, metric: str) -> tuple[Any, bool]:
    """The statistic, and whether it is one we know."""
    if reading.stat is None:
        if metric not in LATENCIES:
            return None, True
        draft.assume("stat", f"{DEFAULT_STAT.upper()}, as no percentile was said")
        return DEFAULT_STAT, True
    if reading.stat.value in _STATS:
        return reading.stat.value, True
    options = tuple(draft.instead(reading.stat, stat.upper()) for stat in ("p95", "p99", "p90", "p50"))
    draft.ask(
        "unknown_stat",
        reading.stat,
        "The statistics are P50, P90, P95, P99, P99.9 and mean. Which one is meant?",
        options,
    )
    return None, False


# -- windows and settings --------------------------------------------------------------------------


def _window(draft: Draft, reading: Reading) -> str | None:
    """The window's name; None if the deployment file does not define it, which is then asked."""
    if reading.window is None:
        draft.assume("window", "at all times, as no window was said")
        return "always"
    name = str(reading.window.value)
    if name == "always" or name in draft.catalogue.windows:
        return name
    known = [window for window in draft.catalogue.windows if window != "always"]
    options = [draft.instead(reading.window, words.replace("_", " ")) for words in (*known, "at all times")]
    options.append(draft.instead(reading.window, ""))
    listed = ", ".join(known) or "none"
    words = f"The deployment file does not say when {name!r} is; it defines {listed}. Which window is meant?"
    draft.ask("unknown_window", reading.window, words, tuple(options))
    return None


def _config(draft: Draft, reading: Reading, head: Token) -> Goal | None:
    amount, label = reading.quantity, _SETTING_LABELS[str(head.value)]
    if amount is None:
        draft.ask(
            "value_missing",
            head,
            f"Which {label}?",
            tuple(draft.instead(head, f"{label} {n}") for n in (1, 2, 4)),
        )
        return None
    quantity: Quantity = amount.value
    if quantity.unit is not None or quantity.number != int(quantity.number):
        _ask_whole(draft, amount, label)
        return None
    window = _window(draft, reading)
    if window is None:
        return None
    said = reading.comparison.value if reading.comparison else "=="
    if said not in {"<=", ">=", "=="}:
        draft.ask(
            "comparison_unclear",
            reading.comparison,
            f"Which {label}?",
            (f"{label} {quantity.number:g}", f"{label} at most {quantity.number:g}"),
        )
        return None
    common = _common(draft, reading)
    del common["tenant"]
    return Config(key=head.value, op=said, value=int(quantity.number), window=window, **common)  # type: ignore[arg-type] # the same


_SETTING_LABELS = {"tp": "TP", "pp": "PP", "replicas": "replicas"}


def _ask_whole(draft: Draft, amount: Token, label: str) -> None:
    number = max(1, int(amount.value.number))
    options = tuple(draft.instead(amount, str(n)) for n in (number, number + 1))
    said = draft.text[amount.start : amount.end]
    draft.ask(
        "not_a_whole_number", amount, f"{said!r} is not a whole number, which a {label} has to be.", options
    )
