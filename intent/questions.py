"""What is asked where words could mean two things; every option is a complete text to say instead."""

from intent.draft import KNOWN_METRICS, Draft
from intent.models import HIGHER_IS_BETTER, METRIC_LABELS
from intent.readings import Reading
from intent.tokens import Token

AT = {"<=": "at most", ">=": "at least"}
SETTING_LABELS = {"tp": "TP", "pp": "PP", "replicas": "replicas"}

_UNITS = {
    "ttft": ("s", "ms"),
    "tpot": ("ms", "s"),
    "e2e": ("s", "ms"),
    "reconfig_pause": ("ms", "s"),
    "throughput": ("tokens/s", "requests/s"),
    "throughput_tok": ("tokens/s", "tokens/min"),
    "throughput_req": ("requests/s", "requests/min"),
    "gpu_util": ("%",),
    "cost": ("USD/h", "USD/day", "USD/month"),
}
"""Units to offer when the one that was said is missing or impossible, the likeliest first."""
_METRICS = {
    "s": ("TTFT", "TPOT", "E2E"),
    "ratio": ("GPU utilisation",),
    "tokens/s": ("token throughput",),
    "requests/s": ("request throughput",),
}
_EXAMPLES = {
    "reconfig_pause": "50 ms",
    "tpot": "50 ms",
    "gpu_util": "70 %",
    "throughput_tok": "500 tokens/s",
    "throughput_req": "5 requests/s",
    "cost": "10 USD/h",
}


def ask_metric(draft: Draft, reading: Reading) -> None:
    """A bound on nothing that is measured here: name what is."""
    head = reading.head
    place = head or reading.comparison or reading.quantity
    unit = reading.quantity.value.unit if reading.quantity else None
    labels = _METRICS.get(unit or "s", _METRICS["s"])
    put = draft.instead if head else draft.before
    options = tuple(put(place, label) if place else f"minimise {label}" for label in labels)
    unknown = f"{draft.said(head)!r} is no metric I know" if head else "The bound names no metric"
    words = f"{unknown}. The metrics are {KNOWN_METRICS}. Which one is meant?"
    draft.ask("unknown_metric", place, words, options)


def ask_latency(draft: Draft, head: Token) -> None:
    """The word latency alone."""
    words = "Which latency: TTFT (first token), TPOT (each next token) or E2E (whole answer)?"
    draft.ask("metric_ambiguous", head, words, tuple(draft.instead(head, label) for label in _METRICS["s"]))


def ask_unit(draft: Draft, amount: Token, metric: str) -> None:
    """A number without a unit, or money without a period."""
    number = amount.value.number
    options = tuple(draft.instead(amount, f"{number:.12g} {unit}") for unit in _UNITS.get(metric, ()))
    if metric == "gpu_util":
        options += (draft.instead(amount, f"{number * 100:.12g} %"),)
    draft.ask(
        "unit_missing", amount, f"{draft.said(amount)!r} has no complete unit. Which one is meant?", options
    )


def ask_impossible_unit(draft: Draft, reading: Reading, metric: str, amount: Token) -> None:
    """A number whose unit the metric cannot have: one of the two is wrong."""
    units = _UNITS.get(metric, ())
    options = [draft.instead(amount, f"{amount.value.number:.12g} {unit}") for unit in units]
    if reading.head is not None:
        options += [draft.instead(reading.head, one) for one in _METRICS.get(amount.value.unit, ())]
    allowed = " or ".join(units) or "whole numbers"
    words = f"{draft.said(amount)!r} cannot be a {METRIC_LABELS[metric]}, which is said in {allowed}. What is meant?"
    draft.ask("unit_impossible", amount, words, tuple(options))


def ask_comparison(draft: Draft, said: Token | None, amount: Token) -> None:
    """A metric that may be wanted high or low, and a number."""
    ways = ("at least", "at most")
    options = tuple(draft.instead(said, way) if said else draft.before(amount, way) for way in ways)
    draft.ask("comparison_missing", amount, f"At least or at most {draft.said(amount)}?", options)


def ask_direction(draft: Draft, metric: str, said: Token, amount: Token) -> None:
    """A bound on the side where nobody needs one."""
    label = METRIC_LABELS[metric]
    good, best = (">=", "maximise") if metric in HIGHER_IS_BETTER else ("<=", "minimise")
    words = f"A {label} is wanted {AT[good]} some value, not the other way round. What is meant?"
    is_range = said.start == amount.start  # its two ends share one place, where no single bound can stand
    turned = () if is_range else (draft.instead(said, AT[good]),)
    draft.ask("direction_unusual", said, words, (*turned, f"{best} {label}"))


def ask_optimum(draft: Draft, metric: str, said: Token) -> None:
    """The most of something bad or the least of something good."""
    label = METRIC_LABELS[metric]
    other = "maximise" if metric in HIGHER_IS_BETTER else "minimise"
    words = f"{draft.said(said)!r} makes {label} worse. Is {other} meant?"
    draft.ask("direction_unusual", said, words, (draft.instead(said, other), f"{other} {label}"))


def ask_bound_or_optimum(draft: Draft, metric: str, said: Token, amount: Token) -> None:
    """Both an optimisation and a number."""
    label = METRIC_LABELS[metric]
    words = f"Is {draft.said(amount)!r} a bound on {label}, or should it be {said.value}d?"
    draft.ask("bound_and_optimum", amount, words, (f"{said.value} {label}", draft.instead(said, "keep")))


def ask_bound(draft: Draft, reading: Reading, metric: str) -> None:
    """A metric without a number, or with a change relative to now."""
    label = METRIC_LABELS[metric]
    high = metric in HIGHER_IS_BETTER or metric == "gpu_util"
    best, way = ("maximise", "at least") if high else ("minimise", "at most")
    example = "2 GPUs" if metric == "gpu_count" else f"{label} {way} {_EXAMPLES.get(metric, '2 s')}"
    said = draft.text[reading.start : reading.end]
    words = f"{said!r} says no bound that can be held. What should {label} be?"
    draft.ask("bound_missing", reading.head, words, (f"{best} {label}", example))


def ask_whole(draft: Draft, amount: Token, label: str) -> None:
    """Half a device."""
    number = max(1, int(amount.value.number))
    options = tuple(draft.instead(amount, str(n)) for n in (number, number + 1))
    words = f"{draft.said(amount)!r} is not a whole number, which {label} has to be. What is meant?"
    draft.ask("not_a_whole_number", amount, words, options)


def ask_stat(draft: Draft, said: Token) -> None:
    """A percentile that is not measured."""
    words = "The statistics are P50, P90, P95, P99, P99.9 and mean. Which one is meant?"
    options = tuple(draft.instead(said, stat) for stat in ("P99", "P95", "P90", "P50"))
    draft.ask("unknown_stat", said, words, options)


def ask_window(draft: Draft, said: Token) -> None:
    """A time that the deployment file does not define."""
    known = [window for window in draft.catalogue.windows if window != "always"]
    names = [window.replace("_", " ") for window in known]
    options = ("at all times", *names)
    words = (
        f"The deployment file does not say when {draft.said(said)!r} is; it defines {', '.join(known) or 'none'}. "
        "Which window is meant?"
    )
    draft.ask("unknown_window", said, words, tuple(draft.instead(said, option) for option in options))


def ask_degree(draft: Draft, head: Token, label: str) -> None:
    """A setting without its number."""
    draft.ask(
        "value_missing",
        head,
        f"Which {label}?",
        tuple(draft.instead(head, f"{label} {n}") for n in (1, 2, 4)),
    )


def ask_fixed_or_most(draft: Draft, said: Token, amount: Token, label: str) -> None:
    """A setting with a comparison that settings do not have: ``best tp 4``."""
    words = f"{label} {draft.said(amount)}, or at most that?"
    number = f"{amount.value.number:g}"
    draft.ask("comparison_unclear", said, words, (f"{label} {number}", f"{label} at most {number}"))
