"""Several words for one window: ``the morning peak``, ``in the morning between 8 and noon``. Pure."""

from collections.abc import Sequence

from intent.models import DAYS, RecurringWindow, Window
from intent.times.clock import PARTS, spelled

_PART_HOURS = frozenset((spelled(start), spelled(end)) for start, end in PARTS.values())
_PARTS = frozenset({"overnight"})
"""Named windows that are also parts of the day."""


def together(windows: Sequence[Window]) -> Window | None:
    """The one window that several words say: a named one beside a part of the day, hours beside days; None if it could be two."""
    distinct = list(dict.fromkeys(windows))
    if len(distinct) == 1:
        return distinct[0]
    named = [one for one in distinct if isinstance(one, str) and one not in _PARTS]
    rest = [one for one in distinct if one not in named]
    if len(named) == 1 and all(_is_part_of_day(one) for one in rest):
        return named[0]
    days = [
        one for one in rest if isinstance(one, RecurringWindow) and (one.start, one.end) == ("00:00", "24:00")
    ]
    hours = [one for one in rest if isinstance(one, RecurringWindow) and len(one.days) == len(DAYS)]
    if not named and len(rest) == len(days) + len(hours) == 2 and len(days) == 1:
        return RecurringWindow(days[0].days, hours[0].start, hours[0].end, hours[0].tz)
    return None


def _is_part_of_day(one: Window) -> bool:
    if not isinstance(one, RecurringWindow):
        return one in _PARTS
    return len(one.days) == len(DAYS) and (one.start, one.end) in _PART_HOURS
