"""Approvals as the API shows them."""

from typing import Annotated, Literal

from pydantic import Field

from service.documents.forms import Document, Request

Codes = Annotated[list[str], Field(max_length=16)]
Note = Annotated[str, Field(max_length=500)]


class ApproveRequest(Request):
    """A yes to one plan."""

    digest: str = Field(description="of the plan that was read: `digest` in its document")
    minutes: float = Field(default=60, gt=0, le=10_080, description="for which it holds")
    acknowledge: Codes = Field(default=[], description="codes of the findings that were seen")
    note: Note = ""


class RejectRequest(Request):
    """A no to one plan."""

    note: Note = ""


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
