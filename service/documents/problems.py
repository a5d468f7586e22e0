"""Errors as RFC 9457 problems."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Self

from pydantic import Field

from intent.models import Finding
from runtime.models import CutoverReport
from service.documents.forms import Document, IntentForm
from service.documents.plans import InfeasibleDocument


class Code(StrEnum):
    """What went wrong, for programs; part of the API."""

    INVALID_REQUEST = "invalid_request"
    NOT_FOUND = "not_found"
    METHOD_NOT_ALLOWED = "method_not_allowed"
    CLARIFY = "clarify"
    CONFLICT = "conflict"
    INFEASIBLE = "infeasible"
    OUT_OF_SCOPE = "out_of_scope"
    STALE_PLAN = "stale_plan"
    STALE_INTENT = "stale_intent"
    ALREADY_APPLIED = "already_applied"
    ALREADY_DECIDED = "already_decided"
    FINDING_NOT_ACKNOWLEDGED = "finding_not_acknowledged"
    OUTSIDE_WINDOW = "outside_window"
    RECONFIGURATION_LIMITED = "reconfiguration_limited"
    NOT_A_PROMISE = "not_a_promise"
    NOT_ACTIVE = "not_active"
    SWITCH_IN_PROGRESS = "switch_in_progress"
    TOO_LATE = "too_late"
    ALREADY_ENDED = "already_ended"
    CANNOT_UNDO = "cannot_undo"
    NO_CHANGE = "no_change"
    IDEMPOTENCY_KEY_REUSED = "idempotency_key_reused"
    IDEMPOTENCY_KEY_IN_USE = "idempotency_key_in_use"
    OUTCOME_UNKNOWN = "outcome_unknown"
    NOT_APPROVED = "not_approved"
    UNAUTHENTICATED = "unauthenticated"
    FORBIDDEN = "forbidden"
    RATE_LIMITED = "rate_limited"
    UNSUPPORTED = "unsupported"
    SWITCH_ABORTED = "switch_aborted"
    ENGINE_LOST = "engine_lost"
    OVERLOADED = "overloaded"
    STOPPING = "stopping"
    TOO_LARGE = "too_large"
    BAD_DEPLOYMENT = "bad_deployment"
    STORE = "store"
    START = "start"
    INTERNAL = "internal"
    UNREACHABLE = "unreachable"
    """No service answers; said by its client."""
    TIMED_OUT = "timed_out"
    """It did not end in time; said by its client."""


@dataclass(frozen=True, slots=True)
class Detail:
    """One thing that is wrong; ``pointer`` is a JSON Pointer into what was sent."""

    pointer: str
    message: str
    code: str = ""
    """The problem's own where it is empty."""


STATUS: Mapping[Code, int] = {
    Code.INVALID_REQUEST: 422,
    Code.NOT_FOUND: 404,
    Code.METHOD_NOT_ALLOWED: 405,
    Code.CLARIFY: 409,
    Code.CONFLICT: 409,
    Code.INFEASIBLE: 422,
    Code.OUT_OF_SCOPE: 422,
    Code.STALE_PLAN: 409,
    Code.STALE_INTENT: 409,
    Code.ALREADY_APPLIED: 409,
    Code.ALREADY_DECIDED: 409,
    Code.FINDING_NOT_ACKNOWLEDGED: 409,
    Code.OUTSIDE_WINDOW: 409,
    Code.RECONFIGURATION_LIMITED: 409,
    Code.NOT_A_PROMISE: 422,
    Code.NOT_ACTIVE: 409,
    Code.SWITCH_IN_PROGRESS: 409,
    Code.TOO_LATE: 409,
    Code.ALREADY_ENDED: 409,
    Code.CANNOT_UNDO: 409,
    Code.NO_CHANGE: 409,
    Code.IDEMPOTENCY_KEY_REUSED: 422,
    Code.IDEMPOTENCY_KEY_IN_USE: 409,
    Code.OUTCOME_UNKNOWN: 409,
    Code.NOT_APPROVED: 403,
    Code.UNAUTHENTICATED: 401,
    Code.FORBIDDEN: 403,
    Code.RATE_LIMITED: 429,
    Code.UNSUPPORTED: 422,
    Code.SWITCH_ABORTED: 500,
    Code.ENGINE_LOST: 503,
    Code.OVERLOADED: 503,
    Code.STOPPING: 503,
    Code.TOO_LARGE: 413,
    Code.BAD_DEPLOYMENT: 500,
    Code.STORE: 503,
    Code.START: 503,
    Code.INTERNAL: 500,
    Code.UNREACHABLE: 503,
    Code.TIMED_OUT: 504,
}

RETRY_AFTER_S: Mapping[Code, int] = {
    Code.IDEMPOTENCY_KEY_IN_USE: 1,
    Code.ENGINE_LOST: 10,
    Code.RATE_LIMITED: 5,
    Code.OVERLOADED: 5,
}
"""Problems that are over soon, and when to ask again."""


def _absent(value: object) -> bool:
    return value is None


class Problem(Document):
    """What went wrong (RFC 9457); its ``type`` is the code as a URI reference."""

    type: str
    title: str
    status: int
    detail: str
    code: Code
    errors: tuple[Detail, ...]
    intent: IntentForm | None = Field(
        default=None, exclude_if=_absent, description="that cannot be planned for"
    )
    infeasible: InfeasibleDocument | None = Field(default=None, exclude_if=_absent)
    findings: tuple[Finding, ...] | None = Field(
        default=None, exclude_if=_absent, description="that nobody has said to have seen"
    )
    reason: str | None = Field(default=None, exclude_if=_absent, description="why a switch was given up")
    report: CutoverReport | None = Field(default=None, exclude_if=_absent, description="of that switch")

    @classmethod
    def of(cls, code: Code, detail: str, errors: Sequence[Detail] = ()) -> Self:
        """The problem of a code."""
        return cls(
            type=f"/problems/{code.value}",
            title=code.value.replace("_", " ").capitalize(),
            status=STATUS[code],
            detail=detail,
            code=code,
            errors=tuple(replace(one, code=one.code or code.value) for one in errors),
        )
