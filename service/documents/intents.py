"""Intents on their way: words, follow-ups, versions, and OpenSLO in both directions."""

from typing import Annotated, Literal

from pydantic import Field, JsonValue

from intent.followups.versions import Amendment
from intent.openslo.export import Loss
from service.documents.forms import Document, GoalForm, IntentForm, Json, Moment, Request, Text


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

    version: int | None = Field(
        default=None, description="the version it is about; refused if that is not the latest"
    )


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

    @classmethod
    def of(cls, amendment: Amendment) -> "AmendmentDocument":
        """An amendment's document."""
        return cls.model_validate(amendment)


class VersionDocument(AmendmentDocument):
    """A version of an intent that is kept."""

    id: str
    version: int
    supersedes: int | None
    text: str = Field(description="what was said for this version")
    created_s: float = Field(description="unix seconds")
    said_by: str | None = Field(
        default=None, description="whose key said it; null in records of older versions"
    )


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
