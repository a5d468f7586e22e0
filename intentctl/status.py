"""Exit codes of ``intentctl``: part of its interface, never renumbered."""

from collections.abc import Mapping
from enum import IntEnum


class Exit(IntEnum):
    """What a shell script may rely on."""

    OK = 0
    """Done, or nothing to change."""
    ERROR = 1
    """Something went wrong; the message says what."""
    USAGE = 2
    """The command line could not be understood."""
    CHANGES_PENDING = 3
    """``plan --detailed-exitcode``: the plan changes something."""
    CLARIFY = 4
    """The text needs an answer to a question first."""
    REJECTED = 5
    """The text is in conflict with itself or the limits, infeasible, or out of scope."""
    NOT_APPROVED = 6
    """Nobody said yes, or the policy says no."""
    UNREACHABLE = 7
    """No service answers."""
    FORBIDDEN = 9
    """The service knows no such key, or the key does not allow it."""
    TIMED_OUT = 8
    """It did not end in time; it may still go on."""


EXIT_OF_CODE: Mapping[str, Exit] = {
    "clarify": Exit.CLARIFY,
    "conflict": Exit.REJECTED,
    "infeasible": Exit.REJECTED,
    "out_of_scope": Exit.REJECTED,
    "too_large": Exit.REJECTED,
    "no_change": Exit.OK,
    "not_approved": Exit.NOT_APPROVED,
    "unauthenticated": Exit.FORBIDDEN,
    "forbidden": Exit.FORBIDDEN,
    "finding_not_acknowledged": Exit.NOT_APPROVED,
    "outside_window": Exit.NOT_APPROVED,
    "reconfiguration_limited": Exit.NOT_APPROVED,
    "not_a_promise": Exit.REJECTED,
    "unreachable": Exit.UNREACHABLE,
    "stopping": Exit.UNREACHABLE,
    "timed_out": Exit.TIMED_OUT,
}
"""Problem code (or intent outcome) to exit code; every other one is ``ERROR``."""


class CommandError(Exception):
    """Something that the command line itself finds wrong: one message, and an exit code."""

    def __init__(self, detail: str, exit_code: Exit) -> None:
        super().__init__(detail)
        self.exit = exit_code


def failure(code: str, detail: str) -> CommandError:
    """An error of the command line, with the exit code of a problem."""
    return CommandError(detail, EXIT_OF_CODE.get(code, Exit.ERROR))
