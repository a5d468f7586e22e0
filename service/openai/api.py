"""The OpenAI API for inference: an app of its own, mounted under /openai/v1.

It answers with OpenAI's error bodies.
"""

import asyncio
import time
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response, StreamingResponse
from pydantic_core import ErrorDetails
from starlette.exceptions import HTTPException

from runtime import grammar
from runtime.errors import OVER_CONTEXT, EngineLostError, OverloadedError, RequestError, RuntimeFault
from runtime.process.supervised import cancel
from runtime.router import Router
from runtime.stream import Delta
from service.access.refusals import KINDS, error_document
from service.documents.access import RIGHTS, TRANSLATOR, Right
from service.documents.problems import RETRY_AFTER_S, Code
from service.http.bodies import BoundedRoute, caller_of, needs
from service.http.intake import ARRIVED
from service.openai.calls import CallReader
from service.openai.chunks import DONE, Choice, CompletionWriter, Json, Labels, Numbered, error_chunk
from service.openai.declaration import ParameterError, naming
from service.openai.echo import EnginePrompt, counted, scored
from service.openai.requests import ChatRequest, CompletionRequest, Generation
from service.serving.traces import begun, told

if TYPE_CHECKING:
    from opentelemetry.trace import Tracer

Generations = Sequence[AsyncGenerator[Delta, None]]
T = TypeVar("T")

STATUS: dict[type[RuntimeFault], tuple[int, str]] = {
    RequestError: (400, "invalid_request_error"),
    ParameterError: (400, "invalid_request_error"),
    OverloadedError: (503, "overloaded_error"),
    EngineLostError: (503, "server_error"),
}


UNBUFFERED = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
"""Or proxies hold an event stream back until it has ended."""
ERROR_CODES = {
    "missing": "missing_required_parameter",
    "extra_forbidden": "unknown_parameter",
    "refused": "unsupported_value",
}
"""OpenAI's words for what pydantic finds; for the rest it is ``invalid_value``."""
PAUSE = b": the engine was lost; this goes on when another one serves\n\n"
"""A comment, which clients of event streams leave out."""


@dataclass(frozen=True)
class Endpoint:
    """A model that is served."""

    router: Router
    context_tokens: int
    """Of its longest sequence."""
    vocab_size: int
    max_output_tokens: int | None = None
    """Of one answer, where the deployment says so."""
    tracer: "Tracer | None" = None
    """Where a collector of traces is named."""

    @cached_property
    def labels(self) -> Labels:
        """What its tokens are called in logprobs."""
        return Labels(self.router.tokenizer.token_bytes)

    @cached_property
    def checking(self) -> asyncio.Lock:
        """Held by whoever has a grammar checked.

        One at a time, for it takes a tenth of a second of a core at worst.
        """
        return asyncio.Lock()

    @cached_property
    def vocabulary(self) -> grammar.Vocabulary:
        """What grammars are checked against."""
        return grammar.Vocabulary(self.router.tokenizer, self.vocab_size)


def openai_app(served: Mapping[str, Endpoint]) -> FastAPI:
    """The app that serves models by their names."""
    app = FastAPI(title="OpenAI API", openapi_url=None, docs_url=None, redoc_url=None)
    app.router.route_class = BoundedRoute
    _handle_errors(app)
    created_s = int(time.time())

    @app.get("/models", openapi_extra=needs(Right.INFER))
    async def models() -> Json:
        return {"object": "list", "data": [_model_document(name, created_s) for name in served]}

    @app.get("/models/{name:path}", openapi_extra=needs(Right.INFER))
    async def one_model(name: str) -> Json:
        _endpoint(name, served)
        return _model_document(name, created_s)

    @app.post("/completions", openapi_extra=needs(Right.INFER))
    async def completions(body: CompletionRequest, request: Request) -> Response:
        here = _endpoint(body.model, served)
        text = await _grammar(body, here)
        with naming("prompt"):
            encoded = await here.router.encoder.prompts(body.prompt)
        labels = here.labels if body.logprobs is not None else None
        prompts = [_prompt(tokens, text, body, here) for tokens in encoded]
        generations = _generations(body, here, prompts, request)
        return await _respond(request, body, generations, _answer(body, len(prompts), labels))

    @app.post("/chat/completions", openapi_extra=needs(Right.INFER))
    async def chat_completions(body: ChatRequest, request: Request) -> Response:
        here = _endpoint(body.model, served)
        text = await _grammar(body, here)
        prompt = EnginePrompt(await _conversation(body, here), text)
        generations = _generations(body, here, [prompt], request)
        labels = here.labels if body.logprobs else None
        return await _respond(request, body, generations, _answer(body, 1, labels))

    return app


async def _grammar(body: Generation, here: Endpoint) -> str:
    """What the answer must match, checked against the model's tokens; empty: anything.

    Raises:
        ParameterError: it cannot be read, or can never be kept to.
    """
    body.check_tokens(here.vocab_size)
    parameter, text = body.grammar()
    if text:
        with naming(parameter):
            async with here.checking:
                await asyncio.to_thread(grammar.check, text, here.vocabulary)
    return text


async def _conversation(body: ChatRequest, here: Endpoint) -> tuple[int, ...]:
    """Token ids of the messages and of the tools that are offered.

    Raises:
        ParameterError: the model's chat template knows no tools, or refuses the messages.
    """
    why_no_tools = here.router.tokenizer.why_no_tools if body.offered else ""
    if why_no_tools:
        raise ParameterError("tools", f"are not served for this model: {why_no_tools}")
    with naming("messages"):
        return await here.router.encoder.chat(body.conversation(), [tool.rendered() for tool in body.offered])


def _prompt(tokens: tuple[int, ...], text: str, body: CompletionRequest, here: Endpoint) -> EnginePrompt:
    """As the engine gets it; ``text`` is the grammar."""
    if not body.is_scored:
        return EnginePrompt(tokens, text, told=tokens if body.echo else ())
    if not here.router.scores_prompts:
        raise ParameterError("echo", "with logprobs is not served by this model's engine; leave out echo or logprobs")
    ends = () if body.goes_on else here.router.tokenizer.eos_ids
    return scored(tokens, (*body.stop_token_ids, *ends))


def _generations(body: Generation, here: Endpoint, prompts: Sequence[EnginePrompt], request: Request) -> Generations:
    """Every answer to every prompt, in the order of the choices.

    Raises:
        ParameterError: a prompt leaves no room, or more tokens are asked for than are allowed.
    """
    max_tokens = _max_tokens(body, here, max(len(prompt.tokens) + prompt.num_scored for prompt in prompts))
    caller = caller_of(request)
    arrived_s = getattr(request.state, ARRIVED, None)
    special = here.router.tokenizer.special_by_text
    ends = tuple(special[text] for text in body.stop if text in special)  # of which no text is ever made
    is_urgent = caller.name == TRANSLATOR
    generations = list[AsyncGenerator[Delta, None]]()
    for prompt in prompts:
        for param in body.generations(max_tokens, prompt, ends):
            own = replace(param, tenant=caller.tenant or "", arrived_s=arrived_s, is_urgent=is_urgent)
            deltas = here.router.generate(prompt.tokens, own)
            deltas = counted(deltas, prompt.num_scored) if prompt.num_scored else deltas
            traced = told(deltas, begun(here.tracer, body.model, request.headers)) if here.tracer else deltas
            generations.append(traced)
    return generations


def _max_tokens(body: Generation, here: Endpoint, num_prompt_tokens: int) -> int:
    """Of each answer: what the request says, else what is usual and the context leaves."""
    room = here.context_tokens - num_prompt_tokens
    parameter, count = body.asked_tokens
    if room < (0 if count == 0 else 1):
        message = (
            f"{OVER_CONTEXT} {here.context_tokens} tokens, and the prompt has {num_prompt_tokens}; send a shorter one"
        )
        raise ParameterError(body.told_by, message)
    allowed = here.max_output_tokens
    if count is not None:
        if allowed is not None and count > allowed:
            raise ParameterError(parameter, f"{count} are more than the {allowed} that an answer may have here")
        return count
    usual = body.usual_tokens or here.router.tokenizer.max_new_tokens
    return min(limit for limit in (usual, allowed, room) if limit is not None)


def _answer(body: Generation, num_prompts: int, labels: Labels | None) -> CompletionWriter:
    is_chat = isinstance(body, ChatRequest)
    offers = isinstance(body, ChatRequest) and body.offered
    return CompletionWriter(
        id=f"{'chatcmpl' if is_chat else 'cmpl'}-{uuid.uuid4().hex}",
        kind="chat.completion" if is_chat else "text_completion",
        model=body.model,
        created_s=int(time.time()),
        choices=[Choice(index, CallReader() if offers else None) for index in range(num_prompts * body.n)],
        num_prompts=num_prompts,
        labels=labels,
        include_usage=body.stream_options.include_usage,
    )


async def _respond(request: Request, body: Generation, generations: Generations, answer: CompletionWriter) -> Response:
    """Stream, or collect and answer.

    The first token is awaited before the status is sent, so errors have one.
    """
    deltas = interleaved(generations)
    if body.stream:
        first = await _unless_disconnected(request, anext(deltas))
        headers = {**UNBUFFERED, **_route(request, [first])}
        return StreamingResponse(_events(first, deltas, answer), media_type="text/event-stream", headers=headers)
    collected = await _unless_disconnected(request, _collect(deltas))
    return JSONResponse(answer.whole(collected), headers=_route(request, collected))


def _route(request: Request, deltas: Sequence[Numbered]) -> dict[str, str]:
    """Which replica answers, and why: for whoever asks and may look."""
    if request.headers.get("x-intentctl-why") != "1" or Right.LOOK not in RIGHTS[caller_of(request).role]:
        return {}
    routes = [delta.route for _, delta in deltas if delta.route]
    return {"X-Intentctl-Route": "; ".join(routes)} if routes else {}


async def _collect(deltas: AsyncGenerator[Numbered, None]) -> list[Numbered]:
    async with aclosing(deltas):
        return [numbered async for numbered in deltas if not numbered[1].is_pause]


async def _events(
    first: Numbered, rest: AsyncGenerator[Numbered, None], answer: CompletionWriter
) -> AsyncIterator[bytes]:
    """One event per token, comments in pauses.

    An error after the first token ends the stream with an error event.
    """
    async with aclosing(rest):
        yield PAUSE if first[1].is_pause else answer.chunk(first)
        try:
            async for numbered in rest:
                yield PAUSE if numbered[1].is_pause else answer.chunk(numbered)
        except RuntimeFault as error:
            yield error_chunk(str(error), "server_error")
            return
    if answer.include_usage:
        yield answer.usage_chunk()
    yield DONE


async def _unless_disconnected(request: Request, work: Coroutine[None, None, T]) -> T:
    """The result of ``work``, which is cancelled when the client leaves."""
    task = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(_disconnected(request))
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
    async def invalid(request: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        param = _place(first["loc"][1:]) if first["type"] != "json_invalid" else ""
        message = f"{param or 'body'}: {_reason(first)}"
        media_type = request.headers.get("content-type", "")
        if not param and "json" not in media_type:
            message = (
                f"the body is not read as JSON ({media_type or 'no Content-Type'}); send Content-Type: application/json"
            )
        code = ERROR_CODES.get(first["type"], "invalid_value")
        return JSONResponse(error_document(message, "invalid_request_error", param or None, code), 400)

    @app.exception_handler(RuntimeFault)
    async def fault(_: Request, error: RuntimeFault) -> JSONResponse:
        status, kind = STATUS.get(type(error), (500, "server_error"))
        param = error.parameter if isinstance(error, ParameterError) else None
        code = "invalid_value" if param else None
        code = "context_length_exceeded" if OVER_CONTEXT in str(error) else code
        later = {"Retry-After": str(RETRY_AFTER_S[Code.ENGINE_LOST])} if status == 503 else None
        return JSONResponse(error_document(str(error), kind, param, code), status, later)

    @app.exception_handler(HTTPException)
    async def http(_: Request, error: HTTPException) -> JSONResponse:
        code = "model_not_found" if error.status_code == 404 else None
        kind = KINDS.get(error.status_code, "invalid_request_error")
        return JSONResponse(
            error_document(error.detail, kind, code=code),
            error.status_code,
            headers=error.headers,
        )

    @app.exception_handler(Exception)
    async def internal(_: Request, error: Exception) -> JSONResponse:
        return JSONResponse(error_document(f"internal error: {type(error).__name__}", "server_error"), 500)


def _place(path: Sequence[str | int]) -> str:
    """Where in the body, as a client would write it: ``messages[0].content``."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).removeprefix(".")


def _reason(error: ErrorDetails) -> str:
    """Pydantic's words, and plainer ones where they speak of the validator."""
    match error["type"]:
        case "extra_forbidden":
            return "is not a parameter that is served here"
        case "missing":
            return "is missing"
        case "literal_error":
            return f"{error['input']!r} is not served here; send {error['ctx']['expected']}"
        case "model_type" | "model_attributes_type" | "dict_type":
            return "should be a JSON object"
    return str(error["msg"])


async def interleaved(generations: Generations) -> AsyncGenerator[Numbered, None]:
    """Deltas of all generations as they come; closing it closes them.

    Raises:
        RuntimeFault: one of them did; the others are ended.
    """
    if len(generations) == 1:
        async with aclosing(generations[0]) as only:
            async for delta in only:
                yield 0, delta
        return
    arrived: asyncio.Queue[Numbered | Exception] = asyncio.Queue()
    followers = [
        asyncio.create_task(_follow(number, generation, arrived)) for number, generation in enumerate(generations)
    ]
    try:
        running = len(followers)
        while running:
            item = await arrived.get()
            if isinstance(item, Exception):
                raise item
            running -= item[1].finish is not None
            yield item
    finally:
        await cancel(followers)


async def _follow(
    number: int, generation: AsyncGenerator[Delta, None], arrived: asyncio.Queue[Numbered | Exception]
) -> None:
    try:
        async with aclosing(generation):
            async for delta in generation:
                arrived.put_nowait((number, delta))
    except Exception as problem:  # noqa: BLE001 - it is raised to whoever reads
        arrived.put_nowait(problem)
