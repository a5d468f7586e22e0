"""Routes with bounds: callers need the right that a route names, and JSON may not be so deep or wide that checking takes long."""

import json
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable

from fastapi import HTTPException, Request, Response
from fastapi.routing import APIRoute

from service.access.caller import CALLER, Caller
from service.access.rights import RIGHTS, Right, roles_with
from service.logs import REQUEST_ID

MAX_DEPTH = 64
MAX_VALUES = 20_000
"""Names and values of objects and lists. Numbers in lists are not counted: token ids, which are cheap."""


class _Bounded(Request):
    async def json(self) -> object:
        """The document, as FastAPI asks for it.

        Raises:
            json.JSONDecodeError: it is none.
            HTTPException: it is not text, or too deep or too wide.
        """
        if not hasattr(self, "_json"):
            try:
                self._json = json.loads(await self.body())
            except UnicodeDecodeError as problem:
                raise HTTPException(400, f"the body is not UTF-8: {problem}; send JSON") from problem
            except RecursionError as problem:
                raise HTTPException(400, _TOO_DEEP) from problem
            refuse_outlandish(self._json)
        return self._json


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
    """A route for those who have the right to it, whose body stays within bounds. Every answer has the request's id."""

    @property
    def right(self) -> Right | None:
        """The right that it needs; None: anybody may ask."""
        said = (self.openapi_extra or {}).get(RIGHT)
        return Right(said) if said else None

    def get_route_handler(self) -> Callable[[Request], Coroutine[None, None, Response]]:
        """FastAPI's, told to look at the caller first and to read JSON through the bounds."""
        handle, right = super().get_route_handler(), self.right

        async def bounded(request: Request) -> Response:
            if right is None:
                return await handle(request)
            caller = caller_of(request)
            REQUEST_ID.set(caller.request_id)
            refuse_without(right, caller)
            response = await handle(_Bounded(request.scope, request.receive))
            response.headers["x-request-id"] = caller.request_id
            return response

        return bounded


def refuse_without(right: Right, caller: Caller) -> None:
    """Refuse what a caller may not do.

    Raises:
        HTTPException: naming the roles that may.
    """
    if right not in RIGHTS[caller.role]:
        roles = ", ".join(roles_with(right))
        raise HTTPException(
            403,
            f"the key {caller.name!r} is a {caller.role}'s and may not {right}; a key of these roles may: {roles}",
        )


Branch = dict[str, object] | list[object]

_TOO_DEEP = f"the body is nested more than {MAX_DEPTH} levels deep; send a flatter one"


def refuse_outlandish(document: object) -> None:
    """Refuse JSON that is nested too deep or has too many values.

    Raises:
        HTTPException: saying which.
    """
    level, num_values = _branches([document]), 0
    for _ in range(MAX_DEPTH):
        inner = list[Branch]()
        for one in level:
            values = one.values() if isinstance(one, dict) else one
            kinds = Counter(map(type, values))
            num_values += len(one) - (kinds[int] if isinstance(one, list) else 0)
            if kinds[dict] or kinds[list]:
                inner += _branches(values)
        if num_values > MAX_VALUES:
            raise HTTPException(400, f"the body has more than {MAX_VALUES} values; send fewer")
        if not inner:
            return
        level = inner
    raise HTTPException(400, _TOO_DEEP)


def _branches(values: Iterable[object]) -> list[Branch]:
    return [one for one in values if isinstance(one, dict | list)]
