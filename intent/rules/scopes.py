"""For whom and when: windows, tenants and models as they were said, to the names a goal holds."""

from typing import Literal

from rapidfuzz import fuzz

from intent.models import Window
from intent.readback.clauses import Words
from intent.rules.draft import Draft
from intent.rules.kinds import EVERYONE
from intent.rules.tokens import TextToken
from intent.times.spans import REST, rest_of


def window(draft: Draft, token: TextToken | None) -> Window | None:
    """The window of a goal, ``always`` assumed; None if nobody defined it and it was asked about."""
    if token is None:
        draft.assume("window", "assumed_window")
        return "always"
    if not isinstance(token.value, str):
        defined: Window = token.value
        return defined
    if token.value == REST and (rest := draft.rest.get(token.start) or _rest(draft)):
        return draft.rest.setdefault(token.start, rest)
    if token.value == REST:
        draft.ask(
            "ambiguous_time",
            token,
            draft.say("ambiguous_time", said=draft.quoted(token)),
            [draft.instead(token, Words(draft.language).window(name)) for name in ("off_peak", "overnight")],
        )
        return None
    if token.value == "always" or token.value in draft.catalogue.windows:
        return token.value
    known = [name for name in draft.catalogue.windows if name != "always"]
    words = draft.say("unknown_window", said=draft.quoted(token), known=", ".join(known) or "-")
    spoken = [Words(draft.language).window(name) for name in ("always", *known)]
    draft.ask("unknown_window", token, words, [draft.instead(token, option) for option in spoken])
    return None


def _rest(draft: Draft) -> Window | None:
    before = {id(window) for window in draft.rest.values()}
    return rest_of([goal.window for goal in draft.goals if id(goal.window) not in before])


def tenant(draft: Draft, token: TextToken | None) -> str | Literal[False] | None:
    """A tenant's name, None for everybody, False if nobody has the name and it was asked about."""
    if token is None or token.value == EVERYONE:
        return None
    if token.value is not None:
        return str(token.value)
    known = draft.catalogue.tenants
    words = draft.say("unknown_tenant", said=draft.quoted(token), known=", ".join(known) or "-")
    draft.ask(
        "unknown_tenant",
        token,
        words,
        [
            *(draft.instead(token, option) for option in _nearest(draft.said(token), known)),
            draft.say("nothing"),
        ],
    )
    return False


def _nearest(text: str, known: tuple[str, ...]) -> list[str]:
    return sorted(known, key=lambda name: -fuzz.ratio(text.lower(), name.lower()))[:3]


def model(draft: Draft, token: TextToken | None) -> str | Literal[False] | None:
    """A model's name, None for all, False if none has the name and it was asked about."""
    if token is None or token.value is not None:
        return token.value if token else None
    known = draft.catalogue.models
    words = draft.say("unknown_model", said=draft.quoted(token), known=", ".join(known) or "-")
    draft.ask(
        "unknown_model",
        token,
        words,
        [*(draft.instead(token, name) for name in known[:3]), draft.say("nothing")],
    )
    return False
