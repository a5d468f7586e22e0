"""What processes of both engines say to each other.

Calls and their answers, tokens, signs of life, and errors by their code.
"""

import asyncio
import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, get_args

import msgspec

from runtime import errors
from runtime.engine import EngineStats, GenerationRequest, Moved, Token
from runtime.errors import Reason, RuntimeFault, SwitchError
from runtime.models import Topology
from runtime.process.channel import FrameError, decode, packed


class WirePart(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Part of a message.

    Of a dataclass msgspec ignores unknown fields: that both ends have the same ones is ``Greeting``'s to say.
    """


class WireMessage(WirePart, frozen=True, tag=True):
    """A message, by the name of its class."""


Answer = TypeVar("Answer")


class Command(WireMessage, Generic[Answer], frozen=True):
    """Something to do, whose answer is of this type."""

    @classmethod
    def answer(cls) -> Any:
        """The type of its answer, which the head of its class has."""
        return get_args(cls.__orig_bases__[0])[0]  # type: ignore[attr-defined]


ERRORS: dict[str, Any] = {
    kind.__name__: kind
    for kind in (
        errors.TopologyError, errors.UnsupportedModelError, errors.CheckpointError, errors.RequestError, errors.OverloadedError,
        errors.EngineStartError, errors.EngineLostError, SwitchError, RuntimeFault,
    )
}  # fmt: skip
"""All errors that travel, by their codes; a ``RuntimeFault`` itself is a bug, most likely."""


class Trouble(WireMessage, frozen=True):
    """An error on its way."""

    code: str
    """One of ``ERRORS``."""
    detail: str
    reason: Reason | None = None
    """Of a switch."""

    @classmethod
    def of(cls, error: BaseException) -> "Trouble":
        """What travels of an error."""
        named = str(error) if isinstance(error, RuntimeFault) else f"{type(error).__name__}: {error}"
        code = next((code for code, kind in ERRORS.items() if isinstance(error, kind)), RuntimeFault.__name__)
        if isinstance(error, SwitchError):
            return cls(code, error.detail, error.reason)
        return cls(code, named)

    def __post_init__(self) -> None:
        """Refuse a code that is none, and a switch without a reason.

        Raises:
            ValueError: it is so.
        """
        if self.code not in ERRORS or (self.reason is None) == (self.code == SwitchError.__name__):
            raise ValueError(f"no error is a {self.code!r} with reason {self.reason}")

    @property
    def error(self) -> RuntimeFault:
        """What to raise where it arrives."""
        return SwitchError(self.reason, self.detail) if self.reason else ERRORS[self.code](self.detail)


Asked = TypeVar("Asked")


class Call(WireMessage, Generic[Asked], frozen=True):
    """A command that is answered by a ``Reply``."""

    call_id: int
    command: Asked


class Reply(WireMessage, frozen=True):
    """The answer to a call; its command says of which type."""

    call_id: int
    value: msgspec.Raw = msgspec.Raw(b"\xc0")  # nothing
    trouble: Trouble | None = None


class Tokens(WireMessage, frozen=True):
    """What one step gave."""

    items: list[Token]


class Fenced(WireMessage, frozen=True):
    """A cut: what comes after it is said under the new epoch."""

    moved: Moved


class Greeting(WireMessage, frozen=True):
    """The first word of a process that was executed: what it has imported, as ``content.CODE``."""

    code: Mapping[str, str]


class Prepared(WireMessage, frozen=True):
    """The driver process has imported what takes long, and waits for its orders."""


class Beat(WireMessage, frozen=True):
    """The driver's loop turns."""

    stalled_s: float = 0.0
    """For how long steps have made no progress, while there are some."""


class Fatal(WireMessage, frozen=True):
    """The driver ends, and why."""

    reason: Reason
    detail: str
    trouble: Trouble | None = None
    device: int | None = None
    is_broken: bool = False
    """As in ``RuntimeFault``."""

    def blaming(self, error: RuntimeFault) -> RuntimeFault:
        """The error, with the device that is to blame."""
        error.device = self.device
        error.is_broken = self.is_broken
        return error


class StoodIn(WireMessage, frozen=True):
    """The driver lost what served, and serves by a topology that stood by."""

    topology: Topology
    why: str


class Submit(Command[None], frozen=True):
    """Queue a request."""

    request: GenerationRequest


class CancelStream(Command[None], frozen=True):
    """End a request early."""

    request_id: str


class Stats(Command[EngineStats], frozen=True):
    """A snapshot of queues, blocks and processes."""


def reply(call_id: int, value: object = None) -> Reply:
    """An answer."""
    return Reply(call_id, packed(value))


@dataclass(frozen=True, slots=True)
class Unanswered:
    """A call without an answer."""

    command: Command[Any]
    done: "asyncio.Future[Any]"
    since_s: float


class Calls:
    """Calls to one process, until it answers or is gone."""

    def __init__(self) -> None:
        self._ids = itertools.count()
        self._open: dict[int, Unanswered] = {}

    def begin(
        self, command: Command[Answer], since_s: float = 0.0
    ) -> tuple[Call[Command[Answer]], "asyncio.Future[Answer]"]:
        """What to send, and the answer to come."""
        call_id = next(self._ids)
        done = asyncio.get_running_loop().create_future()
        self._open[call_id] = Unanswered(command, done, since_s)
        return Call(call_id, command), done

    @property
    def oldest(self) -> Unanswered | None:
        """The one that waits longest."""
        return next(iter(self._open.values()), None)

    def settle(self, reply: Reply) -> None:
        """An answer came.

        Raises:
            FrameError: it is none to any call, or of another type than its command's.
        """
        if (waiting := self._open.get(reply.call_id)) is None:
            raise FrameError("type", f"an answer to call {reply.call_id}, which nobody made")
        value = None if reply.trouble else decode(reply.value, waiting.command.answer())
        del self._open[reply.call_id]
        if waiting.done.done():
            return
        if reply.trouble:
            waiting.done.set_exception(reply.trouble.error)
        else:
            waiting.done.set_result(value)

    def fail(self, error: Exception) -> None:
        """It is gone: whoever waits hears of it."""
        for waiting in self._open.values():
            if not waiting.done.done():
                waiting.done.set_exception(error)
                waiting.done.exception()  # whoever waits hears of it; nobody has to
        self._open.clear()
