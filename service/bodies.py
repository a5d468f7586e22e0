"""The JSON of a request: read once, and refused where it is nested or branches so far that checking it would take long."""

import json
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable

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
