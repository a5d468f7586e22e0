"""One service to a data folder: two would count generations together and end each other's operations."""

import asyncio
import fcntl
import logging
import time
from contextlib import suppress
from pathlib import Path
from typing import IO

from service.documents.errors import StartError

log = logging.getLogger(__name__)

LOCK_FILE = "service.store.lock"
TRIES = 10
"""``holder`` holds the lock for a moment when it looks."""
BREATH_S = 0.05
"""Between two tries."""
LOOK_S = 0.5
"""Between two tries of a service that stands by."""
OF_SEVERAL_MACHINES = frozenset({"nfs", "nfs4", "cifs", "smb3", "9p", "ceph", "glusterfs", "lustre", "gpfs", "afs"})


async def lock_of(folder: Path, address: str, *, wait: bool, has_database: bool = True) -> IO[str]:
    """The lock of a folder, with its service's address; ``wait``: once another service has ended.

    ``has_database``: the database is a file in it.

    Raises:
        StartError: another service holds it, or it cannot be written.
    """
    kind = file_system(folder) if wait and has_database else ""
    if kind in OF_SEVERAL_MACHINES or kind.startswith("fuse."):
        raise StartError(
            f"{folder} is on a file system of several machines ({kind}), where a lock says nothing of who has died; "
            "serve --wait wants a folder of this machine, and PostgreSQL for services on several"
        )
    is_told = False
    while True:
        try:
            return take_lock(folder, address)
        except LockedError as error:
            if not wait:
                raise
            if not is_told:
                log.warning("standing by: %s; this service starts when that one is gone", error)
                is_told = True
            await asyncio.sleep(LOOK_S)


def file_system(folder: Path) -> str:
    """The kind of file system that a folder is on, as Linux names it; empty elsewhere."""
    place = folder.resolve()
    mounted = dict[Path, str]()
    with suppress(OSError):
        for line in Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines():
            _, at, kind, *_ = line.split()
            mounted[Path(at.replace("\\040", " "))] = kind
    return next((mounted[above] for above in (place, *place.parents) if above in mounted), "")


class LockedError(StartError):
    """Another service holds a folder."""


def take_lock(folder: Path, address: str = "") -> IO[str]:
    """An open file that holds the folder until it is closed or the process ends.

    It has the address of what holds it.

    Raises:
        LockedError: another service holds it.
        StartError: it cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = (folder / LOCK_FILE).open("a+")
    except OSError as error:
        raise StartError(f"{folder} cannot be written: {error}; name another with --data-dir") from error
    for _ in range(TRIES):
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            time.sleep(BREATH_S)
        else:
            file.truncate(0)
            print(address, end="", file=file, flush=True)
            return file
    file.close()
    raise LockedError(f"another service uses {folder}; give this one its own folder with --data-dir")


def holder(folder: Path) -> str:
    """The address of the service that holds a folder now; empty: none does."""
    with suppress(OSError, ValueError), (folder / LOCK_FILE).open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return file.read()
    return ""
