"""A driver process as the service sees it: its process group, its folder, and the channel to it."""

import asyncio
import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from runtime.errors import Reason
from runtime.process.channel import AsyncChannel, Beat, Fatal
from runtime.process.liveness import Vigil
from runtime.vllm_engine.messages import Preparation, Prepared, Started

MODULE = "runtime.vllm_engine.driver.boot"
"""What the process runs."""
GONE_S = 10.0
"""How long a killed process may take to be gone."""


class DriverProcess:
    """A process that imports vLLM and waits for a ``DriverConfig``. Whoever has it hears it."""

    def __init__(self, preparation: Preparation) -> None:
        """Start it; it prepares by itself.

        Raises:
            OSError: no process can be started.
        """
        self.on_message: Callable[[Any], None] = lambda _: None
        self.on_end: Callable[[], None] = lambda: None
        """Called once, if it ends without having been ended."""
        self.is_prepared = False
        self.fatal: Fatal | None = None
        """Why it ends, if it or its watch said so."""
        self._ending: threading.Thread | None = None
        ours, theirs = socket.socketpair()
        # vLLM names sockets and rendezvous files in the temporary folder: it gets one that is removed with it
        self.folder = Path(tempfile.mkdtemp(prefix="intentctl-vllm-", dir=_socket_folder()))
        command = ["env", f"TMPDIR={self.folder}", sys.executable, "-m", MODULE]
        try:
            with theirs, (self.folder / "log").open("wb") as output:
                self._process = subprocess.Popen(
                    [*command, str(theirs.fileno()), str(self.folder)],
                    pass_fds=[theirs.fileno()],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    process_group=0,
                )
        except OSError:
            ours.close()
            shutil.rmtree(self.folder, ignore_errors=True)
            raise
        self.vigil = Vigil(preparation.stall_after_s, preparation.lost_after_s, self._hung)
        self._channel = AsyncChannel(ours, self._hear, self._ended)
        self.send(preparation)

    @property
    def pid(self) -> int:
        """Process id of the driver, and id of the process group."""
        return self._process.pid

    def send(self, message: object) -> None:
        """Send a message; dropped when the process is gone (``on_end`` tells)."""
        self._channel.send(message)

    def log(self) -> list[str]:
        """What it has written so far, by line."""
        try:
            return (self.folder / "log").read_text(errors="replace").splitlines()
        except OSError:
            return []

    def kill(self, shared_memory: set[str]) -> None:
        """End its group, with these files in shared memory, as if it had ended by itself."""
        # in a thread: the processes of the host are many, and the streams of other engines do not wait for them
        self._ending = threading.Thread(target=end_group, args=(self.pid, shared_memory), daemon=True)
        self._ending.start()

    def end(self, shared_memory: set[str]) -> None:
        """Hear nothing more of it, and end its group. Idempotent."""
        self.vigil.stop()
        self._channel.close()
        self.kill(shared_memory)

    async def close(self) -> None:
        """Wait until an ended process is gone, if it goes, and remove its folder. Idempotent."""
        await asyncio.to_thread(self._bury)

    def _bury(self) -> None:
        if self._ending is not None:
            self._ending.join(GONE_S)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(GONE_S)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _hear(self, message: Any) -> None:
        if isinstance(message, Beat):
            self.vigil.hear(message)
        elif isinstance(message, Fatal):
            self.fatal = message
        else:
            self.is_prepared = self.is_prepared or isinstance(message, Prepared)
            if isinstance(message, Started):
                self.vigil.begin()
            self.on_message(message)

    def _hung(self, why: str) -> None:
        self.fatal = Fatal(Reason.ENGINE_LOST, why)
        self.kill(set())

    def _ended(self) -> None:
        self.vigil.stop()
        self.on_end()


def _socket_folder() -> str:
    """Where names of sockets stay within what Linux takes (107 characters; vLLM's have 37, ours about 24)."""
    folder = tempfile.gettempdir()
    return folder if len(folder) < 40 else "/tmp"  # noqa: S108 - the folder made in it is private


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
