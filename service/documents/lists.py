"""Lists as the API shows them: newest first, in pages."""

from typing import Annotated

from pydantic import Field

from service.documents.approvals import ApprovalDocument
from service.documents.forms import Document, Request
from service.documents.intents import VersionDocument
from service.documents.operations import OperationDocument
from service.documents.plans import PlanDocument
from service.pages import Cursor, Page

PLACE = r"^[0-9]{1,12}\.[0-9]{1,17}~[a-z]+-[0-9a-z]{1,32}$"
"""Of a place in a list, as text: when the item before was made, and its id."""


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


class AppliedPlan(PlanDocument):
    """A plan, and what applied it."""

    applied_by: str | None = Field(description="the operation")


class PlansDocument(Listing):
    """Plans."""

    plans: tuple[AppliedPlan, ...]


class ApprovalsDocument(Listing):
    """What was said to plans: the last word to each."""

    approvals: tuple[ApprovalDocument, ...]


class OperationsDocument(Listing):
    """Operations."""

    operations: tuple[OperationDocument, ...]


def place(cursor: Cursor | None) -> str | None:
    """A place in a list, as text."""
    return None if cursor is None else f"{float(cursor.created_s)!r}~{cursor.id}"
