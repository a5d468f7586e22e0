"""Slash commands: where each leads.

None of them changes anything; what changes is a button on the page it leads to. Pure.
"""

from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import quote, urlencode

from intentctl.arguments import hours_of


@dataclass(frozen=True, slots=True)
class Slash:
    """A command, what may follow it, and what it shows."""

    name: str
    takes: str
    shows: str
    leads: Callable[[str], str]


def _to(path: str) -> Callable[[str], str]:
    return lambda _: path


def _hours(path: str, usual: float) -> Callable[[str], str]:
    def leads(rest: str) -> str:
        return f"{path}?hours={max(0.1, min(hours_of(rest) or usual, 24 * 366)):g}"

    return leads


def _thing(rest: str) -> str:
    """The page of whatever has this id."""
    places = {"plan-": "plans", "op-": "operations", "intent-": "intents"}
    place = next((place for start, place in places.items() if rest.startswith(start)), None)
    return f"/{place}/{quote(rest, safe='')}" if place else "/"


def _asked(rest: str) -> str:
    return f"/explain?{urlencode({'topic': rest})}" if rest else "/explain"


COMMANDS = (
    Slash("help", "", "Commands that can be typed here.", _to("/explain")),
    Slash("status", "", "What runs, and whether the promises are kept.", _to("/")),
    Slash("load", "", "Current load and latency.", _to("/#load")),
    Slash("agenda", "[24h|7d]", "The next 24 hours.", _hours("/agenda", 24)),
    Slash("report", "[24h|7d]", "How often each goal was met.", _hours("/report", 24)),
    Slash("history", "", "Intents, approvals and switches.", _to("/history")),
    Slash("intents", "", "Active and past promises.", _to("/#promises")),
    Slash("get", "ID", "A plan, an operation or an intent.", _thing),
    Slash("approve", "PLAN", "The plan, with its buttons.", _thing),
    Slash("reject", "PLAN", "The plan, with its buttons.", _thing),
    Slash("apply", "PLAN", "The plan, with its buttons.", _thing),
    Slash("cancel", "OPERATION", "The switch, with its buttons.", _thing),
    Slash("undo", "OPERATION", "The switch, with its buttons.", _thing),
    Slash("pause", "", "The controller, with its buttons.", _to("/settings#controller")),
    Slash("resume", "", "The controller, with its buttons.", _to("/settings#controller")),
    Slash("pin", "", "The controller, with its buttons.", _to("/settings#controller")),
    Slash("mode", "", "The controller, with its buttons.", _to("/settings#controller")),
    Slash("audit", "", "Who did what.", _to("/audit")),
    Slash("explain", "[TOPIC]", "Known words, with examples.", _asked),
    Slash("whoami", "", "The current key and its rights.", _to("/settings")),
)


def is_slash(text: str) -> bool:
    """Whether this is a command, and no wish."""
    return text.lstrip().startswith("/")


def destination(text: str) -> str | None:
    """Where a command leads; None: there is none of that name."""
    name, _, rest = text.strip().removeprefix("/").partition(" ")
    return next((slash.leads(rest.strip()) for slash in COMMANDS if slash.name == name.lower()), None)
