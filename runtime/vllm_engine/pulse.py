"""Signs of life of a driver process, from a thread beside vLLM's steps, and its end when they make no progress."""

import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from runtime.channel import Beat, BlockingChannel, Fatal
from runtime.liveness import BEAT_S, is_stopped
from runtime.models import Reason

if TYPE_CHECKING:
    from runtime.vllm_engine.driver import Driver

STEPS, FORGETS = 5.0, 0.99
"""A step may take as many times the slowest one, which is forgotten slowly."""


class Pulse:
    """Counts its own beats: however long the machine slept, that was one."""

    def __init__(self, channel: BlockingChannel, lost_after_s: float, end: Callable[[], None]) -> None:
        """``end`` ends this process, once the service knows why."""
        self.driver: Driver | None = None
        """Whose steps are watched, once it serves."""
        self._channel, self._lost_after_s, self._end = channel, lost_after_s, end
        self._turns = 0
        self._stalled_s = self._slowest_s = 0.0

    def run(self) -> None:
        """Beat for ever."""
        while True:
            time.sleep(BEAT_S)
            self.beat()

    def beat(self) -> None:
        """Look whether steps were made since the last beat, and tell."""
        driver = self.driver
        if driver is None or driver.is_idle or driver.turns != self._turns:
            self._slowest_s = max(self._stalled_s, FORGETS * self._slowest_s)
            self._stalled_s = 0.0
        else:
            self._stalled_s += BEAT_S
        self._turns = driver.turns if driver else 0
        self._channel.send(Beat(self._stalled_s))
        if driver and self._stalled_s > max(self._lost_after_s, STEPS * self._slowest_s):
            detail = f"no step ended for {self._stalled_s:.0f} s: {_who(driver.pids)}"
            self._channel.send(Fatal(Reason.RANK_LOST, detail))
            self._end()


def _who(pids: tuple[int, ...]) -> str:
    stopped = [f"rank {rank} (process {pid})" for rank, pid in enumerate(pids) if is_stopped(pid)]
    return f"the worker of {', '.join(stopped)} is stopped" if stopped else "a worker hangs"


def leave() -> None:
    """End this process at once; the service ends what is left of its group."""
    os._exit(1)
