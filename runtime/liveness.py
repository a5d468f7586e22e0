"""Time as this process's own loop lives it: what others have to answer in is counted in it."""

import asyncio
import time
from collections.abc import Callable

TURN_S = 0.25
"""Between two turns."""


class AwakeClock:
    """Seconds in which the loop turned. However long the machine or this process stood still, it counts as one turn:
    nobody is overdue for that."""

    def __init__(self, on_turn: Callable[[], None]) -> None:
        """``on_turn`` is called about every quarter of a second; what it raises goes to the loop's exception handler."""
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
