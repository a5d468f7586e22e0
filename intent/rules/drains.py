"""Orders to empty a device or node: no goal, but a command. Pure."""

import re

from intent.models import Catalogue
from intent.rules.clauses import Clause
from intent.rules.kinds import Kind
from intent.rules.lexicon import pattern
from intent.rules.phrasing import tokenize

_BY = re.compile(r"\bby\b(?=[^,.;]*\d)", re.IGNORECASE)
_HOURS = re.compile(r"\d.{0,4}(?:-|–|to|and|until|till|到|至).{0,3}\d")


def empties(text: str, clause: Clause) -> bool:
    """Whether a clause empties a device; with hours, from one to another, that is a rule of these hours."""
    windows = clause.covered_by(Kind.WINDOW)
    lasting = any(isinstance(token.value, str) or _HOURS.search(text[token.start : token.end]) for token in windows)
    words = text[clause.start : max(token.end for token in (*clause.tokens, *clause.plain))].lower()
    return not lasting and pattern("draining").search(words) is not None


def command(text: str, catalogue: Catalogue, act: str) -> str:
    """What to type for it, for each device or node that the text names.

    A time of another day is left to the person.
    """
    tokens = tokenize(_BY.sub("before", text), catalogue)
    named = {f"node:{name}" for name in catalogue.nodes}
    places = (str(token.value) if token.kind is Kind.SELECTOR else f"node:{token.value}" for token in tokens)
    names = dict.fromkeys(place.partition(":")[2] for place in places if place in named or place.startswith("gpu:"))
    times = [getattr(token.value, "end", "24:00") for token in tokens if token.kind is Kind.WINDOW]
    by = f" --by {times[0]}" if times and times[0] != "24:00" and act == "drain" else ""
    return ", ".join(f"`intentctl {act} {name}{by}`" for name in names or ["ID"])
