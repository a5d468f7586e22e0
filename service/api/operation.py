"""How a function becomes an operation: ``@get`` and ``@post``. No FastAPI, no engine."""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Concatenate, Literal, ParamSpec, Protocol, TypeVar

from service.documents.access import Right
from service.documents.problems import Code

if TYPE_CHECKING:
    from service.api.context import Context

P = ParamSpec("P")
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
F = TypeVar("F", bound=Callable[..., object])
Location = Callable[[Any], str | None]

Threads = Literal["asking", "planning", "cancelling"]
"""Those that wait long have threads of their own (``http.Threads``): for what may ask the LLM that translates, for what waits for
the process that plans, and for what must work whatever else is slow."""

READING = (Code.INVALID_REQUEST, Code.STORE)
SAYING = (*READING, Code.OVERLOADED)
WISHING = (*SAYING, Code.NOT_FOUND, Code.CLARIFY, Code.CONFLICT, Code.INFEASIBLE, Code.OUT_OF_SCOPE)


@dataclass(frozen=True, slots=True)
class Operation:
    """How a function is reached over HTTP."""

    function: Callable[..., object]
    method: Literal["GET", "POST"]
    path: str
    """Braces hold arguments; ``{name:path}`` may hold slashes."""
    right: Right
    """What a caller needs."""
    problems: Sequence[Code]
    """It may answer with these, beside those of every operation."""
    threads: Threads | None = None
    status: int = 200
    location: Location | None = None
    """From its answer to the place of what it made or began."""
    asks: str = ""
    """When it answers 200 instead, because a question comes first: for who reads the OpenAPI document."""
    is_secret: bool = False
    """Its answer is not kept for an ``Idempotency-Key``."""

    @property
    def tag(self) -> str:
        """The heading that it stands under: its module."""
        return self.function.__module__.rpartition(".")[2]

    @property
    def parameters(self) -> list[inspect.Parameter]:
        """All but the context."""
        _, *found = inspect.signature(self.function).parameters.values()
        return found

    @property
    def answer(self) -> type:
        """The type of what it gives."""
        found: type = inspect.signature(self.function).return_annotation
        return found


OPERATIONS: dict[Callable[..., object], Operation] = {}
"""Each by its function, as the modules beside this one are imported."""


def get(path: str, right: Right, *problems: Code, threads: Threads | None = None) -> Callable[[F], F]:
    """Declare what changes nothing: a document it takes is the query."""

    def declare(function: F) -> F:
        OPERATIONS[function] = Operation(function, "GET", path, right, problems, threads)
        return function

    return declare


def post(
    path: str,
    right: Right,
    *problems: Code,
    threads: Threads | None = None,
    status: int = 200,
    location: Location | None = None,
    asks: str = "",
    is_secret: bool = False,
) -> Callable[[F], F]:
    """Declare what may change something: the document it takes is the body. See ``Operation``."""

    def declare(function: F) -> F:
        OPERATIONS[function] = Operation(
            function, "POST", path, right, problems, threads, status, location, asks, is_secret
        )
        return function

    return declare


class Api(Protocol):
    """Something that carries operations out: a service over HTTP, or this process from a deployment file."""

    serves: bool
    """Whether a service is behind it: what is said is kept, and plans can be applied."""

    def __call__(self, function: Callable[Concatenate["Context", P], T], /, *arguments: P.args, **named: P.kwargs) -> T:
        """Carry an operation out and wait for its answer.

        Raises:
            ServiceError: it was refused, or nobody answers.
        """
