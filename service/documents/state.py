"""What runs and what happened, and pages of what is kept."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Generic, Literal, TypeVar

from pydantic import Field, ValidationInfo, field_validator

from runtime.capabilities import Batching
from runtime.engine import EngineState
from runtime.models import Gpu, ModelSpec, Topology
from selector.models import Plan, Profile
from service.documents.forms import Document, Request
from service.documents.operations import ApprovalDocument, OperationDocument
from service.documents.plans import VersionDocument
from service.documents.promises import ControlDocument, DecisionDocument, OutcomeDocument, PromiseDocument

T = TypeVar("T")

PLACE = r"^[0-9]{1,12}\.[0-9]{1,17}~[a-z]+-[0-9a-z]{1,32}$"
"""Of a place in a list, as text: when the item before was made, and its id."""


@dataclass(frozen=True, slots=True)
class Cursor:
    """A place in a list: behind the item that was made then and has this id."""

    created_s: float
    id: str


@dataclass(frozen=True, slots=True)
class Page:
    """Which part of a list is wanted: so many items behind a place, or from the newest on."""

    limit: int = 50
    after: Cursor | None = None


@dataclass(frozen=True, slots=True)
class Listed(Generic[T]):
    """Part of a list."""

    items: tuple[T, ...]
    next: Cursor | None
    """Where the next page begins; None where this is the last."""


class PageRequest(Request):
    """Which part of a list is wanted."""

    limit: int = Field(default=50, ge=1, le=200)
    after: Annotated[str, Field(pattern=PLACE)] | None = Field(
        default=None, description="`next` of the page before; null: from the newest on"
    )

    @property
    def page(self) -> Page:
        """As the store takes it."""
        if self.after is None:
            return Page(self.limit)
        at_s, _, name = self.after.partition("~")
        return Page(self.limit, Cursor(float(at_s), name))


class PlansRequest(PageRequest):
    """Which plans are wanted."""

    model: str | None = Field(default=None, description="of this model alone")
    intent: str | None = Field(default=None, description="of this intent alone")


class OperationsRequest(PageRequest):
    """Which operations are wanted."""

    model: str | None = Field(default=None, description="of this model alone")
    done: bool | None = Field(default=None, description="those that have ended, or have not")


class Listing(Document):
    """Part of a list."""

    next: str | None = Field(description="`after` of the next page; null: this is the last")


class IntentsDocument(Listing):
    """Intents, each in its latest version."""

    intents: tuple[VersionDocument, ...]


class PlansDocument(Listing):
    """Plans."""

    plans: tuple[Plan, ...]


class ApprovalsDocument(Listing):
    """What was said to plans: the last word to each."""

    approvals: tuple[ApprovalDocument, ...]


class OperationsDocument(Listing):
    """Operations."""

    operations: tuple[OperationDocument, ...]


def cursor_text(cursor: Cursor | None) -> str | None:
    """A place in a list, as text."""
    return None if cursor is None else f"{float(cursor.created_s)!r}~{cursor.id}"


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


class ReplicaDocument(Document):
    """One of the pipelines that serve a model beside each other, as it stands now."""

    topology: Topology
    state: EngineState
    share: float | None = Field(description="of the requests, as the plan has it; null: no plan says one")
    taken: float = Field(description="of the requests since that plan")
    running: int = Field(description="requests that have their first token")
    waiting: int = Field(description="requests that have none")
    is_changing: bool = Field(description="new requests avoid it, for it switches or stops")
    is_leaving: bool = Field(description="it has stopped taking requests, and ends when it is empty")


class StateDocument(Document):
    """What runs now."""

    model: str
    generation: int
    topology: Topology
    batching: Batching | None = Field(default=None, description="how far steps are filled")
    origin: str = Field(default="", description="why this topology runs: an operation, or how it was started")
    operation: str | None = Field(description="the operation under way")
    streams: int
    replicas: tuple[ReplicaDocument, ...] = Field(
        default=(), description="in the order of the topology, then what leaves"
    )
    tokens: TokenCounts
    inventory: tuple[NodeDocument, ...] = ()
    out: Mapping[int, str] = Field(default={}, description="devices of it that are out, and why")


class DeviceDocument(Document):
    """A device: whose it is, whether something runs on it, and whether it is out."""

    device: int = Field(description="its number in the inventory")
    kind: str
    node: str
    model: str | None = Field(description="that may use it")
    used: bool = Field(description="by what runs of that model")
    out: str | None = Field(description="why no plan and no restart uses it; null: it may be used")
    out_by: str | None = Field(description="who took it out; `recovery`: the service, when an engine was lost")
    out_since_s: float | None = Field(description="unix seconds")


class DevicesDocument(Document):
    """All devices of the deployment."""

    devices: tuple[DeviceDocument, ...]


class OutRequest(Request):
    """What goes with an order to use a device no longer."""

    why: str = Field(default="", max_length=500, description="for those who see that it is out")


class DrainRequest(Request):
    """What is to be emptied, and until when."""

    what: str = Field(max_length=200, description="a node (`b`), a device (`gpu-2`) or a replica (`chat/1`)")
    by: str | None = Field(
        default=None,
        max_length=60,
        description="`10m`, `18:00` or an ISO time, when what is left goes on in other replicas; null: after a minute",
    )
    why: str = Field(default="", max_length=500, description="for those who see it")
    acknowledge: list[str] = Field(
        default=[], max_length=20, description="`reconfiguration_limited`: even where a promise forbids switches now"
    )


class DrainDocument(Document):
    """Devices that are emptied and stay out until `undrain`."""

    what: str
    devices: tuple[int, ...] = ()
    who: str = ""
    since_s: float = Field(default=0.0, description="unix seconds")
    by: str | None = Field(default=None, description="when what is left goes on in other replicas")
    why: str = ""
    state: Literal["leaving", "used", "empty"] = Field(
        default="leaving",
        description="`empty`: safe to power off; `used`: no switch away is under way, drain it again",
    )
    requests: int = Field(default=0, description="that are still there")
    operations: tuple[str, ...] = Field(default=(), description="the switches away, as far as this service began them")
    misses: tuple[str, ...] = Field(default=(), description="promises that break by prediction, and how long")
    estimate_s: float | None = Field(default=None, description="that it was predicted to take until it is empty")


class DrainsDocument(Document):
    """All drains."""

    drains: tuple[DrainDocument, ...]


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
    store: Literal["serving", "stalled"] = Field(
        default="serving", description="A stalled database does not answer: what needs it is refused, models serve."
    )


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
    """One thing that happened.

    Ids rise, across restarts too; progress within a phase has none and is not kept.
    """

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
