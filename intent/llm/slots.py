"""What a slot of a typed goal says, times among them. Pure."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from intent import names
from intent.errors import AnswerProblem
from intent.fold import Place, fold, overlaps
from intent.llm.quotes import Slots, Source, amount, number_place
from intent.llm.support import differing_metric, differing_side, missing_stat, slots_of
from intent.models import SETTINGS, Goal, Window
from intent.rules import scopes
from intent.rules.draft import Draft
from intent.rules.kinds import Kind
from intent.rules.phrasing import tokenize
from intent.rules.quantities import Quantity
from intent.rules.questions import ask_time
from intent.rules.readings import BoundReading
from intent.rules.tokens import TextToken
from intent.times.scanner import NUMBERS
from intent.times.spans import is_rest, rest_of, together

_HALF = re.compile(r"\b([a-z]+|\d{1,2}) ([ap])\.? ?m\b\.?")
"""``nine a m``, as it is dictated."""
_DIGIT = re.compile(r"\d")


def window(source: Source, words: str, near: Place, earlier: Sequence[Window]) -> TextToken:
    """The window as one token: of kind ``BAD_TIME`` where it cannot be one, its value the problem's code.

    ``earlier`` are the windows said before, for words that mean the rest of the time.
    """
    place = source.place(words, near) or near
    if whole := longer_name(source, place):
        apart = [place for place in source.places(words) if longer_name(source, place) is None]
        if not apart:
            return whole
        place = apart[0]
    if is_rest(words):
        rest = rest_of(earlier)
        return TextToken(Kind.WINDOW if rest else Kind.BAD_TIME, rest or "ambiguous_time", *place)
    tokens = _times(source, words, place)
    there = [token for token in source.within(place) if token.kind is Kind.WINDOW]
    if there and any(token.kind is Kind.BAD_TIME for token in tokens):
        tokens = there  # what stands beside it decides: a freeze from Friday to Monday
    if bad := next((token for token in tokens if token.kind is Kind.BAD_TIME), None):
        return TextToken(Kind.BAD_TIME, bad.value, *place)
    if not tokens:
        return TextToken(Kind.WINDOW, words, *place)  # by a name that nobody defined
    joined = together([token.value for token in tokens])
    return TextToken(Kind.WINDOW if joined else Kind.BAD_TIME, joined or "ambiguous_time", *place)


def longer_name(source: Source, place: Place) -> TextToken | None:
    """The named window of which these words are a part: ``peak`` of ``off-peak``."""
    found = (token for token in source.tokens if token.kind is Kind.WINDOW and isinstance(token.value, str))
    around = (token for token in found if token.start <= place[0] and place[1] <= token.end)
    return next((token for token in around if (token.start, token.end) != place), None)


def _times(source: Source, words: str, place: Place) -> list[TextToken]:
    """The times of the words, read in the way that leaves no number over.

    One that cannot be, if there is no such way.
    """
    plain = _HALF.sub(lambda match: f"{NUMBERS.get(match[1], match[1])} {match[2]}m", fold(words).text)
    for way in (words, f"on {words}", plain):
        tokens = tokenize(way, source.catalogue)
        times = [token for token in tokens if token.kind in {Kind.WINDOW, Kind.BAD_TIME}]
        if times and not any(token.kind in {Kind.QUANTITY, Kind.NUMBER, Kind.RANGE} for token in tokens):
            return times
    if times := [token for token in source.within(place) if token.kind in {Kind.WINDOW, Kind.BAD_TIME}]:
        return times if not _DIGIT.search(words) else [TextToken(Kind.BAD_TIME, "ambiguous_time", *place)]
    return [TextToken(Kind.BAD_TIME, "ambiguous_time", *place)] if _DIGIT.search(words) else []


COPIED = ("evidence", "number", "unit", "period", "window", "tenant", "model", "place", "workload", "soft")
"""Slots whose words stand in the text."""
NAMING = frozenset({"window", "tenant", "model", "place", "workload"})
"""Those that name somebody, something or a time."""
_COUNTED = SETTINGS | {"gpu_count"}
"""Subjects whose numbers count things, whatever these are called."""
_REST = "workload", "the rest"
"""What the prompt calls everything else."""
_WORK = re.compile(
    r"\b(?:jobs?|requests?|traffic|stuff|work|workloads?|calls?|things?|the|our|all|any)\b|的|任务|请求|流量|业务|工作|类"
)
"""Words of a workload that say only that it is one."""


@dataclass
class GoalContext:
    """What the goals of an answer have said so far, for those that repeat it."""

    windows: list[Window] = field(default_factory=list)
    amounts: dict[str, TextToken] = field(default_factory=dict)
    """Subject to the last amount of it that was said with its unit."""


def unheld(source: Source, slots: Slots, pointer: str) -> Iterator[AnswerProblem]:
    """Slots that this type of goal does not have, and words that do not stand in the text."""
    for slot in sorted(slots.keys() - slots_of(slots)):
        if slots[slot] is not None:
            yield AnswerProblem(f"{pointer}/{slot}", f"a goal of type {slots['type']} does not have it; say null")
    for slot in COPIED:
        words = slots[slot]
        if words is not None and not source.places(words) and (slot, words) != _REST:
            yield AnswerProblem(f"{pointer}/{slot}", f"{words[:60]!r} is not in the text; copy its words")


@dataclass
class GoalSlots:
    """The slots of one goal, its evidence at ``place`` of the text."""

    source: Source
    draft: Draft
    said: GoalContext
    slots: Slots
    place: Place
    pointer: str
    base: Goal | None = None
    """The goal that it changes or repeats; what that has needs no word of the evidence."""
    problems: list[AnswerProblem] = field(default_factory=list)

    @property
    def evidence(self) -> str:
        """The words that say the goal."""
        return self.source.text[slice(*self.place)]

    def refuse(self, slot: str, words: str) -> None:
        """Note what the model has to put right."""
        self.problems.append(AnswerProblem(f"{self.pointer}/{slot}", words))

    def token(self, kind: Kind, value: Any, words: str | None = None) -> TextToken:
        """A value as the rules have it, at its words or in front of the evidence."""
        near = self.source.place(words, self.place) if words else None
        return TextToken(kind, value, *(near or (self.place[0], self.place[0])))

    def heard(self, words: str) -> Sequence[TextToken]:
        """What the rules read in some words, by themselves and where they stand."""
        place = self.source.place(words, self.place)
        return [*tokenize(words, self.source.catalogue), *(self.source.within(place) if place else ())]

    # -- how much ----------------------------------------------------------------------------------

    def amount(self) -> TextToken | None:
        """Number, unit and period as one amount; None if none was said, or if the text has it otherwise."""
        number = self.slots["number"]
        if number is None:
            return None
        place = number_place(self.source, number, self.place) or self._number_before(number)
        if place is None:
            self.refuse("number", f"{number[:60]!r} is no number of the evidence; copy it")
            return None
        unit = None if self.slots["subject"] in _COUNTED else self.slots["unit"]
        words = self.slots["period"]
        kinds = (token.kind for at in self.source.places(words or "") for token in self.source.within(at))
        found = amount(self.source, place, unit, None if Kind.OVER in kinds else words) or self._as_before(place)
        if found is None:
            self.refuse("unit", f"number, unit and period are not said so at {number[:60]!r}; copy them")
        elif found.value.unit is not None:
            self.said.amounts[self.slots["subject"] or ""] = found
        return found

    def _number_before(self, number: str) -> Place | None:
        """Where the goal before has this number, for evidence that says none: ``p95 instead of p99``."""
        own = {Kind.QUANTITY, Kind.RANGE, Kind.NUMBER}
        if self.base is None or any(token.kind in own for token in self.source.within(self.place)):
            return None
        places = (number_place(self.source, number, place) for place in self.source.places(self.base.evidence))
        return next(filter(None, places), None)

    def _as_before(self, place: Place) -> TextToken | None:
        """A bare number in the unit of the goal before, whose metric it repeats: ``enterprise 1 s; free 4``."""
        before = self._amount_before() or self.said.amounts.get(self.slots["subject"] or "")
        words = self.slots["unit"]
        bare = amount(self.source, place, None, None)
        if before is None or bare is None or bare.value.unit is not None:
            return None
        at = self.source.places(words) if words else [(before.start, before.end)]
        if not any(overlaps(span, (before.start, before.end)) for span in at):
            return None
        return replace(bare, value=bare.value.in_unit(before.value.unit, before.value.factor))

    def _amount_before(self) -> TextToken | None:
        """The amount of the goal that it changes, where that was said."""
        unit = getattr(self.base, "unit", None)
        places = self.source.places(self.base.evidence) if self.base is not None else ()
        times = (token for place in places for token in self.source.within(place) if token.kind is Kind.QUANTITY)
        return next((token for token in times if unit is not None and token.value.unit == unit), None)

    def factor(self) -> float | None:
        """The factor that the number says: ``double``, ``3x``, 一半; None if it says none."""
        tokens = self.heard(self.slots["number"] or "")
        for token in tokens:
            if token.kind in {Kind.FACTOR, Kind.TIMES_SAID}:
                return float(token.value)
        amounts = [token.value for token in tokens if token.kind is Kind.QUANTITY]
        return float(amounts[0].value) if amounts and amounts[0].unit in {None, "ratio"} else None

    def counts(self, words: str) -> list[Quantity]:
        """The amounts in some words, ``once`` and ``twice`` among them."""
        tokens = tokenize(words, self.source.catalogue)
        times = [Quantity(float(token.value)) for token in tokens if token.kind is Kind.TIMES_SAID]
        return [*times, *(token.value for token in tokens if token.kind is Kind.QUANTITY)]

    # -- when and for whom -------------------------------------------------------------------------

    def when(self) -> TextToken | None:
        """The window's token; None if none was said."""
        words = self.slots["window"]
        return None if words is None else window(self.source, words, self.place, self.said.windows)

    def window(self) -> Window | None:
        """When the goal holds; None if it was asked about."""
        token = self.when()
        if token is not None and token.kind is Kind.BAD_TIME:
            ask_time(self.draft, token)
            return None
        return scopes.window(self.draft, token)

    def tenant_token(self) -> TextToken | None:
        """The tenant's token, its value None if nobody has the name; None if none was said."""
        words = self.slots["tenant"]
        if words is None:
            return None
        return self.token(
            Kind.TENANT,
            names.tenant(words, self.source.catalogue) or self._misspelt(Kind.TENANT, words),
            words,
        )

    def tenant(self) -> str | bool | None:
        """A tenant's name, None for everybody, False if nobody has the name and it was asked about."""
        return scopes.tenant(self.draft, self.tenant_token())

    def model(self) -> str | None:
        """A model's name; as it was said, if no model has it: the validator asks."""
        words = self.slots["model"]
        if words is None:
            return None
        return names.model(words, self.source.catalogue) or self._misspelt(Kind.MODEL, words) or words

    def _misspelt(self, kind: Kind, words: str) -> str | None:
        """A name behind a slip of the keyboard or a homophone."""
        return next((str(token.value) for token in self.heard(words) if token.kind is kind and token.value), None)

    # -- where -------------------------------------------------------------------------------------

    def selector(self, words: str) -> str | None:
        """The devices that are meant; None if nothing has the name."""
        known = names.selector(words, self.source.catalogue)
        numbers = (token for token in tokenize(words, self.source.catalogue) if token.kind is Kind.SELECTOR)
        return known or next((str(token.value) for token in numbers), None)

    def workload(self) -> str | bool | None:
        """What is placed; ``tenant:NAME`` for a tenant, False if nobody has the name and it was asked about."""
        words = self.slots["workload"]
        if words is None:
            return None
        if tenant := names.tenant(words, self.source.catalogue):
            return f"tenant:{tenant}"
        token = next(iter(tokenize(words, self.source.catalogue)), None)
        kept = _WORK.sub(" ", fold(words).text.replace("-", " ")).split()
        if token is not None and token.kind is Kind.TENANT:
            who = scopes.tenant(self.draft, self.token(Kind.TENANT, token.value, words))
            return f"tenant:{who}" if who else who
        if token is not None and token.kind is Kind.WORKLOAD and len(" ".join(kept)) <= token.end - token.start:
            return str(token.value)
        return "_".join(kept) or None

    # -- a bound -----------------------------------------------------------------------------------

    def reading(self, found: TextToken | None, opposed: bool = False) -> BoundReading | None:
        """The slots of a bound as the rules have them; None if it was refused or asked about."""
        slots = self.slots
        for slot, problem in (
            ("subject", differing_metric(self.source, slots, self.place)),
            ("comparison", None if self._is_as_before() else differing_side(self.source, slots, self.place)),
            ("comparison", self._other_end(found)),
            ("stat", missing_stat(self.source, slots["stat"], self.place)),
        ):
            if problem:
                self.refuse(slot, problem)
        when = self.when()
        if self.problems:
            return None
        if when is not None and when.kind is Kind.BAD_TIME:
            ask_time(self.draft, when)
            return None
        return BoundReading(
            *self.place,
            head=self._head(),
            stat=self.token(Kind.STAT, slots["stat"]) if slots["stat"] else None,
            comparison=self._comparison(),
            quantity=found,
            window=when,
            tenant=self.tenant_token(),
            model=self.token(Kind.MODEL, model, slots["model"]) if (model := self.model()) else None,
            over=next((token for token in self.source.within(self.place) if token.kind is Kind.OVER), None),
            soft=slots["soft"] is not None,
            opposed=opposed,
        )

    def _is_as_before(self) -> bool:
        """Whether the comparison is that of the goal before."""
        return self.base is not None and getattr(self.base, "op", None) == self.slots["comparison"]

    def _other_end(self, found: TextToken | None) -> str | None:
        """What is wrong if an amount is the other end of a range than its comparison says."""
        side = self.slots["comparison"]
        for token in self.source.within(self.place):
            if found is not None and token.kind is Kind.RANGE and side in {"<=", ">="}:
                low, high = (end.number for end in token.value)
                if found.value.number == (low if side == "<=" else high):
                    return f"{found.value.number:g} is the other end of the range"
        return None

    def _head(self) -> TextToken:
        subject = self.slots["subject"]
        if subject in {None, "unknown"}:
            return TextToken(Kind.UNKNOWN, subject, *self.place)
        kind = Kind.SETTING if subject in SETTINGS else Kind.METRIC
        at = next((token for token in self.source.within(self.place) if token.kind in {kind, Kind.COUNTED}), None)
        return replace(at, kind=kind, value=subject) if at else self.token(kind, subject)

    def _comparison(self) -> TextToken | None:
        comparison = self.slots["comparison"]
        if comparison is None:
            return None
        kind = Kind.OPTIMISE if comparison in {"minimize", "maximize"} else Kind.COMPARISON
        at = next((token for token in self.source.within(self.place) if token.kind is kind), None)
        return replace(at, value=comparison) if at else self.token(kind, comparison)
