"""Time zones as people say them, to IANA names."""

import re
from zoneinfo import ZoneInfo

UNKNOWN = "unknown_zone"
AMBIGUOUS = "ambiguous_time"

ABBREVIATIONS = {
    "utc": "UTC", "z": "UTC", "gmt": "GMT", "cet": "CET", "cest": "CET", "eet": "EET", "eest": "EET",
    "bst": "Europe/London", "msk": "Europe/Moscow", "hkt": "Asia/Hong_Kong", "sgt": "Asia/Singapore",
    "jst": "Asia/Tokyo", "kst": "Asia/Seoul", "aest": "Australia/Sydney", "aedt": "Australia/Sydney",
    "nzst": "Pacific/Auckland", "nzdt": "Pacific/Auckland", "et": "America/New_York", "est": "America/New_York",
    "edt": "America/New_York", "ct": "America/Chicago", "cdt": "America/Chicago", "mt": "America/Denver",
    "mst": "America/Denver", "mdt": "America/Denver", "pt": "America/Los_Angeles", "pst": "America/Los_Angeles",
    "pdt": "America/Los_Angeles",
}  # fmt: skip
"""Standard and summer abbreviations of one place alike: the place keeps its own calendar."""

SEVERAL_PLACES = frozenset({"ist", "cst", "ast", "sst"})
"""Used for places hours apart: India, Israel and Ireland; Chicago and China; ..."""

PLACES = {
    "beijing": "Asia/Shanghai", "china": "Asia/Shanghai", "china standard": "Asia/Shanghai",
    "shanghai": "Asia/Shanghai", "hong kong": "Asia/Hong_Kong", "singapore": "Asia/Singapore", "tokyo": "Asia/Tokyo",
    "japan": "Asia/Tokyo", "seoul": "Asia/Seoul", "india": "Asia/Kolkata", "mumbai": "Asia/Kolkata",
    "london": "Europe/London", "uk": "Europe/London", "berlin": "Europe/Berlin", "german": "Europe/Berlin",
    "paris": "Europe/Paris", "zurich": "Europe/Zurich", "amsterdam": "Europe/Amsterdam", "madrid": "Europe/Madrid",
    "central european": "CET", "eastern european": "EET", "moscow": "Europe/Moscow", "sydney": "Australia/Sydney",
    "new york": "America/New_York", "eastern": "America/New_York", "chicago": "America/Chicago",
    "central": "America/Chicago", "denver": "America/Denver", "mountain": "America/Denver",
    "pacific": "America/Los_Angeles", "california": "America/Los_Angeles", "los angeles": "America/Los_Angeles",
    "san francisco": "America/Los_Angeles",
    "北京": "Asia/Shanghai", "中国": "Asia/Shanghai", "上海": "Asia/Shanghai", "香港": "Asia/Hong_Kong",
    "台北": "Asia/Taipei", "新加坡": "Asia/Singapore", "东京": "Asia/Tokyo", "日本": "Asia/Tokyo", "首尔": "Asia/Seoul",
    "伦敦": "Europe/London", "柏林": "Europe/Berlin", "巴黎": "Europe/Paris", "纽约": "America/New_York",
    "美东": "America/New_York", "美西": "America/Los_Angeles", "洛杉矶": "America/Los_Angeles", "utc": "UTC",
}  # fmt: skip
"""What may stand before "time" or 时间."""

HERE = frozenset({"local", "our", "server", "本地", "当地", "服务器"})
"""Before "time": the deployment's own zone."""

_PLACE = "|".join(sorted([*PLACES, *HERE], key=len, reverse=True))
PATTERN = rf"""
    (?:utc|gmt)\s?[+-]\s?\d{{1,2}}(?::?\d{{2}})?(?!\d)
  | (?<![\w/])(?!(?:mon|tue|wed|thu|fri|sat|sun)[a-z]*/)[a-z]+(?:/[a-z][a-z_-]*){{0,1}}/[a-z][a-z_-]*(?:[+-]?\d{{1,2}})?(?![\w/])
  | (?:{_PLACE.replace(" ", "[ ]")})\s?(?:time\b|时间)
"""
"""Verbose regular expression of the zones that are plain without looking round."""

_OFFSET = re.compile(r"(?:utc|gmt)\s?([+-])\s?(\d{1,2})(?::?(\d{2}))?", re.ASCII)
_TIME = re.compile(r"\s?(?:time|时间)$", re.ASCII)
_LOWER = {"of", "es", "au"}
_ODD = {
    name.lower(): name
    for name in (
        "Antarctica/McMurdo", "Antarctica/DumontDUrville", "America/Argentina/ComodRivadavia", "America/Knox_IN",
        "Brazil/DeNoronha", "Chile/EasterIsland", "Mexico/BajaNorte", "Mexico/BajaSur", "GB-Eire",
    )
}  # fmt: skip


def resolve(said: str, here: str) -> str:
    """The IANA name of a zone said in lower case, ``here`` being the deployment's; else UNKNOWN or AMBIGUOUS."""
    if said == here.lower():
        return here
    if said in SEVERAL_PLACES:
        return AMBIGUOUS
    if said in ABBREVIATIONS:
        return ABBREVIATIONS[said]
    place, is_place = _TIME.subn("", said)
    if is_place and place in HERE:
        return here
    if is_place and place in PLACES:
        return PLACES[place]
    return _iana(said) or _offset(said) or UNKNOWN


def _offset(said: str) -> str | None:
    """``utc+8`` is ``Etc/GMT-8``: POSIX counts westwards. Parts of an hour have no such name."""
    match = _OFFSET.fullmatch(said)
    if match is None or match[3] not in {None, "00"}:
        return None
    hours = int(match[1] + match[2])
    if hours == 0:
        return "UTC"
    return f"Etc/GMT{-hours:+d}" if -12 <= hours <= 14 else None


def _iana(said: str) -> str | None:
    """The name in its own case, tried in the few ways such names are written; listing all zones would read 600 files."""
    area, slash, place = said.partition("/")
    titled = re.sub(r"[a-z]+", lambda word: word[0] if word[0] in _LOWER else word[0].capitalize(), said)
    upper = area.upper() + slash + titled[len(area) + 1 :]
    tries = (_ODD.get(said, titled), said.upper(), upper, area.capitalize() + slash + place.upper())
    return next((name for name in tries if exists(name)), None)


def exists(name: str) -> bool:
    """Whether this is the name of an IANA zone."""
    try:
        return ZoneInfo(name).key == name
    except (KeyError, ValueError, OSError):  # unknown, not a name at all, a folder of zones
        return False
