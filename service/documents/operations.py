"""What is done with plans: approvals, operations, looking ahead."""

from typing import Annotated, Literal

from pydantic import Field, computed_field

from intent.models import Finding
from runtime.capabilities import Batching
from runtime.models import CutoverReport, Phase, Progress, Reason
from selector.models import Plan, SwitchPrediction
from service.documents.forms import Document, Request
from service.documents.problems import Code, Problem

Codes = Annotated[list[str], Field(max_length=16)]
SHOWN = 200
"""Characters of what was said that an operation repeats."""
Note = Annotated[str, Field(max_length=500)]


class ApproveRequest(Request):
    """A yes to one plan."""

    digest: str = Field(description="of the plan that was read: `digest` in its document")
    minutes: float = Field(default=60, gt=0, le=10_080, description="for which it holds")
    acknowledge: Codes = Field(default=[], description="codes of the findings that were seen")
    note: Note = ""


NoFor = Annotated[float | None, Field(gt=0, le=30 * 86_400)]
"""Seconds for which the controller leaves a target alone; null: until the window ends, four hours at most."""


class RejectRequest(Request):
    """A no to one plan, which the controller takes for its target too."""

    note: Note = ""
    for_s: NoFor = None


class CancelRequest(Request):
    """What goes with a cancellation, which the controller takes for a no to the target."""

    for_s: NoFor = None


class StandingDocument(Document):
    """How a plan stands now: who made it, who said what to it, and whether it can still be applied."""

    plan_id: str
    made_by: str | None
    made_s: float | None = Field(description="unix seconds")
    approval: "ApprovalDocument | None" = Field(description="the yes or no that holds now")
    applied_by: str | None = Field(description="the operation")
    generation: int = Field(description="that runs now; another than the plan's: it is stale")


class ApprovalDocument(Document):
    """What somebody said to a plan."""

    plan_id: str
    digest: str
    verdict: Literal["approved", "rejected"]
    by: str
    role: str
    at_s: float = Field(description="unix seconds")
    until_s: float | None = Field(description="unix seconds; null for a no, which holds")
    acknowledged: tuple[str, ...] = ()
    note: str = ""
    barred_until_s: float | None = Field(
        default=None,
        description="unix seconds until which the controller leaves the target of a rejected plan alone; null: not said",
    )


class ApplyRequest(Request):
    """What goes with an order to apply a plan."""

    acknowledge: Codes = Field(default=[], description="codes of the findings that somebody has seen")


class LagDocument(Document):
    """What the target still lacks."""

    bytes: int = 0
    tokens: int = 0


class ProgressDocument(Document):
    """How far the copying is."""

    copied_bytes: int = 0
    lag: LagDocument = LagDocument()


class PhaseDocument(Document):
    """A phase and when it began."""

    phase: Phase
    at: float = Field(description="unix seconds")


class UndoDocument(Document):
    """Whether an operation can be undone now."""

    operation_id: str
    possible: bool
    target: str | None = Field(description="the topology that it came from")
    why: str | None = Field(description="why it cannot be undone")
    instead: str | None = Field(description="what to do instead")


class GapsDocument(Document):
    """How long streams that moved had no token, from their last one before to their first after.

    In milliseconds.
    """

    streams: int = Field(description="that moved and had gone on when the switch ended")
    p50_ms: float
    p99_ms: float
    max_ms: float
    usual_ms: float | None = Field(
        description="time between two tokens before the switch: the median of the streams' means; null: none had two"
    )


class OperationDocument(Document):
    """How far the switch of one plan has come; when done, exactly one of result and error."""

    id: str
    plan_id: str
    model: str | None = Field(default=None, description="null in records of versions that served one")
    source: str | None = Field(default=None, description="the topology it leaves, as text")
    target: str | None = Field(default=None, description="the topology it leads to, as text")
    batching: Batching | None = Field(default=None, description="how far the target fills its steps; null: not said")
    is_filled: bool = Field(default=False, description="that is as far as the engine is set to")
    words: str | None = Field(default=None, description="what was said that the plan is for; null: not kept")
    applied_by: str | None = Field(default=None, description="whose key applied the plan")
    approved_by: str | None = Field(default=None, description="who said yes to the plan; `policy`: the deployment")
    progress: ProgressDocument = ProgressDocument()
    phases: tuple[PhaseDocument, ...]
    result: CutoverReport | None = Field(default=None, exclude_if=lambda value: value is None)
    error: Problem | None = Field(default=None, exclude_if=lambda value: value is None)
    gaps: GapsDocument | None = Field(default=None, exclude_if=lambda value: value is None)
    cancelled_by: str | None = Field(
        default=None, exclude_if=lambda value: value is None, description="whose key gave the switch up"
    )
    barred_until_s: float | None = Field(
        default=None,
        exclude_if=lambda value: value is None,
        description="unix seconds until which the controller leaves the target of a cancelled switch alone",
    )

    @classmethod
    def planned(
        cls,
        operation_id: str,
        plan: Plan,
        at_s: float,
        *,
        words: str = "",
        applied_by: str | None = None,
        approved_by: str | None = None,
        most: Batching | None = None,
    ) -> "OperationDocument":
        """An operation before its first step.

        ``words`` are what the plan is for, ``most`` is how far the engine may fill steps.
        """
        batching = plan.batching or plan.now_batching
        return cls(
            id=operation_id,
            plan_id=plan.id,
            model=plan.model,
            source=plan.now.text if plan.now else None,
            target=plan.target.text,
            batching=batching,
            is_filled=batching is not None and batching == most,
            words="; ".join(words.splitlines())[:SHOWN] or None,
            applied_by=applied_by,
            approved_by=approved_by,
            phases=(PhaseDocument(phase=Phase.PLANNED, at=at_s),),
        )

    @computed_field  # type: ignore[prop-decorator] # pydantic's declared form
    @property
    def done(self) -> bool:
        """Whether it has ended, well or not."""
        return self.result is not None or self.error is not None

    @computed_field  # type: ignore[prop-decorator] # as above
    @property
    def phase(self) -> Phase:
        """The last phase that it entered."""
        return self.phases[-1].phase

    @property
    def is_before_its_cut(self) -> bool:
        """Whether it may be cancelled."""
        return self.phase in {Phase.PLANNED, Phase.WARMING, Phase.SYNCING}

    @property
    def cause(self) -> str:
        """Who applied it, and what for."""
        who = self.applied_by or "?"
        return f'{who}: "{self.words}"' if self.words else f"applied by {who}"

    @property
    def outcome(self) -> str:
        """How it ended, in a word: done, or why not."""
        return self.error.reason or self.error.code.value if self.error else "done"

    def advanced(self, progress: Progress) -> "OperationDocument":
        """After progress: a phase is noted once."""
        entered = (PhaseDocument(phase=progress.phase, at=progress.at_s),)
        lag = LagDocument(bytes=progress.lag_bytes, tokens=progress.lag_tokens)
        return self.model_copy(
            update={
                "progress": ProgressDocument(copied_bytes=progress.copied_bytes, lag=lag),
                "phases": self.phases + (entered if progress.phase != self.phase else ()),
            }
        )

    def finished(self, report: CutoverReport, gaps: GapsDocument | None = None) -> "OperationDocument":
        """At its end by the coordinator's report: a result when it is done, an error when it was aborted."""
        if report.phase is Phase.DONE:
            return self.model_copy(update={"result": report, "gaps": gaps})
        reason = report.reason.value if report.reason else "unknown"
        by = f" by {self.cancelled_by}" if self.cancelled_by and reason == Reason.CANCELLED else ""
        detail = f"the switch was given up{by} ({reason}): {report.detail}; {report.source} goes on"
        error = Problem.of(Code.SWITCH_ABORTED, detail)
        return self.model_copy(update={"error": error.model_copy(update={"reason": reason, "report": report})})

    def failed(self, code: Code, detail: str) -> "OperationDocument":
        """At its end by an error that came from outside the protocol."""
        return self.model_copy(update={"error": Problem.of(code, detail)})


class ReasonDocument(Document):
    """Why applying would be refused."""

    code: Code
    detail: str


class DeviceMemoryDocument(Document):
    """What a device holds, in bytes, as it is reckoned (not measured)."""

    device: int
    kind: str
    total_bytes: int
    weights_now_bytes: int
    kv_now_bytes: int
    weights_target_bytes: int
    beside_bytes: int = Field(description="while both stand side by side, after the KV pool has shrunk")


class BlocksDocument(Document):
    """KV blocks: of what runs, the most while both stand side by side, and the most of the target."""

    now: int
    beside: int = Field(description="0 where both do not fit side by side")
    target: int


class PreflightDocument(Document):
    """What applying a plan would do now; nothing was touched."""

    plan_id: str
    digest: str
    would_apply: bool = Field(description="for the key that asks, with what it acknowledges")
    refusals: tuple[ReasonDocument, ...] = Field(description="every reason for which it would be refused")
    to_acknowledge: tuple[Finding, ...] = Field(description="findings that nobody has acknowledged")
    approved_by: str | None = Field(description="who said yes, or would by applying it; null: somebody has to")
    operation: str | None = Field(description="the switch under way")
    barred: str | None = Field(description="why the switch would be given up before it begins")
    switch: SwitchPrediction | None = Field(description="predicted")
    streams: int = Field(
        description="open now; which of them stay on the old topology is known at the cut (`stays` of the report)"
    )
    blocks: BlocksDocument
    memory: tuple[DeviceMemoryDocument, ...]
