"""Han numerals: ``一千五百`` is 1500, ``两点五`` 2.5, ``百分之四十`` 0.4. Pure."""

from collections.abc import Sequence

_DIGITS = frozenset("零〇一二两三四五六七八九")
_NUMERALS = _DIGITS | frozenset("十百千万亿点")
_LONGEST = 20
"""No number that anybody says has more characters."""


def han_number(words: Sequence[str]) -> tuple[float, int] | None:
    """The number at the front of a list of words and how many of them it takes; None if there is none.

    ``半`` is 0.5, and ``百分之X`` and ``九成九`` shares.
    """
    if words[:1] == ["半"]:
        return 0.5, 1
    run = _run(words)
    if words[run : run + 2] == ["分", "之"] and (base := _base(words[:run])):
        share = _run(words[run + 2 :])
        part = _value(words[run + 2 : run + 2 + share]) if share else _digits(words[run + 2 : run + 3])
        return (part / base, run + 2 + (share or 1)) if part is not None else None
    if (
        words[run : run + 1] == ["成"]
        and (tens := _value(words[:run]))
        and len(words) > run + 1
        and words[run + 1] in _DIGITS
    ):
        return (tens * 10 + (_value(words[run + 1 : run + 2]) or 0)) / 100, run + 2  # 九成九
    while run:
        if (value := _value(words[:run])) is not None:
            return value, run
        run -= 1
    return None


def _base(words: Sequence[str]) -> float | None:
    """What a share is of: 百 of 百分之五, 万 of 万分之五."""
    return 10_000.0 if list(words) == ["万"] else _value(words)


def _run(words: Sequence[str]) -> int:
    length = 0
    while length < min(len(words), _LONGEST) and words[length] in _NUMERALS:
        length += 1
    return length


def _value(words: Sequence[str]) -> float | None:
    text = "".join(words)
    if text in {"百", "千"}:
        return 100.0 if text == "百" else 1000.0
    if not words or (words[0] not in _DIGITS and words[0] != "十"):
        return None
    if len(words) == 2 and all(word in _DIGITS for word in words) and text not in {"九五", "九九", "九十"}:
        return None  # 两三 is two or three, not 23
    from cn2an import cn2an  # 50 ms of CPU, for texts with such numbers alone

    try:
        return float(cn2an(text, "smart"))
    except (ValueError, KeyError, IndexError):
        return None


def _digits(words: Sequence[str]) -> float | None:
    try:
        return float(words[0]) if words else None
    except ValueError:
        return None
