"""The service as the command line sees it: an ``Api`` over HTTP, with the standard library alone."""

import contextlib
import http.client
import inspect
import json
import re
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from typing import IO, TYPE_CHECKING, Concatenate, ParamSpec, TypeVar
from urllib.parse import quote, urlencode

from pydantic import BaseModel, JsonValue, TypeAdapter, ValidationError

from intentctl.credentials import served_here
from intentctl.status import failure
from service import documents as docs
from service.api.operation import OPERATIONS
from service.documents.errors import ServiceError

if TYPE_CHECKING:
    from service.api.context import Context

P = ParamSpec("P")
T = TypeVar("T")
ASKING_S = 330.0
"""For what may ask the LLM that translates: `llm.timeout_s` of a deployment is 300 s at most."""
_SLOT = re.compile(r"{(\w+)(?::path)?}")


class Client:
    """A running service."""

    serves = True

    def __init__(self, url: str, key: str | None = None, timeout_s: float = 60.0) -> None:
        """``key`` goes with every request, to this service alone."""
        if not url.startswith(("http://", "https://")):
            raise failure("error", f"--server {url!r}: is no http:// or https:// address")
        self.url = url.rstrip("/")
        self._timeout_s = timeout_s
        self.key = key or "none"
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}
        self.address: Callable[[], str] = str
        """Tells for whom it is asked, where that is somebody else: the address of a browser."""
        # no proxy from the environment: the service is nearly always on this machine; and a key follows no redirection
        self._opener = urllib.request.OpenerDirector()
        for handler in (
            urllib.request.HTTPHandler,
            urllib.request.HTTPSHandler,
            urllib.request.HTTPErrorProcessor,
            urllib.request.HTTPDefaultErrorHandler,
        ):
            self._opener.add_handler(handler())

    def reachable(self) -> bool:
        """Whether a service answers at this address."""
        try:
            self.readiness()
        except ServiceError as error:
            return error.code is not docs.Code.UNREACHABLE
        return True

    def __call__(self, function: Callable[Concatenate["Context", P], T], /, *arguments: P.args, **named: P.kwargs) -> T:
        """Carry an operation out; see ``Api``."""
        operation = OPERATIONS[function]
        _, *others = inspect.signature(function).bind(None, *arguments, **named).arguments.items()
        given = dict(others)
        place = _SLOT.sub(lambda slot: quote(str(given.pop(slot[1])), safe=""), operation.path)
        document = next((value for value in given.values() if isinstance(value, BaseModel)), None)
        if operation.method == "GET":
            wanted = given if document is None else document.model_dump(mode="json")
            query = urlencode({name: value for name, value in wanted.items() if value is not None})
            place, document = f"{place}?{query}" if query else place, None
        timeout_s = max(self._timeout_s, ASKING_S) if operation.threads == "asking" else self._timeout_s
        answer: T = self._read(TypeAdapter(operation.answer), operation.method, place, document, timeout_s)
        return answer

    def watch(self) -> Iterator[docs.Event]:
        headers = {**self._sent, "Accept": "text/event-stream"}
        request = urllib.request.Request(f"{self.url}/v1/events", headers=headers)  # noqa: S310 - scheme checked above
        return _until_the_end(self._open(request, None))

    def readiness(self) -> docs.Readiness:
        """Each model's state.

        Raises:
            ServiceError: no model can serve, or no service answers.
        """
        return self._read(TypeAdapter(docs.Readiness), "GET", "/readyz")

    @property
    def _sent(self) -> dict[str, str]:
        """Headers of each request."""
        address = self.address()
        return self._headers | ({"X-Forwarded-For": address} if address else {})

    def _read(
        self,
        answer: TypeAdapter[T],
        method: str,
        path: str,
        body: BaseModel | None = None,
        timeout_s: float | None = None,
    ) -> T:
        """The document that answers a request."""
        try:
            return answer.validate_json(self._call(method, path, body, timeout_s or self._timeout_s))
        except ValidationError as error:
            raise self._no_service(error) from None

    def _call(self, method: str, path: str, body: BaseModel | None, timeout_s: float) -> bytes:
        data = None if body is None else json.dumps(body.model_dump(exclude_unset=True)).encode()
        headers = self._sent | ({"Content-Type": "application/json"} if body is not None else {})
        request = urllib.request.Request(self.url + path, data, headers, method=method)  # noqa: S310 - scheme checked above
        with self._open(request, timeout_s) as response:
            return response.read()

    def _open(self, request: urllib.request.Request, timeout_s: float | None) -> IO[bytes]:
        try:
            response: IO[bytes] = self._opener.open(request, timeout=timeout_s)
        except urllib.error.HTTPError as error:
            raise self._refused(error) from None
        except TimeoutError:
            raise ServiceError(docs.Code.TIMED_OUT, f"{self.url} did not answer within {timeout_s} s") from None
        except (OSError, ValueError) as error:
            reason = getattr(error, "reason", error)
            raise ServiceError(
                docs.Code.UNREACHABLE,
                f"no service answers at {self.url} ({reason}); start one: intentctl serve",
            ) from None
        return response

    def _refused(self, error: urllib.error.HTTPError) -> ServiceError:
        try:
            problem = docs.Problem.model_validate_json(error.read())
            if problem.code is docs.Code.UNAUTHENTICATED:
                how = "to intentctl: --key-file FILE, INTENTCTL_KEY_FILE or INTENTCTL_KEY"
                if (theirs := served_here()) not in {"", self.url}:
                    how += f"; admin.key of this machine goes to --server {theirs} alone, by that name"
                problem = problem.model_copy(update={"detail": f"{problem.detail}; {how}"})
            return ServiceError.answered(problem)
        except ValidationError:
            return self._no_service(f"{error.code} {error.reason}")

    def _no_service(self, found: object) -> ServiceError:
        reason = found.errors()[0]["msg"] if isinstance(found, ValidationError) else found
        message = f"{self.url} answers, but not as an intentctl service of this version ({reason}); check --server"
        return ServiceError(docs.Code.INTERNAL, message)


def _until_the_end(response: IO[bytes]) -> Iterator[docs.Event]:
    with (
        response,
        contextlib.suppress(OSError, http.client.HTTPException),  # a service that was killed ends it so
    ):
        yield from _server_sent_events(response)


def _server_sent_events(lines: IO[bytes]) -> Iterator[docs.Event]:
    event: dict[str, JsonValue] = {}
    for raw in lines:
        field, _, value = raw.decode().rstrip("\r\n").partition(": ")
        if field in {"event", "id"}:
            event[field] = value
        elif field == "data":
            event["data"] = json.loads(value)
        elif not field and "data" in event:
            yield docs.Event.model_validate(event)
            event = {}
