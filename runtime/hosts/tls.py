"""Frames over TLS between hosts.

Both ends show a certificate of the deployment's own authority, and trust no other.

A connection that ends is over: nothing here connects again.
"""

import asyncio
import contextlib
import re
import socket
import ssl
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from runtime.errors import EngineStartError
from runtime.process.channel import Ends, FrameError, Frames, Hears, encode

CONNECT_S = 5.0
"""How long a connection may take to be there, name look-up and handshake included."""
HANDSHAKE_S = 5.0
FULL_BYTES = 1 << 20
"""With so much unsent, what feeds a channel is asked to wait."""
MAX_UNSENT_BYTES = 64 << 20
"""With so much unsent, the other end does not read and counts as lost."""
_TCP_INFO = struct.Struct("120xQ16xI")
"""Of Linux: the bytes that the other machine took, and those that wait to be sent."""
_CERTIFICATE = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)


def context(file: Path, *, is_server: bool) -> ssl.SSLContext:
    """What an end shows and trusts.

    ``file`` holds its key, its certificate and, last, that of the authority (PEM).

    Raises:
        EngineStartError: the file cannot be read, or holds something else.
    """
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if is_server else ssl.PROTOCOL_TLS_CLIENT)
    made.minimum_version = ssl.TLSVersion.TLSv1_3
    made.verify_mode = ssl.CERT_REQUIRED
    try:
        made.load_cert_chain(file)
        made.load_verify_locations(cadata=_CERTIFICATE.findall(file.read_text(encoding="ascii"))[-1])
    except (OSError, ValueError, IndexError) as error:
        what = f"{file} is no file of `intentctl hosts init` (a key, its certificate, the authority's)"
        raise EngineStartError(f"{what}: {words(error)}") from error
    return made


def words(error: BaseException) -> str:
    """What went wrong with a connection, for people."""
    if isinstance(error, ssl.SSLCertVerificationError):
        another = "it is of another deployment, " if "self-signed" in error.verify_message else ""
        return f"the certificate was refused: {another}{error.verify_message}"
    if isinstance(error, ssl.SSLError) and error.reason:
        return error.reason.lower().replace("_", " ")
    if isinstance(error, TimeoutError) and not error.args:
        return "no answer in time"
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


class TlsChannel(asyncio.Protocol):
    """One end of a connection: calls back for each message, and once when the connection ends."""

    def __init__(
        self, kind: Any, on_message: Hears, on_closed: Ends, on_room: Callable[[bool], None] = lambda _: None
    ) -> None:
        """``kind`` is what it reads; ``on_closed`` gets why.

        ``on_room`` is told whether there is room to send.
        """
        self._on_message = on_message
        self._on_closed = on_closed
        self._on_room = on_room
        self._frames = Frames(kind)
        self._transport: asyncio.Transport | None = None
        self.is_over = self._has_heard = False
        self._num_taken = 0

    def has_moved(self) -> bool:
        """Whether bytes came since this was asked last, or the other machine took some of what still waits.

        Heartbeats wait behind a long frame: on a slow link none may go for longer than silence is borne.
        """
        moved = self._has_heard
        self._has_heard = False
        if self._transport is not None:
            with contextlib.suppress(OSError):  # it is being closed
                sock = self._transport.get_extra_info("socket")
                taken, waiting = _TCP_INFO.unpack(sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO.size))
                moved = moved or (waiting > 0 and taken > self._num_taken)
                self._num_taken = taken
        return moved

    def address(self, end: str) -> str:
        """Of this end (``sockname``) or the other (``peername``).

        This end's is that of the interface which the connection takes.
        """
        address = self._transport.get_extra_info(end) if self._transport else None
        return str(address[0]) if address else ""

    def send(self, message: object) -> None:
        """Send now, or as soon as there is room; dropped when the connection is over (``on_closed`` tells)."""
        if self.is_over or self._transport is None:
            return
        if self._transport.get_write_buffer_size() > MAX_UNSENT_BYTES:
            self.lose("it does not read what it is sent")
        else:
            self._transport.write(encode(message))

    def close(self) -> None:
        """End the connection at once, without a call back. Idempotent."""
        self.is_over = True
        if self._transport is not None:
            self._transport.abort()

    def lose(self, why: str) -> None:
        """End the connection at once, and tell."""
        if not self.is_over:
            self.close()
            self._on_closed(why)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See ``asyncio.Protocol``."""
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=FULL_BYTES)
        if self.is_over:
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        """See ``asyncio.Protocol``."""
        self._has_heard = True
        try:
            for message in self._frames.feed(data):
                if self.is_over:
                    return
                self._on_message(message)
        except FrameError as error:
            self.lose(str(error))

    def connection_lost(self, error: Exception | None) -> None:
        """See ``asyncio.Protocol``."""
        self.lose(words(error) if error else "the other end closed the connection")

    def pause_writing(self) -> None:
        """See ``asyncio.Protocol``."""
        self._on_room(False)

    def resume_writing(self) -> None:
        """See ``asyncio.Protocol``."""
        self._on_room(True)


async def connect(address: tuple[str, int], host: str, file: Path, channel: TlsChannel) -> float:
    """Connect a channel to the agent of a host, whose certificate has to name it.

    Returns when that certificate ends, Unix seconds.

    Raises:
        OSError: it cannot be reached, or one end refuses the other's certificate.
        EngineStartError: the file is none.
    """
    ours = await asyncio.to_thread(context, file, is_server=False)  # its disk may be slow
    async with asyncio.timeout(CONNECT_S):
        transport, _ = await asyncio.get_running_loop().create_connection(
            lambda: channel, *address, ssl=ours, server_hostname=host, ssl_handshake_timeout=HANDSHAKE_S
        )
    return ssl.cert_time_to_seconds(transport.get_extra_info("peercert")["notAfter"])
