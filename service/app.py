"""The HTTP app: control API, OpenAI API, and every error as one problem document."""

import json
import logging
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from intent.document import pointer_to
from runtime.errors import EngineLostError, RuntimeFault
from service.api_models import Problem
from service.composition import Composition
from service.errors import Code, Detail, ServiceError
from service.openai_api import openai_app
from service.problems import CODE_OF_STATUS, MEDIA_TYPE, problem, problem_of
from service.routes import routes

log = logging.getLogger(__name__)

DESCRIPTION = """Say what an LLM service must do; the running service reshapes itself to do it.

Errors are `application/problem+json` (RFC 9457) with `code` and `errors[{pointer, code, message}]`.
Inference is under `/openai/v1` and speaks the OpenAI API, error bodies included."""


class ControlApi(FastAPI):
    """Describes its errors with the media type they have, which FastAPI cannot be told otherwise."""

    def openapi(self) -> dict[str, Any]:
        """The OpenAPI document."""
        document = super().openapi()
        for path in document["paths"].values():
            for method in path.values():
                error = method["responses"]["default"]
                error["content"] = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
        return document


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
    app.include_router(routes)
    _handle_errors(app)
    return app


def create_app(parts: Composition) -> FastAPI:
    """The app over one composition; it owns none of its parts."""
    app = control_api()
    app.state.parts = parts
    spec = parts.serving.deployment.model.spec
    app.mount("/openai/v1", openai_app(parts.serving.router, spec.name, spec.max_position_embeddings))
    return app


def openapi_document() -> str:
    """The control API's OpenAPI document, as it stands in ``docs/openapi.json``."""
    document = control_api().openapi()
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def _handle_errors(app: FastAPI) -> None:
    @app.exception_handler(ServiceError)
    async def refused(_: Request, error: ServiceError) -> JSONResponse:
        return _send(problem_of(error))

    @app.exception_handler(RuntimeFault)
    async def fault(_: Request, error: RuntimeFault) -> JSONResponse:
        code = Code.ENGINE_LOST if isinstance(error, EngineLostError) else Code.UNSUPPORTED
        return _send(problem(code, str(error)))

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> JSONResponse:
        details = [_detail(item) for item in error.errors()]
        summary = "; ".join(f"{detail.pointer or 'body'}: {detail.message}" for detail in details)
        return _send(problem(Code.INVALID_REQUEST, summary, details))

    @app.exception_handler(HTTPException)
    async def http(request: Request, error: HTTPException) -> JSONResponse:
        code = CODE_OF_STATUS.get(error.status_code, Code.INVALID_REQUEST)
        document = problem(code, f"{request.method} {request.url.path}: {error.detail}")
        return _send({**document, "status": error.status_code}, error.headers)

    @app.exception_handler(Exception)
    async def internal(request: Request, error: Exception) -> JSONResponse:
        log.error("%s %s", request.method, request.url.path, exc_info=error)
        return _send(problem(Code.INTERNAL, f"{type(error).__name__}; see the service's log"))


def _detail(item: Any) -> Detail:
    """A pydantic error; its place is relative to the body where it is in the body."""
    place = item["loc"][1:] if item["loc"][0] == "body" else item["loc"]
    return Detail(pointer_to(place), item["msg"], item["type"])


class ProblemResponse(JSONResponse):
    """A problem in ASCII: it may repeat what was sent, halves of characters included."""

    def render(self, content: Any) -> bytes:
        """The body."""
        return json.dumps(content).encode()


def _send(document: dict[str, Any], headers: Any = None) -> JSONResponse:
    return ProblemResponse(document, document["status"], headers=headers, media_type=MEDIA_TYPE)
