"""From one set to another: switches of the coordinator one after the other, and back where one is given up."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from runtime.capabilities import Batching
from runtime.coordinator import Coordinator
from runtime.models import CutoverReport, CutTimings, Phase, Progress, Topology
from runtime.replicas.engine import ReplicaSet


@dataclass(frozen=True, slots=True)
class Transition:
    """The switches of one operation."""

    coordinator: Coordinator
    engine: ReplicaSet
    switch_id: str
    on_progress: Callable[[Progress], None]
    """Told of phases; of the end once, whatever the number of switches."""
    outage_s: float | None = None
    """As for ``Coordinator.switch``."""

    async def run(self, target: Topology, batching: Batching | None) -> CutoverReport:
        """Make every change that leads to a target, and report them as one.

        Where one is given up those before it are undone, the last first: the report says what runs then.

        Raises:
            SwitchError: another switch is under way.
        """
        sets = [(change.leads_to, change.filled or batching) for change in self.engine.changes(target, batching)]
        before = list[tuple[Topology, Batching | None]]()
        reports = list[CutoverReport]()
        for leads_to, filled in sets or [(target, batching)]:
            here = self.engine.topology, self.engine.capabilities.running
            reports.append(await self._switch(leads_to, filled))
            if reports[-1].phase is not Phase.DONE:
                break
            before.append(here)
        done = joined(reports) if len(before) == len(reports) else await self._undone(reports[-1], before)
        self.on_progress(Progress(self.switch_id, done.phase, time.time(), detail=done.detail))
        return done

    async def _undone(
        self, given_up: CutoverReport, before: Sequence[tuple[Topology, Batching | None]]
    ) -> CutoverReport:
        """The report of what was given up, once the sets before it run again."""
        if not before:
            return given_up
        back = ""
        for leads_to, filled in reversed(before):
            report = await self._switch(leads_to, filled)
            if report.phase is not Phase.DONE:
                back = f"; on the way back {report.detail}: {self.engine.topology} runs now"
                break
        detail = f"{given_up.detail}, after {len(before)} changes that were undone{back}"
        return replace(given_up, source=str(self.engine.topology), detail=detail)

    async def _switch(self, leads_to: Topology, filled: Batching | None) -> CutoverReport:
        def tell(progress: Progress) -> None:
            if progress.phase not in {Phase.DONE, Phase.ABORTED}:
                self.on_progress(progress)

        return await self.coordinator.switch(leads_to, self.switch_id, tell, filled, self.outage_s)


def joined(reports: Sequence[CutoverReport]) -> CutoverReport:
    """Several switches that were made, as one: sums, and the cut that took the longest."""
    if len(reports) == 1:
        return reports[0]
    longest = max((report.timings for report in reports), key=_stop_ms)
    return replace(
        reports[-1],
        source=reports[0].source,
        prepare_s=sum(report.prepare_s for report in reports),
        warming_s=sum(report.warming_s for report in reports),
        syncing_s=sum(report.syncing_s for report in reports),
        bytes_before=sum(report.bytes_before for report in reports),
        bytes_inside=sum(report.bytes_inside for report in reports),
        moved=sum(report.moved for report in reports),
        left_to_drain=sum(report.left_to_drain for report in reports),
        tokens_recomputed=sum(report.tokens_recomputed for report in reports),
        timings=longest,
    )


def _stop_ms(timings: CutTimings) -> float:
    return timings.drain_ms + timings.patch_ms + timings.commit_ms + timings.first_step_ms
