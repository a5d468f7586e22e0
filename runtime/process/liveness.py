"""Deadlines for other processes, and the clock they are counted by.

Time as this process's own loop lives it.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from runtime.errors import Reason, RuntimeFault, SwitchError
from runtime.process.messages import Beat

TURN_S = 0.25
"""Between two turns."""
BEAT_S = 1.0
"""Between two signs of life of a driver."""
START_S = 60.0
"""How long a driver that does not serve yet may give no sign of life: it imports torch or vLLM."""
RESTART_PATIENCE_S = 10.0
"""How long a call waits for a driver that is started anew."""
STEADY_S = 60.0
"""A driver that served for longer is replaced at once when it is lost, others after a pause that doubles each time."""
MOST_PAUSE_S = 60.0
"""The longest such pause."""
WORTH = 10.0
"""A driver that served for so many times the pause before it, one second at least, does not make the next pause longer."""
MOST_FAILED_STARTS = 2
"""With a device to blame; then nothing is tried on it any more."""
MOST_PATIENCE_S = 3600
"""Longer than any step takes."""
STEPS = 5.0
"""A step of an engine may take as many times the slowest one."""
FORGETS = 0.99
"""With each step the time of the slowest one falls to this share: it is forgotten slowly."""
UNREAD_S = 0.05
"""After a machine that stood still an answer may have come in time and not been read."""


def is_stopped(pid: int) -> bool:
    """A signal or a debugger stopped it. Linux: reads /proc."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0] in "Tt"
    except OSError:
        return False


async def in_time(work: Coroutine[Any, Any, Any], seconds: float, what: str) -> Any:
    """Wait for what requests wait for in a cut.

    Raises:
        SwitchError: it takes longer; the other side may be at it still.
    """
    task = asyncio.ensure_future(work)
    try:
        for timeout_s in (seconds, UNREAD_S):
            await asyncio.wait({task}, timeout=timeout_s)
        if not task.done():
            raise SwitchError(
                Reason.DEADLINE, f"{what} took more than {seconds:g} s; requests go on where they were; try again"
            )
        return await task
    finally:
        task.cancel()


class AwakeClock:
    """Seconds in which the loop turned.

    However long the machine or this process stood still, it counts as one turn: nobody is overdue for that.
    """

    def __init__(self, on_turn: Callable[[], None]) -> None:
        """``on_turn`` is called about every quarter of a second.

        What it raises goes to the loop's exception handler.
        """
        self.now_s = 0.0
        self._on_turn, self._loop = on_turn, asyncio.get_running_loop()
        self._last_s = time.monotonic()
        self._next = self._loop.call_later(TURN_S, self._turn)

    def stop(self) -> None:
        """Turn no more."""
        self._next.cancel()

    def _turn(self) -> None:
        now_s = time.monotonic()
        self.now_s += min(now_s - self._last_s, 2 * TURN_S)
        self._last_s = now_s
        self._next = self._loop.call_later(TURN_S, self._turn)
        self._on_turn()


class DriverWatchdog:
    """The service's watch over a driver process: one that gives no sign of life for too long is ended."""

    def __init__(self, stall_after_s: float, lost_after_s: float, end: Callable[[str], None]) -> None:
        """``end`` is called once, with why; the driver ends by itself when only its steps make no progress.

        Raises:
            ValueError: deadlines that end what is well, or that nobody would wait for.
        """
        if not 2 * BEAT_S <= stall_after_s < lost_after_s <= MOST_PATIENCE_S:
            raise ValueError(
                f"{2 * BEAT_S:g} <= stall_after_s {stall_after_s:g} < lost_after_s {lost_after_s:g} <= {MOST_PATIENCE_S} "
                "does not hold: give seconds without progress"
            )
        self._stall_after_s = stall_after_s
        self._lost_after_s = lost_after_s
        self._end = end
        self._clock = AwakeClock(self._turn)
        self._heard_s = self._stalled_s = 0.0
        self._has_begun = False

    @property
    def is_stalled(self) -> bool:
        """It has served and now makes no progress."""
        silent_s = self._clock.now_s - self._heard_s
        return self._has_begun and max(silent_s, self._stalled_s) > self._stall_after_s

    def begin(self) -> None:
        """It serves from now on; before, imports and loading may keep it from any sign for longer."""
        self._has_begun = True
        self._heard_s = self._clock.now_s

    def hear(self, beat: Beat) -> None:
        """It lives."""
        self._heard_s = self._clock.now_s
        self._stalled_s = beat.stalled_s

    def stop(self) -> None:
        """It is gone, or nobody's any more."""
        self._clock.stop()

    def _turn(self) -> None:
        silent_s = self._clock.now_s - self._heard_s
        if silent_s > (self._lost_after_s if self._has_begun else max(START_S, self._lost_after_s)):
            self.stop()
            self._end(f"its driver gave no sign of life for {silent_s:.0f} s and was ended")


class Pauses:
    """Before each start of a lost driver.

    None after a steady while, the same as before after a fair one, else twice as long.
    """

    def __init__(self) -> None:
        self._since_s = time.monotonic()
        self._num_doublings = 0
        self._is_elsewhere = False
        self._failed_starts = Counter[int]()
        """Of each device that was to blame for one, since the last steady while."""

    def served(self) -> None:
        """A driver serves from now on."""
        self._since_s = time.monotonic()

    def lost(self) -> None:
        """It ended."""
        served_s = time.monotonic() - self._since_s
        if served_s > STEADY_S:
            self._num_doublings = 0
            self._failed_starts.clear()
        elif served_s >= WORTH * max(1.0, self._pause_s(self._num_doublings - 1)):
            self._num_doublings = max(0, self._num_doublings - 1)

    def elsewhere(self) -> None:
        """What is tried next is not what failed: it need not wait."""
        self._failed_starts.clear()
        self._is_elsewhere = True

    def is_to_blame(self, failed: RuntimeFault) -> bool:
        """Whether the device that a failed start names, if any, is broken or has failed too often."""
        if failed.device is None:
            return False
        self._failed_starts[failed.device] += 1
        return failed.is_broken or self._failed_starts[failed.device] >= MOST_FAILED_STARTS

    def next_s(self) -> float:
        """How long to wait before the next start."""
        if self._is_elsewhere:
            self._is_elsewhere = False
            return 0.0
        self._num_doublings += 1
        return self._pause_s(self._num_doublings - 1)

    @staticmethod
    def _pause_s(doublings: int) -> float:
        return min(MOST_PAUSE_S, 2.0 ** (doublings - 1)) if doublings > 0 else 0.0
