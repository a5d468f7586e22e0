"""Drivers of tests, from a process that has imported what they need: torch is imported once, not for each of them.

All but the start is real: a driver is a process in a group of its own that runs its module as ``__main__``. What is started with
``python -m`` as people's are: ``real_start``.
"""

import multiprocessing
import os
import runpy
import socket
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from multiprocessing import forkserver, reduction
from pathlib import Path

import pytest

from runtime.process import launcher
from runtime.process.launcher import GONE_S, Program, end_group, group_pids

IMPORTED = ("runtime.torch_engine.driver.loop", "tests.forked")
"""What the server imports: what drivers need, and where they begin."""
DRIVERS = ("runtime.torch_engine.driver.", "tests.runtime.torch_engine.", "benchmarks.sick_driver")
"""Beginnings of the modules that are started so."""

_executed = launcher._executed
FORK_SERVER = multiprocessing.get_context("forkserver")
FORK_SERVER.set_forkserver_preload([*IMPORTED])


class _Fd:
    """A descriptor that goes along."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def __reduce__(self) -> tuple[Callable[..., int], tuple[object]]:
        return _inherited, (reduction.DupFd(self._fd),)


def _inherited(duplicate: object) -> int:
    return duplicate.detach()  # type: ignore[attr-defined, no-any-return]


def _run(module: str, sock: int, output: tuple[int, int], environment: dict[str, str]) -> None:
    """Be what ``python -m`` starts."""
    os.setpgid(0, 0)
    for place, fd in enumerate(output, start=1):
        os.dup2(fd, place)
        os.close(fd)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = [module, str(sock)]
    warnings.filterwarnings("ignore", "'runtime.torch_engine.driver", RuntimeWarning)  # it is imported already
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def _forked(program: Program, sock: socket.socket, folder: Path | None) -> launcher._Child:
    if folder or not program.module.startswith(DRIVERS):
        return _executed(program, sock, folder)
    sock_fd, output = _Fd(sock.fileno()), (_Fd(1), _Fd(2))
    child = FORK_SERVER.Process(target=_run, args=(program.module, sock_fd, output, dict(os.environ)))
    child.start()
    assert child.pid is not None
    pid = child.pid

    def finish(litter: set[str]) -> None:
        with suppress(ProcessLookupError):
            os.kill(pid, launcher.signal.SIGKILL)  # it may be about to make its group
        end_group(pid, litter, look=False)
        child.join(GONE_S)
        until_s = time.monotonic() + GONE_S
        while group_pids(pid) and time.monotonic() < until_s:
            time.sleep(0.01)

    return pid, finish


@pytest.fixture(autouse=True, scope="session")
def forked_drivers() -> Iterator[None]:
    launcher._executed = _forked
    yield
    launcher._executed = _executed
    forkserver._forkserver._stop()


@pytest.fixture
def real_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drivers start as people's do."""
    monkeypatch.setattr(launcher, "_executed", _executed)
