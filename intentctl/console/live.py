"""What happens, told to a browser: not the documents, but which parts of its page to ask for anew."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from intentctl.console.upstream import Upstream, UpstreamEvent
from intentctl.console.visit import signed_in, visit
from service.documents.operations import ApprovalDocument, OperationDocument
from service.documents.promises import OutcomeDocument, PromiseDocument

LOOK_S = 5.0
"""Between two looks at what no event tells: load, and how far goals are kept."""


async def live(request: Request) -> Response:
    """What changes, as server-sent events."""
    here = await visit(request)
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}

    def is_over() -> bool:
        """Whether the browser is signed out, or the time of its session is over."""
        return (request.app.state.unlocked or signed_in(request, is_click=False)) is not here.session

    return StreamingResponse(_told(here.session.upstream, is_over), media_type="text/event-stream", headers=headers)


async def _told(upstream: Upstream, is_over: Callable[[], bool]) -> AsyncIterator[str]:
    loop = asyncio.get_running_loop()
    async with aclosing(upstream.events()) as events:
        news = asyncio.ensure_future(anext(events))
        look_s = loop.time() + LOOK_S
        yield "retry: 1000\n\n"
        try:
            while True:
                done, _ = await asyncio.wait({news}, timeout=max(0.0, look_s - loop.time()))
                if is_over() or (done and isinstance(news.exception(), StopAsyncIteration)):
                    return
                if done:
                    yield _message(*subjects(news.result()))
                    news = asyncio.ensure_future(anext(events))
                else:
                    yield _message("look")
                    look_s = loop.time() + LOOK_S
        finally:
            news.cancel()
            await asyncio.gather(news, return_exceptions=True)


def subjects(heard: UpstreamEvent) -> tuple[str, ...]:
    """What is not any more as it was: kinds of things, and ids."""
    if heard.event is None:
        return ("away",) if heard.is_away else ("back",)
    match heard.event.data:
        case OperationDocument() as operation:
            kind = () if heard.event.id is None else ("operation",)
            return (*kind, operation.id, operation.plan_id)
        case PromiseDocument() as promise:
            return ("promise", promise.intent_id)
        case OutcomeDocument() as outcome:
            return ("verdict", outcome.operation)
        case ApprovalDocument() as approval:
            return ("approval", approval.plan_id)
        case _:
            return (heard.event.event,)


def _message(*names: str) -> str:
    return f"data: {json.dumps(names)}\n\n"
