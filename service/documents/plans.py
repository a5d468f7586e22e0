"""Intents and their versions, plans and what they predict."""

import hashlib
from collections.abc import Iterator, Mapping
from typing import Annotated, Literal

from pydantic import ConfigDict, Field, JsonValue, computed_field, model_validator
from pydantic.config import JsonDict

from intent.models import Finding
from intent.openslo.export import Loss
from intent.windows import MOMENT
from runtime.capabilities import Batching
from runtime.models import Stage, Topology
from selector.models import LeftOut, Source, Way, Workload
from service.documents.forms import (
    Document,
    Finite,
    GoalForm,
    IntentForm,
    Json,
    Moment,
    MomentText,
    Request,
    Text,
)

OUTAGE = "outage"
"""The finding of a plan for which requests stand still until another engine is up."""


class TranslateRequest(Request):
    """Words to translate."""

    text: Text = Field(examples=["keep P99 TTFT < 2s at peak"])
    now: Moment = None


class FollowUp(Request):
    """What is said to an intent: an answer to its question, or a change."""

    text: Text = Field(examples=["make that 1.5 s"])
    mode: Literal["merge", "replace"] | None = Field(default=None, description="the words decide without")
    now: Moment = None


class AmendRequest(FollowUp):
    """What is said to an intent document."""

    intent: IntentForm


class VersionedFollowUp(FollowUp):
    """What is said to an intent that is kept."""

    version: int | None = Field(default=None, description="the version it is about; refused if that is not the latest")


class ChangeDocument(Document):
    """What became of one goal."""

    change: Literal["added", "changed", "removed"]
    pointer: str = Field(description="into the new version; for a removed goal into the one before")
    before: GoalForm | None
    after: GoalForm | None


class AmendmentDocument(Document):
    """The next version of an intent; without a diff its question says why."""

    mode: Literal["new", "merge", "replace", "answer"]
    diff: tuple[ChangeDocument, ...]
    intent: IntentForm


class VersionDocument(AmendmentDocument):
    """A version of an intent that is kept."""

    id: str
    version: int
    supersedes: int | None
    text: str = Field(description="what was said for this version")
    created_s: float = Field(description="unix seconds")
    said_by: str | None = Field(default=None, description="whose key said it; null in records of older versions")


class ImportRequest(Request):
    """OpenSLO documents."""

    documents: Annotated[list[JsonValue], Field(min_length=1, max_length=200)]


class ExportDocument(Document):
    """OpenSLO documents of an intent."""

    slos: tuple[Json, ...]
    left_out: tuple[Loss, ...]


class ImportDocument(Document):
    """The intent of OpenSLO documents."""

    intent: IntentForm
    left_out: tuple[Loss, ...]


class TopologyDocument(Document):
    """A topology: as text, how people call it, and its stages."""

    text: str = Field(examples=["CPU[0]:0-4@fp32 > CPU[1]:4-8@fp32"])
    shape: str = Field(examples=["PP2"])
    devices: tuple[int, ...]
    stages: tuple[Stage, ...] = ()

    @property
    def noun(self) -> Topology:
        """The topology itself."""
        return Topology(self.stages)


def leads_to(source: str | None, target: str, batching: Batching | None) -> str:
    """What a switch leads to, as text: with how steps are filled, where that is all that changes."""
    return f"{target} with {batching}" if batching and source == target else target


class PredictionDocument(Document):
    """What a topology is predicted to do.

    Latencies in seconds, as mean and percentiles; null is without end.
    """

    ttft_s: Mapping[str, Finite]
    tpot_s: Mapping[str, Finite]
    e2e_s: Mapping[str, Finite]
    throughput_tok_s: float = Field(description="output tokens per second that it sustains at its batch limit")
    gpu_util: Finite = Field(description="the workload's rate by the rate that it sustains")
    usd_per_hour: float
    batch: int = Field(description="sequences that run at once")
    quality_loss: float
    error_band: float = Field(description="relative half-width: 0.3 is within 30 %")
    source: Source
    devices: int


class CandidateDocument(Document):
    """A topology that was compared, and why it is not better placed."""

    topology: TopologyDocument
    batching: Batching | None = Field(default=None, description="how far it fills its steps; null: as now")
    prediction: PredictionDocument
    reason: str


class MarginDocument(Document):
    """How far a prediction is from a goal's bound, relative to it; positive is good, null is without end."""

    goal: str
    predicted: Finite
    bound: float
    unit: str
    margin: Finite = Field(description="of worst")
    worst: Finite = Field(default=None, description="the end of the prediction's error band that has to hold")
    is_knife_edge: bool = Field(default=False, description="the prediction holds the bound, but not with headroom")


class SimulationDocument(Document):
    """What a simulation of a plan's target gave.

    Latencies in seconds, as mean and percentiles; null is without end.
    """

    requests: int = Field(description="served, the first ones left out")
    waits_grow: bool = Field(description="the load exceeds what is sustained, and latencies are without end")
    ttft_s: Mapping[str, Finite]
    tpot_s: Mapping[str, Finite]
    e2e_s: Mapping[str, Finite]
    plan_id: str
    topology: str


class CrossingDocument(Document):
    """What it is predicted to take to bring requests in flight to another host.

    In seconds; null is without end, where KV is written faster than the network takes it.
    """

    path: Literal["copied", "anew"] = Field(description="KV is copied, or the target computes it from the tokens")
    kv_bytes: float = Field(description="of the requests that the workload has in flight")
    sync_s: Finite = Field(description="until the target has it, while requests run")
    cut_s: float = Field(description="by which the stop is longer than within a host")
    anew_s: Finite = Field(description="in which the target would compute all of it, alone")


class SwitchDocument(Document):
    """What the switch is predicted to take.

    In seconds; null is without end, where what runs or the target is overloaded.
    """

    strategy: Way = Field(
        description="the target comes up beside what runs, layers move one by one, or what runs ends first: an outage"
    )
    prepare_s: Finite = Field(description="until the target can take over: start, weights, KV")
    prepare_least_s: Finite = Field(default=None, description="the band around it")
    prepare_most_s: Finite = None
    stop_s: Finite = Field(description="for which streams stand still")
    stop_most_s: Finite = Field(default=None, description="at most, where what runs ends first")
    pause_s: Finite = Field(
        default=None,
        description="the part of it beyond the usual time between two tokens, on the slower side",
    )
    payback_s: Finite = Field(description="until it has paid for itself; null: never, or nothing is saved")
    loading_s: Finite = Field(default=None, description="of preparing, or of an outage: reading and loading weights")
    unmeasured: tuple[str, ...] = Field(
        default=(), description="nodes whose storage nobody measured: a usual band is assumed"
    )
    between_hosts: CrossingDocument | None = Field(
        default=None,
        exclude_if=lambda found: found is None,
        description="where KV goes to another node, and the file names the network",
    )


class PlanDocument(Document):
    """From what runs to what would run, for one model."""

    id: str
    intent_id: str
    intent_version: int | None = Field(default=None, description="of the intent that is kept")
    generation: int = Field(description="apply refuses the plan when another generation runs")
    model: str
    window: str
    kind: Literal["act", "promise"] = Field(
        default="promise",
        description="`act`: names a configuration alone, at any time; `promise`: what must hold",
    )
    workload: Workload | None = Field(default=None, description="what it was made for; null in older records")
    now: TopologyDocument | None
    target: TopologyDocument
    batching: Batching | None = Field(default=None, description="how far the target fills its steps; null: as now")
    now_batching: Batching | None = Field(default=None, description="how what runs fills its steps; null: nothing runs")
    prediction: PredictionDocument
    now_prediction: PredictionDocument | None
    runner_up: CandidateDocument | None
    reasons: tuple[str, ...]
    margins: tuple[MarginDocument, ...] = ()
    rules: tuple[str, ...] = Field(default=(), description="goals that narrowed the space or say what comes first")
    left_out: tuple[LeftOut, ...] = Field(default=(), description="goals that the plan does not weigh")
    offers: tuple[str, ...] = Field(default=(), description="what a change would give that nobody asked for")
    considered: int = Field(default=0, description="operating points and device counts that bounds looked at")
    switch: SwitchDocument | None = None
    certificate: tuple[str, ...] = Field(
        default=(), description="what bounds rule out for less, and how many were simulated"
    )
    bytes_to_move: Mapping[str, int] = {}
    to_acknowledge: tuple[Finding, ...] = Field(
        default=(), description="findings that apply wants acknowledged, by code; `breaks_promise`: what it breaks"
    )
    promised: tuple[str, ...] = Field(
        default=(), description="goals of active intents, for its time, that it was held against"
    )
    digest: str = Field(default="", description="what an approval is for: it changes with anything that the plan says")
    simulation: SimulationDocument | None = Field(default=None, exclude_if=lambda found: found is None)

    @computed_field  # type: ignore[prop-decorator] # pydantic's declared form
    @property
    def changes(self) -> bool:
        """Whether anything would run that does not."""
        is_refilled = self.batching not in {None, self.now_batching}
        return self.now is None or self.now.text != self.target.text or is_refilled

    def sealed(self) -> "PlanDocument":
        """With all that a person has to see of it, and its digest: SHA-256 of all that it says, in hex."""
        others = (finding for finding in self.to_acknowledge if finding.code != OUTAGE)
        whole = self.model_copy(update={"to_acknowledge": (*others, *self._outage())})
        content = whole.model_dump_json(exclude={"digest", "simulation"})
        return whole.model_copy(update={"digest": hashlib.sha256(content.encode()).hexdigest()})

    def _outage(self) -> Iterator[Finding]:
        """That requests stand still until another engine is up."""
        if self.switch and self.switch.strategy == "restart":
            stop_s = self.switch.stop_s
            most_s = self.switch.stop_most_s
            still = f"about {float(f'{stop_s:.2g}'):g} s" if stop_s else "a time that nobody can predict"
            most = f" ({float(f'{most_s:.2g}'):g} s at most)" if most_s else ""
            why = "the running engine has to end first"
            yield Finding(OUTAGE, "/switch", f"Requests stand still for {still}{most}: {why}.", self.target.shape)


class InfeasibleDocument(Document):
    """Why nothing holds the goals, and what comes closest."""

    reasons: tuple[str, ...]
    nearest: CandidateDocument | None
    feasible_targets: tuple[str, ...] = ()
    left_out: tuple[LeftOut, ...] = ()


class RefusedModel(Document):
    """A model for which nothing holds the goals."""

    model: str
    message: str
    infeasible: InfeasibleDocument


def _one_of(**types: str) -> JsonDict:
    """That exactly one of these keys has a value, as JSON Schema."""
    return {
        "oneOf": [
            {
                "required": [key],
                "properties": {kind: {"type": types[kind] if kind == key else "null"} for kind in types},
            }
            for key in types
        ]
    }


class WishRequest(Request):
    """A wish: words, the intent document that a translation gave, or the id of an intent that is kept."""

    model_config = ConfigDict(json_schema_extra=_one_of(text="string", intent="object", intent_id="string"))

    text: Text | None = None
    intent: IntentForm | None = None
    intent_id: str | None = None

    @model_validator(mode="after")
    def _exactly_one(self) -> "WishRequest":
        if [self.text, self.intent, self.intent_id].count(None) != 2:
            raise ValueError("give either text or intent or intent_id")
        return self


class When(Request):
    """The time to plan for.

    The present, and the window in force or the first that a goal names, unless said.
    """

    now: Moment = None
    at: MomentText | None = Field(default=None, description=f"plan for that moment: {MOMENT}")
    window: str | None = Field(
        default=None,
        description="plan for that window; unless said, the one in force or the first that a goal names",
    )


class PlanRequest(WishRequest, When):
    """A wish, or a topology that is named; and the time to plan for."""

    model_config = ConfigDict(
        json_schema_extra=_one_of(text="string", intent="object", intent_id="string", target="string")
    )

    target: Annotated[str, Field(max_length=2000)] | None = Field(
        default=None,
        description="plan for exactly this topology, in text form",
        examples=["CPU[0]:0-6 > CPU[1]:6-8", "tp2", "1x1"],
    )
    batching: Batching | None = Field(
        default=None, description="how far a topology that is named fills its steps; null: as what runs"
    )
    model: str | None = Field(
        default=None, description="plan for that model; unless said, for each that the goals are about"
    )

    @model_validator(mode="after")
    def _exactly_one(self) -> "PlanRequest":
        if [self.text, self.intent, self.intent_id, self.target].count(None) != 3:
            raise ValueError("give one of text, intent, intent_id and target")
        return self


class PlanAnswer(Document):
    """Plans with the intent they serve, one for each model; none when a question must be answered first."""

    outcome: Literal["ok", "clarify"]
    intent: IntentForm
    plans: tuple[PlanDocument, ...] = ()
    refused: tuple[RefusedModel, ...] = Field(
        default=(), description="models beside them for which nothing holds the goals"
    )

    @computed_field  # type: ignore[prop-decorator] # as above
    @property
    def plan(self) -> PlanDocument | None:
        """The plan, where there is one."""
        return self.plans[0] if len(self.plans) == 1 else None


class FrontierDocument(Document):
    """P99 latencies of a topology at rising rates."""

    label: str
    topology: str
    rates_rps: tuple[float, ...]
    ttft_s: tuple[float, ...]
    tpot_s: tuple[float, ...]
    saturation_rps: float


class FrontiersDocument(Document):
    """Latency against load of what a plan compares."""

    plan_id: str
    rate_rps: float = Field(description="of the plan's window")
    curves: tuple[FrontierDocument, ...]
