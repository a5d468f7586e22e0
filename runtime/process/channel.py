"""Messages between an engine's own processes: pickles with a length before them, over socket pairs.

Only processes that the engine started hold the other ends, so unpickling is safe. What every driver says to the
service, and the service to it, is here too.
"""

import asyncio
import pickle
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from runtime.engine import Output
from runtime.errors import Reason

_HEAD = struct.Struct("<I")
_CHUNK = 1 << 18


@dataclass(frozen=True, slots=True)
class Call:
    """The service asks the driver."""

    call_id: int
    method: str
    arguments: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True)
class Reply:
    """The driver answers; exactly one of value and error counts."""

    call_id: int
    value: Any = None
    error: Exception | None = None


@dataclass(frozen=True, slots=True)
class Outputs:
    """Tokens and fences, in order."""

    items: list[Output] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Beat:
    """The driver's loop turns."""

    stalled_s: float = 0.0
    """For how long steps have made no progress, while there are some."""


@dataclass(frozen=True, slots=True)
class Fatal:
    """The driver ends, and why."""

    reason: Reason
    detail: str
    error: Exception | None = None


def encode(message: object) -> bytes:
    """A message as it goes over the wire."""
    body = pickle.dumps(message, protocol=5)
    return _HEAD.pack(len(body)) + body


class _Decoder:
    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[Any]:
        self._buffer += data
        while len(self._buffer) >= _HEAD.size:
            end = _HEAD.size + _HEAD.unpack_from(self._buffer)[0]
            if len(self._buffer) < end:
                return
            body = bytes(self._buffer[_HEAD.size : end])
            del self._buffer[:end]
            yield pickle.loads(body)  # noqa: S301 - our own processes only


class BlockingChannel:
    """A worker's end: waits for messages; may send from any thread."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._sock.setblocking(True)
        self._lock = threading.Lock()

    def send(self, message: object) -> None:
        """Send, waiting for room."""
        with self._lock:
            self._sock.sendall(encode(message))

    def messages(self) -> Iterator[Any]:
        """Messages as they come; ends when the other end is gone."""
        decoder = _Decoder()
        while data := self._sock.recv(_CHUNK):
            yield from decoder.feed(data)


class AsyncChannel:
    """An event loop's end: calls back for each message, and once when the other end is gone."""

    def __init__(
        self, sock: socket.socket, on_message: Callable[[Any], None], on_closed: Callable[[], None]
    ) -> None:
        self._sock, self._on_message, self._on_closed = sock, on_message, on_closed
        self._sock.setblocking(False)
        self._loop = asyncio.get_running_loop()
        self._decoder = _Decoder()
        self._unsent = bytearray()
        self._open = True
        self._loop.add_reader(sock, self._read)

    def send(self, message: object) -> None:
        """Send now, or as soon as there is room; dropped when the other end is gone (``on_closed`` tells)."""
        self.send_encoded(encode(message))

    def send_encoded(self, data: bytes) -> None:
        """Send what ``encode`` made, for one message to several."""
        if not self._open:
            return
        if not self._unsent:
            data = data[self._write(data) :]
        if data:
            self._unsent += data
            self._loop.add_writer(self._sock, self._flush)

    def close(self) -> None:
        """Close without a call back."""
        if self._open:
            self._open = False
            self._loop.remove_reader(self._sock)
            self._loop.remove_writer(self._sock)
            self._sock.close()

    def _write(self, data: bytes | bytearray) -> int:
        try:
            return self._sock.send(data)
        except BlockingIOError:
            return 0
        except OSError:
            return len(data)  # the reader sees the end and tells

    def _flush(self) -> None:
        del self._unsent[: self._write(self._unsent)]
        if not self._unsent:
            self._loop.remove_writer(self._sock)

    def _read(self) -> None:
        try:
            data = self._sock.recv(_CHUNK)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.close()
            self._on_closed()
            return
        for message in self._decoder.feed(data):
            self._on_message(message)
