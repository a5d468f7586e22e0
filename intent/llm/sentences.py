"""A goal in one sentence that the rules read: so that an LLM's words mean what the rules say they mean.

Which slots a goal needs, may have and has not follows from its sentence in ``sentences.yaml``.
"""

import re
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.resources import files
from typing import Any

import yaml

from intent.messages import Language

Slots = Mapping[str, str | None]
"""A goal of the wire schema, and ``amount``."""

VARIES_BY = {
    "relative": "change",
    "exception": "change",
    "precision": "rule",
    "placement": "rule",
    "reconfig": "rule",
}
"""Goal type to the slot that picks its sentence."""

_CHOICES = ("subject", "stat", "comparison", "precision")
_PART = re.compile(r"\[([^\]]*)\]|\{(\w+)\}")
_SLOT = re.compile(r"\{(\w+)\}")


@cache
def _wording(language: Language) -> Mapping[str, Any]:
    loaded = yaml.safe_load(files(__package__).joinpath("sentences.yaml").read_text(encoding="utf-8"))
    wording: Mapping[str, Any] = loaded[language]
    return wording


def join(sentences: Iterable[str], language: Language) -> str:
    """One text of several wishes."""
    return str(_wording(language)["join"]).join(sentences)


def sentences(language: Language) -> Mapping[str, str]:
    """Every sentence, its slots open, by type or ``type.variant``."""
    found: Mapping[str, str] = _wording(language)["goals"]
    return found


def template(slots: Slots, language: Language) -> str | None:
    """The sentence of such a goal, its slots open; None if there is no such goal."""
    kind = slots["type"]
    variant = slots[VARIES_BY[kind]] if kind in VARIES_BY else None
    if kind == "objective" and slots["comparison"] in {"minimize", "maximize"}:
        variant = slots["comparison"]
    if kind == "priority" and slots["lower"] is None:
        variant = "first"
    return sentences(language).get(f"{kind}.{variant}" if variant else str(kind))


def needed(sentence: str) -> set[str]:
    """The slots a sentence cannot do without."""
    return set(_SLOT.findall(re.sub(r"\[[^\]]*\]", "", sentence)))


def possible(sentence: str) -> set[str]:
    """The slots a sentence has."""
    return set(_SLOT.findall(sentence))


def fill(sentence: str, slots: Slots, language: Language) -> str:
    """The sentence with its slots filled, parts left out whose slot was not said."""
    words = {name: _said(name, value, language) for name, value in slots.items() if value is not None}
    words["direction"] = _wording(language)["direction"].get(slots["comparison"], "")

    def put(match: re.Match[str]) -> str:
        part, slot = match.groups()
        if slot is not None:
            return words[slot]
        filled = all(words.get(name) for name in _SLOT.findall(part))
        return _SLOT.sub(lambda inner: words[inner[1]], part) if filled else ""

    return _PART.sub(put, sentence).strip()


def _said(slot: str, value: str, language: Language) -> str:
    """The word for a choice; what was copied from the text stays as it stands there."""
    choices = _wording(language)[slot] if slot in _CHOICES else {}
    return str(choices.get(value, value))
