"""``until 6pm`` said of a freeze or in an incident: today until then, not every day. Pure."""

import re
from datetime import datetime
from zoneinfo import ZoneInfo

from intent.models import DAYS, DatedWindow, RecurringWindow, Window

_UNTIL = re.compile(r"\b(?:until|till|til|'til)\b|之前|以前|为止|直到|前(?:请|别|不)", re.IGNORECASE)
_TODAY = re.compile(
    r"\b(?:today|tonight|right now|this (?:morning|afternoon|evening)|incident|outage|inc-?\d+|sev-?\s?\d)\b"
    r"|今天|今晚|今早|今日|今儿|现在|故障|事故",
    re.IGNORECASE,
)
"""Words for today, or for an incident."""


def until_today(window: Window, text: str, now: datetime, is_ban: bool) -> Window:
    """The window itself, or today from the present minute where ``text`` says until when and means today.

    ``is_ban``: it is that of a freeze or of a ban on reconfiguration, which is about today by itself.
    """
    daily = isinstance(window, RecurringWindow) and len(window.days) == len(DAYS)
    if (
        not daily
        or not isinstance(window, RecurringWindow)
        or window.start != "00:00"
        or window.end == "24:00"
    ):
        return window
    if not _UNTIL.search(text) or not (is_ban or _TODAY.search(text)):
        return window
    here = now.astimezone(ZoneInfo(window.tz))
    start = here.strftime("%H:%M")
    return (
        DatedWindow(here.date().isoformat(), start, window.end, window.tz) if start < window.end else window
    )
