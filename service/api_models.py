"""Bodies of the control API, for checking requests and describing answers in the OpenAPI document."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, InstanceOf, model_validator

from service.windows import MOMENT

Text = InstanceOf[str]
"""Words; a string with halves of characters is one too, and gets an intent that says what is wrong with it."""


class TranslateRequest(BaseModel):
    """Words to translate."""

    model_config = ConfigDict(extra="forbid")

    text: Text = Field(examples=["keep P99 TTFT < 2s at peak"])
    now: str | None = Field(None, description=f"the clock, instead of the present: {MOMENT}")


class ChangeBody(BaseModel):
    """What became of one goal."""

    change: Literal["added", "changed", "removed"]
    pointer: str = Field(description="into the new version; for a removed goal into the one before")
    before: dict[str, Any] | None
    after: dict[str, Any] | None


class AmendmentBody(BaseModel):
    """The next version of an intent; without a diff its question says why."""

    mode: Literal["new", "merge", "replace", "answer"]
    diff: list[ChangeBody]
    intent: dict[str, Any]


class VersionBody(AmendmentBody):
    """A version of an intent that is kept."""

    id: str
    version: int
    supersedes: int | None
    text: str = Field(description="what was said for this version")
    created_s: float = Field(description="unix seconds")


class FollowUpRequest(BaseModel):
    """What is said to an intent: an answer to its question, or a change."""

    model_config = ConfigDict(extra="forbid")

    text: Text = Field(examples=["make that 1.5 s"])
    mode: Literal["merge", "replace"] | None = Field(None, description="the words decide without")
    now: str | None = Field(None, description=f"the clock, instead of the present: {MOMENT}")


class AmendRequest(FollowUpRequest):
    """What is said to an intent document."""

    intent: dict[str, Any]


class AmendStoredRequest(FollowUpRequest):
    """What is said to an intent that is kept."""

    version: int | None = Field(
        None, description="the version it is about; refused if that is not the latest"
    )


class ApplyRequest(BaseModel):
    """What goes with an order to apply a plan."""

    model_config = ConfigDict(extra="forbid")

    acknowledge: list[str] = Field(
        default=[], max_length=16, description="codes of the findings that somebody has seen"
    )


class FindingBody(BaseModel):
    """Something that was found in a text."""

    code: str
    pointer: str
    message: str
    evidence: str | None = None
    suggestion: str | None = None


class WishRequest(BaseModel):
    """A wish: words, the intent document that a translation gave, or the id of an intent that is kept."""

    model_config = ConfigDict(extra="forbid")

    text: Text | None = None
    intent: dict[str, Any] | None = None
    intent_id: str | None = None

    @model_validator(mode="after")
    def _exactly_one(self) -> "WishRequest":
        if [self.text, self.intent, self.intent_id].count(None) != 2:
            raise ValueError("give either text or intent or intent_id")
        return self


class PlanRequest(WishRequest):
    """A wish, and the time to plan for."""

    now: str | None = Field(None, description=f"the clock, instead of the present: {MOMENT}")
    at: str | None = Field(None, description=f"plan for that moment: {MOMENT}")
    window: str | None = Field(
        None, description="plan for that window; unless said, the one in force or the first that a goal names"
    )


class LossBody(BaseModel):
    """What one form says that the other cannot."""

    pointer: str = Field(description="JSON Pointer into what was given")
    message: str


class ExportBody(BaseModel):
    """OpenSLO documents of an intent."""

    slos: list[dict[str, Any]]
    left_out: list[LossBody]


class ImportRequest(BaseModel):
    """OpenSLO documents."""

    model_config = ConfigDict(extra="forbid")

    documents: list[Any] = Field(min_length=1, max_length=200)


class ImportBody(BaseModel):
    """The intent of OpenSLO documents."""

    intent: dict[str, Any]
    left_out: list[LossBody]


class TopologyBody(BaseModel):
    """A topology."""

    text: str = Field(examples=["CPU[0]:0-4@fp32 > CPU[1]:4-8@fp32"])
    shape: str = Field(examples=["PP2"])
    devices: list[int]


class LeftOutBody(BaseModel):
    """A goal that a plan does not weigh."""

    goal: str
    reason: str


class PlanBody(BaseModel):
    """A plan; more keys than these carry predictions, margins and reasons."""

    model_config = ConfigDict(extra="allow")

    id: str
    intent_id: str
    intent_version: int = 1
    generation: int = Field(description="apply refuses the plan when another generation runs")
    window: str
    now: TopologyBody | None
    target: TopologyBody
    changes: bool
    reasons: list[str]
    rules: list[str] = Field(default=[], description="goals that narrowed the space or say what comes first")
    left_out: list[LeftOutBody] = Field(default=[], description="goals that the plan does not weigh")
    offers: list[str] = Field(default=[], description="what a change could save that nobody asked for")
    to_acknowledge: list[FindingBody] = Field(
        default=[], description="findings that apply wants acknowledged, by code"
    )


class SimulationBody(BaseModel):
    """What a simulation of a plan's target gave. Latencies in seconds, as mean and percentiles."""

    plan_id: str
    topology: str
    requests: int = Field(description="served, the first ones left out")
    waits_grow: bool = Field(description="later requests waited longer: the load exceeds what is sustained")
    ttft_s: dict[str, float]
    tpot_s: dict[str, float]
    e2e_s: dict[str, float]


class FrontierBody(BaseModel):
    """P99 latencies of a topology at rising rates."""

    label: str
    topology: str
    rates_rps: list[float]
    ttft_s: list[float]
    tpot_s: list[float]
    saturation_rps: float


class FrontiersBody(BaseModel):
    """Latency against load of what a plan compares."""

    plan_id: str
    rate_rps: float = Field(description="of the plan's window")
    curves: list[FrontierBody]


class PlanAnswer(BaseModel):
    """A plan with the intent it serves; no plan when a question must be answered first."""

    outcome: Literal["ok", "clarify"]
    intent: dict[str, Any]
    plan: PlanBody | None


class ProblemItem(BaseModel):
    """One thing that is wrong."""

    pointer: str = Field(description="JSON Pointer into what was sent")
    code: str
    message: str


class Problem(BaseModel):
    """RFC 9457."""

    model_config = ConfigDict(extra="allow")

    type: str
    title: str
    status: int
    detail: str
    code: str
    errors: list[ProblemItem]


class Lag(BaseModel):
    """What the target still lacks."""

    bytes: int
    tokens: int


class ProgressBody(BaseModel):
    """How far the copying is."""

    copied_bytes: int
    lag: Lag


class PhaseBody(BaseModel):
    """A phase and when it began."""

    phase: str
    at: float = Field(description="unix seconds")


class ReportBody(BaseModel):
    """What a switch did; more keys than these carry times and bytes."""

    model_config = ConfigDict(extra="allow")

    source: str
    target: str
    moved: int = Field(description="requests that changed owner")
    paths: dict[str, int] = Field(
        {}, description="how they came over: path to number", examples=[{"patch": 8}]
    )
    left_to_drain: int = Field(description="requests that end where they were")
    tokens_recomputed: int


class OperationBody(BaseModel):
    """A long-running change; when done, exactly one of result and error."""

    id: str
    plan_id: str
    done: bool
    phase: str
    progress: ProgressBody
    phases: list[PhaseBody]
    result: ReportBody | None = None
    error: Problem | None = None


class TokenCounts(BaseModel):
    """What the ledger saw."""

    accepted: int
    lost: int
    duplicates: int


class TopologyAnswer(BaseModel):
    """What runs now."""

    model: str
    generation: int
    topology: TopologyBody
    operation: str | None = Field(description="the operation under way")
    streams: int
    tokens: TokenCounts
    inventory: list[dict[str, Any]]


class ProfilesAnswer(BaseModel):
    """What predictions are made from."""

    model: dict[str, Any] = Field(description="the model's sizes")
    profiles: dict[str, dict[str, Any]] = Field(description="device kind to what it can do")


class Health(BaseModel):
    """Whether the service can serve."""

    status: Literal["ok"]
    model: str
    shape: str
