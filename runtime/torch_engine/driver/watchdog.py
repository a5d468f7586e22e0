"""Deadlines of the driver: who makes no progress is named and ended. A step ends the engine, a target its switch alone."""

import asyncio
from collections.abc import Callable, Mapping, Sized
from dataclasses import dataclass
from typing import Protocol

from runtime.errors import Reason, SwitchError
from runtime.process.channel import Beat, Fatal
from runtime.process.liveness import BEAT_S, AwakeClock
from runtime.torch_engine.driver.host import Host
from runtime.torch_engine.driver.lineup import Lineup

STEPS, FORGETS = 5.0, 0.99
"""A step may take as many times the slowest one, which is forgotten slowly."""


@dataclass(frozen=True, slots=True)
class _Probe:
    """A first step of a lineup that is waited for."""

    lineup: Lineup
    done: asyncio.Future[None]
    since_s: float


class Watched(Host, Protocol):
    """The driver, as far as its deadlines concern it."""

    @property
    def batches(self) -> Sized:
        """Steps in flight."""

    @property
    def coming_up(self) -> Mapping[int, Lineup]:
        """By generation, those that do not serve yet or are about to."""

    def lose_incoming(self, lineup: Lineup, error: SwitchError) -> None:
        """What is coming up will not: its switch ends, or the start fails."""


class Watchdog:
    """Looks a few times a second at what the driver waits for, and tells the service that it lives."""

    def __init__(self, driver: Watched, send: Callable[[Beat], None]) -> None:
        self._driver, self._send = driver, send
        self._probes: dict[int, _Probe] = {}
        self._stepped_s = self._slowest_s = self._beat_s = 0.0
        self._clock = AwakeClock(self._turn)

    @property
    def now_s(self) -> float:
        """Of the driver's awake clock."""
        return self._clock.now_s

    def stepped(self, *, is_first: bool) -> None:
        """A step ended, or the first one after a while begins."""
        if not is_first:
            self._slowest_s = max(self.now_s - self._stepped_s, FORGETS * self._slowest_s)
        self._stepped_s = self.now_s

    async def probe(self, batch_id: int, lineup: Lineup) -> None:
        """Wait for a lineup's first step.

        Raises:
            SwitchError: it does not come back; who hangs is ended.
        """
        done = asyncio.get_running_loop().create_future()
        self._probes[batch_id] = _Probe(lineup, done, self.now_s)
        await done

    def probed(self, batch_id: int) -> bool:
        """Whether this step is one that ``probe`` waits for; it waits no more."""
        probe = self._probes.pop(batch_id, None)
        if probe is not None and not probe.done.done():
            probe.done.set_result(None)
        return probe is not None

    def _turn(self) -> None:
        driver, settings = self._driver, self._driver.parts.settings
        least_s = STEPS * self._slowest_s
        stalled_s = self.now_s - self._stepped_s if driver.batches else 0.0
        if stalled_s > max(settings.lost_after_s, least_s):
            driver.fail(Fatal(Reason.RANK_LOST, self._no_progress(driver.active, stalled_s)))
        for batch_id, probe in list(self._probes.items()):
            if self.now_s - probe.since_s > max(settings.stall_after_s, least_s):
                del self._probes[batch_id]
                self._give_up(probe)
        for lineup in list(driver.coming_up.values()):
            if lineup.is_stuck(self.now_s, settings.load_after_s):
                late = f"no layer was loaded for {settings.load_after_s:g} s"
                driver.lose_incoming(lineup, SwitchError(Reason.LOAD_FAILED, late))
        driver.parts.crew.turn(self.now_s, max(settings.lost_after_s, least_s), settings.load_after_s)
        if self.now_s - self._beat_s >= BEAT_S:
            self._beat_s = self.now_s
            self._send(Beat(stalled_s))

    def _give_up(self, probe: _Probe) -> None:
        driver, hung = self._driver, set(probe.lineup.hung(self._driver.parts.crew))
        lost = SwitchError(Reason.RANK_LOST, self._no_progress(probe.lineup, self.now_s - probe.since_s))
        driver.lose_incoming(probe.lineup, lost)  # ranks that wait for the hung one go on
        if not probe.done.done():
            probe.done.set_exception(lost)
        for device in hung.difference(driver.active.topology.devices):
            driver.parts.crew.lose(device, "hung and was ended")

    def _no_progress(self, lineup: Lineup, seconds: float) -> str:
        hung = lineup.hung(self._driver.parts.crew)
        who = f"the worker on device {hung[0]} hangs" if len(hung) == 1 else f"of devices {hung} one hangs"
        return f"no step of {lineup.topology} ended for {seconds:.0f} s: {who}"
