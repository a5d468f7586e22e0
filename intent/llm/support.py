"""Whether the text bears what an LLM chose from a list: metric, side, statistic, format. Pure.

A choice is refused where the rules' own words say another one; words that they do not know are left to the model.
"""

import re
from collections.abc import Iterable
from itertools import pairwise

from intent import names
from intent.fold import Place, fold
from intent.llm.quotes import Slots, Source
from intent.models import HIGHER_IS_BETTER, LATENCIES, LOWER_IS_BETTER, SETTINGS, Goal
from intent.rules import read
from intent.rules.kinds import ANY_LATENCY, ANY_THROUGHPUT, Kind
from intent.rules.phrasing import tokenize
from intent.rules.priorities import side
from intent.rules.quantities import PER_USER, Quantity
from intent.rules.readings import FACING
from intent.rules.tokens import TextToken

_OF_ALL = frozenset({"evidence", "type", "window", "changes"})
_BOUND = _OF_ALL | {"subject", "stat", "comparison", "number", "unit", "period", "tenant", "model", "soft"}
_SLOTS = {
    "objective": _BOUND,
    "relative": _BOUND | {"change"},
    "exception": _OF_ALL
    | {"tenant", "subject", "stat", "comparison", "change", "number", "unit", "period", "soft", "model"},
    "precision": _OF_ALL | {"rule", "precision", "tenant", "model", "soft"},
    "placement": _OF_ALL | {"rule", "place", "workload", "soft"},
    "priority": _OF_ALL | {"higher", "lower", "soft"},
    "config": _OF_ALL | {"subject", "comparison", "number", "model", "soft"},
    "reconfig": _OF_ALL | {"rule", "number", "unit", "period", "comparison"},
}
"""Goal type to the slots that it may have."""
_THROUGHPUTS = frozenset({"throughput_tok", "throughput_req"})
_FAMILIES = ((LATENCIES, ANY_LATENCY), (_THROUGHPUTS, ANY_THROUGHPUT))
_UNNAMED = SETTINGS | {"unknown", "gpu_count", "reconfig_pause", "quality_loss"}
"""Subjects that many words may name."""
_REFUSING = frozenset({Kind.NEGATION, Kind.AVOID, Kind.FREEZE, Kind.EXCEPT, Kind.REPORT})
_TURNING = re.compile(
    r"\b(?:mind|clear of|away|hates?|objects?|bans?|banned|no-go|off limits|out of bounds|veto|reject|stay out|hands)\b"
    r"|拒绝|反对"
)
"""Words that may refuse, beside those that the rules know."""
_NAMES = ("place", "workload", "tenant", "model", "window")
_FORMAT = re.compile(r"bits?\b|float|integer|precision|quanti[sz]|weights|numeric|精度|量化|浮点|整数|位")
"""Words for formats that the rules do not know by name."""
_TURNING_KINDS = frozenset({Kind.NEGATION, Kind.AVOID, Kind.RANGE, Kind.EXCEPT, Kind.CHANGE, Kind.BETWEEN})
"""Words that may turn a comparison round, or stand for both."""
_DENYING = frozenset({Kind.NEGATION, Kind.AVOID})


def slots_of(slots: Slots) -> frozenset[str]:
    """The slots that a goal of this type may have."""
    return _SLOTS[slots["type"] or ""]


def differing_metric(source: Source, slots: Slots, place: Place) -> str | None:
    """What is wrong if the evidence names other metrics than the one that was chosen.

    If it names none, the text.
    """
    subject = slots["subject"]
    if subject is None or subject in _UNNAMED:
        return None
    inside = source.within(place)
    metrics = _metrics(inside)
    if not metrics and not any(token.kind is Kind.UNKNOWN for token in inside):
        metrics = _metrics(source.tokens)
    if not metrics or any(_is_alike(metric, subject) for metric in metrics):
        return None
    return f"the text names {', '.join(sorted(metrics))} there, not {subject}"


def _metrics(tokens: Iterable[TextToken]) -> set[str]:
    """What some words name, or speak of without a name: ``as cheap as possible``."""
    found = set()
    for token in tokens:
        if token.kind is Kind.METRIC:
            found.add(str(token.value))
        elif token.kind is Kind.CHEAPEST:
            found.add("cost")
        elif (unit := _unit(token)) in {"tokens/s", "requests/s", PER_USER}:
            found.add(ANY_THROUGHPUT)
        elif unit is not None and unit.startswith("USD"):
            found.add("cost")
    return found


def _unit(token: TextToken) -> str | None:
    """The unit that a word is, or that an amount has."""
    if token.kind is Kind.UNIT:
        return str(token.value[0])
    if token.kind is Kind.THING:
        return str(token.value)
    return token.value.unit if token.kind is Kind.QUANTITY else None


def _is_alike(text: str, subject: str) -> bool:
    if text == subject:
        return True
    return any({text, subject} <= {*family, anyone} and anyone in {text, subject} for family, anyone in _FAMILIES)


def differing_side(source: Source, slots: Slots, place: Place) -> str | None:
    """What is wrong if the evidence says the other side than the one that was chosen.

    A side that is the usual one needs no word. Words that turn a comparison round are the rules' to read as a whole
    (``differing_bound``); here they excuse nothing but the usual side.
    """
    chosen = slots["comparison"]
    subject = slots["subject"]
    if chosen not in FACING:
        return None
    good = _usual(subject)
    inside = source.within(place)
    alone = tokenize(source.text[slice(*place)], source.catalogue)
    sides = {"better": good, "worse": FACING.get(good or "")}
    stated = {sides.get(str(side.value), str(side.value)) for side in (*_sides(inside), *_sides(alone))}
    if good and chosen != good and chosen in stated and any(token.kind in _DENYING for token in inside):
        return f"the evidence denies {chosen}"
    if chosen in stated or any(token.kind is Kind.RANGE for token in inside):
        return None
    turned = any(token.kind in _TURNING_KINDS for token in inside)
    usual = subject not in SETTINGS and (chosen == good or (good is None and turned))
    if usual and (not stated or turned or "==" in stated):
        return None
    return f"the evidence says {' and '.join(map(str, stated))}" if stated else f"no word of the evidence says {chosen}"


def _usual(subject: str | None) -> str | None:
    """The side on which a metric is wanted; None where it may be either."""
    if subject in {*HIGHER_IS_BETTER, ANY_THROUGHPUT}:
        return ">="
    return "<=" if subject in {*LOWER_IS_BETTER, ANY_LATENCY} else None


def _sides(tokens: list[TextToken]) -> list[TextToken]:
    """Comparisons, a sign between an amount and its metric read from the metric's side."""
    found = [token for token in tokens if token.kind is Kind.COMPARISON]
    amounts = [token for token in tokens if token.kind is Kind.QUANTITY and isinstance(token.value, Quantity)]
    metrics = [token for token in tokens if token.kind is Kind.METRIC]
    if (
        len(found) == len(amounts) == len(metrics) == 1
        and amounts[0].end <= found[0].start
        and found[0].end <= metrics[0].start
    ):
        return []
    return found


def differing_bound(source: Source, goal: Goal, place: Place) -> str | None:
    """What is wrong if the rules find another bound or change in the evidence.

    Only where they read the evidence alone without a doubt.
    """
    draft = read(source.text[slice(*place)], source.catalogue)
    alike = [
        other_goal
        for other_goal in draft.goals
        if other_goal.type == goal.type and _subject(other_goal) == _subject(goal)
    ]
    if draft.questions or not alike or _amount(goal) in map(_amount, alike):
        return None
    return "the evidence says " + " and ".join(" ".join(map(str, _amount(goal))) for goal in alike)


def _subject(goal: Goal) -> object:
    return getattr(goal, "metric", None)


def _amount(goal: Goal) -> tuple[object, ...]:
    """The side and the numbers of a goal."""
    values = (getattr(goal, name, None) for name in ("op", "value", "factor", "delta"))
    return tuple(part for part in values if part is not None)


def missing_stat(source: Source, stat: str | None, place: Place) -> str | None:
    """What is wrong if the text does not say this statistic.

    One that the evidence says goes before one from elsewhere.
    """
    if stat is None:
        return None
    here = {str(token.value) for token in source.within(place) if token.kind is Kind.STAT}
    if here:
        return None if stat in here else f"the evidence says {', '.join(sorted(here))}, not {stat}"
    if any(token.kind is Kind.STAT and token.value == stat for token in source.tokens):
        return None
    return f"the text does not say {stat}; say null"


def missing_format(source: Source, slots: Slots, place: Place) -> bool:
    """Whether neither the evidence nor the text says this numeric format."""
    chosen = slots["precision"]
    here = {str(token.value) for token in source.within(place) if token.kind is Kind.PRECISION}
    formats = here or {str(token.value) for token in source.tokens if token.kind is Kind.PRECISION}
    if chosen in formats:
        return False
    if chosen == "full" and any(token.kind is Kind.QUANTISE for token in source.tokens):
        return False
    return bool(here) or _FORMAT.search(fold(source.text).text) is None


def differing_rule(source: Source, slots: Slots, place: Place) -> str | None:
    """What is wrong if the rules find another rule or another order in the evidence.

    Only where they read the evidence alone without a doubt.
    """
    if problem := _differing_refusal(source, slots, place) or _differing_first(source, slots, place):
        return problem
    evidence = source.text[slice(*place)]
    draft = read(evidence, source.catalogue)
    alike = [goal for goal in draft.goals if goal.type == slots["type"]]
    if draft.questions or not alike or _TURNING.search(fold(evidence).text):
        return None
    chosen = {name: words for name in ("rule", "higher", "lower") if (words := slots[name]) is not None}
    rules = [{name: _softened(str(getattr(goal, name, ""))) for name in chosen} for goal in alike]
    named = {name: _softened(names.tenant(words, source.catalogue) or words) for name, words in chosen.items()}
    if named in rules:
        return None
    return "the evidence says " + ", ".join(f"{name} {value}" for name, value in rules[0].items())


def _softened(text: str) -> str:
    """A rule or a side; to prefer is to require, softly."""
    return "require" if text == "prefer" else text.removeprefix("tenant:")


def _differing_refusal(source: Source, slots: Slots, place: Place) -> str | None:
    """What is wrong if the evidence refuses, allows or prefers otherwise than the rule.

    Words that nobody knows may do any.
    """
    rule = slots["rule"]
    named = [at for slot in _NAMES if (words := slots[slot]) for at in source.places(words)]
    inside = source.within(place)
    tokens = [token for token in inside if not any(at[0] <= token.start and token.end <= at[1] for at in named)]
    kinds = {Kind.FREEZE if token.value == "freeze" else token.kind for token in tokens}  # a change freeze
    known = Kind.UNKNOWN not in kinds and _TURNING.search(fold(source.text[slice(*place)]).text) is None
    lacking = {"forbid": _REFUSING, "freeze": {Kind.FREEZE}, "min": {Kind.COMPARISON}}
    if known and rule in lacking and kinds.isdisjoint(lacking[rule]):
        return f"no word of the evidence says {rule}"
    if rule in {"require", "freeze"} and not kinds.isdisjoint({Kind.MAY, Kind.ALLOW, Kind.SOFT}):
        return "the evidence only allows or prefers"
    if slots["type"] == "precision" and rule != "min" and Kind.COMPARISON in kinds:
        return "the evidence says a minimum"
    if slots["precision"] == "full" and rule != "require" and Kind.QUANTISE in kinds:
        return "the evidence requires full precision"
    if slots["type"] == "placement" and rule != "freeze" and Kind.FREEZE in kinds:
        return "the evidence says freeze"
    turned = rule in {"require", "prefer", "allow"} and slots["precision"] != "full" and Kind.ONLY not in kinds
    refused = not kinds.isdisjoint({Kind.NEGATION, Kind.AVOID, Kind.FREEZE, Kind.EXCEPT})
    return f"the evidence refuses, which {rule} does not say" if turned and refused else None


def _differing_first(source: Source, slots: Slots, place: Place) -> str | None:
    """What is wrong if another side than the higher one stands right before the word "first", 优先."""
    words = source.within(place)
    for before, word in pairwise(words):
        first = word.kind is Kind.PRIORITY and word.value == "first" and word.start - before.end <= 1
        if first and (name := side(before)) not in {None, slots["higher"]}:
            return f"the evidence puts {name} first"
    return None
