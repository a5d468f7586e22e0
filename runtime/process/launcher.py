"""Starting processes of ours, and their ends: the one way for drivers and workers of both engines.

A process is known by its host, its device and its incarnation: another one on the same device is another process. Linux: reads
/proc.
"""

import asyncio
import contextlib
import ctypes
import importlib
import itertools
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from runtime.process.channel import AsyncChannel, Ends, Hears
from runtime.process.liveness import is_stopped

GONE_S = 10.0
"""How long a killed process may take to be gone."""
SHARED_MEMORY = "/dev/shm/"  # noqa: S108 - where Linux keeps it
_PR_SET_PDEATHSIG = 1
_ENDINGS = ThreadPoolExecutor(16, "ending")
"""Wait for the ends of processes. A lost engine comes back after its driver's: nothing else may take these threads."""


@dataclass(frozen=True, slots=True)
class Incarnation:
    """Which process."""

    host: str
    device: int | None
    """Inventory index; None for one that has none of its own."""
    number: int
    """No two of a launcher have the same."""


@dataclass(frozen=True, slots=True)
class Program:
    """What to start: a module, which finds the descriptor of its socket as its first argument."""

    module: str
    speaks: Any
    """The type of what it says."""
    device: int | None = None
    is_warm: bool = False
    """Where its parent has imported what it needs, it is a copy of that; its ``run`` gets the socket. It ends with its parent."""
    has_folder: bool = False
    """It gets a folder for temporary files and its log, as its second argument; else its output is its parent's."""


class Channel(Protocol):
    """What is said to a process."""

    def send(self, message: object) -> None:
        """Send now, or as soon as there is room."""

    def send_encoded(self, data: bytes) -> None:
        """The same, for what ``encode`` made."""

    def hold(self, is_held: bool) -> None:
        """Hear nothing while it is held."""

    def close(self) -> None:
        """Hear nothing more."""


class Process:
    """One that was started, as its parent sees it: what its host does to it is the launcher's to say."""

    def __init__(
        self, incarnation: Incarnation, pid: int, channel: Channel, finish: Callable[[set[str]], None]
    ) -> None:
        """``finish`` ends it, and those that it started, and waits until it is gone, if it goes."""
        self.incarnation = incarnation
        self.pid = pid
        """For people and their tools."""
        self._finish = finish
        self.folder: Path | None = None
        """Its temporary files and its log, where that is kept."""
        self.litter = set[str]()
        """Files in shared memory that a crash would leave."""
        self._channel = channel
        self.send = channel.send
        self.send_encoded = channel.send_encoded
        self.hold = channel.hold
        self._ending: threading.Thread | None = None

    @property
    def is_stopped(self) -> bool:
        """A signal or a debugger stopped it."""
        return is_stopped(self.pid)

    def log(self) -> list[str]:
        """What it has written so far, by line, where that is kept."""
        try:
            return (self.folder / "log").read_text(errors="replace").splitlines() if self.folder else []
        except OSError:
            return []

    def kill(self) -> None:
        """End it, and those that it started, as if it had ended by itself. Idempotent."""
        if self._ending is None:
            # in a thread: processes of the host are many and a GPU lets go slowly, and streams of others do not wait for that
            self._ending = threading.Thread(target=self._finish, args=(self.litter,), daemon=True)
            self._ending.start()

    def end(self) -> None:
        """Hear nothing more of it, and end it. Idempotent."""
        self._channel.close()
        self.kill()

    async def close(self) -> None:
        """Wait until an ended one is gone, if it goes, and remove its folder. Idempotent."""
        await asyncio.get_running_loop().run_in_executor(_ENDINGS, self.join, GONE_S)

    def join(self, seconds: float) -> None:
        """The same, without a loop, for so long at most."""
        if self._ending is not None:
            self._ending.join(seconds)
        if self.folder:
            shutil.rmtree(self.folder, ignore_errors=True)


class SharedFile(Protocol):
    """Memory on a host, by the path at which its processes open it."""

    path: str
    inode: int
    """The path is that of a descriptor, whose number another file may get later."""

    def close(self) -> None:
        """Give it back as soon as no process has it open. Idempotent."""


class Launcher(Protocol):
    """Starts processes on a host."""

    host: str
    first_device: int
    """The inventory index of its first device."""
    visible: str
    """What its processes may use of its GPUs, as in ``CUDA_VISIBLE_DEVICES``; empty: all."""

    async def memory(self, size: int) -> SharedFile:
        """Make shared memory of so many bytes.

        Raises:
            EngineLostError: the host is lost.
        """

    def start(self, program: Program, on_message: Hears, on_end: Ends) -> Process:
        """Start a process; ``on_end`` hears once how it ended, unless somebody ended it.

        It gets what was wrong with its last message.

        Raises:
            OSError: no process can be started.
        """


class MemoryHere:
    """Memory of this process."""

    def __init__(self, size: int) -> None:
        self._fd = os.memfd_create("intentctl-staging")
        os.ftruncate(self._fd, size)
        self.path, self.inode = f"/proc/{os.getpid()}/fd/{self._fd}", os.fstat(self._fd).st_ino

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class LocalLauncher:
    """On this machine."""

    def __init__(self, host: str = "localhost", first_device: int = 0, visible: str = "") -> None:
        self.host = host
        self.first_device = first_device
        self.visible = visible
        self._numbers = itertools.count(1)

    async def memory(self, size: int) -> SharedFile:
        return MemoryHere(size)

    def start(self, program: Program, on_message: Hears, on_end: Ends) -> Process:
        ours, theirs = socket.socketpair()
        folder: Path | None = None
        try:
            with theirs:
                # vLLM names sockets and rendezvous files in the temporary folder: it gets one that is removed with it
                if program.has_folder:
                    folder = Path(tempfile.mkdtemp(prefix="intentctl-vllm-", dir=_socket_folder()))
                start = _forked if program.is_warm else _executed
                pid, finish = start(program, theirs, folder)
        except OSError:
            ours.close()
            if folder:
                shutil.rmtree(folder, ignore_errors=True)
            raise
        incarnation = Incarnation(self.host, program.device, next(self._numbers))
        process = Process(incarnation, pid, AsyncChannel(ours, on_message, on_end, program.speaks), finish)
        process.folder = folder
        return process


class Launchers(Protocol):
    """Of all hosts of a cluster."""

    def host_of(self, devices: Collection[int]) -> str:
        """The host that has all of these devices.

        Raises:
            TopologyError: they are on several.
        """

    def address(self, host: str, seen_by: str) -> str:
        """The IP address of a host as another one reaches it; empty where nobody knows.

        Raises:
            OSError: one of them is lost.
        """

    def on(self, host: str) -> Launcher:
        """Its launcher.

        Raises:
            OSError: the host is lost.
        """


class OneHost:
    """All devices are this machine's."""

    def __init__(self, visible: str = "") -> None:
        self._launcher = LocalLauncher(visible=visible)

    def host_of(self, devices: Collection[int]) -> str:  # noqa: ARG002 - the protocol's
        return self._launcher.host

    def address(self, host: str, seen_by: str) -> str:  # noqa: ARG002 - the protocol's
        return ""

    def on(self, host: str) -> Launcher:  # noqa: ARG002 - the protocol's
        return self._launcher


_Child = tuple[int, Callable[[set[str]], None]]


def _executed(program: Program, sock: socket.socket, folder: Path | None) -> _Child:
    # neither it nor what it starts imports from the working directory, whatever lies there
    command = ["env", "PYTHONSAFEPATH=1", sys.executable, "-m", program.module, str(sock.fileno())]
    with contextlib.ExitStack() as files:
        output = None
        if folder:
            command = [*command[:1], f"TMPDIR={folder}", *command[1:], str(folder)]
            output = files.enter_context((folder / "log").open("wb"))
        child = subprocess.Popen(
            command, pass_fds=[sock.fileno()], stdin=subprocess.DEVNULL, stdout=output, stderr=output, process_group=0
        )  # fmt: skip

    def finish(litter: set[str]) -> None:
        end_group(child.pid, litter, look=folder is not None)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(GONE_S)
        until_s = time.monotonic() + GONE_S  # those that it started are killed too, but not ours to wait for
        while group_pids(child.pid) and time.monotonic() < until_s:
            time.sleep(0.01)

    return child.pid, finish


def _forked(program: Program, sock: socket.socket, _: Path | None) -> _Child:
    run = importlib.import_module(program.module).run  # before, so that the copy is warm

    def finish(_: set[str]) -> None:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)

    if pid := os.fork():
        return pid, finish
    status = 1
    try:
        # nothing of the parent's is held, or its death would not be noticed at the other ends
        os.closerange(3, sock.fileno())
        os.closerange(sock.fileno() + 1, os.sysconf("SC_OPEN_MAX"))
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # a worker never outlives its driver
        run(sock)
        status = 0
    except BaseException:
        traceback.print_exc()
        raise
    finally:
        sys.stderr.flush()
        os._exit(status)  # no clean-up of what was inherited


def _socket_folder() -> str:
    """Where names of sockets stay within what Linux takes (107 characters; vLLM's have 37, ours about 24)."""
    folder = tempfile.gettempdir()
    return folder if len(folder) < 40 else "/tmp"  # noqa: S108 - the folder made in it is private


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
    """Files in shared memory that these processes have mapped, found by inode.

    A semaphore is mapped by another name.
    """
    mapped = set()
    for pid in pids:
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
                fields = line.split(maxsplit=5)
                if len(fields) > 5 and fields[5].startswith(SHARED_MEMORY):
                    mapped.add(int(fields[4]))
    return {entry.path for entry in os.scandir(SHARED_MEMORY) if entry.inode() in mapped}


def end_group(group: int, litter: set[str], *, look: bool = True) -> None:
    """Remove a process group's files in shared memory, then kill what is left of it.

    The known files and those mapped now.

    In this order, for the group may be the caller's own. ``look`` for those mapped now.
    """
    for path in litter | (shared_memory_of(group_pids(group)) if look else set()):
        Path(path).unlink(missing_ok=True)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)
