"""How fast a background copy may go, and whether it gains on what it copies.

Pure: the caller has the clock.
"""


class Pace:
    """Keeps copying to its share of the time, in slices as large as the time that went by allows.

    A worker that also serves copies between two steps only: with slices of a fixed size the length of a step, not the
    share, would bound the rate.
    """

    def __init__(self, share: float, least: int) -> None:
        """``share`` of the time may be spent on copying, ``least`` slots are copied in one go at least."""
        self._share, self._least = share, least
        self._slots_per_s = 0.0
        self._saved_s = 0.0

    @property
    def slots(self) -> int:
        """Slots to copy next."""
        return max(self._least, int(self._saved_s * self._slots_per_s))

    def copied(self, slots: int, copying_s: float, elapsed_s: float) -> float:
        """Book a copy that took ``copying_s`` out of ``elapsed_s`` since it was ordered.

        Returns the seconds to pause.
        """
        if slots and copying_s > 0:
            self._slots_per_s = slots / copying_s
        allowed_s = elapsed_s * self._share
        balance_s = self._saved_s + allowed_s - copying_s
        self._saved_s = min(max(balance_s, 0.0), allowed_s)  # what was not needed is not saved up for a burst
        return max(-balance_s, 0.0) / self._share


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
        self._goal, self._copied = left, 0
