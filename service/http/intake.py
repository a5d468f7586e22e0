"""What stands before the app.

Requests come in whole and within limits, or are refused before anything is made of them.
"""

import asyncio
import math
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import cast

from service.access.gate import Gate
from service.access.refusals import App, Headers, Message, Receive, Refusal, Send
from service.deployment.policy import ClientLimits
from service.documents.access import CALLER
from service.serving.metrics import ServiceMetrics

MAX_HEADERS = 100
LONGEST_RETRY_S = 60
"""What a client is told to wait at most."""
LINGER_S = 2.0
"""How long a client that was refused may go on sending, so that it reads why instead of finding its connection reset."""
ARRIVED = "arrived_s"
"""Under this name a request's state has when its first byte came, as ``time.monotonic``: what goals are about begins then."""
DISCARD = "discard"
"""Under this name a connection has in its requests' state how it is told to throw away what still comes."""


class ClientLeftError(Exception):
    """Nobody waits for an answer."""


class Intake:
    """The app behind limits. It knows what is under way, so that a service that stops can let it end."""

    def __init__(self, app: App, gate: Gate, limits: ClientLimits, metrics: ServiceMetrics) -> None:
        self._app = app
        self._gate = gate
        self._limits = limits
        self._metrics = metrics
        self.num_acting = 0
        """Requests under way, without those that only look."""
        self._by_key = Counter[str]()
        self._ended = asyncio.Event()
        self._stops_at_s: float | None = None
        self._why = ""

    def stop(self, within_s: float, why: str = "the service is stopping") -> None:
        """Take nothing more but requests that only look; ``within_s`` is how long what is under way may take."""
        if self._stops_at_s is None:
            self._stops_at_s = time.monotonic() + within_s
            self._why = why

    async def quiet(self) -> None:
        """Return when nothing is under way but requests that only look."""
        while self.num_acting:
            self._ended.clear()
            await self._ended.wait()

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Hand a request on, or answer why not."""
        cast("dict[str, object]", scope.setdefault("state", {})).setdefault(ARRIVED, time.monotonic())
        acts = scope["method"] not in {"GET", "HEAD"}
        self.num_acting += acts
        key = None
        try:
            key = self._admitted(scope)
            await self._app(scope, await self._taken(scope, receive), send)
        except Refusal as refusal:
            self._metrics.turned_away(refusal.reason)
            await _refuse(refusal, scope, receive, send)
        except ClientLeftError:
            return
        finally:
            self.num_acting -= acts
            if key:
                self._by_key[key] -= 1
            self._ended.set()

    def _admitted(self, scope: Message) -> str | None:
        """The key with which a request is sent, counted among those that are under way with it.

        None: without one.

        Raises:
            Refusal: it is not taken.
        """
        self._refuse_when_stopping(str(scope["method"]), str(scope["path"]))
        headers = cast("Headers", scope["headers"])
        if len(headers) > MAX_HEADERS:
            raise Refusal("head", 431, f"{len(headers)} headers; send at most {MAX_HEADERS}")
        state = cast("dict[str, object]", scope.setdefault("state", {}))
        state[CALLER] = caller = self._gate.admit(scope)
        if caller is None or not caller.key:
            return None
        most = self._limits.max_requests_per_key
        if self._by_key[caller.key] >= most:
            text = f"{most} requests are under way with the key {caller.name!r} (clients.max_requests_per_key); send it later"
            raise Refusal("per_key", 429, text, retry_after_s=1)
        self._by_key[caller.key] += 1
        return caller.key

    async def _taken(self, scope: Message, receive: Receive) -> Receive:
        """What the app receives from: the whole body at once, then what comes later.

        Raises:
            Refusal: it is too large or too slow.
            ClientLeftError: nobody sends the rest of it.
        """
        named = dict(cast("Headers", scope["headers"]))
        if b"content-length" not in named and b"transfer-encoding" not in named:
            return receive
        return received_again(await self._body(named, receive), receive)

    def _refuse_when_stopping(self, method: str, path: str) -> None:
        if self._stops_at_s is None or (method in {"GET", "HEAD"} and path != "/readyz"):
            return
        left_s = max(1, math.ceil(min(LONGEST_RETRY_S, self._stops_at_s - time.monotonic())))
        raise Refusal("stopping", 503, f"{self._why} and takes nothing new; send it to another", left_s)

    async def _body(self, headers: dict[bytes, bytes], receive: Receive) -> bytes:
        most = self._limits.max_body_bytes
        timeout_s = self._limits.body_timeout_s
        if int(headers.get(b"content-length", 0)) > most:
            raise self._too_large(int(headers[b"content-length"]))
        pieces = list[bytes]()
        size = 0
        try:
            async with asyncio.timeout(timeout_s):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise ClientLeftError
                    pieces.append(cast("bytes", message.get("body", b"")))
                    size += len(pieces[-1])
                    if size > most:
                        raise self._too_large(size)
                    if not message.get("more_body"):
                        return b"".join(pieces)
        except TimeoutError:
            text = f"{size} bytes of the body came in {timeout_s:g} s and no end; send it faster"
            raise Refusal("slow_body", 408, text) from None

    def _too_large(self, size: int) -> Refusal:
        return Refusal(
            "too_large",
            413,
            f"the body has {size} bytes or more, over the {self._limits.max_body_bytes} that a request may have here "
            "(clients.max_body_mb of the deployment); send less",
        )


def received_again(body: bytes, receive: Receive) -> Receive:
    """What an app receives from: a body that was read, then what comes later."""
    whole: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return whole.pop() if whole else await receive()

    return replay


async def _refuse(refusal: Refusal, scope: Message, receive: Receive, send: Send) -> None:
    """Answer at once, then wait a while for the client to have read it."""
    headers, body = refusal.answer(str(scope["path"]))
    await send({"type": "http.response.start", "status": refusal.status, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": True})
    state = cast("dict[str, Callable[[], None]]", scope.get("state", {}))
    if DISCARD in state:
        state[DISCARD]()
    with suppress(TimeoutError):
        async with asyncio.timeout(LINGER_S):
            while (await receive()).get("more_body"):
                pass
    await send({"type": "http.response.body", "body": b"", "more_body": False})
