"""One service to a data folder: two would count generations together and end each other's operations."""

import fcntl
from pathlib import Path
from typing import IO

from service.errors import StartError


def take_lock(folder: Path) -> IO[str]:
    """An open file that holds the folder until it is closed or the process ends.

    Raises:
        StartError: another service holds it, or it cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = (folder / "service.lock").open("w")
    except OSError as error:
        raise StartError(f"{folder} cannot be written: {error}; name another with --data-dir") from error
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        raise StartError(
            f"another service uses {folder}; give this one its own folder with --data-dir"
        ) from None
    return file
