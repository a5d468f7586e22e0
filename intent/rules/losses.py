"""Wishes to outlive lost devices or nodes, and replicas for each node: whole phrases, read as one setting. Pure."""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache

from intent.fold import Place, fold, overlaps
from intent.rules.kinds import Kind
from intent.rules.quantities import Quantity
from intent.rules.tokens import TextToken
from intent.tables import table

PER_NODE = "replicas_per_node"
_ENDS = frozenset({Kind.JOIN, Kind.STOP})
_COUNTS = frozenset({Kind.NUMBER, Kind.QUANTITY})
_NOUNS = re.compile(r"\b(?:replicas?|cop(?:y|ies)|instances?)\b|副本|实例")


def with_losses(text: str, tokens: Sequence[TextToken]) -> list[TextToken]:
    """The tokens with each phrase of the table as a setting and its number.

    ``survive the loss of one GPU`` is about no number of GPUs. One that is denied, asked or told stays a word of its own.
    """
    kept = list(tokens)
    for key, place, is_wished in _phrases(text):
        inside = [token for token in kept if overlaps((token.start, token.end), place)]
        numbers = [token.value for token in inside if token.kind is Kind.NUMBER]
        if not inside or any(token.value in _patterns() for token in inside):
            continue
        count = Quantity(float(next((number for number in numbers if number >= 1), 1.0)))
        setting = TextToken(Kind.SETTING, key, *place)
        amount = TextToken(Kind.QUANTITY, count, place[1] - 1, place[1])
        phrase = [setting, amount] if is_wished else [TextToken(Kind.LIMITING, "redundancy", *place)]
        first = kept.index(inside[0])
        kept[first : first + len(inside)] = phrase
    return _per_node(text, kept)


def _phrases(text: str) -> Iterator[tuple[str, Place, bool]]:
    """What may be lost, where that is said, and whether it is a wish."""
    folded = fold(text)
    for key, pattern in _patterns().items():
        for match in pattern.finditer(folded.text):
            denied = _guard("denied").search(folded.text[: match.start()])
            asked = _guard("asked").search(folded.text[match.end() :])
            yield key, folded.span(*match.span()), not (denied or asked)


def _per_node(text: str, tokens: list[TextToken]) -> list[TextToken]:
    """``one llama replica per box``, 每台机器一个副本: replicas that each of the nodes has; one, where no number is said."""
    folded = fold(text)
    kept = list(tokens)
    for match in _guard("nodes").finditer(folded.text):
        place = folded.span(*match.span())
        inside = [n for n, token in enumerate(kept) if overlaps((token.start, token.end), place)]
        if not inside or any(kept[n].value == PER_NODE for n in inside):
            continue
        first = inside[0]
        start = next((n + 1 for n in range(first - 1, -1, -1) if kept[n].kind in _ENDS), 0)
        end = next((n for n in range(inside[-1] + 1, len(kept)) if kept[n].kind in _ENDS), len(kept))
        clause = kept[start:first] + kept[inside[-1] + 1 : end]
        head = next((token for token in clause if token.value == "replicas"), None)
        counted = any(token.kind in _COUNTS for token in clause)
        if head is None and not (counted and _NOUNS.search(folded.text)):
            continue
        phrase = [TextToken(Kind.THING if head else Kind.SETTING, PER_NODE, *place)]
        if not counted:
            phrase.append(TextToken(Kind.QUANTITY, Quantity(1.0), place[1] - 1, place[1]))
        after = [_of_node(token) if token is head else token for token in kept[inside[-1] + 1 :]]
        kept = [*(_of_node(token) if token is head else token for token in kept[:first]), *phrase, *after]
    return kept


def _of_node(head: TextToken) -> TextToken:
    return TextToken(head.kind, PER_NODE, head.start, head.end, head.misspelt)


@cache
def _patterns() -> Mapping[str, re.Pattern[str]]:
    """What may be lost to the phrases that say so; nodes first, as a device is what is lost where nothing is named."""
    found = {}
    for key, thing in _table()["things"].items():
        words = [*_table()["patterns"], *(_table()["any"] if key == "lost_devices" else ())]
        for name, part in (*reversed(_table()["parts"].items()), ("thing", thing)):
            words = [word.replace(f"<{name}>", part) for word in words]
        found[key] = re.compile("|".join(words), re.ASCII)
    return found


@cache
def _guard(name: str) -> re.Pattern[str]:
    return re.compile("|".join(_table()[name]), re.ASCII)


def _table() -> Mapping[str, dict[str, str] | list[str]]:
    found: Mapping[str, dict[str, str] | list[str]] = table(__package__, "losses")
    return found
