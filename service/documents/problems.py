"""Errors as RFC 9457 problems."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Self

from pydantic import Field

from intent.models import Finding
from runtime.models import CutoverReport
from selector.models import Infeasible
from service.documents.forms import Document, IntentForm
from service.documents.plans import RefusedModel


class Code(StrEnum):
    """What went wrong, for programs; part of the API."""

    status: int
    """Of HTTP, that says so."""

    def __new__(cls, name: str, status: int) -> Self:
        """A code that is its name, with a status."""
        code = str.__new__(cls, name)
        code._value_ = name
        code.status = status
        return code

    INVALID_REQUEST = "invalid_request", 422
    NOT_FOUND = "not_found", 404
    METHOD_NOT_ALLOWED = "method_not_allowed", 405
    CLARIFY = "clarify", 409
    CONFLICT = "conflict", 409
    INFEASIBLE = "infeasible", 422
    OUT_OF_SCOPE = "out_of_scope", 422
    STALE_PLAN = "stale_plan", 409
    STALE_INTENT = "stale_intent", 409
    ALREADY_APPLIED = "already_applied", 409
    ALREADY_DECIDED = "already_decided", 409
    FINDING_NOT_ACKNOWLEDGED = "finding_not_acknowledged", 409
    OUTSIDE_WINDOW = "outside_window", 409
    RECONFIGURATION_LIMITED = "reconfiguration_limited", 409
    NOT_A_PROMISE = "not_a_promise", 422
    NOT_ACTIVE = "not_active", 409
    SWITCH_IN_PROGRESS = "switch_in_progress", 409
    TOO_LATE = "too_late", 409
    ALREADY_ENDED = "already_ended", 409
    CANNOT_UNDO = "cannot_undo", 409
    NO_CHANGE = "no_change", 409
    IDEMPOTENCY_KEY_REUSED = "idempotency_key_reused", 422
    IDEMPOTENCY_KEY_IN_USE = "idempotency_key_in_use", 409
    OUTCOME_UNKNOWN = "outcome_unknown", 409
    NOT_APPROVED = "not_approved", 403
    UNAUTHENTICATED = "unauthenticated", 401
    FORBIDDEN = "forbidden", 403
    RATE_LIMITED = "rate_limited", 429
    UNSUPPORTED = "unsupported", 422
    SWITCH_ABORTED = "switch_aborted", 500
    ENGINE_LOST = "engine_lost", 503
    OVERLOADED = "overloaded", 503
    STOPPING = "stopping", 503
    TOO_LARGE = "too_large", 413
    BAD_DEPLOYMENT = "bad_deployment", 500
    STORE = "store", 503
    START = "start", 503
    INTERNAL = "internal", 500
    UNREACHABLE = "unreachable", 503
    """No service answers; said by its client."""
    TIMED_OUT = "timed_out", 504
    """It did not end in time; said by its client."""


@dataclass(frozen=True, slots=True)
class Detail:
    """One thing that is wrong; ``pointer`` is a JSON Pointer into what was sent."""

    pointer: str
    message: str
    code: str = ""
    """The problem's own where it is empty."""


RETRY_AFTER_S: Mapping[Code, int] = {
    Code.IDEMPOTENCY_KEY_IN_USE: 1,
    Code.ENGINE_LOST: 10,
    Code.RATE_LIMITED: 5,
    Code.OVERLOADED: 5,
}
"""Problems that are over soon, and when to ask again."""


class Problem(Document):
    """What went wrong (RFC 9457); its ``type`` is the code as a URI reference."""

    type: str
    title: str
    status: int
    detail: str
    code: Code
    errors: tuple[Detail, ...]
    intent: IntentForm | None = Field(
        default=None, exclude_if=lambda value: value is None, description="that cannot be planned for"
    )
    infeasible: Infeasible | None = Field(default=None, exclude_if=lambda value: value is None)
    refused: tuple[RefusedModel, ...] | None = Field(
        default=None, exclude_if=lambda value: value is None, description="each of several models, with its own reasons"
    )
    findings: tuple[Finding, ...] | None = Field(
        default=None, exclude_if=lambda value: value is None, description="that nobody has said to have seen"
    )
    reason: str | None = Field(
        default=None, exclude_if=lambda value: value is None, description="why a switch was given up"
    )
    report: CutoverReport | None = Field(
        default=None, exclude_if=lambda value: value is None, description="of that switch"
    )

    @classmethod
    def of(cls, code: Code, detail: str, errors: Sequence[Detail] = ()) -> Self:
        """The problem of a code."""
        return cls(
            type=f"/problems/{code.value}",
            title=code.value.replace("_", " ").capitalize(),
            status=code.status,
            detail=detail,
            code=code,
            errors=tuple(replace(error, code=error.code or code.value) for error in errors),
        )
