"""Typed goals held against the text, and a whole answer as a draft. Pure."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from intent import names, rules
from intent.errors import AnswerProblem, ExtractionError, Failure
from intent.fold import Place, fold, overlaps
from intent.injection import orders
from intent.llm.quotes import Slots, Source, number_place, unusable
from intent.llm.slots import COPIED, NAMING, GoalContext, GoalSlots, longer_name, unheld
from intent.llm.support import differing_bound, differing_rule, missing_format
from intent.models import (
    LATENCIES,
    PHRASED,
    SETTINGS,
    UNITS,
    Catalogue,
    Config,
    Goal,
    Objective,
    Placement,
    PrecisionRule,
    Priority,
    ReconfigRule,
    TenantException,
    Window,
)
from intent.rules import scopes
from intent.rules.bounds import add_goal, normalised
from intent.rules.draft import Draft, Option
from intent.rules.inventory import compare
from intent.rules.kinds import ANY_LATENCY, Kind
from intent.rules.ledger import Coverage, Reading, account, clauses_of, held_by_evidence, ignored, nearest, risky
from intent.rules.phrasing import FALL, tokenize
from intent.rules.readings import BoundReading
from intent.rules.reconfigs import per
from intent.rules.relatives import RelativeChange, add_relative, as_share
from intent.rules.tokens import TextToken
from intent.times.spans import is_rest

_SIDES = frozenset({"latency", "throughput", "cost", "quality"})
_RULES = {
    "precision": ("require", "forbid", "allow", "min"),
    "placement": ("require", "prefer", "forbid", "freeze"),
    "reconfig": ("forbid", "limit"),
}
"""Goal type to the rules it may have."""


def add_goal_of(typed: GoalSlots, opposed: bool) -> None:
    """Append the goal of some slots to the draft, or what keeps it from being one: problems or a question.

    ``opposed`` says that another goal bounds the same from the other side.
    """
    kind = typed.slots["type"] or ""
    if kind in _RULES and typed.slots["rule"] not in _RULES[kind]:
        typed.refuse("rule", f"a goal of type {kind} needs {', '.join(_RULES[kind])}")
    elif kind in {*_RULES, "priority"} and (problem := differing_rule(typed.source, typed.slots, typed.place)):
        typed.refuse("rule" if typed.slots["rule"] else "higher", problem)
    elif kind == "objective":
        _objective(typed, opposed)
    else:
        _BUILDERS[kind](typed)


def are_opposed(goals: Sequence[Slots]) -> list[bool]:
    """Of each goal whether another one bounds the same from the other side."""
    turned = {"<=": ">=", ">=": "<="}

    def subject(slots: Slots) -> tuple[str | None, ...]:
        return tuple(slots[name] for name in ("type", "subject", "tenant", "model", "stat"))

    bounds = {(subject(goal), goal["comparison"]) for goal in goals}
    return [(subject(goal), turned.get(goal["comparison"] or "")) in bounds for goal in goals]


def _keep(typed: GoalSlots, build: Callable[[Window], Goal]) -> None:
    """Append a goal, unless its window was asked about."""
    if (when := typed.window()) is not None:
        typed.draft.add(build(when), typed.place)


# -- what is measured ------------------------------------------------------------------------------


def _objective(typed: GoalSlots, opposed: bool = False) -> None:
    reading = typed.reading(typed.amount(), opposed)
    if reading is None:
        return
    before = len(typed.draft.goals)
    add_goal(typed.draft, reading)
    _compare(typed, before)


def _compare(typed: GoalSlots, before: int) -> None:
    """Hold the goals from ``before`` on against what the rules read in their evidence."""
    for goal in typed.draft.goals[before:]:
        if problem := differing_bound(typed.source, goal, typed.place):
            typed.refuse("comparison", problem)


def _relative(typed: GoalSlots) -> None:
    change = typed.slots["change"]
    side = typed.slots["comparison"]
    found = None if change == "times" else typed.amount()
    if typed.problems:
        return
    if change == "to" and found is not None and found.value.unit not in {"ratio", None}:
        _objective(typed)  # "cut TTFT to 2 s"
        return
    if change == "times":
        wanted = RelativeChange(side, factor=typed.factor())
    elif change == "to":
        wanted = RelativeChange(factor=1.0) if found is None else RelativeChange(side, factor=found.value.value)
    else:
        is_open = change is None and found is not None and found.value.unit not in {"ratio", "points"}
        wanted = RelativeChange(side, amount=as_share(found), is_open=is_open) if found else RelativeChange(side)
    reading = typed.reading(found)
    if change == "times" and wanted.factor is None:
        typed.refuse("number", "no factor is said there; copy the words that say it")
    elif reading is not None:
        before = len(typed.draft.goals)
        add_relative(typed.draft, replace(reading, comparison=None), wanted)
        _compare(typed, before)


def _config(typed: GoalSlots) -> None:
    if typed.slots["subject"] not in SETTINGS:
        typed.refuse("subject", f"a goal of type config needs {', '.join(sorted(SETTINGS))}")
        return
    reading = typed.reading(typed.amount())
    if reading is not None:
        add_goal(typed.draft, replace(reading, tenant=None))


# -- exceptions ------------------------------------------------------------------------------------


def _exception(typed: GoalSlots) -> None:
    slots = typed.slots
    draft = typed.draft
    found = None if slots["change"] == "times" else typed.amount()
    if typed.problems:
        return
    if slots["tenant"] is None:
        words = draft.say("exception_without_tenant", known=", ".join(draft.catalogue.tenants) or "-")
        draft.ask("exception_without_tenant", draft.here, words, [draft.say("nothing")])
        return
    tenant = typed.tenant()
    bound = _bounded(typed)
    metric = slots["subject"] if slots["subject"] in UNITS else bound.metric if bound else None
    if isinstance(tenant, str) and metric is None:
        exempt = [draft.say("exempt", label=label, tenant=tenant) for label in ("TTFT", "E2E")]
        words = draft.say("exception_unclear", tenant=tenant)
        draft.ask("exception_unclear", draft.here, words, [draft.rephrased(option) for option in exempt])
    elif isinstance(tenant, str) and metric is not None and (extra := _extra(typed, metric, found)) is not None:
        limit, unit, factor = extra
        goal = TenantException(tenant, metric, typed.evidence, limit, unit, factor)  # type: ignore[arg-type] # a closed table
        if slots["window"] is None and bound is not None:
            draft.add(replace(goal, window=bound.window), typed.place)
        else:
            _keep(typed, lambda when: replace(goal, window=when))


def _bounded(typed: GoalSlots) -> Objective | None:
    """The bound said for all that an exception is from."""
    subject = typed.slots["subject"]
    bounds = [goal for goal in typed.draft.goals if isinstance(goal, Objective) and goal.tenant is None]
    bounds = [goal for goal in bounds if goal.value is not None]
    if subject in UNITS:
        bounds = [goal for goal in bounds if goal.metric == subject]
    elif subject == ANY_LATENCY:
        bounds = [goal for goal in bounds if goal.metric in LATENCIES]
    return bounds[-1] if len({goal.metric for goal in bounds}) == 1 else None


def _extra(
    typed: GoalSlots, metric: str, found: TextToken | None
) -> tuple[float | None, str | None, float | None] | None:
    """Limit, unit and factor; None if the amount was asked about or refused."""
    change = typed.slots["change"]
    if change == "times":
        factor = typed.factor()
        if factor is None:
            typed.refuse("number", "no factor is said there; copy the words that say it")
        return None if factor is None else (None, None, factor)
    if found is None:
        return None, None, None
    share = as_share(found).value
    if share.unit == "ratio" and (change == "by" or UNITS[metric] != ("ratio",)):
        falls = any(token.value == FALL for token in typed.source.within(typed.place))
        return None, None, float(f"{1 - share.value if falls else 1 + share.value:.12g}")
    reading = BoundReading(*typed.place, quantity=found, head=TextToken(Kind.METRIC, metric, *typed.place))
    quantity = normalised(typed.draft, reading, metric, found)
    return (quantity.value, quantity.unit, None) if quantity else None


# -- rules -----------------------------------------------------------------------------------------


def _precision(typed: GoalSlots) -> None:
    slots = typed.slots
    tenant = typed.tenant()
    if slots["precision"] is None or missing_format(typed.source, slots, typed.place):
        typed.refuse("precision", f"the text does not say {slots['precision']}")
    elif tenant is not False:
        rule = slots["rule"]
        value = slots["precision"]
        model = typed.model()
        _keep(typed, lambda when: PrecisionRule(rule, value, typed.evidence, when, tenant, model))  # type: ignore[arg-type] # closed tables


def _placement(typed: GoalSlots) -> None:
    slots = typed.slots
    place = slots["place"]
    draft = typed.draft
    if place is None:
        typed.refuse("place", "a goal of type placement needs it")
        return
    rule = "prefer" if slots["soft"] and slots["rule"] == "require" else slots["rule"]
    where = typed.selector(place)
    work = typed.workload()
    if where is None:
        known = [*draft.catalogue.gpu_kinds, *(f"node {name}" for name in draft.catalogue.nodes)]
        token = typed.token(Kind.SELECTOR, None, place)
        words = draft.say("unknown_place", said=draft.quoted(token), known=", ".join(known))
        options = [draft.instead(token, name) for name in known[:3]]
        draft.ask("unknown_place", token, words, [*options, draft.say("nothing")])
    elif work is not False:
        _keep(typed, lambda when: Placement(rule, where, typed.evidence, work, when))  # type: ignore[arg-type] # a closed table


def _priority(typed: GoalSlots) -> None:
    higher, lower = (_side(typed, slot) for slot in ("higher", "lower"))
    if higher is None:
        typed.refuse("higher", "a goal of type priority needs it")
    if not typed.problems and higher and lower is not False:
        _keep(typed, lambda when: Priority(str(higher), typed.evidence, str(lower) if lower else None, when))


def _side(typed: GoalSlots, slot: str) -> str | bool | None:
    """A side of a priority; None if none was said, False if nobody has the name and it was asked about."""
    words = typed.slots[slot]
    if words is None or words in _SIDES:
        return words
    named = names.tenant(words, typed.source.catalogue)
    if named is None and not typed.source.places(words):
        typed.refuse(slot, f"say {', '.join(sorted(_SIDES))} or a tenant of the text, not {words[:60]!r}")
        return False
    who = scopes.tenant(typed.draft, typed.token(Kind.TENANT, named, words))
    return f"tenant:{who}" if who else False


def _reconfig(typed: GoalSlots) -> None:
    slots = typed.slots
    if slots["rule"] == "forbid" and slots["number"] is not None:
        typed.refuse("number", "a rule that forbids has no number; say null, or limit")
        return
    if slots["rule"] == "forbid":
        _keep(typed, lambda when: ReconfigRule("forbid", typed.evidence, window=when))
        return
    number = slots["number"]
    place = number_place(typed.source, number, typed.place) if number else None
    counts = typed.counts(typed.source.text[slice(*place)]) if place else []
    period_words = slots["period"] or slots["unit"] or ""
    period = next(
        (token for token in tokenize(period_words, typed.source.catalogue) if token.kind is Kind.PERIOD), None
    )
    limit = per(counts[0].number, period, typed.counts(period_words)) if counts else None
    if limit is None:
        typed.refuse("number", "how many and per what is not said there; copy number and period")
    else:
        value, unit = limit
        _keep(typed, lambda when: ReconfigRule("limit", typed.evidence, value, unit, when))  # type: ignore[arg-type] # a closed table


_BUILDERS: Mapping[str, Callable[[GoalSlots], None]] = {
    "relative": _relative,
    "exception": _exception,
    "precision": _precision,
    "placement": _placement,
    "priority": _priority,
    "config": _config,
    "reconfig": _reconfig,
}


_BOUND = frozenset({Kind.METRIC, Kind.QUANTITY, Kind.COMPARISON})
_TELLING = re.compile(
    r"\b(?:was|were|is|are|has|had|have|been|says?|said|promised|went|since|because|ago|last|yesterday|used to)\b"
    r"|了|过|说|昨|曾|目前|现在|因为|写着|答应"
)
"""Words of what only tells, one of which a metric and its bound need to be no wish."""
_TOGETHER = re.compile(r"\s*(?:,|and|&|\+|、|，|和|/)?\s*(?:and|和)?\s*")
"""Between settings of one topology."""
_KEEPING = frozenset({Kind.NEGATION, Kind.WINDOW, Kind.BAD_TIME, Kind.OVER, Kind.LIMITING, Kind.QUANTITY, Kind.RANGE})
"""Without these a text asks for more than it says: a question about them does not offer that first."""


@dataclass
class Read:
    """What an answer comes to, and what of it the text does not bear."""

    source: Source
    draft: Draft
    said_from: int = 0
    problems: list[AnswerProblem] = field(default_factory=list)
    evidence: list[Place] = field(default_factory=list)
    """Of each goal, built or not."""
    refused: list[Place] = field(default_factory=list)
    """The evidence of goals that have a problem."""
    slots: list[Place] = field(default_factory=list)
    """Words that goals took, from their evidence or beside it."""
    names: list[Place] = field(default_factory=list)
    """Those of them that name somebody or something."""
    built: list[int] = field(default_factory=list)
    """For each goal of the draft its number in the answer."""

    def settled(self) -> Draft:
        """The draft; what the model could not put right is asked of the person.

        Raises:
            ExtractionError: there is nothing else in the answer.
        """
        draft = self.draft
        if not self.problems:
            return draft
        if not self.refused or not (draft.goals or draft.questions):
            raise refusal(self.problems)
        tokens = [TextToken(Kind.UNKNOWN, None, *place) for place in self.refused]
        words = draft.say("slots_not_in_text", said=", ".join(map(draft.quoted, tokens)))
        draft.questions.clear()
        draft.ask("slots_not_in_text", tokens[0], words, [draft.say("nothing"), draft.without(tokens)])
        return draft


def read_answer(
    answer: Mapping[str, Any],
    text: str,
    catalogue: Catalogue,
    said_from: int = 0,
    bases: Sequence[Goal | None] = (),
) -> Read:
    """The goals of a wire answer with all that was assumed, found, set aside or left open.

    Of a follow-up, what stands before ``said_from`` was said before, and ``bases`` are the goals whose places these take.
    """
    read = Read(Source.of(text, catalogue), Draft(text, catalogue), said_from)
    context = GoalContext()
    opposed = are_opposed(answer["goals"])
    for number, slots in enumerate(answer["goals"]):
        before = len(read.draft.goals)
        _add(read, context, slots, f"/goals/{number}", opposed[number], bases[number] if bases else None)
        read.built += [number] * (len(read.draft.goals) - before)
    if any(token.value in PHRASED or token.kind is Kind.LAYERS for token in read.source.tokens):
        _add_phrased(read, len(answer["goals"]))
    _share_windows(read)
    _share_periods(read, [place for words in answer["told"] for place in read.source.places(words)])
    read.problems += _absent(read.source, answer)
    _weigh(read, answer)
    return read


def _add_phrased(read: Read, number: int) -> None:
    """What the prompt does not know, as the rules read it.

    Replicas per node, what may be lost, formats of layers.
    """
    found = rules.read(read.source.text, read.draft.catalogue)
    for goal, place in zip(found.goals, found.places, strict=True):
        if (getattr(goal, "key", "") in PHRASED or getattr(goal, "layers", None)) and place[0] >= read.said_from:
            read.draft.add(goal, place)
            read.evidence.append(place)
            read.slots.append(place)
            read.built.append(number)
    for finding in [finding for finding in found.findings if finding.code == "layers_unclear"][:1]:
        read.draft.ask(finding.code, None, finding.message, [read.draft.say("nothing")])


def refusal(problems: Sequence[AnswerProblem]) -> ExtractionError:
    """The failure of an answer with these problems."""
    formal = any("does not have it" in problem.words or "needs" in problem.words for problem in problems)
    return unusable(Failure.NOT_IN_SCHEMA if formal else Failure.NOT_IN_TEXT, list(problems))


def _add(read: Read, context: GoalContext, slots: Slots, pointer: str, opposed: bool, base: Goal | None) -> None:
    """The goal of some slots, unless the text does not bear it."""
    draft = read.draft
    source = read.source
    problems = list(unheld(source, slots, pointer))
    if problems:
        read.problems += problems
        return
    place = next((place for place in source.places(slots["evidence"] or "") if place[0] >= read.said_from), None)
    if place is None:
        read.problems.append(AnswerProblem(f"{pointer}/evidence", "copy it from what is said now"))
        return
    if slots["type"] == "precision" and any(
        word.kind is Kind.LAYERS
        for span in (place, *clauses_of(source.text))
        if overlaps(span, place)
        for word in source.within(span)
    ):
        return  # the same
    read.evidence.append(place)
    inside = source.within(place)
    if any(token.value in PHRASED for token in inside) and not any(token.kind is Kind.METRIC for token in inside):
        return  # the prompt does not know it: code finds it
    for slot in COPIED[1:]:
        if (words := slots[slot]) and (near := source.place(words, place)):
            whole = longer_name(source, near) if slot == "window" else None
            read.slots += [] if whole else [near]  # what is longer has to be what a goal says
            read.names += [near] if slot in NAMING else []
    draft.here = TextToken(Kind.UNKNOWN, None, *place)
    goals = len(draft.goals)
    assumptions = len(draft.assumptions)
    typed = GoalSlots(source, draft, context, slots, place, pointer, base)
    add_goal_of(typed, opposed)
    if typed.problems:
        read.problems += typed.problems
        read.refused.append(place)
        del draft.goals[goals:], draft.places[goals:], draft.assumptions[assumptions:]
    if not is_rest(slots["window"] or ""):
        context.windows += [goal.window for goal in draft.goals[goals:]]


def _absent(source: Source, answer: Mapping[str, Any]) -> Iterator[AnswerProblem]:
    """Quotes beside the goals that do not stand in the text."""
    quotes = [(f"/{name}/{n}", quote) for name in ("told", "unplaced") for n, quote in enumerate(answer[name])]
    quotes += [(f"/inventory/{n}/evidence", entry["evidence"]) for n, entry in enumerate(answer["inventory"])]
    for pointer, words in quotes:
        if words.strip() and not source.places(words):
            yield AnswerProblem(pointer, f"{words[:60]!r} is not in the text; copy its words")


def _share_windows(read: Read) -> None:
    """TP, PP and replicas said together are one topology: the window of the last is that of all."""
    goals = read.draft.goals
    if len(goals) != len(read.evidence):
        return
    for number in range(len(goals) - 1, 0, -1):
        before, here = goals[number - 1 : number + 1]
        between = read.source.text[read.evidence[number - 1][1] : read.evidence[number][0]]
        both = isinstance(before, Config) and isinstance(here, Config) and _TOGETHER.fullmatch(between)
        if both and before.window == "always" != here.window:
            goals[number - 1] = replace(before, window=here.window)
            assumed = f"/goals/{number - 1}/window"
            read.draft.assumptions = [
                assumption for assumption in read.draft.assumptions if assumption.pointer != assumed
            ]


def _share_periods(read: Read, reported: Sequence[Place]) -> None:
    """Give a period beside the evidence to the goal before: ``availability 99.9%, over 28 days``.

    On a line of its own it is that of all before it; one that leads is that of the goals behind it.
    """
    goals = read.draft.goals
    for token in read.source.tokens:
        taken = any(overlaps((token.start, token.end), place) for place in (*read.evidence, *reported))
        if token.kind is not Kind.OVER or taken:
            continue
        takers = [
            number
            for number, goal in enumerate(goals)
            if isinstance(goal, Objective) and goal.value is not None and goal.over_s is None
        ]
        before = [number for number in takers if read.draft.places[number][1] <= token.start]
        apart = bool(before) and _LINE.search(read.source.text, read.draft.places[before[-1]][1], token.start)
        for number in (before if apart else before[-1:]) or takers:
            goals[number] = replace(goals[number], over_s=token.value)
            read.slots.append((token.start, token.end))


_LINE = re.compile(r"\n|[.;。；]\s*$")
"""Between goals and what stands on a line of its own."""


# -- what is left over -----------------------------------------------------------------------------


def _weigh(read: Read, answer: Mapping[str, Any]) -> None:
    """Ask about what may change a wish, and set the rest aside."""
    draft = read.draft
    source = read.source
    given = orders(source.text)
    reported = [place for words in answer["told"] for place in source.places(words)[:1]]
    reported = [place for place in reported if not _wishes(source, place)]
    held = [place for entry in answer["inventory"] for place in _compared(draft, source, entry)]
    before = [(0, read.said_from)] if read.said_from else []
    evidence = tuple(read.evidence)
    taken = Coverage(evidence, evidence, tuple(read.slots), (*reported, *held), (*given, *before))
    left = [
        TextToken(Kind.LIMITING, "unplaced", *place)
        for words in answer["unplaced"]
        for place in source.places(words)[:1]
        if not any(overlaps(place, order) for order in given) and not _is_period(read, place)
    ]
    limiting = bool(left)
    for token in risky(source.text, source.tokens, draft.goals, taken):
        known = any(overlaps((token.start, token.end), (other_token.start, other_token.end)) for other_token in left)
        if not known:
            left.append(token)
    if draft.goals:
        left += account(draft, source.tokens, _readings(read), taken, left)
    left.sort(key=lambda token: token.start)
    if not draft.questions and left and (draft.goals or limiting):
        _ask_about(draft, left)
    else:
        draft.ask_about([])
    draft.set_aside = ignored(source.text, taken, left, draft.say) if draft.goals else ()


def _is_period(read: Read, place: Place) -> bool:
    """Whether words that the model placed nowhere are a period of a goal, or a phrase that code found."""
    inside = [token for token in read.source.within(place) if token.kind is not Kind.UNKNOWN]
    return any(token.value in PHRASED or (token.kind is Kind.LAYERS and token.value) for token in inside) or (
        bool(inside)
        and all(
            token.kind in {Kind.FILLER, Kind.JOIN}
            or (token.kind is Kind.OVER and (token.start, token.end) in read.slots)
            for token in inside
        )
    )


def _readings(read: Read) -> Iterator[Reading]:
    """Slots, the words of evidence that have a meaning, and evidence, with the goal that is nearest."""
    source = read.source
    for place in read.slots:
        yield Reading(nearest(read.draft, place), place, source.text[slice(*place)], place in read.names)
    for quoted in read.evidence:
        goal = nearest(read.draft, quoted)
        yield Reading(goal, quoted, source.text[slice(*quoted)], turns=held_by_evidence())
        for token in source.within(quoted):
            start = max(token.start, quoted[0])  # "don't keep TTFT under" turns it round
            end = min(token.end, quoted[1])
            if token.kind not in _MEANINGLESS:
                yield Reading(goal, (start, end), source.text[start:end])


_MEANINGLESS = frozenset({Kind.UNKNOWN, Kind.FILLER, Kind.LIMITING, Kind.JOIN, Kind.STOP})


def _ask_about(draft: Draft, left: Sequence[TextToken]) -> None:
    """One question about the words that are left; its default drops no negation, time or limit."""
    quoted = ", ".join(dict.fromkeys(draft.quoted(token) for token in left))
    options: list[Option | str] = [draft.without(left), draft.say("nothing")]
    if any(token.kind in _KEEPING for token in left):
        options.reverse()
    draft.ask("words_not_understood", left[0], draft.say("words_not_understood", said=quoted), options)


def _wishes(source: Source, place: Place) -> bool:
    """Whether a report reads like a wish: it has a metric, its bound, and no word of telling."""
    kinds = {token.kind for token in source.within(place)}
    telling = _TELLING.search(fold(source.text[slice(*place)]).text)
    return kinds >= _BOUND and Kind.REPORT not in kinds and telling is None


def _compared(draft: Draft, source: Source, fields: Mapping[str, str]) -> Iterator[Place]:
    """The place of what the text says of the inventory; a finding where the deployment has it otherwise."""
    place = next(iter(source.places(fields["evidence"])), None)
    if place is None:
        return
    yield place
    counts = [token.value.number for token in tokenize(fields["count"], draft.catalogue) if token.kind is Kind.QUANTITY]
    if counts:
        compare(draft, place, fields["kind"].strip(), counts[0])
