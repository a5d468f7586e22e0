"""The OpenAI API for inference, an app of its own (mounted under /openai/v1) with OpenAI's error bodies."""

import asyncio
import time
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import TypeVar, cast

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response, StreamingResponse
from pydantic_core import ErrorDetails
from starlette.exceptions import HTTPException

from runtime.errors import EngineLostError, OverloadedError, RequestError, RuntimeFault
from runtime.router import Delta, Router
from service.openai_chunks import DONE, Answer, Json, error_chunk, error_document
from service.openai_requests import ChatRequest, CompletionRequest, Sampling

T = TypeVar("T")

STATUS: dict[type[RuntimeFault], tuple[int, str]] = {
    RequestError: (400, "invalid_request_error"),
    OverloadedError: (503, "overloaded_error"),
    EngineLostError: (503, "server_error"),
}


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A model that is served."""

    router: Router
    context_tokens: int
    """Of its longest sequence."""


def openai_app(served: Mapping[str, Endpoint]) -> FastAPI:
    """The app that serves models by their names."""
    app = FastAPI(title="OpenAI API", openapi_url=None, docs_url=None, redoc_url=None)
    _handle_errors(app)
    created_s = int(time.time())

    @app.get("/models")
    async def models() -> Json:
        return {"object": "list", "data": [_model_document(name, created_s) for name in served]}

    @app.get("/models/{name:path}")
    async def one_model(name: str) -> Json:
        _endpoint(name, served)
        return _model_document(name, created_s)

    @app.post("/completions")
    async def completions(body: CompletionRequest, request: Request) -> Response:
        router = _endpoint(body.model, served).router
        deltas = router.generate(body.prompt, body.params())
        answer = _answer(body, "cmpl", router, body.logprobs is not None)
        return await _respond(request, body, deltas, answer)

    @app.post("/chat/completions")
    async def chat_completions(body: ChatRequest, request: Request) -> Response:
        here = _endpoint(body.model, served)
        router = here.router
        prompt = router.tokenizer.encode_chat(body.conversation())
        deltas = router.generate(prompt, body.params(here.context_tokens - len(prompt)))
        answer = _answer(body, "chatcmpl", router, bool(body.logprobs))
        return await _respond(request, body, deltas, answer)

    return app


def _answer(body: Sampling, prefix: str, router: Router, logprobs: bool) -> Answer:
    return Answer(
        id=f"{prefix}-{uuid.uuid4().hex}",
        kind="text_completion" if prefix == "cmpl" else "chat.completion",
        model=body.model,
        created_s=int(time.time()),
        token_text=router.tokenizer.token_text,
        logprobs=logprobs,
        include_usage=body.include_usage,
    )


async def _respond(
    request: Request, body: Sampling, deltas: AsyncIterator[Delta], answer: Answer
) -> Response:
    """Stream, or collect and answer. The first token is awaited before the status is sent, so errors have one."""
    generator = cast("AsyncGenerator[Delta, None]", deltas)
    if body.stream:
        first = await _unless_disconnected(request, anext(generator))
        return StreamingResponse(_events(first, generator, answer), media_type="text/event-stream")
    return JSONResponse(answer.whole(await _unless_disconnected(request, _collect(generator))))


async def _collect(deltas: AsyncGenerator[Delta, None]) -> list[Delta]:
    async with aclosing(deltas):
        return [delta async for delta in deltas]


async def _events(first: Delta, rest: AsyncGenerator[Delta, None], answer: Answer) -> AsyncIterator[bytes]:
    """One event per token. An error after the first token ends the stream with an error event."""
    last = first
    async with aclosing(rest):
        yield answer.chunk(first)
        try:
            async for last in rest:
                yield answer.chunk(last)
        except RuntimeFault as error:
            yield error_chunk(str(error), "server_error")
            return
    if answer.include_usage and last.usage:
        yield answer.usage_chunk(last.usage, last.fingerprint)
    yield DONE


async def _unless_disconnected(request: Request, work: Coroutine[None, None, T]) -> T:
    """The result of ``work``, which is cancelled when the client leaves."""
    task, gone = asyncio.ensure_future(work), asyncio.ensure_future(_disconnected(request))
    try:
        await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        raise HTTPException(499, "the client left")
    finally:
        gone.cancel()
        task.cancel()


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _endpoint(name: str, served: Mapping[str, Endpoint]) -> Endpoint:
    if name not in served:
        known = " and ".join(map(repr, served))
        raise HTTPException(
            404, f"the model {name!r} is not served here; {known} {'is' if len(served) == 1 else 'are'}"
        )
    return served[name]


def _model_document(name: str, created_s: int) -> Json:
    return {"id": name, "object": "model", "created": created_s, "owned_by": "intentctl"}


def _handle_errors(app: FastAPI) -> None:
    """Every error in OpenAI's form."""

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        param = ".".join(str(part) for part in first["loc"][1:]) or None
        message = f"{param or 'body'}: {_reason(first)}"
        return JSONResponse(error_document(message, "invalid_request_error", param, first["type"]), 400)

    @app.exception_handler(RuntimeFault)
    async def fault(_: Request, error: RuntimeFault) -> JSONResponse:
        status, kind = STATUS.get(type(error), (500, "server_error"))
        return JSONResponse(error_document(str(error), kind), status)

    @app.exception_handler(HTTPException)
    async def http(_: Request, error: HTTPException) -> JSONResponse:
        code = "model_not_found" if error.status_code == 404 else None
        return JSONResponse(
            error_document(error.detail, "invalid_request_error", code=code),
            error.status_code,
            headers=error.headers,
        )

    @app.exception_handler(Exception)
    async def internal(_: Request, error: Exception) -> JSONResponse:
        return JSONResponse(error_document(f"internal error: {type(error).__name__}", "server_error"), 500)


def _reason(error: ErrorDetails) -> str:
    """Pydantic's words, and plainer ones for what is not served."""
    if error["type"] == "extra_forbidden":
        return "is not a parameter that is served here"
    if error["type"] in {"literal_error", "none_required"}:
        return f"{error['input']!r} is not served here; leave it out"
    return str(error["msg"])
