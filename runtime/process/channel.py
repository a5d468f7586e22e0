"""Frames: how typed messages travel between an engine's own processes.

Over socket pairs here, over a network as they are.

A frame is a head (mark, version, number of arrays, bytes of the body), the bytes of each array, the body in msgpack, then the
arrays as they lie in memory. Whatever a frame holds, reading it runs nothing: what is no message of the types that an end
reads is refused by name.
"""

import asyncio
import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path, PurePath
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from runtime.errors import RuntimeFault

Hears = Callable[[Any], None]
Ends = Callable[[str], None]
MARK = b"ic"
VERSION = 1
HEAD = struct.Struct("<2sBHI")
MAX_FRAME_BYTES = 256 << 20
_LENGTH = struct.Struct("<I")
_CHUNK = 1 << 18
_DTYPES = frozenset({"<i4", "<i8", "<f4", "<f8", "|u1"})


class FrameError(RuntimeFault):
    """What came is no message; nothing more is read from there. ``why`` is one of:

    ``mark``: it begins as no frame does, the other end is none of ours or out of step; ``version``; ``size``: longer than
    any message; ``body``: no msgpack; ``type``: no message that this end reads.
    """

    def __init__(self, why: str, detail: str) -> None:
        super().__init__(f"a frame was refused ({why}): {detail}")
        self.why = why


class _Arrays(threading.local):
    """Of the message that this thread encodes or decodes."""

    out: list[NDArray[Any]]
    incoming: list[bytearray]


_arrays = _Arrays()


def _plain(value: Any) -> Any:
    """What msgpack has no form for."""
    if isinstance(value, np.ndarray):
        _arrays.out.append(np.ascontiguousarray(value))
        return len(_arrays.out) - 1, value.dtype.str, value.shape
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, PurePath):
        return str(value)
    raise NotImplementedError(f"{type(value).__name__} is part of no message")


def _rich(kind: Any, value: Any) -> Any:
    """The same on the way back; what it raises is an error of the type."""
    if kind is Path:
        return Path(value)
    index, dtype, shape = value
    if dtype not in _DTYPES or not 0 <= index < len(_arrays.incoming):
        raise ValueError(f"no array {index} of {dtype} came along")
    return np.frombuffer(_arrays.incoming[index], dtype).reshape(shape)


_ENCODER = msgspec.msgpack.Encoder(enc_hook=_plain)


def encode(message: object) -> bytes:
    """A message as it goes over the wire."""
    arrays = _arrays.out = []
    body = _ENCODER.encode(message)
    head = HEAD.pack(MARK, VERSION, len(arrays), len(body))
    if not arrays:
        return head + body
    parts: list[Any] = [head, *(_LENGTH.pack(each.nbytes) for each in arrays), body, *arrays]
    return b"".join(parts)


def packed(value: object) -> msgspec.Raw:
    """A part of a message that its reader decodes later. It holds no arrays."""
    return msgspec.Raw(_ENCODER.encode(value))


@cache
def _decoder(kind: Any) -> "msgspec.msgpack.Decoder[Any]":
    return msgspec.msgpack.Decoder(kind, dec_hook=_rich)


def decode(body: Any, kind: Any) -> Any:
    """A body as ``kind``.

    Raises:
        FrameError: it is none.
    """
    try:
        return _decoder(kind).decode(body)
    except msgspec.ValidationError as error:
        raise FrameError("type", str(error)) from error
    except (msgspec.MsgspecError, ValueError, TypeError, LookupError, RecursionError) as error:
        raise FrameError("body", f"{type(error).__name__}: {error}") from error


class Frames:
    """The reading end: bytes as they come, messages of ``kind`` as they are whole."""

    def __init__(self, kind: Any) -> None:
        self._kind, self._buffer = kind, bytearray()

    def feed(self, data: bytes) -> Iterator[Any]:
        """The messages that ``data`` completes.

        Raises:
            FrameError: what came is no message.
        """
        self._buffer += data
        while (parts := self._whole()) is not None:
            body, *_arrays.incoming = parts
            yield decode(body, self._kind)

    def _whole(self) -> list[bytearray] | None:
        """The body and the arrays of the first frame, once all of it is there."""
        buffer = self._buffer
        if len(buffer) < HEAD.size:
            return None
        mark, version, count, body_bytes = HEAD.unpack_from(buffer)
        if mark != MARK:
            raise FrameError("mark", f"it begins with {bytes(mark)!r}")
        if version != VERSION:
            raise FrameError("version", f"it has {version}, this end {VERSION}")
        at = HEAD.size + count * _LENGTH.size
        if len(buffer) < at:
            return None
        lengths = [_LENGTH.unpack_from(buffer, at - n * _LENGTH.size)[0] for n in range(count, 0, -1)]
        if at + body_bytes + sum(lengths) > MAX_FRAME_BYTES:
            raise FrameError("size", f"more than {MAX_FRAME_BYTES:,} bytes")
        if len(buffer) < at + body_bytes + sum(lengths):
            return None
        parts = []
        for size in (body_bytes, *lengths):
            parts.append(buffer[at : at + size])
            at += size
        del buffer[:at]
        return parts


class Unread:
    """The reading end of who passes bytes on and does not look into them."""

    def feed(self, data: bytes) -> Iterator[bytes]:
        """As they come."""
        yield data


class BlockingChannel:
    """A worker's end: waits for messages; may send from any thread."""

    def __init__(self, sock: socket.socket, kind: Any = Any) -> None:
        """``kind`` is the type of what is read."""
        self._sock = sock
        self._kind = kind
        self._sock.setblocking(True)
        self._lock = threading.Lock()

    def send(self, message: object) -> None:
        """Send, waiting for room."""
        data = encode(message)
        with self._lock:
            self._sock.sendall(data)

    def messages(self) -> Iterator[Any]:
        """Messages as they come; ends when the other end is gone.

        Raises:
            FrameError: what came is no message.
        """
        frames = Frames(self._kind)
        with contextlib.suppress(ConnectionResetError):  # of an end that was killed with words unread
            while data := self._sock.recv(_CHUNK):
                yield from frames.feed(data)


class AsyncChannel:
    """An event loop's end: calls back for each message, and once when the other end is gone."""

    def __init__(self, sock: socket.socket, on_message: Hears, on_closed: Ends, kind: Any = Any) -> None:
        """``on_closed`` gets what was wrong with what came, empty where the other end closed.

        ``kind`` is what it reads; ``bytes``: whatever comes, as it comes.
        """
        self._sock = sock
        self._on_message = on_message
        self._on_closed = on_closed
        self._sock.setblocking(False)
        self._loop = asyncio.get_running_loop()
        self._frames = Unread() if kind is bytes else Frames(kind)
        self._unsent = bytearray()
        self._open = True
        self._loop.add_reader(sock, self._read)

    def hold(self, is_held: bool) -> None:
        """Read nothing while it is held: the other end waits when its buffers are full."""
        if self._open and is_held:
            self._loop.remove_reader(self._sock)
        elif self._open:
            self._loop.add_reader(self._sock, self._read)

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
            self._lose("")
            return
        try:
            for message in self._frames.feed(data):
                self._on_message(message)
        except FrameError as error:
            self._lose(str(error))

    def _lose(self, why: str) -> None:
        self.hold(True)  # nothing more is read, but the other end can still be told
        self._on_closed(why)
        self.close()
