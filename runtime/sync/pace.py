"""How fast a background copy may go, and whether it gains on what it copies.

Pure: the caller has the clock.
"""

_WORTHWHILE = 1.5
"""By so much faster a slice of twice the slots has to be copied, or it only keeps others waiting for longer."""
_TRY_EVERY = 16
"""Slices until twice the slots are tried again."""


class Pace:
    """Keeps copying to its share of the time, in slices as large as the time that went by allows.

    A worker that also serves copies between two steps only: with slices of a fixed size the length of a step, not the
    share, would bound the rate. And where each slice costs a millisecond however small it is (on a GPU), small ones never keep
    up: slices double as long as that copies more in the same time.
    """

    def __init__(self, share: float, least: int) -> None:
        """``share`` of the time may be spent on copying, ``least`` slots are copied in one go at least."""
        self._share = share
        self._slice = least
        self._slots_per_s = 0.0
        self._saved_s = 0.0
        self._rate_before: float | None = None
        """Slots per second of slices of half the slots, while these are tried."""
        self._until_try = 1  # the first slice finds memory cold

    @property
    def slots(self) -> int:
        """Slots to copy next."""
        return max(self._slice, int(self._saved_s * self._slots_per_s))

    def copied(self, slots: int, copying_s: float, elapsed_s: float) -> float:
        """Book a copy that took ``copying_s`` out of ``elapsed_s`` since it was ordered.

        Returns the seconds to pause.
        """
        if slots and copying_s > 0:
            self._slots_per_s = slots / copying_s
            self._try_larger(slots)
        allowed_s = elapsed_s * self._share
        balance_s = self._saved_s + allowed_s - copying_s
        self._saved_s = min(max(balance_s, 0.0), allowed_s)  # what was not needed is not saved up for a burst
        return max(-balance_s, 0.0) / self._share

    def _try_larger(self, slots: int) -> None:
        if slots < self._slice:
            return  # it tells nothing of a whole slice
        if self._rate_before is not None and self._slots_per_s < _WORTHWHILE * self._rate_before:
            self._slice //= 2
            self._rate_before = None
            self._until_try = _TRY_EVERY
        elif self._until_try:
            self._until_try -= 1
        else:
            self._rate_before = self._slots_per_s
            self._slice *= 2


class Passes:
    """Whether a sync converges.

    While as much was copied as was to be copied, less than half of that came anew.
    """

    def __init__(self) -> None:
        self._goal: int | None = None
        self._copied = 0
        self.is_gaining = True
        """As of the last whole pass."""

    def measured(self, copied: int, left: int) -> None:
        """``copied`` slots were copied since the last call and ``left`` are still to copy."""
        self._copied += copied
        if self._goal is not None and self._copied < self._goal:
            return
        self.is_gaining = self._goal is None or left <= self._goal / 2
        self._goal = left
        self._copied = 0
