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
from intent.rules.tokens import Token

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
    """What is wrong if the evidence names other metrics than the one that was chosen; if it names none, the text."""
    subject = slots["subject"]
    if subject is None or subject in _UNNAMED:
        return None
    inside = source.within(place)
    said = _metrics(inside)
    if not said and not any(one.kind is Kind.UNKNOWN for one in inside):
        said = _metrics(source.tokens)
    if not said or any(_is_alike(one, subject) for one in said):
        return None
    return f"the text names {', '.join(sorted(said))} there, not {subject}"


def _metrics(tokens: Iterable[Token]) -> set[str]:
    """What some words name, or speak of without a name: ``as cheap as possible``."""
    found = set()
    for one in tokens:
        if one.kind is Kind.METRIC:
            found.add(str(one.value))
        elif one.kind is Kind.CHEAPEST:
            found.add("cost")
        elif (unit := _unit(one)) in {"tokens/s", "requests/s", PER_USER}:
            found.add(ANY_THROUGHPUT)
        elif unit is not None and unit.startswith("USD"):
            found.add("cost")
    return found


def _unit(token: Token) -> str | None:
    """The unit that a word is, or that an amount has."""
    if token.kind is Kind.UNIT:
        return str(token.value[0])
    if token.kind is Kind.THING:
        return str(token.value)
    return token.value.unit if token.kind is Kind.QUANTITY else None


def _is_alike(said: str, subject: str) -> bool:
    if said == subject:
        return True
    return any(
        {said, subject} <= {*family, anyone} and anyone in {said, subject} for family, anyone in _FAMILIES
    )


def differing_side(source: Source, slots: Slots, place: Place) -> str | None:
    """What is wrong if the evidence says the other side than the one that was chosen.

    A side that is the usual one needs no word. Words that turn a comparison round are the rules' to read as a whole
    (``differing_bound``); here they excuse nothing but the usual side.
    """
    chosen, subject = slots["comparison"], slots["subject"]
    if chosen not in FACING:
        return None
    good = _usual(subject)
    inside, alone = source.within(place), tokenize(source.text[slice(*place)], source.catalogue)
    sides = {"better": good, "worse": FACING.get(good or "")}
    said = {sides.get(str(one.value), str(one.value)) for one in (*_sides(inside), *_sides(alone))}
    if good and chosen != good and chosen in said and any(one.kind in _DENYING for one in inside):
        return f"the evidence denies {chosen}"
    if chosen in said or any(one.kind is Kind.RANGE for one in inside):
        return None
    turned = any(one.kind in _TURNING_KINDS for one in inside)
    usual = subject not in SETTINGS and (chosen == good or (good is None and turned))
    if usual and (not said or turned or "==" in said):
        return None
    return (
        f"the evidence says {' and '.join(map(str, said))}"
        if said
        else f"no word of the evidence says {chosen}"
    )


def _usual(subject: str | None) -> str | None:
    """The side on which a metric is wanted; None where it may be either."""
    if subject in {*HIGHER_IS_BETTER, ANY_THROUGHPUT}:
        return ">="
    return "<=" if subject in {*LOWER_IS_BETTER, ANY_LATENCY} else None


def _sides(tokens: list[Token]) -> list[Token]:
    """Comparisons, a sign between an amount and its metric read from the metric's side."""
    found = [one for one in tokens if one.kind is Kind.COMPARISON]
    amounts = [one for one in tokens if one.kind is Kind.QUANTITY and isinstance(one.value, Quantity)]
    metrics = [one for one in tokens if one.kind is Kind.METRIC]
    if (
        len(found) == len(amounts) == len(metrics) == 1
        and amounts[0].end <= found[0].start
        and found[0].end <= metrics[0].start
    ):
        return []
    return found


def differing_bound(source: Source, goal: Goal, place: Place) -> str | None:
    """What is wrong if the rules, which read the evidence alone without a doubt, find another bound or change in it."""
    draft = read(source.text[slice(*place)], source.catalogue)
    alike = [one for one in draft.goals if one.type == goal.type and _subject(one) == _subject(goal)]
    if draft.questions or not alike or _amount(goal) in map(_amount, alike):
        return None
    return "the evidence says " + " and ".join(" ".join(map(str, _amount(one))) for one in alike)


def _subject(goal: Goal) -> object:
    return getattr(goal, "metric", None)


def _amount(goal: Goal) -> tuple[object, ...]:
    """The side and the numbers of a goal."""
    said = (getattr(goal, name, None) for name in ("op", "value", "factor", "delta"))
    return tuple(one for one in said if one is not None)


def missing_stat(source: Source, stat: str | None, place: Place) -> str | None:
    """What is wrong if the text does not say this statistic; one that the evidence says goes before one from elsewhere."""
    if stat is None:
        return None
    here = {str(one.value) for one in source.within(place) if one.kind is Kind.STAT}
    if here:
        return None if stat in here else f"the evidence says {', '.join(sorted(here))}, not {stat}"
    if any(one.kind is Kind.STAT and one.value == stat for one in source.tokens):
        return None
    number = stat.removeprefix("p")
    digits = [source.covering(at) for at in source.places(number)]
    if any(
        one is None or one.kind is not Kind.QUANTITY or one.value.unit in {None, "ratio"} for one in digits
    ):
        return None
    counts = [
        one.value.number for one in source.tokens if one.kind is Kind.QUANTITY and one.value.unit is None
    ]
    parts = [
        *counts,
        *(one / other for one, other in pairwise(counts) if other),
        *(b / a for a, b in pairwise(counts) if a),
    ]
    shares = {f"{100 * part:g}" for part in parts}
    if number in shares:  # "ninety-nine times out of a hundred"
        return None
    return f"the text does not say {stat}; say null"


def missing_format(source: Source, slots: Slots, place: Place) -> bool:
    """Whether the text does not say this numeric format: the evidence, or if it says none, the words around it."""
    chosen = slots["precision"]
    here = {str(one.value) for one in source.within(place) if one.kind is Kind.PRECISION}
    said = here or {str(one.value) for one in source.tokens if one.kind is Kind.PRECISION}
    if chosen in said:
        return False
    if chosen == "full" and any(one.kind is Kind.QUANTISE for one in source.tokens):
        return False
    return bool(here) or _FORMAT.search(fold(source.text).text) is None


def differing_rule(source: Source, slots: Slots, place: Place) -> str | None:
    """What is wrong if the rules, which read the evidence alone without a doubt, find another rule or another order in it."""
    if problem := _differing_refusal(source, slots, place) or _differing_first(source, slots, place):
        return problem
    evidence = source.text[slice(*place)]
    draft = read(evidence, source.catalogue)
    alike = [goal for goal in draft.goals if goal.type == slots["type"]]
    if draft.questions or not alike or _TURNING.search(fold(evidence).text):
        return None
    chosen = {name: words for name in ("rule", "higher", "lower") if (words := slots[name]) is not None}
    said = [{name: _softened(str(getattr(goal, name, ""))) for name in chosen} for goal in alike]
    named = {
        name: _softened(names.tenant(words, source.catalogue) or words) for name, words in chosen.items()
    }
    if named in said:
        return None
    return "the evidence says " + ", ".join(f"{name} {value}" for name, value in said[0].items())


def _softened(said: str) -> str:
    """A rule or a side; to prefer is to require, softly."""
    return "require" if said == "prefer" else said.removeprefix("tenant:")


def _differing_refusal(source: Source, slots: Slots, place: Place) -> str | None:
    """What is wrong if the evidence refuses, allows or prefers otherwise than the rule; words that nobody knows may do any."""
    rule = slots["rule"]
    named = [at for slot in _NAMES if (words := slots[slot]) for at in source.places(words)]
    inside = source.within(place)
    said = [one for one in inside if not any(at[0] <= one.start and one.end <= at[1] for at in named)]
    kinds = {Kind.FREEZE if one.value == "freeze" else one.kind for one in said}  # a change freeze
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
    turned = (
        rule in {"require", "prefer", "allow"} and slots["precision"] != "full" and Kind.ONLY not in kinds
    )
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
