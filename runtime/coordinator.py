"""The coordinator: performs what ``runtime.machine`` decides, with deadlines, one switch at a time.

It never asks which engine or strategy it holds. The epoch of a cut is reserved in the router before the
command is sent, and from then on nothing but the engine's answer is waited for.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Protocol, assert_never

from runtime import machine
from runtime.capabilities import Batching
from runtime.engine import Engine, Shadow
from runtime.errors import JournalError, Reason, RuntimeFault, SwitchError
from runtime.machine import Action, Event, SwitchSettings, SwitchState
from runtime.models import CutoverReport, Phase, Progress, Topology
from runtime.router import Router

ShadowOperation = (
    machine.AwaitReady | machine.MeasureLag | machine.SendCut | machine.Drain | machine.ReleaseOld | machine.Abort
)


class SwitchJournal(Protocol):
    """Where switches are written down."""

    async def write(self, switch_id: str, phase: Phase, detail: str) -> None:
        """Return when the entry is durable.

        Raises:
            JournalError: it cannot be written.
        """


class Coordinator:
    """Takes an engine from one topology to another while its streams go on."""

    def __init__(self, engine: Engine, router: Router, journal: SwitchJournal, settings: SwitchSettings) -> None:
        self._engine = engine
        self._router = router
        self._journal = journal
        self._settings = settings
        self._present: _Switch | None = None

    async def switch(
        self,
        target: Topology,
        switch_id: str,
        on_progress: Callable[[Progress], None],
        batching: Batching | None = None,
        outage_s: float | None = None,
    ) -> CutoverReport:
        """Switch to ``target``, with steps filled as far as ``batching`` says, and report what happened.

        With ``outage_s`` what runs ends first, and streams wait for so long at least.

        A switch that is given up is a report too, and one to what runs.

        Cancelling the caller gives the switch up where that is still possible, waits until everything is
        given back, and then raises ``CancelledError``.

        Raises:
            SwitchError: another switch is under way.
        """
        if self._present is not None:
            raise SwitchError(Reason.BUSY, f"switch {self._present.switch_id} is under way; wait for its end")
        if target == self._engine.topology and batching in {None, self._engine.capabilities.running}:
            return _no_change(switch_id, target)
        self._present = _Switch(
            switch_id=switch_id,
            source=self._engine.topology,
            target=target,
            batching=batching,
            engine=self._engine,
            router=self._router,
            journal=self._journal,
            on_progress=on_progress,
            state=SwitchState(self._settings),
            ends_first=outage_s is not None,
        )
        try:
            with self._router.patient(outage_s or 0.0):
                return await self._present.run()
        finally:
            self._present = None

    def give_up(self) -> bool:
        """Give up the switch under way, which then ends in a report.

        False where its cut has been sent, or there is none.
        """
        return self._present is not None and self._present.give_up()


def _no_change(switch_id: str, target: Topology) -> CutoverReport:
    detail = f"{target} runs already; nothing was changed"
    return CutoverReport(switch_id, str(target), str(target), Phase.DONE, detail=detail)


@dataclass(slots=True)
class _Switch:
    """One switch under way."""

    switch_id: str
    source: Topology
    target: Topology
    batching: Batching | None
    engine: Engine
    router: Router
    journal: SwitchJournal
    on_progress: Callable[[Progress], None]
    state: SwitchState
    ends_first: bool = False
    """What runs, before the target starts."""
    epoch: int = 0
    """Reserved for the cut."""
    shadow: Shadow | None = None
    operation: asyncio.Task[Event] | None = None
    """What is outstanding; its result is the next event."""
    unwanted: asyncio.Future[None] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    """Has a result once somebody no longer wants the switch."""

    def give_up(self) -> bool:
        """Bring the switch to an abort if that is still possible: nothing else happens before."""
        if self.state.can_abort and not self.unwanted.done():
            self.unwanted.set_result(None)
        return self.state.can_abort

    async def run(self) -> CutoverReport:
        is_cancelled = False
        try:
            self._advance(machine.Requested())
            while not self.state.is_finished:
                try:
                    event = await self._next_event()
                except asyncio.CancelledError:
                    is_cancelled = True
                    event = machine.CancelRequested()
                self._advance(event)
        finally:
            await self._leave_nothing()
        if is_cancelled:
            raise asyncio.CancelledError
        return self._report()

    def _advance(self, event: Event) -> None:
        self.state, effects = machine.step(self.state, event, time.monotonic())
        for effect in effects:
            if isinstance(effect, machine.Report):
                self.on_progress(self._progress())
            else:
                self._begin(effect)

    def _begin(self, operation: Action) -> None:
        """Make an operation the outstanding one."""
        if self.operation is not None:
            self.operation.cancel()
        self.operation = asyncio.create_task(self._perform(operation), name=f"{self.switch_id}: {operation}")

    async def _next_event(self) -> Event:
        assert self.operation is not None, "a switch that is not finished waits for something"
        deadline_s = self.state.deadline_s
        remaining_s = None if deadline_s is None else max(0.0, deadline_s - time.monotonic())
        waited: set[asyncio.Future[Event] | asyncio.Future[None]] = {self.operation}
        if self.state.can_abort:
            waited.add(self.unwanted)
        await asyncio.wait(waited, timeout=remaining_s, return_when=asyncio.FIRST_COMPLETED)
        if self.unwanted.done() and self.state.can_abort:
            return machine.CancelRequested()
        return self.operation.result() if self.operation.done() else machine.DeadlinePassed(self.state.phase)

    async def _perform(self, operation: Action) -> Event:
        try:
            if isinstance(operation, machine.RecordPhase):
                return await self._write(operation.phase)
            if isinstance(operation, machine.Prepare):
                begin = self.engine.succeed_by if self.ends_first else self.engine.prepare
                self.shadow = await begin(self.target, self.batching)
                return machine.ShadowPrepared()
            assert self.shadow is not None, "the machine asks nothing of a shadow before there is one"
            return await self._command(self.shadow, operation)
        except SwitchError as problem:
            return machine.Failed(problem.reason, problem.detail)
        except JournalError as problem:
            return machine.Failed(Reason.JOURNAL_FAILED, str(problem))
        except RuntimeFault as problem:  # the engine's own word all the same
            return machine.Failed(Reason.ENGINE_LOST, str(problem))

    async def _write(self, phase: Phase) -> Event:
        if phase is Phase.CUTTING:
            self.epoch = self.router.announce(self.target)
        filled = f" with {self.batching}" if self.batching else ""
        await self.journal.write(self.switch_id, phase, f"epoch {self.epoch}: {self.source} -> {self.target}{filled}")
        return machine.Journaled()

    async def _command(self, shadow: Shadow, operation: ShadowOperation) -> Event:
        match operation:
            case machine.AwaitReady():
                await shadow.ready()
                return machine.ShadowReady()
            case machine.MeasureLag(pause_s):
                await asyncio.sleep(pause_s)
                return machine.LagMeasured(await shadow.lag(), self.router.num_streams)
            case machine.SendCut(timeout_s):
                return machine.CutCommitted(await shadow.cut(self.epoch, timeout_s))
            case machine.Drain():
                await shadow.drain()
                return machine.Drained()
            case machine.ReleaseOld(pause_s):
                await asyncio.sleep(pause_s)
                await shadow.release()
                return machine.OldReleased()
            case machine.Abort(reason):
                await shadow.abort(reason)
                return machine.OldReleased()
            case _:
                assert_never(operation)

    async def _leave_nothing(self) -> None:
        """Stop what is outstanding; after a bug, which surfaces, give back what can be given back."""
        if self.operation is not None:
            self.operation.cancel()
        if self.shadow is None or self.state.is_finished:
            return
        # each does nothing where the other is due, and of a cut without an answer only the engine knows which
        for give_back in (self.shadow.release(), self.shadow.abort(Reason.CANCELLED)):
            with contextlib.suppress(RuntimeFault):
                await give_back

    def _progress(self) -> Progress:
        state = self.state
        return Progress(
            switch_id=self.switch_id,
            phase=state.phase,
            at_s=time.time(),
            detail=f"{state.reason.value}: {state.detail}" if state.reason else state.detail,
            copied_bytes=state.lag.copied_bytes,
            lag_bytes=state.lag.bytes,
            lag_tokens=state.lag.tokens,
        )

    def _report(self) -> CutoverReport:
        state = self.state
        cut = state.cut
        report = CutoverReport(
            switch_id=self.switch_id,
            source=str(self.source),
            target=str(self.target),
            phase=state.phase,
            reason=state.reason,
            detail=state.detail,
            prepare_s=state.warming_s + state.syncing_s,
            warming_s=state.warming_s,
            syncing_s=state.syncing_s,
            held_s=state.lag.held_s,
            bytes_before=state.lag.copied_bytes,
            transport=state.lag.transport,
            bytes_between_hosts=state.lag.bytes_between_hosts,
            link=state.lag.link,
        )
        if cut is None:
            return report
        return replace(
            report,
            epoch=cut.epoch,
            bytes_inside=cut.bytes_inside,
            free_device_bytes=cut.free_device_bytes,
            moved=len(cut.moved),
            left_to_drain=len(cut.left_to_drain),
            stays=dict(cut.stays),
            tokens_recomputed=cut.tokens_recomputed,
            paths=dict(cut.paths),
            timings=cut.timings,
            bytes_between_hosts=cut.bytes_between_hosts,
        )
