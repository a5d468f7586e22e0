"""A process of its own for what computes for long: streams would stand still for it.

``python -m service.serving.worker_process FD NICENESS`` is that process. It imports no engine and keeps nothing; each piece of
work has a thread. It ends with the service, however that ends.
"""

import itertools
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Hashable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import TypeVar, cast

from runtime.errors import RuntimeFault
from service.documents.errors import RefusedError, ServiceError
from service.documents.problems import Code

log = logging.getLogger(__name__)

T = TypeVar("T")
Reply = Future[tuple[object, object]]
"""An answer, and nothing or what went wrong."""

PATIENCE_S = 300
"""For one piece of work, and for its turn behind that of others."""
NICENESS = 5
"""Streams go first; beside a process that is always busy it has a quarter of a core."""
IN_LINE = 16
"""Pieces of work of one caller, the one that is done among them."""
REMEMBERED = 256
"""Answers."""


class WorkerProcess:
    """Does pure work in a process of its own.

    It starts with the first piece of work, and anew after one that was lost.

    Any thread may ask, and waits.
    """

    def __init__(self, at_once: int = 1, patience_s: float = PATIENCE_S, niceness: int = NICENESS) -> None:
        """``at_once``: pieces of work that are done beside each other.

        ``niceness``: of the process, more than the service's.
        """
        self._patience_s = patience_s
        self._niceness = niceness
        self._places = threading.BoundedSemaphore(at_once)
        self._starting = threading.Lock()
        self._process: _Process | None = None
        self._is_closed = False
        self._counting = threading.Lock()
        self._turns: dict[str, tuple[threading.Lock, int]] = {}
        self._known: dict[Hashable, object] = {}

    def close(self) -> None:
        """End the process, whatever it does."""
        with self._starting:
            self._is_closed = True
            if self._process is not None:
                self._process.end()

    @contextmanager
    def turn(self, caller: str) -> Iterator[None]:
        """Wait until nothing else is done for a caller.

        Raises:
            RefusedError: too much waits for this caller already.
        """
        with self._counting:
            lock, num_waiting = self._turns.get(caller, (threading.Lock(), 0))
            if num_waiting >= IN_LINE:
                message = (
                    f"{IN_LINE} plans and simulations of this caller wait already; ask again when they are answered"
                )
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
        if not self._places.acquire(timeout=self._patience_s):
            raise RefusedError(Code.OVERLOADED, "other plans take long; ask again later")
        try:
            if (known := self._known.get(once)) is not None:  # somebody else asked the same meanwhile
                return cast("T", known)
            answer = self._done(work, arguments)
            if once is not None:
                kept = self._known if len(self._known) < REMEMBERED else {}
                self._known = {**kept, once: answer}  # others read the one before
            return answer
        finally:
            self._places.release()

    def _done(self, work: Callable[..., T], arguments: tuple[object, ...]) -> T:
        process = self._running()
        why = "was lost"
        try:
            answer, error = process.ask(work, arguments).result(self._patience_s)
        except (TimeoutError, OSError) as silence:
            if isinstance(silence, TimeoutError):
                why = f"took over {self._patience_s:g} s"
                process.end()
            log.warning("the process that does %s %s; the next starts anew", work.__name__, why)
            code = Code.STOPPING if self._is_closed else Code.OVERLOADED
            message = f"the process that plans and translates {why}; ask for less, or again later"
            raise RefusedError(code, message) from None
        if isinstance(error, Exception):
            raise error
        return cast("T", answer)

    def _running(self) -> "_Process":
        with self._starting:
            if self._is_closed:
                raise RefusedError(Code.STOPPING, "the service is stopping and plans nothing new")
            if self._process is None or self._process.is_lost:
                self._process = _Process(self._niceness)
            return self._process


class _Process:
    """One process, and what it was asked."""

    def __init__(self, niceness: int) -> None:
        self._pipe, theirs = Pipe()
        command = [sys.executable, "-P", "-m", "service.serving.worker_process", str(theirs.fileno()), str(niceness)]
        self._process = subprocess.Popen(  # in a group of its own: Ctrl-C is for the service
            command, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, process_group=0
        )
        theirs.close()
        self._asking = threading.Lock()
        self._numbers = itertools.count()
        self._asked: dict[int, Reply] = {}
        self.is_lost = False
        threading.Thread(target=self._hear, name="apart", daemon=True).start()

    def ask(self, work: Callable[..., object], arguments: tuple[object, ...]) -> Reply:
        """What comes of some work.

        Raises:
            OSError: the process is gone; so does the answer to what it cannot answer any more.
        """
        reply = Reply()
        number = next(self._numbers)
        with self._asking:
            if self.is_lost:
                raise OSError
            self._asked[number] = reply
            self._pipe.send((number, work, arguments))
        return reply

    def end(self) -> None:
        """End it, whatever it does."""
        self.is_lost = True
        self._process.kill()
        self._process.wait()

    def _hear(self) -> None:
        """Hand on answers until there are no more."""
        with suppress(EOFError, OSError):
            while True:
                number, *answered = self._pipe.recv()
                self._asked.pop(number).set_result(cast("tuple[object, object]", answered))
        self.end()
        with self._asking:  # nothing is asked any more
            self._pipe.close()
        for reply in self._asked.values():
            reply.set_exception(OSError())


def main() -> None:
    """Do what comes over a pipe, each in a thread, until the service is gone."""
    os.nice(int(sys.argv[2]))
    pipe = Connection(int(sys.argv[1]))
    sending = threading.Lock()

    def do(number: int, work: Callable[..., object], arguments: tuple[object, ...]) -> None:
        try:
            answered: tuple[object, object] = work(*arguments), None
        except (ServiceError, RuntimeFault) as refusal:
            answered = None, refusal
        except Exception as error:
            log.exception("%s", work.__name__)
            answered = None, RuntimeError(f"{work.__name__}: {type(error).__name__}: {error}")
        with sending:
            pipe.send((number, *answered))

    with suppress(EOFError, OSError):
        while True:
            threading.Thread(target=do, args=pipe.recv(), daemon=True).start()
    os._exit(0)  # nobody waits for what is still done


if __name__ == "__main__":
    main()
