"""What is asked where words could mean two things; every option is a complete text to say instead."""

from intent.models import HIGHER_IS_BETTER, SETTINGS
from intent.readback.clauses import Words
from intent.rules.draft import Draft, Option
from intent.rules.kinds import Kind
from intent.rules.quantities import PER_USER
from intent.rules.readings import BoundReading
from intent.rules.tokens import TextToken
from intent.tables import table

SIDES = {"<=": "at_most", ">=": "at_least"}

_OFFERS = table("intent.rules", "offers")
_UNITS: dict[str, list[str]] = _OFFERS["units"]
_METRICS: dict[str, list[str]] = _OFFERS["metrics"]
_EXAMPLES: dict[str, str] = _OFFERS["examples"]


def label(draft: Draft, metric: str) -> str:
    """What a metric or setting is called in the operator's language."""
    words = Words(draft.language)
    return words.setting(metric) if metric in SETTINGS else words.metric(metric)


def ask_metric(draft: Draft, reading: BoundReading) -> None:
    """A bound on nothing that is measured here: name what is."""
    head = reading.head
    place = head or reading.comparison or reading.quantity
    unit = reading.quantity.value.unit if reading.quantity else None
    labels = [label(draft, metric) for metric in _METRICS.get(unit or "s", _METRICS["s"])]
    put = draft.instead if head else draft.before
    options = [put(place, label) if place else draft.rephrased(f"{draft.say('minimize')} {label}") for label in labels]
    metrics = draft.say("metrics")
    if head:
        words = draft.say("unknown_metric", said=draft.quoted(head), metrics=metrics)
    else:
        words = draft.say("metric_missing", metrics=metrics)
    draft.ask("unknown_metric", place, words, options)


def ask_latency(draft: Draft, head: TextToken) -> None:
    """The word latency alone."""
    options = [draft.instead(head, label(draft, metric)) for metric in _METRICS["s"]]
    draft.ask("metric_ambiguous", head, draft.say("metric_ambiguous"), options)


def ask_unit(draft: Draft, amount: TextToken, metric: str) -> None:
    """A number without a unit, or money without a period."""
    number = amount.value.number
    options = [draft.instead(amount, f"{number:.12g} {unit}") for unit in _UNITS.get(metric, [])]
    if _UNITS.get(metric) == ["%"]:
        options.append(draft.instead(amount, f"{number * 100:.12g} %"))
    draft.ask("unit_missing", amount, draft.say("unit_missing", said=draft.quoted(amount)), options)


def ask_impossible_unit(draft: Draft, reading: BoundReading, metric: str, amount: TextToken) -> None:
    """A number whose unit the metric cannot have: one of the two is wrong."""
    other_money = amount.value.unit == "money"
    units = ["USD/h", "USD/day", "USD/month"] if other_money else _UNITS.get(metric, [])
    options = [draft.instead(amount, f"{amount.value.number:.12g} {unit}") for unit in units]
    if reading.head is not None:
        options += [draft.instead(reading.head, label(draft, metric)) for metric in _METRICS.get(amount.value.unit, ())]
    if other_money:  # nobody knows the rate
        options.insert(0, Option(draft.say("nothing")))
    allowed = " / ".join(units) or draft.say("whole_numbers")
    facts = {"said": draft.quoted(amount), "label": label(draft, metric), "allowed": allowed}
    draft.ask("unit_impossible", amount, draft.say("unit_impossible", **facts), options)


def ask_comparison(draft: Draft, token: TextToken | None, amount: TextToken) -> None:
    """A metric that may be wanted high or low, and a number."""
    ways = [draft.say("at_least"), draft.say("at_most")]
    options = [draft.instead(token, way) if token else draft.before(amount, way) for way in ways]
    words = draft.say("comparison_missing", said=draft.said(amount))
    draft.ask("comparison_missing", amount, words, options)


def ask_direction(draft: Draft, metric: str, token: TextToken, amount: TextToken) -> None:
    """A bound on the side where nobody needs one."""
    good, best = (">=", "maximize") if metric in HIGHER_IS_BETTER else ("<=", "minimize")
    inverse = amount.value.unit == PER_USER  # a rate per user bounds the time per token from the other side
    said_side = {"<=": ">=", ">=": "<="}[good] if inverse else good
    side = draft.say(SIDES[said_side])
    name = label(draft, metric)
    apart = token.end <= amount.start or amount.end <= token.start  # the ends of a range share one place
    short = len(draft.said(token).split()) <= 3  # "don't keep TTFT under" holds the metric as well
    turned = [draft.instead(token, side)] if apart and short else []
    words = draft.say("direction_unusual", label=name, side=side)
    draft.ask("direction_unusual", token, words, [*turned, draft.rephrased(f"{draft.say(best)} {name}")])


def ask_optimum(draft: Draft, metric: str, token: TextToken) -> None:
    """The most of something bad or the least of something good."""
    name = label(draft, metric)
    other = draft.say("maximize" if metric in HIGHER_IS_BETTER else "minimize")
    words = draft.say("optimum_unusual", said=draft.quoted(token), label=name, other=other)
    draft.ask("direction_unusual", token, words, [draft.instead(token, other), draft.rephrased(f"{other} {name}")])


def ask_bound_or_optimum(draft: Draft, metric: str, token: TextToken, amount: TextToken) -> None:
    """Both an optimisation and a number."""
    least = token.kind is Kind.CHEAPEST or token.value == "minimize"
    name = label(draft, metric)
    wish = draft.say("minimize" if least else "maximize")
    words = draft.say("bound_and_optimum", said=draft.quoted(amount), label=name, wish=wish)
    side = draft.say("at_most" if least else "at_least")
    draft.ask(
        "bound_and_optimum",
        amount,
        words,
        [draft.rephrased(rewording) for rewording in (f"{wish} {name}", f"{name} {side} {draft.said(amount)}")],
    )


def ask_bound(draft: Draft, reading: BoundReading, metric: str) -> None:
    """A metric without a number."""
    name = label(draft, metric)
    high = metric in HIGHER_IS_BETTER or metric == "gpu_util"
    best, way = ("maximize", "at_least") if high else ("minimize", "at_most")
    example = f"{name} {draft.say(way)} {_EXAMPLES.get(metric, '2 s')}"
    words = draft.say("bound_missing", said=repr(draft.text[reading.start : reading.end]), label=name)
    draft.ask(
        "bound_missing",
        reading.head,
        words,
        [draft.rephrased(f"{draft.say(best)} {name}"), draft.rephrased(example)],
    )
    draft.vague.append((draft.questions[-1], metric, 0))


def ask_whole(draft: Draft, amount: TextToken, metric: str) -> None:
    """Half a device."""
    number = max(1, int(min(amount.value.number, 1e6)))
    words = draft.say("not_a_whole_number", said=draft.quoted(amount), label=label(draft, metric))
    draft.ask("not_a_whole_number", amount, words, [draft.instead(amount, str(n)) for n in (number, number + 1)])


def ask_stat(draft: Draft, token: TextToken) -> None:
    """A percentile that is not measured."""
    options = [draft.instead(token, stat) for stat in ("P99", "P95", "P90", "P50")]
    draft.ask("unknown_stat", token, draft.say("unknown_stat"), options)


def ask_degree(draft: Draft, head: TextToken, setting: str) -> None:
    """A setting without its number."""
    name = label(draft, setting)
    options = [draft.instead(head, f"{name} {n}") for n in (1, 2, 4)]
    draft.ask("value_missing", head, draft.say("value_missing", label=name), options)


def ask_fixed_or_most(draft: Draft, token: TextToken, amount: TextToken, setting: str) -> None:
    """A setting with a comparison that settings do not have: ``best tp 4``."""
    name = label(draft, setting)
    number = f"{amount.value.number:g}"
    words = draft.say("comparison_unclear", label=name, said=draft.said(amount))
    draft.ask(
        "comparison_unclear",
        token,
        words,
        [draft.rephrased(f"{name} {number}"), draft.rephrased(f"{name} {draft.say('at_most')} {number}")],
    )


def ask_by_or_to(draft: Draft, amount: TextToken) -> None:
    """A change with an amount that may be how far or where to go."""
    ways = [draft.before(amount, draft.say(way)) for way in ("change_by", "change_to")]
    draft.ask("change_open", amount, draft.say("change_open", said=draft.quoted(amount)), ways)


def ask_wish(draft: Draft, wish: TextToken) -> None:
    """A wish without a metric: fast, cheap, better."""
    fastest = [f"{draft.say('minimize')} {label(draft, metric)}" for metric in ("ttft", "tpot")]
    most = f"{draft.say('maximize')} {label(draft, 'throughput_tok')}"
    cheapest = f"{draft.say('minimize')} {label(draft, 'cost')}"
    options = {
        "fast": [*fastest, most],
        "cheap": [cheapest, f"{label(draft, 'cost')} {draft.say('at_most')} 10 USD/h"],
        "good": [fastest[0], most, cheapest],
    }
    wanted = {"slow": "fast", "dear": "cheap"}.get(wish.value, wish.value)
    words = draft.say(f"wish_{wanted}", **({"said": draft.quoted(wish)} if wanted == "good" else {}))
    draft.ask("wish_without_metric", wish, words, [draft.rephrased(option) for option in options[wanted]])
    if draft.kept:
        return  # when or for whom is said here, and would be lost
    settling = {"fast": ("ttft", "tpot", "e2e"), "cheap": ("cost",), "good": ()}[wanted]
    draft.vague += [(draft.questions[-1], metric, len(draft.goals)) for metric in settling]


def ask_scale(draft: Draft, token: TextToken) -> None:
    """``scale down at night``: to how many devices."""
    least = f"{draft.say('minimize')} {label(draft, 'cost')}"
    words = draft.say("scale_unclear", said=draft.quoted(token))
    draft.ask(
        "scale_unclear",
        token,
        words,
        [draft.instead(token, draft.say("scale_most")), draft.instead(token, least)],
    )


def ask_time(draft: Draft, token: TextToken) -> None:
    """A time that cannot be, or that can be two."""
    words = draft.say(token.value, said=draft.quoted(token))
    options = [draft.instead(token, Words(draft.language).window(name)) for name in ("always", "peak", "overnight")]
    draft.ask(token.value, token, words, options)


def ask_number(draft: Draft, token: TextToken) -> None:
    """Digits that could be two numbers (``1,5``) or none (``1e400``)."""
    words = draft.said(token)
    numbers = (words.replace(",", "."), words.replace(",", "")) if words.count(",") == 1 else ()
    options = [*(draft.instead(token, number) for number in numbers), Option(draft.say("nothing"))]
    draft.ask("number_unreadable", token, draft.say("number_unreadable", said=draft.quoted(token)), options)
