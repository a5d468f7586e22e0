"""Errors of the runtime.

RuntimeFault
    TopologyError            a topology that cannot be read or bound to the inventory
    UnsupportedModelError    a checkpoint whose architecture or files cannot be served
    CheckpointError          a checkpoint folder that is missing or broken
    RequestError             a request that can never be served (too long, bad parameter)
    OverloadedError          no room now; try again
    EngineStartError         an engine that cannot start (a library missing or of another version, an option refused)
    EngineLostError          the engine ended; running requests are lost
    StreamError              a stream that broke after its request was accepted
    JournalError             the journal of a switch cannot be written
    SwitchError              a switch that was refused or given up; carries its reason
"""

from enum import StrEnum


class Reason(StrEnum):
    """Why a switch or a request ended otherwise than asked; shown verbatim."""

    RANK_LOST = "rank_lost"
    ENGINE_LOST = "engine_lost"
    NO_MEMORY = "no_memory"
    NOT_CONVERGED = "not_converged"
    DEADLINE = "deadline"
    UNSUPPORTED = "unsupported"
    CANCELLED = "cancelled"
    LOAD_FAILED = "load_failed"
    BUSY = "busy"
    JOURNAL_FAILED = "journal_failed"


class RuntimeFault(Exception):  # noqa: N818 - the tree's root, never raised itself
    """Root of the tree; every message says what was wrong, where and what to do."""

    device: int | None = None
    """The device that is to blame, where one is."""
    is_broken: bool = False
    """Its own driver says that this device is broken."""


class TopologyError(RuntimeFault):
    """A topology that cannot be read or bound to the inventory."""


class UnsupportedModelError(RuntimeFault):
    """A checkpoint whose architecture or files cannot be served."""


class CheckpointError(RuntimeFault):
    """A checkpoint folder that is missing or broken."""


OVER_CONTEXT = "this model's maximum context length is"
"""How a refusal begins of more tokens than the model has places for: gateways look for these words."""


class RequestError(RuntimeFault):
    """A request that can never be served."""


class OverloadedError(RuntimeFault):
    """No room now; the same request may go through later."""


class EngineStartError(RuntimeFault):
    """An engine that cannot start: a library is missing or of another version, or it refuses an option."""


class EngineLostError(RuntimeFault):
    """The engine ended; its running requests are lost."""


class StreamError(RuntimeFault):
    """A stream that broke after its request was accepted; what was delivered before stays right."""


class JournalError(RuntimeFault):
    """The journal of a switch cannot be written."""


class SwitchError(RuntimeFault):
    """A switch that was refused or given up before it committed."""

    def __init__(self, reason: Reason, detail: str) -> None:
        super().__init__(f"{reason.value}: {detail}")
        self.reason = reason
        self.detail = detail

    def __reduce__(self) -> "tuple[type[SwitchError], tuple[Reason, str]]":
        """Errors cross process boundaries; the message alone would not rebuild this one."""
        return SwitchError, (self.reason, self.detail)
