"""Texts from outside: standard input line by line, and what is made harmless to a terminal."""

from collections.abc import Iterator
from typing import BinaryIO

MAX_LINE_BYTES = 1_000_000
"""What is kept of a line; a text is refused long before that."""
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def texts(stream: BinaryIO) -> Iterator[str]:
    """Each line as soon as it is there, without its end; bytes that are no UTF-8 become lone surrogates."""
    mark = _BYTE_ORDER_MARK
    while line := stream.readline(MAX_LINE_BYTES):
        _skip_rest(stream, line)
        data = line.removeprefix(mark).removesuffix(b"\n").removesuffix(b"\r")
        yield data.decode("utf-8", "surrogateescape")
        mark = b""


def _skip_rest(stream: BinaryIO, line: bytes) -> None:
    """Go on to the next line where this one was cut."""
    while len(line) == MAX_LINE_BYTES and not line.endswith(b"\n"):
        line = stream.readline(MAX_LINE_BYTES)


def visible(text: str) -> str:
    """One line: what would steer a terminal, or turn the direction of reading, is shown as its code."""
    return "".join(character if character.isprintable() else repr(character)[1:-1] for character in text)


def visible_lines(text: str) -> str:
    """The same for a message, whose lines stay lines."""
    return "\n".join(map(visible, text.split("\n")))
