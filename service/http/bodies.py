"""Routes with bounds: the right a caller needs, and how deep or wide JSON may be.

So that checking a body does not take long.

Bulky bodies are checked in threads, beside each other, which take a bounded share of a core.
"""

import asyncio
import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

from fastapi import HTTPException, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute

from service.documents.access import CALLER, Caller, Right, lacking
from service.http.logs import REQUEST_ID

MAX_DEPTH = 64
MAX_VALUES = 20_000
"""Names and values of objects and lists. Numbers in lists are not counted: token ids, which are cheap."""
BULKY_MARKS = 1_000
BULKY_BYTES = 500_000
"""Beyond so many marks, or bytes, checking may take milliseconds: in a thread, while others stream."""
MARKS = b",[{"
"""A body has no more values than these and one. Each takes a microsecond or more; texts and blanks a nanosecond a byte."""
NUM_THREADS = 2
"""Threads that check bulky bodies."""
REST = 3.0
"""How long each of them rests after a check, in times of the CPU time that it took: together they take half of a core at
most, whatever comes."""

T = TypeVar("T")
Validate = Callable[[object], tuple[object, list[dict[str, object]]]]
"""What a document is to its route, and what is wrong with it."""


_POOL = ThreadPoolExecutor(NUM_THREADS, thread_name_prefix="body")
_RESTING = threading.local()
"""Each thread's: until when, as ``time.monotonic``."""


def _after_rest(work: Callable[[], T]) -> T:
    """The result of some work, done after the rest that the work before it takes."""
    time.sleep(max(0.0, getattr(_RESTING, "until_s", 0.0) - time.monotonic()))
    begun_s = time.thread_time()
    try:
        return work()
    finally:
        _RESTING.until_s = time.monotonic() + REST * (time.thread_time() - begun_s)


class _InvalidError(HTTPException):
    """What is wrong with a document; an ``HTTPException``, which is what FastAPI lets through."""

    def __init__(self, errors: list[dict[str, object]]) -> None:
        super().__init__(422)
        self.errors = errors


class _Bounded(Request):
    validate: Validate | None = None

    async def json(self) -> object:
        """The document, as FastAPI asks for it; a bulky one as what it is to its route.

        Raises:
            json.JSONDecodeError: it is none.
            HTTPException: it is not text, or too deep or too wide, or not what the route asks for.
        """
        if not hasattr(self, "_json"):
            body = await self.body()
            if not is_bulky(body):
                self._json = _read(body)
            else:
                loop = asyncio.get_running_loop()
                self._json = await loop.run_in_executor(_POOL, _after_rest, partial(_read, body, self.validate))
        return self._json


def is_bulky(body: bytes) -> bool:
    """Whether a body may take milliseconds to check; a long text, or blanks, do not."""
    return len(body) > BULKY_BYTES or sum(map(body.count, MARKS)) > BULKY_MARKS


def _read(body: bytes, validate: Validate | None = None) -> object:
    try:
        document: object = json.loads(body)
    except UnicodeDecodeError as problem:
        raise HTTPException(400, f"the body is not UTF-8: {problem}; send JSON") from problem
    except RecursionError as problem:
        raise HTTPException(400, _TOO_DEEP) from problem
    refuse_outlandish(document)
    if validate is None:
        return document
    value, errors = validate(document)  # FastAPI takes what is valid already as it is
    if errors:
        raise _InvalidError(errors)
    return value


RIGHT = "x-right"
"""Under this name a route says in the OpenAPI document which right it needs."""


def needs(right: Right) -> dict[str, str]:
    """What a route says of the right that it needs, as its ``openapi_extra``."""
    return {RIGHT: right.value}


def caller_of(request: Request) -> Caller:
    """Who sends a request."""
    caller = request.scope.get("state", {}).get(CALLER)
    if caller is None:
        raise HTTPException(401, "nobody is known to send this request")
    found: Caller = caller
    return found


class BoundedRoute(APIRoute):
    """A route for those who have the right to it, whose body stays within bounds.

    Every answer has the request's id.
    """

    @property
    def right(self) -> Right | None:
        """The right that it needs; None: anybody may ask."""
        right = (self.openapi_extra or {}).get(RIGHT)
        return Right(right) if right else None

    def get_route_handler(self) -> Callable[[Request], Coroutine[None, None, Response]]:
        """FastAPI's, told to look at the caller first and to read JSON through the bounds."""
        handle = super().get_route_handler()
        right = self.right
        field = self.body_field

        async def bounded(request: Request) -> Response:
            if right is None:
                return await handle(request)
            caller = caller_of(request)
            REQUEST_ID.set(caller.request_id)
            refuse_without(right, caller)
            whole = _Bounded(request.scope, request.receive)
            whole.validate = partial(field.validate, loc=("body",)) if field else None
            try:
                response = await handle(whole)
            except _InvalidError as invalid:
                raise RequestValidationError(invalid.errors) from None
            response.headers["x-request-id"] = caller.request_id
            return response

        return bounded


def refuse_without(right: Right, caller: Caller) -> None:
    """Refuse what a caller may not do.

    Raises:
        HTTPException: naming the roles that may.
    """
    if why := lacking(right, caller.name, caller.role):
        raise HTTPException(403, why)


Branch = dict[str, object] | list[object]

_TOO_DEEP = f"the body is nested more than {MAX_DEPTH} levels deep; send a flatter one"


def refuse_outlandish(document: object) -> None:
    """Refuse JSON that is nested too deep or has too many values.

    Raises:
        HTTPException: saying which.
    """
    level = _branches([document])
    num_values = 0
    for _ in range(MAX_DEPTH):
        inner = list[Branch]()
        for item in level:
            values = item.values() if isinstance(item, dict) else item
            kinds = Counter(map(type, values))
            num_values += len(item) - (kinds[int] if isinstance(item, list) else 0)
            if kinds[dict] or kinds[list]:
                inner += _branches(values)
        if num_values > MAX_VALUES:
            raise HTTPException(400, f"the body has more than {MAX_VALUES} values; send fewer")
        if not inner:
            return
        level = inner
    raise HTTPException(400, _TOO_DEEP)


def _branches(values: Iterable[object]) -> list[Branch]:
    return [value for value in values if isinstance(value, dict | list)]
