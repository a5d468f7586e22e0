"""Texts that nobody planned for: utterances with words and characters lost, doubled, swapped or changed, and plain noise."""

import random
import re
from collections.abc import Callable, Sequence

_PARTS = re.compile(r"\s+|[A-Za-z]+|\d+(?:\.\d+)?|.", re.DOTALL)
_NUMBER = re.compile(r"\d+(?:\.\d+)?")
_JUNK = "\u200b\u200f\u202e\u2066\ufeff\u0000\u0007\t\n🙂🚀é٣½²％，。；：“”<>=≤≥~^|\\{}[]$€¥%-+/.,:;'\"０９零半百千万点"
_NUMBERS = (
    "0",
    "-5",
    "1e400",
    "NaN",
    "999999999999",
    "0.0001",
    "25:00",
    "150",
    "7",
    "p200",
    "1,2,3",
    "½",
    "三",
    "half",
)
_NOISE_LENGTH = 60


def hostile(chance: random.Random, texts: Sequence[str]) -> str:
    """One such text; most are near to what somebody said."""
    if chance.random() < 0.1:
        return _noise(chance)
    text = chance.choice(texts)
    if chance.random() < 0.15:
        text += chance.choice((" ", ", ", "；", " and ", "")) + chance.choice(texts)
    for _ in range(chance.randint(1, 4)):
        text = chance.choice(_CHANGES)(text, chance)
    return text


def _noise(chance: random.Random) -> str:
    def character() -> str:
        point = chance.choice((chance.randrange(32, 127), chance.randrange(0x4E00, 0x9FFF), chance.randrange(0x110000)))
        return "?" if 0xD800 <= point < 0xE000 else chr(point)

    return "".join(character() for _ in range(chance.randint(0, _NOISE_LENGTH)))


def _drop(text: str, chance: random.Random) -> str:
    parts = _PARTS.findall(text)
    if parts:
        del parts[chance.randrange(len(parts))]
    return "".join(parts)


def _double(text: str, chance: random.Random) -> str:
    parts = _PARTS.findall(text)
    if parts:
        place = chance.randrange(len(parts))
        parts.insert(place, f"{parts[place]} ")
    return "".join(parts)


def _swap(text: str, chance: random.Random) -> str:
    parts = _PARTS.findall(text)
    if len(parts) > 1:
        one, other = chance.sample(range(len(parts)), 2)
        parts[one], parts[other] = parts[other], parts[one]
    return "".join(parts)


def _insert(text: str, chance: random.Random) -> str:
    place = chance.randint(0, len(text))
    return text[:place] + chance.choice(_JUNK) * chance.choice((1, 1, 1, 30)) + text[place:]


def _lose(text: str, chance: random.Random) -> str:
    place = chance.randint(0, max(0, len(text) - 1))
    return text[:place] + text[place + 1 :]


def _renumber(text: str, chance: random.Random) -> str:
    found = list(_NUMBER.finditer(text))
    if not found:
        return text
    match = chance.choice(found)
    value = chance.choice((str(chance.randrange(1000)), f"{chance.random() * 10:.2f}", chance.choice(_NUMBERS)))
    return text[: match.start()] + value + text[match.end() :]


def _cut(text: str, chance: random.Random) -> str:
    return text[: chance.randint(0, len(text))]


def _shout(text: str, _: random.Random) -> str:
    return text.upper()


_CHANGES: tuple[Callable[[str, random.Random], str], ...] = (
    _drop, _drop, _double, _swap, _swap, _insert, _insert, _lose, _renumber, _renumber, _cut, _shout,
)  # fmt: skip


# -- clear utterances, changed so that what they say is still there or is taken back --------------

_WORDS = dict(
    zip(
        [*range(1, 21), 30, 40, 50, 60, 70, 80, 90, 100, 200, 500, 800],
        [
            "one",
            "two",
            "three",
            "four",
            "five",
            "six",
            "seven",
            "eight",
            "nine",
            "ten",
            "eleven",
            "twelve",
            "thirteen",
            "fourteen",
            "fifteen",
            "sixteen",
            "seventeen",
            "eighteen",
            "nineteen",
            "twenty",
            "thirty",
            "forty",
            "fifty",
            "sixty",
            "seventy",
            "eighty",
            "ninety",
            "hundred",
            "two-hundred",
            "five-hundred",
            "eight-hundred",
        ],
        strict=True,
    )
)
_HAN = dict(zip(range(1, 11), "一二三四五六七八九十", strict=True))
_SPACE = re.compile(r"(?<=[A-Za-z\u4e00-\u9fff]) (?=[A-Za-z])|(?<=[A-Za-z\u4e00-\u9fff]) (?=\d)")
_LONG = re.compile(r"[A-Za-z]{4,}")
_WHOLE = re.compile(r"(?<![\w.,:/$€¥-])\d{1,3}(?=\s?(?:s|ms|%|seconds?|gpus?|tokens?|秒|毫秒|张|块|个)(?![A-Za-z]))")
_RELEASES = (
    ", the old cap no longer counts", " and the budget is gone", "; the int4 ban is lifted", ", forget the latency target",
    ", the GPU limit was dropped", " - drop the throughput floor", ", error rate rule is off", ", the freeze is over",
    "，放开成本限制", "，取消免费用户的限制", "；之前的延迟上限作废", "，GPU 数量不限了", "，int4 解禁",
)  # fmt: skip


def changed(text: str, chance: random.Random) -> tuple[str, str]:
    """What was done, ``glued``, ``misspelt``, ``moved``, ``in words`` or ``released``, and the text that it made."""
    name = chance.choice(tuple(_MUTATIONS))
    return name, _MUTATIONS[name](text, chance)


def _glued(text: str, chance: random.Random) -> str:
    places = [match.start() for match in _SPACE.finditer(text)]
    place = chance.choice(places) if places else len(text)
    return text[:place] + text[place + 1 :]


def _misspelt(text: str, chance: random.Random) -> str:
    found = list(_LONG.finditer(text))
    if not found:
        return text
    place = (match := chance.choice(found)).start() + chance.randrange(1, len(match[0]) - 2)
    letter = text[place]
    slips = (text[place + 1] + letter, letter * 2 + text[place + 1], text[place + 1])
    return text[:place] + chance.choice(slips) + text[place + 2 :]


def _moved(text: str, _: random.Random) -> str:
    """The last stretch between commas comes first."""
    parts = re.split(r"([,，;；]\s*)", text.rstrip("。.!！ "))
    return "".join((parts[-1], parts[-2], *parts[:-2])) if len(parts) > 2 else text


def _in_words(text: str, chance: random.Random) -> str:
    """A whole number with its unit, spelt out."""
    han = re.search(r"[\u4e00-\u9fff]", text) is not None
    table = _HAN if han else _WORDS
    found = [match for match in _WHOLE.finditer(text) if int(match[0]) in table]
    if not found:
        return text
    match = chance.choice(found)
    gap = "" if han or text[match.end() : match.end() + 1] == " " else " "
    return text[: match.start()] + table[int(match[0])].replace("-", " ") + gap + text[match.end() :]


def _released(text: str, chance: random.Random) -> str:
    return text.rstrip("。.!！ ") + chance.choice(_RELEASES)


_MUTATIONS: dict[str, Callable[[str, random.Random], str]] = {
    "glued": _glued,
    "misspelt": _misspelt,
    "moved": _moved,
    "in words": _in_words,
    "released": _released,
}
