"""Promises: what is active, the time ahead, the controller, and what came of it."""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field, computed_field

from runtime.models import Topology
from selector.models import Infeasible, Margin, Prediction, Spread, SwitchPrediction
from service.documents.forms import Document, Finite, GoalForm, Moment, Request
from service.documents.operations import Codes, OperationDocument
from service.documents.plans import WishRequest
from service.documents.problems import Code, Problem

State = Literal["active", "superseded", "retired", "expired"]
Mode = Literal["observe", "recommend", "act"]
Cause = Literal["window", "rescue", "return", "saving", "roll_back", "person", "recovery"]
"""Why: a window begins, a goal is missed, that is over, too much is taken, it made things worse, somebody applied a plan, or the
engine was lost."""
Counting = Literal["requests", "ticks"]
Replaced = Annotated[list[str], Field(max_length=64)]
Verdict = Literal["recovered", "not_recovered", "worse", "unknown"]


class GoalDocument(Document):
    """A goal that is promised."""

    intent_id: str
    words: str = Field(examples=["P99 TTFT <= 2 s"])
    window: str = Field(description="when it holds, in words")
    goal: GoalForm
    said: datetime = Field(description="a time from now on begins then")


class PromiseDocument(Document):
    """An intent that was activated."""

    intent_id: str
    version: int
    text: str
    state: State
    goals: tuple[GoalDocument, ...]
    left_out: tuple[str, ...] = Field(default=(), description="what nothing here measures or holds, in words")
    against: tuple[str, ...] = Field(
        default=(), description="what somebody did before it was activated and it contradicts, in words"
    )
    activated_by: str
    activated_s: float = Field(description="unix seconds")
    ended_s: float | None = None
    why: str = Field(default="", description="how it ended")


class PromisesDocument(Document):
    """Intents that were activated, newest first."""

    promises: tuple[PromiseDocument, ...]


class ActivateRequest(Request):
    """What goes with an activation."""

    replace: Replaced = Field(default=[], description="active intents that this one takes the place of")
    acknowledge: Codes = Field(default=[], description="codes of the findings that somebody has seen")


class KeepRequest(ActivateRequest):
    """What goes with an intent that is kept and applied."""

    plans: Annotated[list[str], Field(max_length=100)] = Field(
        default=[], description="plans of this intent whose switches begin now, as far as they are due"
    )


NOT_NOW = frozenset(
    {
        Code.OUTSIDE_WINDOW,
        Code.RECONFIGURATION_LIMITED,
        Code.SWITCH_IN_PROGRESS,
        Code.STALE_PLAN,
        Code.NO_CHANGE,
        Code.FINDING_NOT_ACKNOWLEDGED,
    }
)
"""Why a plan is not applied beside its promise: it is not due, the controller was quicker, or it breaks another promise."""


class KeptDocument(Document):
    """A promise, and the switches that began with it."""

    promise: PromiseDocument
    operations: tuple[OperationDocument, ...]
    not_switched: Mapping[str, Problem] = Field(description="plan to why it was not applied")


class AgendaRequest(WishRequest):
    """A wish, to be seen beside what is active; and how far ahead."""

    replace: Replaced = Field(default=[], description="active intents that it would take the place of")
    hours: float = Field(default=24, gt=0, le=24 * 8)
    now: Moment = None


class ReportQuery(Request):
    """How far back."""

    hours: float = Field(default=24, gt=0, le=24 * 366)


class AgendaQuery(Request):
    """How far ahead."""

    hours: float = Field(default=24, gt=0, le=24 * 8)


class LoadDocument(Document):
    """A load: declared, or measured."""

    rate_rps: float
    input_tokens: float
    output_tokens: float
    concurrency: float | None = Field(
        description="requests that run at once, without those that wait; null: not told apart"
    )
    inputs: Spread | None = Field(default=None, description="how lengths lie around their mean; null: too few requests")
    outputs: Spread | None = Field(default=None, description="the same of answers")
    burstiness: float | None = Field(
        default=None, description="coefficient of variation of the times between arrivals; null: not told"
    )
    prefix_hit: float | None = Field(
        default=None,
        description="share of the prompts that was cached; null: not told, and plans take the declared one",
    )


class SegmentDocument(Document):
    """A time in which the same goals hold, and what is to serve it."""

    model: str
    begins: datetime
    ends: datetime
    windows: tuple[str, ...]
    goals: tuple[GoalDocument, ...]
    load: LoadDocument = Field(description="declared for its windows: of several the busiest")
    topology: Topology | None = Field(description="null: what ran before goes on, for nothing holds the goals")
    prediction: Prediction | None = None
    margins: tuple[Margin, ...] = ()
    switch: SwitchPrediction | None = Field(description="into it, in seconds; null: nothing changes")
    switch_begins: datetime | None = Field(
        default=None, description="before the segment where its target holds what is promised until then, too"
    )
    infeasible: Infeasible | None = None
    notes: tuple[str, ...] = ()
    kept: str = Field(
        default="", description="why what runs stays, though another topology is better for this segment alone"
    )

    @computed_field  # type: ignore[prop-decorator] # pydantic's declared form
    @property
    def changes(self) -> bool:
        """Whether a switch leads into it."""
        return self.switch_begins is not None


class AgendaDocument(Document):
    """The time ahead, model by model."""

    timezone: str
    mode: Mode = Field(description="in `act` the controller makes the switches, in the others a person")
    segments: tuple[SegmentDocument, ...]

    @property
    def next(self) -> SegmentDocument | None:
        """The segment that the next switch leads into."""
        return min(
            (segment for segment in self.segments if segment.changes),
            key=lambda segment: segment.switch_begins or segment.begins,
            default=None,
        )

    def is_due(self, segment: SegmentDocument) -> bool:
        """Whether the switch into a segment waits for nothing but to be made."""
        return segment.switch_begins is not None and segment.switch_begins <= self.segments[0].begins


class OverrideDocument(Document):
    """What somebody applied beside what is promised; the controller leaves it alone."""

    operation: str
    topology: str
    by: str | None
    until: datetime | None = Field(description="the next window's beginning; null: until `resume`")


class PinDocument(Document):
    """What runs is kept: the controller switches nothing."""

    by: str
    until: datetime | None = Field(description="null: until `resume`")


class RefusalDocument(Document):
    """A target that somebody said no to; the controller leaves it alone."""

    model: str
    target: str
    by: str
    act: Literal["rejected", "cancelled"]
    about: str = Field(description="id of the plan or of the operation")
    until: datetime = Field(description="`resume` ends it before")


class DecisionDocument(Document):
    """What the controller decided, and why."""

    model: str
    kind: Literal["wait", "hold", "switch"]
    reason: str
    cause: Cause | None = None
    target: str | None = None
    plan_id: str | None = Field(default=None, description="to be applied by somebody, where the mode is `recommend`")
    at_s: float = 0.0


class ControlDocument(Document):
    """How the controller stands to what it is to do."""

    mode: Mode
    paused: bool
    pin: PinDocument | None = None
    overrides: tuple[OverrideDocument, ...] = ()
    refusals: tuple[RefusalDocument, ...] = ()
    decisions: tuple[DecisionDocument, ...] = Field(default=(), description="the last one of each model")


class ControlRequest(Request):
    """What is to change of the controller; null: nothing."""

    mode: Mode | None = None
    paused: bool | None = Field(default=None, description="false ends pins, overrides and refusals, too")
    pinned: bool | None = Field(default=None, description="true keeps what runs; false lets it be switched again")
    pinned_s: float | None = Field(
        default=None, gt=0, le=30 * 86_400, description="keep it for so long; null with `pinned`: without end"
    )


class LatencyDocument(Document):
    """Of requests that ended, in seconds; null where there is none."""

    p50: Finite = None
    p95: Finite = None
    p99: Finite = None


class TenantLoadDocument(LoadDocument):
    """What was asked, and how it was served."""

    tenant: str = Field(description="empty: of everybody")
    requests: int = Field(description="that ended")
    failed: int
    waiting: int = Field(description="without a first token, now")
    ttft_s: LatencyDocument
    tpot_s: LatencyDocument
    e2e_s: LatencyDocument


class ObservedDocument(Document):
    """What one model was asked in the last seconds."""

    model: str
    seconds: float = Field(description="that are looked back on")
    tenants: tuple[TenantLoadDocument, ...]
    gpu_util: Finite = Field(description="the work served by what the topology sustains, by its profile")
    kv_in_use: Finite = Field(description="share of the KV blocks")


class LoadsDocument(Document):
    """What is asked now, for each model."""

    models: tuple[ObservedDocument, ...]


class PastLoadDocument(Document):
    """What one model was asked in five minutes of the past."""

    model: str
    begins_s: float = Field(description="unix seconds")
    seconds: float
    tenants: tuple[TenantLoadDocument, ...]


class RecentQuery(Request):
    """How far back, and how finely."""

    seconds: float = Field(default=900, gt=0, le=900)
    step_s: float = Field(default=15, ge=1, le=300)


class MomentDocument(Document):
    """What one model was asked in a step of the last minutes, and how it was served."""

    begins_s: float = Field(description="unix seconds")
    rate_rps: float
    streams: int | None = Field(description="most at once; null: nobody looked")
    tokens_s: Finite = Field(description="tokens per second that were sent; null: nobody looked")
    ttft_s: LatencyDocument
    tpot_s: LatencyDocument
    e2e_s: LatencyDocument


class RecentDocument(Document):
    """One model's last minutes, oldest first."""

    model: str
    step_s: float
    moments: tuple[MomentDocument, ...]


class RecentLoadDocument(Document):
    """The last minutes of each model."""

    models: tuple[RecentDocument, ...]


class LoadHistoryDocument(Document):
    """What was asked, oldest first."""

    loads: tuple[PastLoadDocument, ...]


class AttainmentDocument(Document):
    """How far a goal was kept."""

    model: str
    intent_id: str
    words: str
    window: str
    counted: Counting = Field(description="what is counted: requests, or looks at the service")
    met: int
    total: int
    needed: float = Field(description="the share that keeps the goal")

    @computed_field  # type: ignore[prop-decorator] # pydantic's declared form
    @property
    def share(self) -> float | None:
        """That met it; null where nothing was counted."""
        return self.met / self.total if self.total else None

    @computed_field  # type: ignore[prop-decorator] # as above
    @property
    def budget_left(self) -> float | None:
        """Of what may miss it, the share that is left; below 0 it is spent."""
        if not self.total or self.needed >= 1:
            return None
        return 1 - (1 - self.met / self.total) / (1 - self.needed)


class OutcomeDocument(Document):
    """A switch, and what it was good for."""

    operation: str
    model: str
    cause: Cause
    reason: str
    source: str
    target: str
    at_s: float
    prepare_s: float | None = None
    stop_ms: float | None = Field(default=None, description="as the engine measured it")
    stop_bound_ms: float | None = Field(default=None, description="what is promised of it")
    ended: str = Field(default="", description="done, or why it was given up")
    verdict: Verdict | None = Field(default=None, description="null: not yet")
    why: str = Field(default="", description="of the verdict")


class ReportDocument(Document):
    """What came of the promises since a moment."""

    since: datetime
    until: datetime
    attainment: tuple[AttainmentDocument, ...]
    switches: tuple[OutcomeDocument, ...]
    device_hours: float
    usd: float | None = Field(description="null: no device has a price")
