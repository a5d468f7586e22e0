"""Intents and their versions, and what is asked and answered about plans."""

import hashlib
import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated, Literal

from pydantic import ConfigDict, Field, JsonValue, computed_field, model_validator
from pydantic.config import JsonDict

from intent.models import Finding
from intent.openslo.export import Loss
from intent.windows import MOMENT
from runtime.capabilities import Batching
from selector.models import Frontier, Infeasible, Plan
from service.documents.forms import (
    Document,
    GoalForm,
    IntentForm,
    Json,
    Moment,
    MomentText,
    Request,
    Text,
    form_of,
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


def leads_to(source: str | None, target: str, batching: Batching | None) -> str:
    """What a switch leads to, as text: with how steps are filled, where that is all that changes."""
    return f"{target} with {batching}" if batching and source == target else target


def sealed(plan: Plan) -> Plan:
    """With all that a person has to see of it, and its digest: SHA-256 of all that it says, in hex."""
    others = (finding for finding in plan.to_acknowledge if finding.code != OUTAGE)
    whole = replace(plan, to_acknowledge=(*others, *_outage(plan)))
    content = form_of(Plan).dump_json(whole, exclude={"digest", "simulation", "applied_by"})
    return replace(whole, digest=hashlib.sha256(content).hexdigest())


def _outage(plan: Plan) -> Iterator[Finding]:
    """That requests stand still until another engine is up."""
    if plan.switch and plan.switch.strategy == "restart":
        still, most = (
            f"{float(f'{took_s:.2g}'):g} s" if 0 < took_s < math.inf else ""
            for took_s in (plan.switch.stop_s, plan.switch.stop_most_s)
        )
        time = f"about {still}" if still else "a time that nobody can predict"
        at_most = f" ({most} at most)" if most else ""
        why = "the running engine has to end first"
        yield Finding(OUTAGE, "/switch", f"Requests stand still for {time}{at_most}: {why}.", plan.target.shape)


class RefusedModel(Document):
    """A model for which nothing holds the goals."""

    model: str
    message: str
    infeasible: Infeasible


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
    plans: tuple[Plan, ...] = ()
    refused: tuple[RefusedModel, ...] = Field(
        default=(), description="models beside them for which nothing holds the goals"
    )

    @computed_field  # type: ignore[prop-decorator] # as above
    @property
    def plan(self) -> Plan | None:
        """The plan, where there is one."""
        return self.plans[0] if len(self.plans) == 1 else None


class FrontiersDocument(Document):
    """Latency against load of what a plan compares."""

    plan_id: str
    rate_rps: float = Field(description="of the plan's window")
    curves: tuple[Frontier, ...]
