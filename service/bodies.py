"""The JSON of a request: read once, and refused where it is nested or branches so far that checking it would take long."""

import json
from collections.abc import Callable, Coroutine

from fastapi import HTTPException, Request, Response
from fastapi.routing import APIRoute

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


class BoundedRoute(APIRoute):
    """A route whose body stays within bounds."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[None, None, Response]]:
        """FastAPI's, told to read JSON through the bounds."""
        handle = super().get_route_handler()

        async def bounded(request: Request) -> Response:
            return await handle(_Bounded(request.scope, request.receive))

        return bounded


_TOO_DEEP = f"the body is nested more than {MAX_DEPTH} levels deep; send a flatter one"


def refuse_outlandish(document: object) -> None:
    """Refuse JSON that is nested too deep or has too many values.

    Raises:
        HTTPException: saying which.
    """
    level, num_values = [document], 0
    for _ in range(MAX_DEPTH):
        inner = list[object]()
        for one in level:
            if isinstance(one, dict):
                num_values += len(one)
                inner += one.values()
            elif isinstance(one, list):
                num_values += sum(type(item) is not int for item in one)
                inner += one
        if num_values > MAX_VALUES:
            raise HTTPException(400, f"the body has more than {MAX_VALUES} values; send fewer")
        level = [one for one in inner if isinstance(one, dict | list)]
        if not level:
            return
    raise HTTPException(400, _TOO_DEEP)
