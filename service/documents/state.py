"""What runs now, on what, and what predictions of it are made from."""

from collections.abc import Mapping
from typing import Literal

from pydantic import Field, ValidationInfo, field_validator

from runtime.engine import EngineState
from runtime.models import Gpu, ModelSpec
from selector.models import Profile
from service.documents.approvals import ApprovalDocument
from service.documents.forms import Document
from service.documents.operations import OperationDocument
from service.documents.plans import TopologyDocument
from service.documents.promises import ControlDocument, DecisionDocument, OutcomeDocument, PromiseDocument

Kind = Literal["operation", "topology", "promise", "control", "decision", "verdict", "approval"]
"""What an event is about."""


class TokenCounts(Document):
    """What the ledger saw."""

    accepted: int
    lost: int
    duplicates: int


class NodeDocument(Document):
    """The devices of a machine."""

    name: str
    link: str
    gpus: tuple[Gpu, ...]


class StateDocument(Document):
    """What runs now."""

    model: str
    generation: int
    topology: TopologyDocument
    origin: str = Field(default="", description="why this topology runs: an operation, or how it was started")
    operation: str | None = Field(description="the operation under way")
    streams: int
    tokens: TokenCounts
    inventory: tuple[NodeDocument, ...] = ()


class ProfilesDocument(Document):
    """What predictions are made from."""

    model: ModelSpec
    profiles: dict[str, Profile] = Field(description="device kind to what it can do")


class ModelsDocument(Document):
    """What runs now, for each model."""

    models: tuple[StateDocument, ...]


class Health(Document):
    """That the service lives."""

    status: Literal["ok"] = "ok"


class ModelReadiness(Document):
    """Whether a model can be served, and as what."""

    model: str
    state: EngineState
    shape: str = Field(examples=["PP2"])


class Readiness(Document):
    """What the service can serve."""

    models: tuple[ModelReadiness, ...]


Happened = (
    OperationDocument
    | StateDocument
    | PromiseDocument
    | ControlDocument
    | DecisionDocument
    | OutcomeDocument
    | ApprovalDocument
)
"""What an event tells."""


class Event(Document):
    """One thing that happened. Ids rise, across restarts too; progress within a phase has none and is not kept."""

    event: Kind
    id: int | None
    data: Happened

    @field_validator("data", mode="before")
    @classmethod
    def _of_its_kind(cls, data: object, info: ValidationInfo) -> object:
        kind = KINDS.get(info.data.get("event", ""))
        return kind.model_validate(data) if kind and isinstance(data, dict) else data


KINDS: Mapping[Kind, type[Document]] = {
    "operation": OperationDocument,
    "topology": StateDocument,
    "promise": PromiseDocument,
    "control": ControlDocument,
    "decision": DecisionDocument,
    "verdict": OutcomeDocument,
    "approval": ApprovalDocument,
}
"""What the data of an event is."""
