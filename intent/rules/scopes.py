"""For whom and when: windows, tenants and models as they were said, to the names a goal holds."""

from typing import Literal

from rapidfuzz import fuzz

from intent.models import Window
from intent.readback.clauses import Words
from intent.rules.draft import Draft
from intent.rules.kinds import EVERYONE
from intent.rules.tokens import Token
from intent.times.spans import REST, rest_of


def window(draft: Draft, said: Token | None) -> Window | None:
    """The window of a goal, ``always`` assumed; None if nobody defined it and it was asked about."""
    if said is None:
        draft.assume("window", "assumed_window")
        return "always"
    if not isinstance(said.value, str):
        defined: Window = said.value
        return defined
    if said.value == REST and (rest := draft.rest.get(said.start) or _rest(draft)):
        return draft.rest.setdefault(said.start, rest)
    if said.value == REST:
        draft.ask(
            "ambiguous_time",
            said,
            draft.say("ambiguous_time", said=draft.quoted(said)),
            [draft.instead(said, Words(draft.language).window(name)) for name in ("off_peak", "overnight")],
        )
        return None
    if said.value == "always" or said.value in draft.catalogue.windows:
        return said.value
    known = [name for name in draft.catalogue.windows if name != "always"]
    words = draft.say("unknown_window", said=draft.quoted(said), known=", ".join(known) or "-")
    spoken = [Words(draft.language).window(name) for name in ("always", *known)]
    draft.ask("unknown_window", said, words, [draft.instead(said, one) for one in spoken])
    return None


def _rest(draft: Draft) -> Window | None:
    before = {id(one) for one in draft.rest.values()}
    return rest_of([goal.window for goal in draft.goals if id(goal.window) not in before])


def tenant(draft: Draft, said: Token | None) -> str | Literal[False] | None:
    """A tenant's name, None for everybody, False if nobody has the name and it was asked about."""
    if said is None or said.value == EVERYONE:
        return None
    if said.value is not None:
        return str(said.value)
    known = draft.catalogue.tenants
    words = draft.say("unknown_tenant", said=draft.quoted(said), known=", ".join(known) or "-")
    draft.ask(
        "unknown_tenant",
        said,
        words,
        [*(draft.instead(said, one) for one in _nearest(draft.said(said), known)), draft.say("nothing")],
    )
    return False


def _nearest(said: str, known: tuple[str, ...]) -> list[str]:
    return sorted(known, key=lambda name: -fuzz.ratio(said.lower(), name.lower()))[:3]


def model(draft: Draft, said: Token | None) -> str | Literal[False] | None:
    """A model's name, None for all, False if none has the name and it was asked about."""
    if said is None or said.value is not None:
        return said.value if said else None
    known = draft.catalogue.models
    words = draft.say("unknown_model", said=draft.quoted(said), known=", ".join(known) or "-")
    draft.ask(
        "unknown_model",
        said,
        words,
        [*(draft.instead(said, name) for name in known[:3]), draft.say("nothing")],
    )
    return False
