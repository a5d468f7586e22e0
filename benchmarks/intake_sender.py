"""Ten bad requests at once; a process for ``benchmarks.intake``.

``python -m benchmarks.intake_sender URL KIND`` prints a line when its body is made, waits for one, sends, prints the answers.
"""

import json
import os
import socket
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from urllib.parse import urlsplit

AT_ONCE = 10
MB = 1_000_000


def _prompt(size: int) -> bytes:
    return json.dumps(
        {"model": "counting", "prompt": ("count by 7 from 23: 30 37 " * (size // 26 + 1))[:size]}
    ).encode()


def _wrong_parts(size: int) -> bytes:
    head = b'{"model": "counting", "messages": [{"role": "user", "content": [1'
    return head + b",1" * ((size - len(head)) // 2) + b"]}]}"


def _schema(schema: dict[str, object]) -> bytes:
    wanted = {"structured_outputs": {"json": schema}, "max_tokens": 100}
    return json.dumps({"model": "counting", "prompt": "count by 7 from 23:", **wanted}).encode()


def _bomb(_: int) -> bytes:
    """All of eight, each one of twelve: 12 to the 8th combinations."""
    one = [{"type": "object", "properties": {f"p{n}": {"pattern": f"^a{{{n}}}"}}} for n in range(12)]
    return _schema({"allOf": [{"anyOf": one}] * 8})


def _endless(_: int) -> bytes:
    """An object in an object, without end."""
    inner = {"type": "object", "properties": {"a": {"$ref": "#/$defs/a"}}, "required": ["a"]}
    return _schema({"$defs": {"a": inner}, "$ref": "#/$defs/a"})


KINDS = {
    "4 MB": (_prompt, 4 * MB),
    "64 MB": (_prompt, 64 * MB),
    "64 MB without a length": (_prompt, 64 * MB),
    "250 KB": (_prompt, MB // 4),
    "250 KB of wrong parts": (_wrong_parts, MB // 4),
    "schema bomb": (_bomb, 0),
    "endless schema": (_endless, 0),
}
"""Name to what makes the body, and its size in bytes."""


def send(url: str, kind: str, body: bytes) -> dict[str, object]:
    """How one request was answered, and after how long: all is sent before the answer is read, as stock clients do."""
    path = "chat/completions" if "parts" in kind else "completions"
    length = "Transfer-Encoding: chunked" if "without" in kind else f"Content-Length: {len(body)}"
    parts, started_s = urlsplit(url), time.monotonic()
    head = (
        f"POST /openai/v1/{path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Authorization: Bearer {parts.username}\r\n{length}\r\n\r\n"
    )
    with socket.create_connection((parts.hostname, parts.port), timeout=120) as connection:
        with suppress(BrokenPipeError, ConnectionResetError):  # refused and left: the answer is there
            connection.sendall(head.encode())
            for piece in _chunks(body) if "without" in kind else [body]:
                connection.sendall(piece)
        answer = connection.recv(65536)
    return {"status": int(answer.split()[1]) if answer else None, "seconds": time.monotonic() - started_s}


def _chunks(body: bytes) -> Iterator[bytes]:
    for start in range(0, len(body), 65536):
        piece = body[start : start + 65536]
        yield b"%x\r\n%s\r\n" % (len(piece), piece)
    yield b"0\r\n\r\n"


def main() -> None:
    """Make the body, wait, send it ten times."""
    url, kind = sys.argv[1:]
    make, size = KINDS[kind]
    body = make(size)
    os.nice(19)  # clients are on other machines: what is spent here is not taken from the service
    print("ready", flush=True)
    sys.stdin.readline()
    with ThreadPoolExecutor(AT_ONCE) as pool:
        answers = list(pool.map(lambda _: send(url, kind, body), range(AT_ONCE)))
    print(json.dumps(answers), flush=True)


if __name__ == "__main__":
    main()
