"""From one set to another: switches one after the other, and back where one is given up."""

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace

from runtime.capabilities import Batching
from runtime.coordinator import Coordinator
from runtime.errors import Reason
from runtime.models import CutoverReport, CutTimings, Phase, Progress, Topology
from runtime.replicas.engine import ReplicaSet


@dataclass(slots=True)
class Transition:
    """The switches of one operation."""

    coordinator: Coordinator
    engine: ReplicaSet
    switch_id: str
    on_progress: Callable[[Progress], None]
    """Told of phases; of the end once, whatever the number of switches."""
    outage_s: float | None = None
    """As for ``Coordinator.switch``."""
    left: list[tuple[Topology, Batching | None]] = field(default_factory=list)
    """Sets that come behind the change under way, the last of them the target."""
    is_unwanted: bool = False

    def give_up(self) -> bool:
        """Bring it to an abort: nothing more is changed, and what was is undone.

        False where the last change has cut.
        """
        if not self.coordinator.give_up():
            self.is_unwanted = bool(self.left)
            return self.is_unwanted
        return True

    async def run(self, target: Topology, batching: Batching | None) -> CutoverReport:
        """Make every change that leads to a target, and report them as one.

        Where one is given up those before it are undone, the last first: the report says what runs then.

        Raises:
            SwitchError: another switch is under way.
        """
        sets = [(change.leads_to, change.filled or batching) for change in self.engine.changes(target, batching)]
        before = list[tuple[Topology, Batching | None]]()
        reports = list[CutoverReport]()
        self.left = sets or [(target, batching)]
        while self.left:
            leads_to, filled = self.left.pop(0)
            here = self.engine.topology, self.engine.capabilities.running
            untold = ({Phase.DONE} if self.left else set[Phase]()) | ({Phase.ABORTED} if before else set[Phase]())
            reports.append(await self._switch(leads_to, filled, untold))
            if reports[-1].phase is not Phase.DONE:
                return await self._undone(reports[-1], before) if before else reports[-1]
            before.append(here)
            if self.is_unwanted:
                unwanted = replace(reports[-1], phase=Phase.ABORTED, reason=Reason.CANCELLED, detail="cancelled")
                return await self._undone(unwanted, before)
        return joined(reports)

    async def _undone(
        self, given_up: CutoverReport, before: Sequence[tuple[Topology, Batching | None]]
    ) -> CutoverReport:
        """The report of what was given up, once the sets before it run again."""
        back = ""
        for leads_to, filled in reversed(before):
            report = await self._switch(leads_to, filled, {Phase.DONE, Phase.ABORTED})
            if report.phase is not Phase.DONE:
                back = f"; on the way back {report.detail}: {self.engine.topology} runs now"
                break
        detail = f"{given_up.detail}, after {len(before)} changes that were undone{back}"
        self.on_progress(Progress(self.switch_id, Phase.ABORTED, time.time(), detail=detail))
        return replace(given_up, source=str(self.engine.topology), detail=detail)

    async def _switch(self, leads_to: Topology, filled: Batching | None, untold: Collection[Phase]) -> CutoverReport:
        def tell(progress: Progress) -> None:
            if progress.phase not in untold:
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
