"""A process of its own for plans and simulations, which compute for seconds: streams would stand still for them.

``python -m service.apart FD`` is that process. It has a lower priority, imports no engine, does one piece of work at a
time and keeps nothing. It ends with the service, or by itself when work takes too long.
"""

import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import TypeVar, cast

from runtime.errors import RuntimeFault
from service.documents.problems import Code, Problem
from service.errors import RefusedError, ServiceError

log = logging.getLogger(__name__)

T = TypeVar("T")

PATIENCE_S = 300
"""For one piece of work, and for its turn behind that of others."""
START_S = 30
"""For the process to start, too."""
NICENESS = 10
"""Streams go first; on a busy machine it still has a tenth of a core."""
IN_LINE = 16
"""Pieces of work of one caller, the one that is done among them."""
REMEMBERED = 256
"""Answers."""
ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
"""What numpy's libraries read when they are loaded."""


class Apart:
    """Does pure work in a process of its own, which starts with the first and anew after one that was lost.

    Any thread may ask, and waits.
    """

    def __init__(self, patience_s: float = PATIENCE_S) -> None:
        self._patience_s = patience_s
        self._working = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._pipe: Connection
        self._is_closed = False
        self._counting = threading.Lock()
        self._turns: dict[str, tuple[threading.Lock, int]] = {}
        self._known: dict[Hashable, object] = {}

    def close(self) -> None:
        """End the process, whatever it does."""
        self._is_closed = True
        if self._process is not None:
            self._end(self._process)

    @contextmanager
    def turn(self, caller: str) -> Iterator[None]:
        """Wait until nothing else is done for a caller.

        Raises:
            RefusedError: too much waits for this caller already.
        """
        with self._counting:
            lock, num_waiting = self._turns.get(caller, (threading.Lock(), 0))
            if num_waiting >= IN_LINE:
                message = f"{IN_LINE} plans and simulations of this caller wait already; ask again when they are answered"
                raise RefusedError(Code.RATE_LIMITED, message)
            self._turns[caller] = lock, num_waiting + 1
        try:
            with lock:
                yield
        finally:
            with self._counting:
                num_left = self._turns.pop(caller)[1] - 1
                if num_left:
                    self._turns[caller] = lock, num_left

    def do(self, work: Callable[..., T], *arguments: object, once: Hashable = None) -> T:
        """What a function of a module returns; it and its arguments go over as pickles.

        ``once`` names the work where its answer stays right: asked again it is not done again.

        Raises:
            ServiceError: what the function raised; or the process was lost, took too long, or has much to do.
            RuntimeFault: as the function raised it.
        """
        if (known := self._known.get(once)) is not None:
            return cast("T", known)
        with self._alone():
            if (known := self._known.get(once)) is not None:  # somebody else asked the same meanwhile
                return cast("T", known)
            answer = self._done(work, arguments)
            if once is not None:
                kept = self._known if len(self._known) < REMEMBERED else {}
                self._known = {**kept, once: answer}  # others read the one before
            return answer

    @contextmanager
    def _alone(self) -> Iterator[None]:
        if not self._working.acquire(timeout=self._patience_s):
            raise RefusedError(Code.OVERLOADED, "other plans take long; ask again later")
        try:
            yield
        finally:
            self._working.release()

    def _done(self, work: Callable[..., T], arguments: tuple[object, ...]) -> T:
        if self._process is not None and self._process.poll() is not None:
            self._end(self._process)  # it was lost while it had nothing to do
        process = self._process or self._start()
        try:
            self._pipe.send((work, arguments, self._patience_s))
            if not self._pipe.poll(self._patience_s + START_S):
                raise TimeoutError  # it was stopped, or it had ended by itself
            answer, error = self._pipe.recv()
        except (EOFError, OSError) as silence:
            status = self._end(process)
            is_late = isinstance(silence, TimeoutError) or status == -signal.SIGALRM
            why = f"took over {self._patience_s:g} s" if is_late else "was lost"
            log.warning("%s %s (status %d); the next starts a process anew", work.__name__, why, status)
            code = Code.STOPPING if self._is_closed else Code.OVERLOADED
            message = f"the process that plans {why}; ask for less, or again later"
            raise RefusedError(code, message) from None
        if isinstance(error, Problem):
            raise RefusedError.answered(error)
        if error is not None:
            raise error
        return cast("T", answer)

    def _start(self) -> "subprocess.Popen[bytes]":
        self._pipe, theirs = Pipe()
        command = [sys.executable, "-m", "service.apart", str(theirs.fileno())]
        self._process = subprocess.Popen(  # in a group of its own: Ctrl-C is for the service
            command, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, process_group=0
        )
        theirs.close()
        if self._is_closed:
            self._process.kill()
        return self._process

    def _end(self, process: "subprocess.Popen[bytes]") -> int:
        """The status with which it ended."""
        process.kill()  # nothing where it has ended
        status = process.wait()
        self._pipe.close()
        self._process = None
        return status


def _answer(work: Callable[..., object], arguments: tuple[object, ...]) -> tuple[object, object]:
    """What it returns, and nothing or what went wrong."""
    try:
        return work(*arguments), None
    except ServiceError as refusal:
        return None, refusal.problem
    except RuntimeFault as fault:
        return None, fault
    except Exception as error:
        log.exception("%s", work.__name__)
        return None, RuntimeError(f"{work.__name__}: {type(error).__name__}: {error}")


def main() -> None:
    """Do what comes over a pipe, piece by piece, until the service is gone."""
    os.nice(NICENESS)
    for name in ONE_THREAD:
        os.putenv(name, "1")
    pipe = Connection(int(sys.argv[1]))
    with suppress(EOFError, OSError):
        while True:
            work, arguments, patience_s = pipe.recv()
            signal.setitimer(signal.ITIMER_REAL, patience_s)  # which ends this process, whatever it does
            answered = _answer(work, arguments)
            signal.setitimer(signal.ITIMER_REAL, 0)
            pipe.send(answered)


if __name__ == "__main__":
    main()
