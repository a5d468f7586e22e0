"""The tables: a row of each, as SQLAlchemy sees it. ``service.store.migrations`` makes them."""

from sqlalchemy import JSON, Double, ForeignKey, Index
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from service.documents.forms import Json
from service.store.clock import wall_s


class Base(DeclarativeBase):
    """The tables."""

    type_annotation_map = {Json: JSON, float: Double}  # noqa: RUF012 - SQLAlchemy's declared form


class IntentRow(Base):
    """A checked intent as it was first said: its version 1."""

    __tablename__ = "intents"
    id: Mapped[str] = mapped_column(primary_key=True)
    document: Mapped[Json]
    created_s: Mapped[float] = mapped_column(default=wall_s)
    said_by: Mapped[str | None] = mapped_column(default=None)
    """Whose key said it; None in rows of versions that did not keep that."""

    __table_args__ = (Index("ix_intents_created_s_id", "created_s", "id"),)


class AmendmentRow(Base):
    """A later version of an intent: the words that made it, and what they changed."""

    __tablename__ = "amendments"
    intent_id: Mapped[str] = mapped_column(ForeignKey("intents.id"), primary_key=True)
    version: Mapped[int] = mapped_column(primary_key=True)
    body: Mapped[Json]
    """``mode``, ``text``, ``diff``, ``intent``, ``created_s`` and ``said_by``."""


class PlanRow(Base):
    """A plan, immutable, and the operation that applied it."""

    __tablename__ = "plans"
    id: Mapped[str] = mapped_column(primary_key=True)
    intent_id: Mapped[str] = mapped_column(ForeignKey("intents.id"), index=True)
    document: Mapped[Json]
    model: Mapped[str | None]
    applied_by: Mapped[str | None] = mapped_column(default=None)
    created_s: Mapped[float] = mapped_column(default=wall_s)

    __table_args__ = (Index("ix_plans_created_s_id", "created_s", "id"),)


class OperationRow(Base):
    """A long-running change and how far it came."""

    __tablename__ = "operations"
    id: Mapped[str] = mapped_column(primary_key=True)
    done: Mapped[bool]
    document: Mapped[Json]
    model: Mapped[str | None]
    created_s: Mapped[float]
    updated_s: Mapped[float] = mapped_column(default=wall_s, onupdate=wall_s)

    __table_args__ = (Index("ix_operations_created_s_id", "created_s", "id"),)


class JournalRow(Base):
    """One line of a switch's journal."""

    __tablename__ = "journal"
    id: Mapped[int] = mapped_column(primary_key=True)
    switch_id: Mapped[str] = mapped_column(index=True)
    phase: Mapped[str]
    detail: Mapped[str]
    at_s: Mapped[float] = mapped_column(default=wall_s)


class EventRow(Base):
    """Something that happened; its id is what ``Last-Event-ID`` names."""

    __tablename__ = "events"
    id: Mapped[int] = mapped_column(primary_key=True)
    event: Mapped[str]
    data: Mapped[Json]
    at_s: Mapped[float] = mapped_column(default=wall_s)


class GenerationRow(Base):
    """A topology that ran; its id is the generation plans refer to."""

    __tablename__ = "generations"
    id: Mapped[int] = mapped_column(primary_key=True)
    topology: Mapped[str]
    model: Mapped[str | None]
    """None in rows of versions that served one."""
    operation_id: Mapped[str | None]
    """The switch that committed it; None where an engine started in it."""
    at_s: Mapped[float] = mapped_column(default=wall_s)


class KeyRow(Base):
    """A key, without its secret."""

    __tablename__ = "keys"
    prefix: Mapped[str] = mapped_column(primary_key=True)
    digest: Mapped[str]
    name: Mapped[str]
    person: Mapped[str]
    role: Mapped[str]
    tenant: Mapped[str | None]
    created_s: Mapped[float]
    created_by: Mapped[str]
    expires_s: Mapped[float | None]
    revoked_s: Mapped[float | None]


class ApprovalRow(Base):
    """The present word on a plan; earlier ones are in the audit."""

    __tablename__ = "approvals"
    plan_id: Mapped[str] = mapped_column(primary_key=True)
    digest: Mapped[str]
    verdict: Mapped[str]
    by: Mapped[str]
    role: Mapped[str]
    at_s: Mapped[float]
    until_s: Mapped[float | None]
    acknowledged: Mapped[list[str]] = mapped_column(JSON)
    note: Mapped[str]
    barred_until_s: Mapped[float | None]

    __table_args__ = (Index("ix_approvals_at_s_plan_id", "at_s", "plan_id"),)


class AuditRow(Base):
    """One entry; see ``Entry``."""

    __tablename__ = "audit"
    seq: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    at_s: Mapped[float]
    who: Mapped[str] = mapped_column(index=True)
    key: Mapped[str]
    role: Mapped[str]
    act: Mapped[str] = mapped_column(index=True)
    subject: Mapped[str] = mapped_column(index=True)
    before: Mapped[Json] = mapped_column(JSON)
    after: Mapped[Json] = mapped_column(JSON)
    origin: Mapped[str]
    request_id: Mapped[str]
    previous: Mapped[str]
    hash: Mapped[str]


class AuditHeadRow(Base):
    """The end of the chain: one row.

    Adding an entry changes it first, so that two never follow the same one.
    """

    __tablename__ = "audit_head"
    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    seq: Mapped[int]
    hash: Mapped[str]


class AnswerRow(Base):
    """A request with an ``Idempotency-Key``, and its answer; see ``Answer``.

    Without a status it has none yet.
    """

    __tablename__ = "answers"
    owner: Mapped[str] = mapped_column(primary_key=True)
    key: Mapped[str] = mapped_column(primary_key=True)
    digest: Mapped[str]
    created_s: Mapped[float] = mapped_column(index=True)
    status: Mapped[int | None] = mapped_column(default=None)
    content_type: Mapped[str | None] = mapped_column(default=None)
    location: Mapped[str | None] = mapped_column(default=None)
    body: Mapped[bytes | None] = mapped_column(default=None)


class PromiseRow(Base):
    """An intent that was activated; its document is a ``PromiseDocument``."""

    __tablename__ = "promises"
    intent_id: Mapped[str] = mapped_column(primary_key=True)
    state: Mapped[str]
    document: Mapped[Json]
    activated_s: Mapped[float]


class ControlRow(Base):
    """How the controller stands to what it is to do: one row."""

    __tablename__ = "control"
    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    mode: Mapped[str]
    paused: Mapped[bool]
    resumed_s: Mapped[float]
    """What was applied by somebody until then is no override any more."""
    pinned_by: Mapped[str | None]
    pinned_until_s: Mapped[float | None]


class OutcomeRow(Base):
    """A switch and what it was good for; its document is an ``OutcomeDocument``."""

    __tablename__ = "outcomes"
    operation_id: Mapped[str] = mapped_column(primary_key=True)
    at_s: Mapped[float] = mapped_column(index=True)
    document: Mapped[Json]


class AttainmentRow(Base):
    """How often a goal was met in an hour."""

    __tablename__ = "attainments"
    model: Mapped[str] = mapped_column(primary_key=True)
    intent_id: Mapped[str] = mapped_column(primary_key=True)
    words: Mapped[str] = mapped_column(primary_key=True)
    window: Mapped[str] = mapped_column(primary_key=True)
    hour_s: Mapped[float] = mapped_column(primary_key=True)
    counted: Mapped[str]
    needed: Mapped[float]
    met: Mapped[int]
    total: Mapped[int]


class LoadRow(Base):
    """What was asked of a model in some minutes; its document is a ``PastLoadDocument``."""

    __tablename__ = "loads"
    model: Mapped[str] = mapped_column(primary_key=True)
    begins_s: Mapped[float] = mapped_column(primary_key=True)
    document: Mapped[Json]


class OutRow(Base):
    """A device that is out; see ``Out``."""

    __tablename__ = "devices_out"
    device: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    why: Mapped[str]
    by: Mapped[str]
    since_s: Mapped[float]
