"""What the console says, in English and Chinese.

The English words are the key, ``chinese.yaml`` has the others. Pure.
"""

from collections.abc import Callable
from functools import cache
from importlib import resources
from typing import Literal

import yaml

Language = Literal["en", "zh"]
Say = Callable[..., str]


def sayer(language: Language) -> Say:
    """Words in a language; what stands in braces is filled in."""
    known = _chinese() if language == "zh" else {}

    def say(words: str, **slots: object) -> str:
        return known.get(words, words).format(**slots) if slots else known.get(words, words)

    return say


def language_of(chosen: str | None, accepted: str) -> Language:
    """The language that somebody chose, or else the first of both that the browser accepts."""
    if chosen in {"en", "zh"}:
        return "zh" if chosen == "zh" else "en"
    for part in accepted.lower().split(","):
        if part.strip().startswith("zh"):
            return "zh"
        if part.strip().startswith("en"):
            return "en"
    return "en"


@cache
def _chinese() -> dict[str, str]:
    text = resources.files(__package__).joinpath("chinese.yaml").read_text(encoding="utf-8")
    found: dict[str, str] = yaml.safe_load(text)
    return found
