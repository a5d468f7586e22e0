"""What arguments mean: the first one may be a command, an option, or the text of an intent. Pure."""

import difflib
import functools
import inspect
import re
from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass
from enum import StrEnum

from intentctl.status import CommandError, Exit

SAY = "say"
"""The command that bare text stands for."""


POLL_S = 0.1
"""Between two looks at a switch."""
SWITCH_TIMEOUT_S = 1200.0
"""How long the command line waits for a switch, longer than one may take unless its deployment says so; it goes on."""
HOURS = {"m": 1 / 60, "h": 1.0, "d": 24.0}
"""Of the units in which spans are typed."""


def hours_of(typed: str) -> float:
    """The hours of a span as 30m, 24h or 7d; 0: it is none."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([mhd])", typed.strip())
    return float(match[1]) * HOURS[match[2]] if match else 0.0


class OutputFormat(StrEnum):
    """Output format."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


class EngineName(StrEnum):
    """An engine with an example of its own."""

    TORCH = "torch"
    VLLM = "vllm"


class RealModel(StrEnum):
    """A real model that the package index has."""

    SMOLLM2 = "smollm2"


def spread(command: Callable[..., None]) -> Callable[..., None]:
    """The command with an option for each field of a parameter that is a dataclass.

    The command gets the object.

    Whatever the dataclass raises for values that do not go together is raised when the command is called.
    """
    own = inspect.signature(command).parameters
    groups = {
        name: kind
        for name, parameter in own.items()
        if isinstance(kind := parameter.annotation, type) and is_dataclass(kind)
    }

    @functools.wraps(command)
    def flat(**typed: object) -> None:
        for name, group in groups.items():
            typed[name] = group(**{field.name: typed.pop(field.name) for field in fields(group)})
        command(**typed)

    options = [
        option.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        for name, parameter in own.items()
        for option in (inspect.signature(groups[name]).parameters.values() if name in groups else [parameter])
    ]
    flat.__signature__ = inspect.Signature(options)  # type: ignore[attr-defined]
    return flat


def route(arguments: Sequence[str], commands: Sequence[str], groups: Sequence[str] = ()) -> list[str]:
    """The arguments with ``say`` put in front where text came instead of a command.

    A command after options comes first.

    ``groups`` are commands that have commands of their own.

    Raises:
        CommandError: the first word is nearly a command's name, or words are one text without quotes.
    """
    if not arguments:
        return ["--help"]
    first = arguments[0]
    commands = [*commands, *groups]
    if first in commands or first in {"--help", "--version"} or first.startswith(("--install-", "--show-")):
        return list(arguments)
    if first.startswith("-") and (command := next((word for word in arguments if word in commands), None)):
        rest = list(arguments)
        words = 2 if command in groups else 1
        place = rest.index(command)
        return rest[place : place + words] + rest[:place] + rest[place + words :]
    if not first.startswith("-") and not first.strip().count(" "):
        from intent.tables import mapping

        if meant := mapping("intentctl", "meant").get(first.strip().lower()):
            raise CommandError(f"{first!r} is no command; did you mean `{meant}`?", Exit.USAGE)
        close = difflib.get_close_matches(first.lower(), commands, n=3, cutoff=0.7)
        if close:
            swapped = [choice for choice in close if sorted(choice) == sorted(first.lower())]
            nearest = (swapped or close)[0]
            raise CommandError(f"{first!r} is no command; did you mean `intentctl {nearest}`?", Exit.USAGE)
    if not any(word.startswith("-") for word in arguments[:2]) and len(arguments) > 1:
        raise CommandError(f'put it in quotes, as one argument: intentctl "{first} {arguments[1]} ..."', Exit.USAGE)
    return [SAY, *arguments]
