"""Deadlines of the driver: who makes no progress is named and ended.

A step ends the engine, a target its switch alone.
"""

import asyncio
from collections.abc import Callable, Mapping, Sized
from dataclasses import dataclass

from runtime.errors import Reason, SwitchError
from runtime.process.liveness import BEAT_S, FORGETS, STEPS, AwakeClock
from runtime.process.messages import Beat, Fatal
from runtime.torch_engine.driver.host import Host
from runtime.torch_engine.driver.workers import Ranks


@dataclass(frozen=True, slots=True)
class _Probe:
    """A first step of a topology that is waited for."""

    ranks: Ranks
    done: asyncio.Future[None]
    since_s: float


class Watchdog:
    """Looks a few times a second at what the driver waits for, and tells the service that it lives."""

    def __init__(
        self,
        host: Host,
        steps: Sized,
        coming_up: Mapping[int, Ranks],
        lose_incoming: Callable[[Ranks, SwitchError], None],
        send: Callable[[Beat], None],
    ) -> None:
        """``steps`` are those in flight, ``coming_up`` topologies that do not serve yet or are about to."""
        self._host = host
        self._steps = steps
        self._coming_up = coming_up
        self._lose_incoming = lose_incoming
        self._send = send
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

    async def probe(self, batch_id: int, ranks: Ranks) -> None:
        """Wait for a topology's first step.

        Raises:
            SwitchError: it does not come back; who hangs is ended.
        """
        done = asyncio.get_running_loop().create_future()
        self._probes[batch_id] = _Probe(ranks, done, self.now_s)
        await done

    def probed(self, batch_id: int) -> bool:
        """Whether this step is one that ``probe`` waits for; it waits no more."""
        probe = self._probes.pop(batch_id, None)
        if probe is not None and not probe.done.done():
            probe.done.set_result(None)
        return probe is not None

    def _turn(self) -> None:
        host = self._host
        settings = host.parts.settings
        least_s = STEPS * self._slowest_s
        stalled_s = self.now_s - self._stepped_s if self._steps else 0.0
        if stalled_s > max(settings.lost_after_s, least_s):
            host.fail(Fatal(Reason.RANK_LOST, self._no_progress(host.active, stalled_s)))
        for batch_id, probe in list(self._probes.items()):
            if self.now_s - probe.since_s > max(settings.stall_after_s, least_s):
                del self._probes[batch_id]
                self._give_up(probe)
        for ranks in list(self._coming_up.values()):
            if ranks.is_stuck(self.now_s, settings.load_after_s):
                late = f"no layer was loaded for {settings.load_after_s:g} s"
                self._lose_incoming(ranks, SwitchError(Reason.LOAD_FAILED, late))
        host.parts.workers.turn(self.now_s, max(settings.lost_after_s, least_s), settings.load_after_s)
        if self.now_s - self._beat_s >= BEAT_S:
            self._beat_s = self.now_s
            self._send(Beat(stalled_s))

    def _give_up(self, probe: _Probe) -> None:
        host = self._host
        hung = set(probe.ranks.hung(host.parts.workers))
        lost = SwitchError(Reason.RANK_LOST, self._no_progress(probe.ranks, self.now_s - probe.since_s))
        self._lose_incoming(probe.ranks, lost)  # ranks that wait for the hung one go on
        if not probe.done.done():
            probe.done.set_exception(lost)
        for device in hung.difference(host.active.topology.devices):
            host.parts.workers.lose(device, "hung and was ended")

    def _no_progress(self, ranks: Ranks, seconds: float) -> str:
        hung = ranks.hung(self._host.parts.workers)
        who = f"the worker on device {hung[0]} hangs" if len(hung) == 1 else f"of devices {hung} one hangs"
        return f"no step of {ranks.topology} ended for {seconds:.0f} s: {who}"
