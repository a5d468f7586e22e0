"""What would happen if a plan were applied now."""

from pydantic import Field

from intent.models import Finding
from service.documents.forms import Document
from service.documents.plans import SwitchDocument
from service.documents.problems import Code


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
    approved_by: str | None = Field(
        description="who said yes, or would by applying it; null: somebody has to"
    )
    operation: str | None = Field(description="the switch under way")
    barred: str | None = Field(description="why the switch would be given up before it begins")
    switch: SwitchDocument | None = Field(description="predicted")
    streams: int = Field(
        description="open now; which of them stay on the old topology is known at the cut (`stays` of the report)"
    )
    blocks: BlocksDocument
    memory: tuple[DeviceMemoryDocument, ...]
