"""Words of time to the pieces of one window.

Which words belong together, and which numbers are hours at all.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from intent.models import DAYS
from intent.tables import table
from intent.times.clock import (
    HALVES,
    PLACES,
    UNKNOWN,
    WEEKDAYS,
    WEEKENDS,
    Clock,
    Day,
    Days,
    coming,
    days_between,
    in_days,
    in_week,
    next_named,
    resolve,
    several_days,
)
from intent.times.pieces import WindowParts
from intent.times.scanner import TimeRole, TimeToken, scan
from intent.times.spans import are_hours, follows_a_bound, is_counted

_END = TimeToken(TimeRole.WORD, "", -1, -1)
_TABLE = table("intent.times", "words")
_EDGES: dict[str, str] = _TABLE["edges"]
_MOST_LEADS = 4
_ABBREVIATION = 4
"""Letters of the longest short form of a zone; one that stands alone may be a word."""
_NEVER_FIRST = frozenset(
    {TimeRole.WORD, TimeRole.COMMA, TimeRole.SPAN, TimeRole.TRAILER, TimeRole.EDGE, TimeRole.NEXT_DAY}
)
_CLEAN = re.compile(r"\s*(?:$|[.;,!?)\n。；])", re.ASCII)
_CLAUSE_START = re.compile(r"(?:^|[.;,!?\n:。；(])\s*$", re.ASCII)
_NO_PART = re.compile(r"\s?(?:peak|rush|高峰|好)", re.ASCII)
_IN_BRACKETS = re.compile(r"\(\s*([a-z][\w/+:-]*(?:\s?time|时间)?|[^\s()]{1,6}时间)\s*\)", re.ASCII)
_NO_PLACE = re.compile(_TABLE["no place"], re.ASCII)
_COUNTS = re.compile(_TABLE["counted"], re.ASCII)
_ABBREVIATED = frozenset(DAYS)


@dataclass(frozen=True, slots=True)
class _Leads:
    """The little words before a piece, and where it begins."""

    place: int
    words: tuple[str, ...]

    @property
    def edge(self) -> str | None:
        return next((_EDGES[word] for word in reversed(self.words) if word in _EDGES), None)

    def say(self, *words: str) -> bool:
        return not set(words).isdisjoint(self.words)


@dataclass(frozen=True, slots=True)
class _Time:
    """A time of day and the words it takes; ``is_bare`` if it is a number that nothing marks as an hour."""

    clock: Clock
    place: int
    after: int
    is_bare: bool = False


class TimeReader:
    """The words of one text.

    Every method named for a piece reads it at a place and says where it ends, or None.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._atoms = list(scan(text))

    def windows(self) -> Iterator[tuple[int, int, WindowParts]]:
        """The half-open place of every window and what was said of it, from the left, each as long as can be."""
        first = 0
        while first < len(self._atoms):
            if self._atoms[first].mark in _NEVER_FIRST:
                first += 1
                continue
            pieces, place = self._longest(first, WindowParts())
            if self._is_comma(place) and place > first:
                pieces, place = self._behind_comma(first, place, pieces)
            if place > first and self._is_window(first, place, pieces):
                yield self._atoms[first].start, self._atoms[place - 1].end, pieces
                first = place
                continue
            zone = self._zone_at(first, hours_before=False)
            if (
                zone
                and len(zone[0]) > _ABBREVIATION
                and (resolve(zone[0], "") not in {"", UNKNOWN} or zone[0].split("/")[-1] in PLACES)
            ):
                yield self._atoms[first].start, self._atoms[first].end, WindowParts(code="ambiguous_time")
            first += 1

    def _at(self, place: int) -> TimeToken:
        return self._atoms[place] if 0 <= place < len(self._atoms) else _END

    def _said(self, place: int) -> str:
        atom = self._at(place)
        return self._text[atom.start : atom.end] if atom is not _END else ""

    def _is_window(self, first: int, place: int, pieces: WindowParts) -> bool:
        if pieces.start is not None or pieces.day is not None or pieces.code is not None:
            return True
        if pieces.days is not None or pieces.but_days:
            return place > first + 1 or self._said(first) not in _ABBREVIATED
        return pieces.part is not None and self._is_part_alone(first, place, pieces.part)

    def _is_part_alone(self, first: int, place: int, part: str) -> bool:
        """ "In the evening", "mornings", 下午; a night, and 晚上, are names of the lexicon, "good morning" is none."""
        word = self._said(place - 1)
        if part in {"night", "small hours"} or word in {"晚上", "晚间"}:
            return False
        leads = self._leads(first)
        in_the = leads.say("the") and leads.say("in", "during", "throughout")
        return not word.isascii() or word.endswith("s") or part == "day" or leads.say("every") or in_the

    # -- joining ------------------------------------------------------------------------------------

    def _longest(self, place: int, pieces: WindowParts) -> tuple[WindowParts, int]:
        """These pieces with all that follow without a comma, and where they end."""
        pieces = replace(pieces)
        while (after := self._piece(self._leads(place), pieces)) is not None:
            place = after
        return pieces, place

    def _leads(self, place: int) -> _Leads:
        words: list[str] = []
        for atom in self._atoms[place : place + _MOST_LEADS]:
            if atom.mark is TimeRole.EVERY:
                words.append("every")
            elif atom.mark in {TimeRole.LEAD, TimeRole.BINDER}:
                words.append(atom.value)
            elif atom.mark is TimeRole.TO and (atom.value == "until" or self._is_up_to(place + len(words))):
                words.append("until")
            else:
                break
        return _Leads(place + len(words), tuple(words))

    def _is_up_to(self, place: int) -> bool:
        """到18点为止."""
        edge = self._at(place + 2)
        return self._said(place) in {"到", "至"} and edge.mark is TimeRole.EDGE and edge.value == "until"

    def _behind_comma(self, first: int, comma: int, pieces: WindowParts) -> tuple[WindowParts, int]:
        """ "On weekdays, 9am to 5pm" is one window unless what stands behind the comma begins the next wish."""
        more, place = self._longest(comma + 1, pieces)
        if place == comma + 1:
            return pieces, comma
        if pieces.days is not None and pieces.day is None and more.day is not None:  # Friday, 27 November, 9:00-17:00
            return self._behind_comma(first, place, more) if self._is_comma(place) else (more, place)
        leads_clause = pieces.has_days and _CLAUSE_START.search(self._text[: self._at(first).start][-3:])
        is_clean = leads_clause or _CLEAN.match(self._text, self._at(place - 1).end)
        adds = pieces.has_days != pieces.has_hours and more.has_days and more.has_hours
        zoned = more.zone is not None and pieces.zone is None
        if not ((adds and is_clean) or zoned):
            return pieces, comma
        return self._behind_comma(first, place, more) if self._is_comma(place) else (more, place)

    def _is_comma(self, place: int) -> bool:
        return self._at(place).mark is TimeRole.COMMA

    def _piece(self, leads: _Leads, pieces: WindowParts) -> int | None:
        for read in (self._day, self._hours, self._days, self._part, self._others, self._zone):
            after = read(leads, pieces)
            if after is not None:
                return after
        return None

    # -- days ---------------------------------------------------------------------------------------

    def _days(self, leads: _Leads, pieces: WindowParts) -> int | None:
        taken_away = leads.say("outside")
        if pieces.day is not None or (pieces.days is not None and not taken_away):
            return None
        found = self._day_list(leads.place)
        if found is None:
            return None
        days, place = found
        if len(days) == 2 and (leads.say("between") or self._said(place) == "之间"):
            days = days_between(*days)
        excepted = self._at(place).mark is TimeRole.EDGE and self._at(place).value == "outside"
        if taken_away or excepted:
            pieces.but_days = days
            return place + excepted
        if leads.words == ("over", "the") and days == WEEKENDS:
            pieces.span(in_week(0, 5), in_week(0, 6))
            return place
        if leads.words == ("over", "the"):
            pieces.code = "ambiguous_time"
        pieces.days = days
        pieces.recurs = leads.say("every") or len(days) > 1 or self._said(place - 1).endswith("days")
        pieces.day_edge = leads.edge if len(days) == 1 else None
        return self._to_another_day(place, leads, pieces)

    def _day_list(self, place: int) -> tuple[tuple[int, ...], int] | None:
        found = self._day_range(place)
        while found is not None and (more := self._listed_day(*found)) is not None:
            found = more
        return found

    def _listed_day(self, days: tuple[int, ...], place: int) -> tuple[tuple[int, ...], int] | None:
        """ ", tue", "and tue", "and on tue"; weekdays and weekends are never one list."""
        at = place + (self._at(place).mark is TimeRole.COMMA)
        at += self._at(at).mark is TimeRole.TO and self._at(at).value == "and"
        joined = at > place
        at += joined and self._said(at) == "on"
        found = self._day_range(at)
        if found is None or {days, found[0]} == {WEEKDAYS, WEEKENDS}:
            return None
        if self._said(at - 1) == "on" and not _CLEAN.match(self._text, self._at(found[1] - 1).end):
            return None
        return days + found[0], found[1]

    def _day_range(self, place: int) -> tuple[tuple[int, ...], int] | None:
        first = self._at(place)
        last = self._at(place + 2)
        if first.mark is not TimeRole.DAYS:
            return None
        to = self._at(place + 1)
        is_range = to.mark is TimeRole.TO and to.value != "and" and last.mark is TimeRole.DAYS
        if is_range and len(first.value) == len(last.value) == 1:
            return days_between(first.value[0], last.value[0]), place + 3
        return first.value, place + 1

    # -- dates --------------------------------------------------------------------------------------

    def _day(self, leads: _Leads, pieces: WindowParts) -> int | None:
        named = pieces.days is not None and len(pieces.days) == 1 and not pieces.recurs
        if pieces.day is not None or (pieces.days is not None and not named) or pieces.daily is not None:
            return None
        found = self._date(leads)
        if found is None:
            return None
        day, part, place = found
        if isinstance(day, Days):
            pieces.span(day.first, day.last)
        else:
            pieces.day = day
        pieces.part = part or pieces.part
        pieces.day_edge = pieces.day_edge or leads.edge
        return self._to_another_day(place, leads, pieces)

    def _to_another_day(self, place: int, leads: _Leads, pieces: WindowParts) -> int:
        """ "From tomorrow to Friday", "between 20 and 27 December"."""
        to = self._at(place)
        if to.mark is not TimeRole.TO or (to.value == "and" and not leads.say("between")):
            return place
        weekday = self._at(place + 1)
        if weekday.mark is TimeRole.DAYS and len(weekday.value) == 1 and pieces.day is not None:
            pieces.last_weekday = weekday.value[0]
            pieces.whole_days = True
            return place + 2
        found = self._date(_Leads(place + 1, ()))
        if found is None and weekday.mark is not TimeRole.DAYS:
            return place
        last, _, after = found or (None, None, place + 2)
        if last is None or isinstance(last, Days) or pieces.day is None:
            pieces.code = "ambiguous_time"
            return after
        pieces.span(pieces.day, last)
        return after

    def _date(self, leads: _Leads) -> tuple[Day | Days, str | None, int] | None:
        place = leads.place
        atom = self._at(place)
        if atom.mark is TimeRole.DATE:
            day, part = atom.value
            return day, part, place + 1
        if atom.mark is TimeRole.THIS:
            return self._this(place)
        return None

    def _this(self, place: int) -> tuple[Day | Days, str | None, int] | None:
        which = self._said(place)
        what = self._at(place + 1)
        if what.mark is TimeRole.DAYS and len(what.value) == 1:
            return (next_named if which == "next" else coming)(what.value[0]), None, place + 2
        if what.mark is TimeRole.DAYS and what.value == WEEKENDS and which != "next":
            return Days(in_week(0, 5), in_week(0, 6)), None, place + 2
        if what.mark is TimeRole.SPAN and what.value == "week" and which in {"this", "next"}:
            weeks = int(which == "next")
            return Days(in_week(weeks, 0), in_week(weeks, 6)), None, place + 2
        if what.mark is TimeRole.DAYS or (what.mark is TimeRole.SPAN and which in {"this", "next"}):
            return several_days, None, place + 2
        if what.mark is TimeRole.PART and which == "this":
            return in_days(0), what.value, place + 2
        return None

    # -- hours --------------------------------------------------------------------------------------

    def _hours(self, leads: _Leads, pieces: WindowParts) -> int | None:
        if pieces.start is not None or pieces.all_day:
            return None
        first = self._clock(leads.place)
        if first is None:
            return None
        found = self._range_end(leads, self._behind_zone(first.after, pieces), pieces)
        if found is None:
            return self._single(leads, first, pieces)
        last, place = found
        if self._are_numbers(leads, first, last, self._is_marked(leads, last, pieces)):
            return None
        pieces.start = first.clock
        pieces.end = last.clock
        pieces.outside = leads.say("outside")
        return place

    def _clock(self, place: int) -> _Time | None:
        """A time of day, with the part of the day behind it ("9 in the morning") or, in Chinese, before it."""
        atom = self._at(place)
        if atom.mark is TimeRole.PART and not self._said(place).isascii():
            hour = self._at(place + 1)
            if hour.mark not in {TimeRole.NUMBER, TimeRole.CLOCK} or not isinstance(hour.value, Clock):
                return None
            return _Time(hour.value.in_half(HALVES[atom.value]), place, place + 2)
        if atom.mark is not TimeRole.CLOCK and not (atom.mark is TimeRole.NUMBER and isinstance(atom.value, Clock)):
            return None
        leads = self._leads(place + 1)
        behind = self._at(leads.place)
        if leads.words in {("in", "the"), ("at",)} and behind.mark is TimeRole.PART and atom.value.open:
            return _Time(atom.value.in_half(HALVES[behind.value]), place, leads.place + 1)
        return _Time(atom.value, place, place + 1, is_bare=atom.mark is TimeRole.NUMBER)

    def _range_end(self, leads: _Leads, place: int, pieces: WindowParts) -> tuple[_Time, int] | None:
        """The time at which a range ends, and where its words do."""
        to = self._at(place)
        if self._is_idiom(place) and (late := self._clock(place)) is not None:
            return late, late.after
        if to.mark is not TimeRole.TO or (to.value == "and" and not self._is_between(leads, place)):
            return None
        place += 1
        if self._at(place).mark is TimeRole.NEXT_DAY:
            pieces.ends_next_day = True
            place += 1
        else:
            place = self._last_day(place, pieces)
        last = self._clock(place)
        if last is None:
            return None
        if self._at(place - 1).mark is TimeRole.DATE and (part := self._at(place - 1).value[1]) in HALVES:
            last = replace(last, clock=last.clock.in_half(HALVES[part]))
        goes_over = self._at(last.after).mark is TimeRole.NEXT_DAY
        pieces.ends_next_day = pieces.ends_next_day or goes_over
        return last, last.after + goes_over

    def _behind_zone(self, place: int, pieces: WindowParts) -> int:
        """Over a zone that is said of both ends: "9:00 UTC to 17:00 UTC"."""
        zone = self._zone_at(place, hours_before=True)
        if zone is None or pieces.zone is not None or self._at(zone[1]).mark is not TimeRole.TO:
            return place
        pieces.zone = zone[0]
        return zone[1]

    def _last_day(self, place: int, pieces: WindowParts) -> int:
        """The day said before the end of a range: "from Friday 22:00 to Saturday 6:00"."""
        atom = self._at(place)
        if pieces.day is not None and atom.mark is TimeRole.DATE:
            pieces.last_day = atom.value[0]
            return place + 1
        if pieces.days is not None and len(pieces.days) == 1 and atom.mark is TimeRole.DAYS and len(atom.value) == 1:
            pieces.last_weekday = atom.value[0]
            return place + 1
        return place

    def _is_idiom(self, place: int) -> bool:
        """早九晚五."""
        return (
            self._said(place - 1)[:1] == "早"
            and self._said(place)[:1] == "晚"
            and self._at(place).mark is TimeRole.CLOCK
        )

    def _is_between(self, leads: _Leads, place: int) -> bool:
        return leads.say("between", "hours") or (not self._said(place).isascii() and self._said(place + 2) == "之间")

    def _single(self, leads: _Leads, time: _Time, pieces: WindowParts) -> int | None:
        """One time: "after 18:00", "9点以前".

        Alone it is asked about, if it is one at all (三点 may be three points).
        """
        edge = self._at(time.after)
        has_edge = edge.mark is TimeRole.EDGE and edge.value != "outside"
        is_said = has_edge or leads.words or pieces.has_days or time.clock.said in {"half", "sure"}
        if time.is_bare or not (is_said or self._said(time.place).isascii()):
            return None
        pieces.start = time.clock
        pieces.edge = edge.value if has_edge else leads.edge
        pieces.day_came_first = pieces.day is not None and pieces.day_edge is None
        pieces.from_now = leads.say("now until")
        return time.after + has_edge

    def _are_numbers(self, leads: _Leads, first: _Time, last: _Time, is_marked: bool) -> bool:
        """Whether a range with a bare number is none of hours but "2 to 4 GPUs"."""
        end = self._at(last.after - 1).end
        if last.is_bare and is_counted(self._text, end):
            return True
        if not first.is_bare:
            return False
        start = self._at(first.place)
        if is_counted(self._text, start.end) or follows_a_bound(self._text, start.start):
            return True
        has_lead = leads.say("from", "between", "outside", "hours")
        if has_lead and not last.is_bare:
            return False
        before = self._at(leads.place - len(leads.words)).start
        return not (is_marked or has_lead) or not are_hours(self._text, before, end, is_marked)

    def _is_marked(self, leads: _Leads, last: _Time, pieces: WindowParts) -> bool:
        """Whether something beside the numbers speaks of times."""
        behind = self._at(self._leads(last.after + self._is_comma(last.after)).place)
        return (
            not last.is_bare
            or pieces.has_days
            or pieces.part is not None
            or leads.say("outside", "hours")
            or behind.mark in {TimeRole.DAYS, TimeRole.DAILY, TimeRole.DATE, TimeRole.THIS}
            or (self._at(last.after).mark is TimeRole.TRAILER and last.clock.said == "sure")
            or self._zone_at(last.after, hours_before=True) is not None
        )

    # -- the rest -----------------------------------------------------------------------------------

    def _part(self, leads: _Leads, pieces: WindowParts) -> int | None:
        atom = self._at(leads.place)
        if atom.mark is not TimeRole.PART or pieces.has_hours or _NO_PART.match(self._text, atom.end):
            return None
        pieces.part = atom.value
        pieces.recurs = pieces.recurs or self._said(leads.place).endswith("s")
        return leads.place + 1

    def _others(self, leads: _Leads, pieces: WindowParts) -> int | None:
        atom = self._at(leads.place)
        place = leads.place + 1
        has_days = (
            pieces.day is not None or pieces.daily is not None or (pieces.days is not None and atom.value != "day")
        )
        if atom.mark is TimeRole.DAILY and not has_days and (pieces.has_hours or not self._counts(leads)):
            pieces.daily = atom.value
            return place
        if atom.mark is TimeRole.ALL_DAY and not pieces.has_hours:
            pieces.all_day = True
            return place
        if atom.mark is TimeRole.REST and not pieces.has_hours:
            pieces.start = atom.value
            pieces.edge = "until"
            return place
        if leads.words:
            return None
        if atom.mark is TimeRole.EDGE:
            return self._edge(leads.place, pieces)
        is_trailer = atom.mark is TimeRole.TRAILER and (pieces.has_hours or atom.value == "之间")
        return place if is_trailer else None

    def _edge(self, place: int, pieces: WindowParts) -> int | None:
        """9点到18点以外, 明天开始."""
        edge = self._at(place).value
        if edge == "outside" and pieces.end is not None:
            pieces.outside = True
            return place + 1
        is_word = len(self._said(place)) > 1  # 今天前端 speaks of no time before today
        if edge == "outside" or not is_word or pieces.start is not None or (pieces.day or pieces.days) is None:
            return None
        pieces.day_edge = edge
        return place + 1

    def _counts(self, leads: _Leads) -> bool:
        """ "$40 daily", "twice every day": a period, no window."""
        start = self._at(leads.place - len(leads.words)).start
        return _COUNTS.search(self._text, max(0, start - 20), start) is not None

    def _zone(self, leads: _Leads, pieces: WindowParts) -> int | None:
        found = self._zone_at(leads.place, hours_before=pieces.has_hours or pieces.has_days)
        if found is None or leads.say("for", "by", "every", "outside") or pieces.zone not in {None, found[0]}:
            return None
        pieces.zone, place = found
        return place

    def _zone_at(self, place: int, *, hours_before: bool) -> tuple[str, int] | None:
        """A zone as said; before any hours only one that can be nothing else."""
        atom = self._at(place)
        if atom.mark is TimeRole.ZONE:
            return (atom.value, place + 1) if self._is_zone(atom.value, hours_before) else None
        if hours_before and self._said(place) in PLACES:
            return f"{self._said(place)} time", place + 1
        if not hours_before or self._said(place) != "(":
            return None
        match = _IN_BRACKETS.match(self._text, atom.start)
        if match is None or ("/" not in match[1] and resolve(match[1], "") == UNKNOWN):
            return None
        while self._at(place).end < match.end() and self._at(place) is not _END:
            place += 1
        return match[1], place + 1

    def _is_zone(self, text: str, hours_before: bool) -> bool:
        if "/" not in text:
            return hours_before or len(text) > 2
        return _NO_PLACE.search(text) is None and (hours_before or resolve(text, "") != UNKNOWN)
