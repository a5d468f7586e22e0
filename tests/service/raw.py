"""HTTP by hand, for tests of what well-behaved clients never do."""

import json
import re
import socket
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit


@dataclass(frozen=True, slots=True)
class Answered:
    """One answer."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def document(self) -> Any:
        return json.loads(self.body)


def connect(url: str, receive_bytes: int | None = None, source: str = "127.0.0.1") -> socket.socket:
    """A connection that fails a test instead of hanging it.

    ``receive_bytes`` is what the system takes ahead of us, ``source`` the address that it comes from.
    """
    parts = urlsplit(url)
    connection = socket.socket()
    connection.settimeout(30)
    if receive_bytes is not None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
    connection.bind((source, 0))
    connection.connect((parts.hostname, parts.port))
    return connection


def request(path: str, *headers: str, method: str = "POST", body: bytes = b"") -> bytes:
    """A request's bytes; its length is said where there is a body."""
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost", "Content-Type: application/json", *headers]
    if body:
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode() + body


def asked(url: str, *pieces: bytes) -> "Answered":
    """The answer to a request that is sent piece by piece."""
    with connect(url) as connection:
        for piece in pieces:
            connection.sendall(piece)
        return answer(connection)


def answer(connection: socket.socket) -> Answered:
    """The next answer, by its length; a stream until its end."""
    with connection.makefile("rb") as lines:
        status = int(lines.readline().split()[1])
        headers = dict[str, str]()
        while line := lines.readline().strip():
            name, _, value = line.decode().partition(": ")
            headers[name.lower()] = value
        body = lines.read(int(headers["content-length"])) if "content-length" in headers else lines.read()
    return Answered(status, headers, body)


def count_of(url: str, family: str) -> float:
    """What a service's metrics have for a series."""
    text = asked(url, request("/metrics", "Connection: close", method="GET")).body.decode()
    (found,) = re.findall(rf"^{re.escape(family)} (.*)$", text, re.MULTILINE)
    return float(found)


def turned_away(url: str, reason: str) -> float:
    """How many requests were turned away for a reason."""
    return count_of(url, f'intentctl_turned_away_total{{reason="{reason}"}}')
