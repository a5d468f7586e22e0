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
        point = chance.choice(
            (chance.randrange(32, 127), chance.randrange(0x4E00, 0x9FFF), chance.randrange(0x110000))
        )
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
    value = chance.choice(
        (str(chance.randrange(1000)), f"{chance.random() * 10:.2f}", chance.choice(_NUMBERS))
    )
    return text[: match.start()] + value + text[match.end() :]


def _cut(text: str, chance: random.Random) -> str:
    return text[: chance.randint(0, len(text))]


def _shout(text: str, _: random.Random) -> str:
    return text.upper()


_CHANGES: tuple[Callable[[str, random.Random], str], ...] = (
    _drop, _drop, _double, _swap, _swap, _insert, _insert, _lose, _renumber, _renumber, _cut, _shout,
)  # fmt: skip
