"""A client's connection, as uvicorn serves it, with bounds where uvicorn has none.

Heads that never end, answers nobody reads.

What is too slow, too many or not HTTP is answered here, before there is a request for the app.
"""

import asyncio
import http
import logging
import socket
import time
from typing import cast

import h11
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from service.access.refusals import Refusal
from service.deployment.policy import ClientLimits
from service.http.intake import ARRIVED, DISCARD, LINGER_S
from service.serving.metrics import ServiceMetrics

log = logging.getLogger(__name__)

MAX_HEAD_BYTES = 16_384
"""Of the first line and the headers."""
MAX_REFUSED = 50
"""Connections from one address that wait for their client to have read why they are refused; more end without a word."""
SEND_BUFFER_BYTES = 131_072
"""What the system keeps for a client that does not read; beside it there are the 64 KiB of the transport."""


class Connection(H11Protocol):
    """Speaks HTTP/1.1 with one client for as long as it does its part."""

    def __init__(
        self,
        limits: ClientLimits,
        metrics: ServiceMetrics,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, object],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, {**app_state, DISCARD: self._discard}, _loop)
        self._limits = limits
        self._metrics = metrics
        self._head_timer: asyncio.TimerHandle | None = None
        self._unread_timer: asyncio.TimerHandle | None = None
        self._is_over = False
        """It was turned away, and what it still sends is thrown away."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take the client, unless there are too many, or too many from its address."""
        super().connection_made(transport)
        _notice_absence(transport.get_extra_info("socket"), self._limits.unread_timeout_s)
        most = self._limits.max_connections
        most_here = self._limits.max_connections_per_address
        address = _address(self)
        num_here = sum(_address(cast("Connection", connection)) == address for connection in self.connections)
        if num_here > most_here + MAX_REFUSED:
            self._metrics.turned_away("per_address")
            transport.abort()
        elif num_here > most_here:
            text = f"{most_here} connections are open from {address} (clients.max_connections_per_address); come again later"
            self._turn_away(Refusal("per_address", 429, text, retry_after_s=1))
        elif len(self.connections) > most:
            text = f"{most} connections are open, as many as may be (clients.max_connections); come again later"
            self._turn_away(Refusal("connections", 503, text, retry_after_s=1))
        else:
            self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the client."""
        for timer in (self._head_timer, self._unread_timer):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read on; a head that has begun must end in time."""
        if self._is_over:
            return
        if self.conn.their_state in {h11.IDLE, h11.DONE} and not self.conn.trailing_data[0]:
            self.app_state[ARRIVED] = time.monotonic()
        super().data_received(data)
        if self.conn.their_state is h11.IDLE:
            self._await_head()
        elif self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def pause_writing(self) -> None:
        """The client does not take its answer as fast as it is made."""
        super().pause_writing()
        self._unread_timer = self.loop.call_later(self._limits.unread_timeout_s, self._unread)

    def resume_writing(self) -> None:
        """It has taken most of what waited."""
        super().resume_writing()
        if self._unread_timer is not None:
            self._unread_timer.cancel()

    def send_400_response(self, msg: str) -> None:
        """What came is not HTTP, or its headers are too long; called by uvicorn, which knows why."""
        if len(self.conn.trailing_data[0]) > MAX_HEAD_BYTES:
            text = f"the headers have more than the {MAX_HEAD_BYTES} bytes that they may have; send fewer"
            self._turn_away(Refusal("head", 431, text))
        else:
            self._turn_away(Refusal("head", 400, f"{msg} Send HTTP/1.1"))

    def _await_head(self) -> None:
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(self._limits.head_timeout_s, self._slow_head)

    def _slow_head(self) -> None:
        if not self.conn.trailing_data[0]:
            self.transport.close()  # it never said anything: an answer would be taken for one to its first request
            return
        text = f"no end of the headers in {self._limits.head_timeout_s:g} s; send them faster"
        self._turn_away(Refusal("slow_head", 408, text))

    def _unread(self) -> None:
        self._metrics.turned_away("unread")
        who = "%s:%s" % (self.client or ("?", "?"))
        what = f"{self.scope['method']} {self.scope['path']}"
        log.warning(
            "%s took nothing of its answer to %s for %g s; it is left",
            who,
            what,
            self._limits.unread_timeout_s,
        )
        self.transport.abort()

    def _discard(self) -> None:
        """Throw away what comes.

        A refused client goes on sending, and parsing it would take longer than receiving it.
        """
        self._is_over = True

    def _turn_away(self, refusal: Refusal) -> None:
        """Answer outside of any request, and close when the client had time to read it."""
        self._metrics.turned_away(refusal.reason)
        self._is_over = True
        if self.conn.our_state not in {h11.IDLE, h11.SEND_RESPONSE}:
            self.transport.abort()  # in the middle of another answer
            return
        path = ""
        if self.cycle is not None and not self.cycle.response_complete:
            path = self.scope["path"]
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        headers, body = refusal.answer(path)
        lines = [f"HTTP/1.1 {refusal.status} {http.HTTPStatus(refusal.status).phrase}".encode()]
        lines += [name + b": " + value for name, value in headers]
        self.transport.write(b"\r\n".join([*lines, b"", body]))
        self.loop.call_later(LINGER_S, self.transport.close)


def _address(connection: Connection) -> str:
    """Where it comes from."""
    return connection.client[0] if connection.client else ""


def _notice_absence(connection: socket.socket, within_s: float) -> None:
    """Let the system end a connection whose other side is gone without a word, and keep little for it.

    It waits a little longer than this process does, which can say whom it left.
    """
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    seconds = max(1, round(within_s / 2))
    for name, value in (
        ("TCP_KEEPIDLE", seconds),
        ("TCP_KEEPINTVL", seconds),
        ("TCP_USER_TIMEOUT", round((within_s + 5) * 1000)),
    ):
        if (option := getattr(socket, name, None)) is not None:  # Linux has them all
            connection.setsockopt(socket.IPPROTO_TCP, option, value)
