"""Wishes to outlive lost devices or nodes, and replicas for each node.

Whole phrases, read as one setting. Pure.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import takewhile

from intent.fold import fold, overlaps
from intent.models import PER_NODE
from intent.rules.kinds import Kind
from intent.rules.quantities import Quantity
from intent.rules.tokens import TextToken
from intent.tables import table


def with_losses(text: str, tokens: Sequence[TextToken]) -> list[TextToken]:
    """The tokens with each phrase of the table as a setting and its number.

    ``survive the loss of one GPU`` is about no number of GPUs. One that is denied, asked or told stays a word of its own.
    """
    folded = fold(text)
    kept = list(tokens)
    for key, pattern in _phrases().items():
        for match in pattern.finditer(folded.text):
            start, end = folded.span(*match.span())
            inside = [token for token in kept if overlaps((token.start, token.end), (start, end))]
            if not inside or any(token.value in _phrases() for token in inside):
                continue
            count = next((token.value for token in inside if token.kind is Kind.NUMBER and token.value >= 1), 1.0)
            phrase = [TextToken(Kind.SETTING, key, start, end), TextToken(Kind.QUANTITY, Quantity(count), end - 1, end)]
            before = _pattern("denied").search(folded.text[: match.start()])
            if before or _pattern("asked").search(folded.text[match.end() :]):
                phrase = [TextToken(Kind.LIMITING, "redundancy", start, end)]
            kept = [*(token for token in kept if token not in inside), *phrase]
    return _per_node(text, sorted(kept, key=lambda token: token.start))


def _per_node(text: str, tokens: list[TextToken]) -> list[TextToken]:
    """What each of the nodes has: ``one llama replica per box``, 每台机器一个副本."""
    folded = fold(text)
    for match in _pattern("nodes").finditer(folded.text):
        start, end = folded.span(*match.span())
        before = [token for token in tokens if token.end <= start]
        behind = [token for token in tokens if token.start >= end]
        beside = [*takewhile(_goes_on, reversed(before)), *takewhile(_goes_on, behind)]
        head = next((token for token in beside if token.value == "replicas"), None)
        counts = [
            token.kind for token in (*before[-1:], *behind[:1]) if all(word.kind is not Kind.COUNTED for word in beside)
        ]
        if head is not None or (Kind.NUMBER in counts and _pattern("nouns").search(folded.text)):
            phrase = TextToken(Kind.THING if head else Kind.SETTING, PER_NODE, start, end)
            around = [replace(token, value=PER_NODE) if token is head else token for token in (*before, *behind)]
            tokens = sorted([*around, phrase], key=lambda token: token.start)
    return tokens


def _goes_on(token: TextToken) -> bool:
    return token.kind not in {Kind.JOIN, Kind.STOP}


@cache
def _phrases() -> Mapping[str, re.Pattern[str]]:
    """What may be lost to the phrases that say so.

    Nodes first: where nothing is named, it is a device.
    """
    parts = table(__package__, "losses")
    found = {}
    for key, thing in parts["things"].items():
        words = "|".join([*parts["patterns"], *(parts["any"] if key == "lost_devices" else ())])
        for name, part in (*reversed(parts["parts"].items()), ("thing", thing)):
            words = words.replace(f"<{name}>", part)
        found[key] = re.compile(words, re.ASCII)
    return found


@cache
def _pattern(name: str) -> re.Pattern[str]:
    return re.compile("|".join(table(__package__, "losses")[name]), re.ASCII)
