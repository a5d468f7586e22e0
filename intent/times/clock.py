"""Times of day: what a clock time said can mean, and which hours two of them span."""

from dataclasses import dataclass
from typing import Literal

PARTS = {
    "morning": (6 * 60, 12 * 60),
    "day": (8 * 60, 20 * 60),
    "noon": (11 * 60, 13 * 60),
    "afternoon": (12 * 60, 18 * 60),
    "evening": (18 * 60, 24 * 60),
    "night": (22 * 60, 6 * 60),
    "small hours": (0 * 60, 6 * 60),
}
"""The hours of a part of the day, in minutes from midnight. ``tonight`` is today's evening; a night belongs to the day on
which it begins."""

HALVES = {
    "morning": "am",
    "day": "day",
    "noon": "noon",
    "afternoon": "pm",
    "evening": "night",
    "night": "night",
    "small hours": "am",
}
"""Which half of the day the hours in a part lie in."""

Said = Literal["bare", "word", "digits", "half", "sure"]


@dataclass(frozen=True, slots=True)
class Clock:
    """A time of day as said: ``minutes`` from midnight, and how sure that is of the two halves of the day.

    ``bare`` is a number alone, ``word`` one that marks an hour (nine o'clock, 九点): up to 12 both could be meant twelve
    hours later. ``digits`` (9:00, 9点) are the 24 hours unless the words around speak of a half; ``half`` said which half
    (9 pm, 晚上9点); ``sure`` cannot be anything else.
    """

    minutes: int | None
    said: Said = "sure"

    @property
    def open(self) -> bool:
        """Whether twelve hours later could be meant."""
        return (
            self.minutes is not None and self.said in {"bare", "word", "digits"} and 60 <= self.minutes < 780
        )

    @property
    def is_unsure(self) -> bool:
        """Whether it has to be asked which half of the day is meant, if nothing around says so."""
        return self.open and self.said != "digits"

    def in_half(self, half: str) -> "Clock":
        """The same hour in this half of the day; ``night`` begins in the evening and ends in the morning."""
        if not self.open or self.minutes is None:
            return self
        hour, minute = divmod(self.minutes, 60)
        if half == "noon":
            half = "am" if hour in {10, 11} else "pm"
        if half == "day":
            half = "am" if 7 <= hour < 12 else "pm"
        if half == "night" and hour == 12:
            return Clock(1440 + minute if minute == 0 else minute, "half")
        if half == "night":
            half = "pm" if 6 <= hour < 12 else "am"
        return Clock((hour % 12 + 12 * (half == "pm")) * 60 + minute, "half")


def time_of(hour: int, minute: int, said: Said) -> Clock:
    """A clock time of the 24 hours; without minutes if there is none such."""
    if not 0 <= hour <= 24 or not 0 <= minute <= 59 or (hour == 24 and minute):
        return Clock(None)
    return Clock(hour * 60 + minute, said)


def span(start: Clock, end: Clock, half: str | None = None) -> tuple[int, int] | str:
    """Minutes from midnight at which a range begins and ends, or the code of a problem.

    ``half`` is that of the part of the day spoken of, if any. What is left open on one side follows from the other; "9 to
    5" is a working day; 24 hours are taken as such; whatever could still be meant twelve hours apart is a problem.
    """
    if start.minutes is None or end.minutes is None:
        return "impossible_time"
    if half is not None:
        start = start.in_half(half)
    first, last = _settled(start, end)
    if first is None or last is None:
        return "ambiguous_time"
    first %= 1440
    if last % 1440 == 0 and (first or last):
        last = 1440
    return "zero_length" if first == last else (first, last)


def _settled(start: Clock, end: Clock) -> tuple[int | None, int | None]:
    first, last = start.minutes or 0, end.minutes or 0
    if start.is_unsure and end.is_unsure:
        return _both_open(first, last)
    if start.said == "half" and end.open:
        return first, _after(first, last)
    if end.said == "half" and start.is_unsure:
        return _before(last, first), last
    if end.is_unsure:
        return first, _after(first, last)
    to_midnight = start.is_unsure and last % 1440 == 0  # "6 to midnight"
    round_the_clock = (
        start.said == end.said == "digits" and start.open and end.open and last < min(first, 600)
    )  # "9:00 to 5:00"
    return (None, None) if to_midnight or round_the_clock else (first, last)


def _after(first: int, last: int) -> int:
    """The end, of the two it can be, that comes sooner after the start."""
    return min((last % 720, last % 720 + 720), key=lambda time: (time - first - 1) % 1440)


def _before(last: int, first: int) -> int:
    """The start, of the two it can be, that comes closer before the end."""
    return min((first % 720, first % 720 + 720), key=lambda time: (last - time - 1) % 1440)


def _both_open(first: int, last: int) -> tuple[int | None, int | None]:
    if first < last and first >= 420:
        return first, last
    if last < first and 420 <= first < 600:
        return first, last + 720
    return None, None


def spelled(minutes: int) -> str:
    """``HH:MM``; the end of the day is 24:00."""
    return f"{minutes // 60:02}:{minutes % 60:02}"
