"""The processes of one vLLM engine and what they leave behind. Linux: reads /proc."""

import contextlib
import os
import signal
from pathlib import Path

SHARED_MEMORY = "/dev/shm/"  # noqa: S108 - where Linux keeps it


def group_pids(group: int) -> list[int]:
    """Processes of a process group that are still there."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                # the name in parentheses may hold spaces; what follows it does not
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                if int(fields[2]) == group and fields[0] != "Z":
                    found.append(int(entry.name))
    return found


def shared_memory_of(pids: list[int]) -> set[str]:
    """Files in shared memory that these processes have mapped, found by inode: a semaphore is mapped by another name."""
    mapped = set()
    for pid in pids:
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
                fields = line.split(maxsplit=5)
                if len(fields) > 5 and fields[5].startswith(SHARED_MEMORY):
                    mapped.add(int(fields[4]))
    return {entry.path for entry in os.scandir(SHARED_MEMORY) if entry.inode() in mapped}


def end_group(group: int, shared_memory: set[str]) -> None:
    """Remove a process group's files in shared memory, the known ones and those mapped now, then kill what is left of it.

    In this order, for the group may be the caller's own.
    """
    for path in shared_memory | shared_memory_of(group_pids(group)):
        Path(path).unlink(missing_ok=True)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)
