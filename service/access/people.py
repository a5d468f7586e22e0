"""Two people are two: whether a promise or a switch is the doing of one person alone. Pure."""

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

from service.documents.access import TRANSLATOR

SYSTEM = frozenset({None, "the controller", "policy", "the service", "the door", TRANSLATOR, "recovery", "anybody"})
"""Names in the audit behind which there is no person."""
RESERVED = SYSTEM | {"this machine", "first start", "nobody"}
"""Names that no key and no person may be given."""


@dataclass(frozen=True, slots=True)
class IntentAuthors:
    """The words that a promise or a plan is about: one version of an intent, and the people behind it."""

    intent_id: str
    said_by: str | None
    """Who said this version, or amended an earlier one to it; None: nobody knows."""
    activated_by: str | None = None
    """Who activated this version, while it is active."""


@dataclass(frozen=True, slots=True)
class Actors:
    """Who did what for a promise or a switch; None: nobody did."""

    words: Sequence[IntentAuthors]
    """Of each intent that is served."""
    planned_by: str | None = None
    approved_by: str | None = None
    applied_by: str | None = None


def lacks_another(by: str, acted: Actors, *, is_within: bool) -> str:
    """Why somebody else has to act first, in words; empty: nobody has to.

    Where ``approval.by`` is ``another``, two people have acted on each intent in the version at hand: earlier versions were other
    words. An activation counts ``is_within`` what the policy lets the controller do; beyond it, a plan needs a yes of its own.
    """
    for words in acted.words if by == "another" else ():
        acts = {
            f"said {words.intent_id}": words.said_by,
            "activated it": words.activated_by if is_within else None,
            "had it planned": acted.planned_by,
            "approved the plan": acted.approved_by,
            "applied the plan": acted.applied_by,
        }
        people = set(acts.values()) - SYSTEM
        if len(people) < 2:
            who = next(iter(people), "somebody unknown")
            alone = ", ".join(act for act, person in acts.items() if person == who)
            return f"only {who} would have acted ({alone}); another person has to (approval.by: another)"
    return ""


def folded(name: str) -> str:
    """A name as names are compared: without case, width and spaces that the eye does not tell apart."""
    return " ".join(unicodedata.normalize("NFKC", name).casefold().split())
