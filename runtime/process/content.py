"""What is served, by its content: files of a checkpoint, and the code that this process imported.

Both are pinned when a service starts. Whatever starts later is held against them, so that nothing else is served under the
same name (docs/decisions/0049).
"""

import asyncio
import hashlib
import json
import logging
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import BinaryIO, Self

from runtime.errors import CheckpointError

log = logging.getLogger(__name__)

PACKAGES = ("intentctl", "torch", "vllm")
"""Whose versions have to be the same in all processes and on all hosts."""
_CARRIES = "nixl-cu12"
"""Moves KV between hosts; carriers compare its versions when they meet."""
WEIGHTS = frozenset({".bin", ".gguf", ".pt", ".pth", ".safetensors"})
"""Files that are sampled if they are large; the others are read whole."""
READ = WEIGHTS | {".jinja", ".json", ".model", ".py", ".tiktoken", ".txt"}
"""What loaders read of a checkpoint folder; the rest of it may change."""
LOOK_S = 30.0
"""Between two looks whether a checkpoint that serves has changed."""
_WHOLE_BYTES = 1 << 20
_PAGE_BYTES = 4096
_NUM_PAGES = 64
"""Of a large file, evenly."""
_MOST_TENSORS = 1024
"""Of a large file, whose pages are sampled."""
_MOST_HEADER_BYTES = 100_000_000
"""Of safetensors."""


@dataclass(frozen=True, slots=True)
class FileMark:
    """A file as it was. Where all but its digest is the same, so is that."""

    digest: str
    inode: int
    num_bytes: int
    changed_ns: int
    """When it was last written to, renamed or touched."""

    def is_of(self, found: os.stat_result) -> bool:
        """Whether a file is untouched since."""
        return (self.inode, self.num_bytes, self.changed_ns) == (found.st_ino, found.st_size, found.st_ctime_ns)


@dataclass(frozen=True, slots=True)
class PinnedCheckpoint:
    """A checkpoint folder, and what was in it when it was first served."""

    folder: Path
    files: Mapping[str, FileMark]

    @classmethod
    def of(cls, folder: Path) -> Self:
        """As it is now; nothing is in a folder that is not there. Reads a part of each file.

        Raises:
            CheckpointError: a file cannot be read.
        """
        return cls(folder, _marks(folder, {}))

    @property
    def digests(self) -> dict[str, str]:
        """Of each file; of a large one of weights: its size, its first MiB, pages of it and of its tensors."""
        return {name: mark.digest for name, mark in self.files.items()}

    @property
    def digest(self) -> str:
        """Of all of it."""
        return hashlib.sha256(json.dumps(self.digests, sort_keys=True).encode()).hexdigest()[:16]

    def verified(self) -> Self:
        """The same with the files as they are here and now; a file that was touched is read again.

        On another host than that of ``of`` all of them are.

        Raises:
            CheckpointError: it has other content, or a file cannot be read.
        """
        found = replace(self, files=_marks(self.folder, self.files))
        if other := other_files(self.digests, found.digests):
            times_ns = [mark.changed_ns for name, mark in found.files.items() if name in other]
            when = f" at {datetime.fromtimestamp(max(times_ns) / 1e9):%Y-%m-%d %H:%M}" if times_ns else ""  # noqa: DTZ006
            raise CheckpointError(
                f"the checkpoint at {self.folder} changed{when} ({', '.join(other[:5])}); restart the service to serve it, "
                "or put back what was there"
            )
        return found

    async def verified_beside(self, every_s: float, beat: Callable[[], None]) -> Self:
        """``verified`` in a thread; a disk may be slow, so ``beat`` is called meanwhile."""
        looking = asyncio.create_task(asyncio.to_thread(self.verified))
        while not (await asyncio.wait({looking}, timeout=every_s))[0]:
            beat()
        return looking.result()


async def warn_of_change(checkpoint: PinnedCheckpoint, every_s: float = LOOK_S) -> None:
    """Log that a checkpoint is not what serves any more, as soon as it is noticed, and end."""
    while True:
        await asyncio.sleep(every_s)
        try:
            checkpoint = await asyncio.to_thread(checkpoint.verified)
        except CheckpointError as error:
            log.warning("%s; until then what was loaded serves", error)
            return


def other_files(ours: Mapping[str, str], theirs: Mapping[str, str]) -> list[str]:
    """The names of files whose digests differ, or that one side lacks."""
    return sorted(name for name in ours.keys() | theirs.keys() if ours.get(name) != theirs.get(name))


def _marks(folder: Path, known: Mapping[str, FileMark]) -> dict[str, FileMark]:
    """Of the files in a folder; those of known files that are untouched are not made anew."""
    marks = {}
    try:
        for path in sorted(folder.iterdir()) if folder.is_dir() else ():
            if path.suffix in READ and not path.name.startswith(".") and path.is_file():
                found = path.stat()  # before it is read: what is written meanwhile shows the next time
                mark = known.get(path.name)
                marks[path.name] = mark if mark and mark.is_of(found) else _mark(path, found)
    except OSError as error:
        raise CheckpointError(f"the checkpoint at {folder} cannot be read: {error}") from error
    return marks


def _mark(path: Path, found: os.stat_result) -> FileMark:
    size = found.st_size
    digest = hashlib.sha256(str(size).encode())
    with path.open("rb") as file:
        if size <= _WHOLE_BYTES or path.suffix not in WEIGHTS:
            digest.update(file.read())
        else:
            digest.update(file.read(_WHOLE_BYTES))
            for offset in _sampled(file, size):
                file.seek(offset)
                digest.update(file.read(_PAGE_BYTES))
    return FileMark(digest.hexdigest()[:16], found.st_ino, size, found.st_ctime_ns)


def _sampled(file: BinaryIO, size: int) -> Iterator[int]:
    """Where a large file is read: evenly, and in its tensors. Who trains a part of a model changes few."""
    for number in range(_NUM_PAGES):
        yield (size - _PAGE_BYTES) * number // (_NUM_PAGES - 1)
    file.seek(0)
    length = int.from_bytes(file.read(8), "little")
    if length > _MOST_HEADER_BYTES:
        return  # no safetensors
    with suppress(AttributeError, LookupError, OverflowError, RecursionError, TypeError, ValueError):  # the same
        header = json.loads(file.read(length))
        tensors = [entry["data_offsets"] for name, entry in header.items() if name != "__metadata__"]
        for begin, end in tensors[:: 1 + len(tensors) // _MOST_TENSORS]:
            yield int(8 + length + (begin + end) // 2) % size


def code_digest(folder: Path) -> str:
    """Of the Python files in a folder: the same where these are the same."""
    files = sorted(folder.rglob("*.py"))
    text = b"".join(str(file.relative_to(folder)).encode() + file.read_bytes() for file in files)
    return hashlib.sha256(text).hexdigest()[:8]


def _versions() -> dict[str, str]:
    """Of the packages that are installed here; this one's has a digest of its code behind it."""
    found = {}
    for name in (*PACKAGES, _CARRIES):
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    found["intentctl"] = f"{found.get('intentctl', '')}+{code_digest(Path(__file__).parents[1])}"
    return found


CODE: Mapping[str, str] = _versions()
"""Package to version, as they were when this process imported this: files may have changed since."""


def other_code(theirs: Mapping[str, str]) -> str:
    """Why a process with other code is none of this one's; empty: it has the same."""
    differ = [name for name in PACKAGES if name in theirs and name in CODE and theirs[name] != CODE[name]]
    versions = ", ".join(f"{name} {theirs[name]}, not {CODE[name]}" for name in differ)
    return (
        versions
        and f"the code on disk is not the one that serves ({versions}); restart the service and its agents, or put it back"
    )
