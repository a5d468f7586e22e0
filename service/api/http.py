"""The control API as routes: one for each operation, and health, metrics and events beside them."""

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from functools import partial
from itertools import chain
from typing import Annotated, cast

from anyio import CapacityLimiter, to_thread
from anyio.lowlevel import RunVar
from fastapi import APIRouter, Depends, Header, Query, Request, Response
from fastapi.sse import EventSourceResponse, ServerSentEvent
from prometheus_client import CONTENT_TYPE_LATEST
from pydantic import BaseModel
from starlette.convertors import StringConvertor, register_url_convertor

from service import documents as docs
from service.access.rights import CALLER, Caller, Right
from service.api.context import Composition, Context
from service.api.operation import OPERATIONS, Operation
from service.bodies import needs
from service.errors import RefusedError
from service.metrics import merged
from service.repeatable import SECRET, RepeatableRoute
from service.serving import ready

Endpoint = Callable[..., object]


class _Id(StringConvertor):
    """An id in a path: a colon begins what is done with it."""

    regex = "[^/:]+"


register_url_convertor("id", _Id())


class Threads:
    """Threads of their own for operations that wait long, so that they keep nobody else waiting.

    As many in each event loop.
    """

    def __init__(self, purpose: str, most: int) -> None:
        self._most = most
        self._limiters = RunVar[CapacityLimiter](purpose)  # which tells them apart

    def __call__(self, endpoint: Endpoint) -> Callable[..., Coroutine[None, None, object]]:
        """The endpoint, run in them; it is refused where as many again wait for a thread."""

        async def run(**named: object) -> object:
            limiter = self._limiters.get(None) or CapacityLimiter(self._most)
            self._limiters.set(limiter)
            if limiter.statistics().tasks_waiting >= self._most:
                message = f"{2 * self._most} requests that take long are under way; ask again later"
                raise RefusedError(docs.Code.OVERLOADED, message)
            return await to_thread.run_sync(partial(endpoint, **named), limiter=limiter)

        return run


THREADS: Mapping[str, Threads] = {
    "asking": Threads("asking", 64),
    "planning": Threads("planning", 64),
    "cancelling": Threads("cancelling", 8),
}


async def _context(request: Request) -> Context:  # in the loop, whatever the thread pool does
    """What acts on behalf of whoever asks."""
    return cast("Context", request.app.state.context_for(request.scope["state"][CALLER]))


async def _parts(request: Request) -> Composition:  # in the loop, too
    return cast("Composition", request.app.state.parts)


Parts = Annotated[Composition, Depends(_parts)]


def control_routes() -> APIRouter:
    """All routes of the control API."""
    routes = APIRouter(route_class=RepeatableRoute)
    for operation in OPERATIONS.values():
        answers = refusals(*operation.problems)
        if operation.asks:
            answers[200] = {"model": operation.answer, "description": operation.asks}
        routes.add_api_route(
            _path(operation),
            endpoint_of(operation),
            methods=[operation.method],
            status_code=operation.status,
            response_model=operation.answer,
            responses=answers,
            tags=[operation.tag],
            openapi_extra={**needs(operation.right), **({SECRET: True} if operation.is_secret else {})},
        )
    _add_probes(routes)
    return routes


def _path(operation: Operation) -> str:
    """As Starlette has it; what is no number is an id, unless it is said to hold slashes."""
    path = operation.path
    for parameter in operation.parameters:
        if parameter.annotation is str:
            path = path.replace(f"{{{parameter.name}}}", f"{{{parameter.name}:id}}")
    return path


def endpoint_of(operation: Operation) -> Endpoint:
    """A function as FastAPI reads it: with its context, and the response whose head says what was made."""

    def run(*, here: Context, response: Response, **arguments: object) -> object:
        answer = operation.function(here, **arguments)
        if isinstance(answer, docs.PlanAnswer) and not answer.plans:
            response.status_code = 200  # nothing was made: a question comes first
        elif operation.location and (place := operation.location(answer)):
            response.headers["Location"] = place
        return answer

    endpoint: Endpoint = THREADS[operation.threads](run) if operation.threads else run
    endpoint.__name__ = operation.function.__name__
    endpoint.__doc__ = operation.function.__doc__
    endpoint.__signature__ = inspect.Signature(  # type: ignore[attr-defined]  # read by inspect.signature
        [
            *(
                each.replace(kind=each.KEYWORD_ONLY, annotation=_asked(operation, each))
                for each in operation.parameters
            ),
            inspect.Parameter("here", inspect.Parameter.KEYWORD_ONLY, annotation=Annotated[Context, Depends(_context)]),
            inspect.Parameter("response", inspect.Parameter.KEYWORD_ONLY, annotation=Response),
        ]
    )
    return endpoint


def _asked(operation: Operation, parameter: inspect.Parameter) -> object:
    """A parameter's type for FastAPI: the document that is not a body is the query."""
    kind = parameter.annotation
    is_query = operation.method == "GET" and isinstance(kind, type) and issubclass(kind, BaseModel)
    return Annotated[kind, Query()] if is_query else kind


def refusals(*codes: docs.Code) -> dict[int | str, dict[str, object]]:
    """The problems that a route may answer with, by their status."""
    found: dict[int | str, dict[str, object]] = {}
    for status in sorted({code.status for code in codes}):
        named = ", ".join(f"`{code}`" for code in codes if code.status == status)
        found[status] = {"model": docs.Problem, "description": named}
    return found


def _add_probes(routes: APIRouter) -> None:
    """What is no operation: a stream, and what anybody or Prometheus may ask."""
    looking = {"responses": refusals(docs.Code.INVALID_REQUEST), "openapi_extra": needs(Right.LOOK)}
    routes.get("/v1/events", tags=["operations"], response_class=EventSourceResponse, **looking)(events)  # type: ignore[arg-type]
    routes.get("/healthz", tags=["state"])(health)
    stopping = refusals(docs.Code.ENGINE_LOST, docs.Code.STOPPING)
    routes.get("/readyz", tags=["state"], responses=stopping)(readiness)
    routes.get("/metrics", tags=["state"], response_class=Response, openapi_extra=needs(Right.METRICS))(metrics)


async def events(
    request: Request, parts: Parts, last_event_id: Annotated[int | None, Header(ge=0, le=2**53)] = None
) -> AsyncIterator[ServerSentEvent]:
    """What happens from now on, or after ``Last-Event-ID``, restarts included.

    Operations, topologies, promises, approvals, …

    The stream ends when the key opens nothing any more.
    """
    caller: Caller = request.scope["state"][CALLER]
    async for event in parts.events.subscribe(last_event_id, partial(parts.access.may_stay, caller)):
        number = None if event.id is None else str(event.id)
        yield ServerSentEvent(data=event.data, event=event.event, id=number)


async def health() -> docs.Health:
    """Answers 200 while the service lives, whatever its engines do."""
    return docs.Health()


async def readiness(parts: Parts) -> docs.Readiness:
    """Each model's state; a problem (503) if none of them can serve, or the service is stopping."""
    return ready(parts.servings, parts.store)


async def metrics(parts: Parts) -> Response:
    """Prometheus text exposition.

    The service's metrics, of itself and for each model, then those of the engines themselves.
    """
    texts = await asyncio.gather(*(serving.exposition() for serving in parts.servings.values()))
    parts.metrics.store_stalled.set(parts.store.calls.stalled_s is not None)
    return Response(merged([parts.metrics.render(), *chain(*texts)]), media_type=CONTENT_TYPE_LATEST)
