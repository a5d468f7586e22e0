"""One service to a data folder: two would count generations together and end each other's operations."""

import fcntl
import time
from contextlib import suppress
from pathlib import Path
from typing import IO

from service.documents.errors import StartError

LOCK_FILE = "service.store.lock"
TRIES = 10
"""``holder`` holds the lock for a moment when it looks."""
BREATH_S = 0.05
"""Between two tries."""


def take_lock(folder: Path, address: str = "") -> IO[str]:
    """An open file that holds the folder until it is closed or the process ends.

    It has the address of what holds it.

    Raises:
        StartError: another service holds it, or it cannot be written.
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
    raise StartError(f"another service uses {folder}; give this one its own folder with --data-dir")


def holder(folder: Path) -> str:
    """The address of the service that holds a folder now; empty: none does."""
    with suppress(OSError, ValueError), (folder / LOCK_FILE).open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return file.read()
    return ""
