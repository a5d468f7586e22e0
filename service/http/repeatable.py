"""POST sent again with its ``Idempotency-Key``.

Acted on once, answered the same (docs/decisions/0031).
"""

import logging
from typing import cast

from fastapi import Request, Response

from service.access.refusals import Headers, Message, Receive, Send
from service.documents.errors import StoreError
from service.http.bodies import BoundedRoute, caller_of, refuse_without
from service.http.idempotency import (
    HEADER,
    REPLAYED,
    KeyedRequest,
    StoredResponse,
    UnderWay,
    digest_of,
    key_of,
    refuse_secret,
)
from service.http.idempotency_store import IdempotencyStore
from service.http.intake import received_again
from service.http.logs import REQUEST_ID

log = logging.getLogger(__name__)

UNKNOWN = "outcome_unknown"
"""Under this name the state of a request says that nobody knows whether it was done: its key stays taken."""
SECRET = "x-secret-answer"  # noqa: S105 - a name
"""Under this name a route says in the OpenAPI document that its answer holds a secret."""


class Repeats:
    """What a service knows of requests that have a key."""

    def __init__(self, answers: IdempotencyStore) -> None:
        self.answers = answers
        self.under_way = UnderWay()
        self._unused = set[KeyedRequest]()
        """Those that were not acted on, though their keys may be taken in the store: it answered too late."""

    async def begin(self, request: KeyedRequest) -> StoredResponse | None:
        """Take a request's key, or what it was answered before.

        Raises:
            RefusedError, StoreError: as ``IdempotencyStore.reserve``.
        """
        try:
            kept = await self.answers.store.beside(self.answers.reserve, request, is_unused=request in self._unused)
        except StoreError as error:
            if not error.is_unknown:
                raise
            self._unused.add(request)
            message = (
                f"the store cannot be used: it did not answer in time; nothing was done: send the same {HEADER} again"
            )
            raise StoreError(message) from error
        self._unused.discard(request)
        return kept

    async def conclude(self, request: KeyedRequest, answer: StoredResponse) -> None:
        """Keep an answer, or free its key.

        What was done is done: it is told to the client even if it cannot be kept.
        """
        beside = self.answers.store.beside
        try:
            await (beside(self.answers.free, request) if answer.frees else beside(self.answers.keep, request, answer))
        except StoreError as error:
            if answer.frees:
                self._unused.add(request)
            log.warning("the answer %d to %s %r is not kept: %s", answer.status, HEADER, request.key, error)


class RepeatableRoute(BoundedRoute):
    """A route that is sent again with the same key without being acted on twice, where it is a POST."""

    async def handle(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer; outside of what makes answers of refusals, which are kept too."""
        request = Request(scope, receive)
        sent = request.headers.getlist(HEADER)
        if not sent or scope["method"] != "POST" or "POST" not in self.methods or self.right is None:
            await super().handle(scope, receive, send)
            return
        caller = caller_of(request)
        REQUEST_ID.set(caller.request_id)
        refuse_without(self.right, caller)
        key = key_of(sent)
        if (self.openapi_extra or {}).get(SECRET):
            refuse_secret()
        keyed = KeyedRequest(caller.key or caller.name, key, await _digest(request))
        repeats: Repeats = request.app.state.repeats
        with repeats.under_way.claim(keyed):
            kept = await repeats.begin(keyed)
            held = None if kept else await self._acted(scope, await request.body(), receive)
            if held and not cast("Message", scope["state"]).get(UNKNOWN):
                await repeats.conclude(keyed, _answer(held))
        if kept:
            await _again(kept, caller.request_id)(scope, receive, send)
        for message in held or ():
            await send(message)

    async def _acted(self, scope: Message, body: bytes, receive: Receive) -> list[Message]:
        """Act, and hold the answer back."""
        held = list[Message]()

        async def hold(message: Message) -> None:
            held.append(message)

        await super().handle(scope, received_again(body, receive), hold)
        return held


async def _digest(request: Request) -> str:
    scope = request.scope
    path = str(scope["path"]).encode("utf-8", "surrogatepass")
    query = cast("bytes", scope["query_string"])
    return digest_of(request.method.encode(), path, query, await request.body())


def _answer(held: list[Message]) -> StoredResponse:
    """What is kept of an answer that was held back."""
    start, *pieces = held
    headers = {name.decode(): value.decode("latin-1") for name, value in cast("Headers", start["headers"])}
    body = b"".join(cast("bytes", piece.get("body", b"")) for piece in pieces)
    status = cast("int", start["status"])
    return StoredResponse(status, headers.get("content-type"), headers.get("location"), body)


def _again(answer: StoredResponse, request_id: str) -> Response:
    """An answer that was given before; the request's id is that of this time."""
    sent = {"content-type": answer.content_type, "location": answer.location, "x-request-id": request_id}
    headers = {name: value for name, value in sent.items() if value is not None}
    return Response(answer.body, answer.status, {**headers, REPLAYED: "true"})
