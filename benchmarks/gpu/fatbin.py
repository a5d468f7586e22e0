"""Device code in a shared library: what one kind of GPU never loads becomes zeros. Pure.

The layout of the file stays, so that it loads as before. A container (``__fatBinC_Wrapper_t`` points to it) begins with a magic
number and has images, each with a header: kind 1 is PTX, kind 2 a cubin of one architecture. The driver takes a cubin of its
own architecture. Else it would compile PTX, which does not travel: what has no cubin here (Marlin's kernels) cannot be used.
"""

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass

MAGIC = 0xBA55ED50
CUBIN = 2
SECTIONS = (".nv_fatbin", "__nv_relfatbin")


class NoLibraryError(Exception):
    """It is no shared library with 64 bits, or its device code is odd; the message says what."""


@dataclass(frozen=True, slots=True)
class Image:
    """Code for one architecture."""

    kind: int
    arch: int
    """90 of an H100."""
    start: int
    size: int
    """Bytes after its header."""


def sections(data: bytes) -> Iterator[tuple[str, int, int]]:
    """Name, place and bytes of each section.

    Raises:
        NoLibraryError: it is no ELF with 64 bits.
    """
    if data[:5] != b"\x7fELF\x02":
        raise NoLibraryError("no ELF with 64 bits")
    (table,) = struct.unpack_from("<Q", data, 0x28)
    entry, count, names = struct.unpack_from("<HHH", data, 0x3A)
    headers = [struct.unpack_from("<IIQQQQ", data, table + number * entry) for number in range(count)]
    texts = headers[names][4]
    for name, _, _, _, place, size in headers:
        end = data.index(b"\0", texts + name)
        yield data[texts + name : end].decode(), place, size


def containers(data: bytes) -> Iterator[tuple[int, int, int]]:
    """Place, header bytes and body bytes of each container of device code."""
    for name, place, size in sections(data):
        at = place
        while name in SECTIONS and at + 16 <= place + size:
            magic, _, header, length = struct.unpack_from("<IHHQ", data, at)
            if magic == MAGIC:
                yield at, header, length
                at += -(-(header + length) // 8) * 8
            else:
                at += 8  # between containers there is padding


def images(data: bytes, start: int, length: int) -> Iterator[Image]:
    """The images of a container's body.

    Raises:
        NoLibraryError: a header that cannot be.
    """
    at = start
    while at + 64 <= start + length:
        kind, _, header, size = struct.unpack_from("<HHIQ", data, at)
        if not 32 <= header <= 4096 or at + header + size > start + length:
            raise NoLibraryError(f"device code at {at:#x} has a header of {header} and {size} bytes")
        (arch,) = struct.unpack_from("<I", data, at + 28)
        yield Image(kind, arch, at + header, size)
        at += header + size


def cut(data: bytes, arch: int, is_wanted: Callable[[bytes], bool] = lambda _: True) -> bytes:
    """The library with the cubins of one architecture only, of wanted containers, and no PTX.

    Raises:
        NoLibraryError: it is no such library.
    """
    found = bytearray(data)
    for place, header, length in containers(data):
        is_kept = is_wanted(data[place + header : place + header + length])
        for image in images(data, place + header, length):
            if not is_kept or (image.kind, image.arch) != (CUBIN, arch):
                found[image.start : image.start + image.size] = bytes(image.size)
    return bytes(found)
