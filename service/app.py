"""The HTTP app: control API, OpenAI API, and every error as one problem document."""

import asyncio
import inspect
import json
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from functools import partial
from itertools import chain
from typing import Annotated, Any, cast

from anyio import CapacityLimiter, to_thread
from anyio.lowlevel import RunVar
from fastapi import APIRouter, Depends, FastAPI, Header, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.sse import EventSourceResponse, ServerSentEvent
from prometheus_client import CONTENT_TYPE_LATEST
from pydantic import BaseModel
from starlette.convertors import StringConvertor, register_url_convertor
from starlette.exceptions import HTTPException

from intent.document import pointer_to
from runtime.errors import RuntimeFault
from service import documents as docs
from service.access.refusals import CODES, INFERENCE
from service.api.context import Context, ServiceContext
from service.api.operation import OPERATIONS, Operation
from service.control.composition import Composition
from service.documents.access import CALLER, Caller, Right
from service.documents.errors import RefusedError, ServiceError, StoreError, problem_of
from service.documents.forms import SCHEMA
from service.documents.problems import RETRY_AFTER_S, Code, Detail, Problem
from service.http.bodies import RIGHT, BoundedRoute, needs
from service.http.idempotency import PARAMETER, REFUSALS
from service.http.idempotency_store import IdempotencyStore
from service.http.repeatable import SECRET, UNKNOWN, RepeatableRoute, Repeats
from service.openai.api import Endpoint, openai_app
from service.serving.metrics import merged
from service.serving.serving import ready
from validator.schema import domain_schema

log = logging.getLogger(__name__)

Tree = dict[str, Any]
"""An OpenAPI document, as FastAPI makes it."""

MEDIA_TYPE = "application/problem+json"
OPENAI = ("/v1/chat/", "/v1/completions", "/v1/embeddings", "/chat/", "/completions")
"""Where clients of OpenAI's API look that were given another base URL than ours."""

DESCRIPTION = """Say what an LLM service must do; the running service reshapes itself to do it.

Errors are `application/problem+json` (RFC 9457) with `code` and `errors[{pointer, code, message}]`.
Inference is under `/openai/v1` and speaks the OpenAI API, error bodies included."""


class ControlApi(FastAPI):
    """Describes what FastAPI cannot be told otherwise.

    The media type of errors, and an intent by the domain schema.
    """

    def openapi(self) -> Tree:
        """The OpenAPI document."""
        document = _with_intents(super().openapi())
        for path in document["paths"].values():
            for name, method in path.items():
                if RIGHT in method:
                    method["security"] = [{"key": []}]
                    _refuse(method, Code.UNAUTHENTICATED, Code.FORBIDDEN, Code.RATE_LIMITED)
                if name == "post" and SECRET not in method:
                    method["parameters"] = [*method.get("parameters", ()), PARAMETER]
                    _refuse(method, *REFUSALS)
                if "requestBody" in method:
                    method["responses"]["400"] = {"description": "`invalid_request`: the body is no JSON"}
                for status, answer in method["responses"].items():
                    if status == "default" or status >= "400":
                        answer["content"] = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
        document["components"]["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
        return document


def _refuse(operation: Tree, *codes: Code) -> None:
    """Say of an operation that it may answer with these problems, beside those that it names."""
    for code in codes:
        answer = operation["responses"].setdefault(str(code.status), {"description": ""})
        if f"`{code}`" not in answer["description"]:
            answer["description"] = ", ".join(filter(None, [answer["description"], f"`{code}`"]))


def _with_intents(document: Tree) -> Tree:
    """The document with the parts of the domain schema among its components."""
    parts: Tree = dict(domain_schema())
    definitions = parts.pop("$defs")
    schemas = {"Intent": {key: value for key, value in parts.items() if not key.startswith("$")}}
    definitions = {"goal": parts["properties"]["goals"]["items"], **definitions}
    schemas |= {f"intent.{name}": schema for name, schema in definitions.items()}
    text = json.dumps({**document, "components": {"schemas": document["components"]["schemas"] | schemas}})
    here = "#/components/schemas/"
    for before, after in (
        (f"{SCHEMA}#/$defs/", f"{here}intent."),
        (SCHEMA, f"{here}Intent"),
        ("#/$defs/", f"{here}intent."),
    ):
        text = text.replace(f'"{before}', f'"{after}')
    found: Tree = json.loads(text)
    return found


Handler = Callable[..., object]


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

    def __call__(self, endpoint: Handler) -> Callable[..., Coroutine[None, None, object]]:
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


def endpoint_of(operation: Operation) -> Handler:
    """A function as FastAPI reads it: with its context, and the response whose head says what was made."""

    def run(*, here: Context, response: Response, **arguments: object) -> object:
        answer = operation.function(here, **arguments)
        if isinstance(answer, docs.PlanAnswer) and not answer.plans:
            response.status_code = 200  # nothing was made: a question comes first
        elif operation.location and (place := operation.location(answer)):
            response.headers["Location"] = place
        return answer

    endpoint: Handler = THREADS[operation.threads](run) if operation.threads else run
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
    for usual in ("/health", "/openai/health"):  # where load generators look
        routes.get(usual, include_in_schema=False)(health)
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


def control_api() -> FastAPI:
    """The control API without anything behind it: what its OpenAPI document describes."""
    app = ControlApi(
        title="intentctl",
        version="1",
        description=DESCRIPTION,
        docs_url=None,
        redoc_url=None,
        responses={"default": {"model": Problem, "description": "What went wrong"}},
    )
    app.include_router(control_routes())
    _handle_errors(app)
    return app


def create_app(parts: Composition) -> FastAPI:
    """The app over one composition; it owns none of its parts. Made in the loop that runs them."""
    app = control_api()
    app.state.parts = parts
    app.state.repeats = Repeats(IdempotencyStore(parts.store))
    loop = asyncio.get_running_loop()
    app.state.context_for = lambda caller: ServiceContext(parts, loop, caller)
    served = {
        name: Endpoint(
            serving.router,
            serving.model.spec.max_position_embeddings,
            serving.model.spec.vocab_size,
            parts.deployment.limits.max_output_tokens,
            parts.tracer,
        )
        for name, serving in parts.servings.items()
    }
    app.mount("/openai/v1", openai_app(served))
    return app


def _handle_errors(app: FastAPI) -> None:
    @app.exception_handler(ServiceError)
    async def refused(request: Request, error: ServiceError) -> Response:
        if isinstance(error, StoreError) and error.is_unknown:
            request.scope["state"][UNKNOWN] = True
        return _send(error.problem)

    @app.exception_handler(RuntimeFault)
    async def fault(_: Request, error: RuntimeFault) -> Response:
        return _send(problem_of(error))

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> Response:
        details = [_detail(item["loc"], item["msg"], item["type"]) for item in error.errors()]
        summary = "; ".join(f"{detail.pointer or 'body'}: {detail.message}" for detail in details)
        return _send(Problem.of(Code.INVALID_REQUEST, summary, details))

    @app.exception_handler(HTTPException)
    async def http(request: Request, error: HTTPException) -> Response:
        code = CODES.get(error.status_code, Code.INVALID_REQUEST)
        place = f"; the OpenAI API is at {INFERENCE}" if request.url.path.startswith(OPENAI) else ""
        problem = Problem.of(code, f"{request.method} {request.url.path}: {error.detail}{place}")
        headers = dict(error.headers or {})
        if error.status_code == 405:
            headers["Allow"] = ", ".join(_methods(app, request.url.path))
        return _send(problem.model_copy(update={"status": error.status_code}), headers)

    @app.exception_handler(Exception)
    async def internal(request: Request, error: Exception) -> Response:
        log.error("%s %s", request.method, request.url.path, exc_info=error)
        return _send(Problem.of(Code.INTERNAL, f"{type(error).__name__}; see the service's log"))


def _methods(app: FastAPI, path: str) -> list[str]:
    """What may be done at a path; the framework names the methods of the first route there alone."""
    routes = [route for route in app.routes if isinstance(route, BoundedRoute)]
    return sorted({method for route in routes if route.path_regex.match(path) for method in route.methods})


def _detail(place: tuple[str | int, ...], message: str, code: str) -> Detail:
    """A pydantic error; its place is relative to the body where it is in the body."""
    if code == "json_invalid":
        return Detail("", f"is no JSON from character {place[1]} on", code)
    return Detail(pointer_to(place[1:] if place[0] == "body" else place), message, code)


def _send(problem: Problem, headers: Mapping[str, str] | None = None) -> Response:
    """A problem in ASCII: it may repeat what was sent, halves of characters included."""
    body = json.dumps(problem.model_dump()).encode()
    later = {"Retry-After": str(RETRY_AFTER_S[problem.code])} if problem.code in RETRY_AFTER_S else {}
    return Response(body, problem.status, {**(headers or {}), **later}, MEDIA_TYPE)
