"""The HTTP app: control API, OpenAI API, and every error as one problem document."""

import asyncio
import json
import logging
from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from starlette.exceptions import HTTPException

from intent.document import pointer_to
from runtime.errors import EngineLostError, RuntimeFault
from service.api.context import Composition, ServiceContext
from service.api.http import control_routes
from service.bodies import RIGHT, BoundedRoute
from service.documents.forms import SCHEMA
from service.documents.problems import RETRY_AFTER_S, Code, Detail, Problem
from service.errors import ServiceError, StoreError
from service.idempotency import PARAMETER, REFUSALS
from service.idempotency_store import IdempotencyStore
from service.openai_api import Endpoint, openai_app
from service.refusals import CODES
from service.repeatable import SECRET, UNKNOWN, Repeats
from validator.schema import domain_schema

log = logging.getLogger(__name__)

Tree = dict[str, Any]
"""An OpenAPI document, as FastAPI makes it."""

MEDIA_TYPE = "application/problem+json"

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
        code = Code.ENGINE_LOST if isinstance(error, EngineLostError) else Code.UNSUPPORTED
        return _send(Problem.of(code, str(error)))

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> Response:
        details = [_detail(item["loc"], item["msg"], item["type"]) for item in error.errors()]
        summary = "; ".join(f"{detail.pointer or 'body'}: {detail.message}" for detail in details)
        return _send(Problem.of(Code.INVALID_REQUEST, summary, details))

    @app.exception_handler(HTTPException)
    async def http(request: Request, error: HTTPException) -> Response:
        code = CODES.get(error.status_code, Code.INVALID_REQUEST)
        problem = Problem.of(code, f"{request.method} {request.url.path}: {error.detail}")
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
    return Detail(pointer_to(place[1:] if place[0] == "body" else place), message, code)


def _send(problem: Problem, headers: Mapping[str, str] | None = None) -> Response:
    """A problem in ASCII: it may repeat what was sent, halves of characters included."""
    body = json.dumps(problem.model_dump()).encode()
    later = {"Retry-After": str(RETRY_AFTER_S[problem.code])} if problem.code in RETRY_AFTER_S else {}
    return Response(body, problem.status, {**(headers or {}), **later}, MEDIA_TYPE)
