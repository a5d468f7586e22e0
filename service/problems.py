"""Errors as RFC 9457 problems. Pure: the HTTP handlers that send them are in ``app``."""

from collections.abc import Mapping, Sequence
from typing import Any

from service.errors import Code, Detail, ServiceError

MEDIA_TYPE = "application/problem+json"

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
    Code.FINDING_NOT_ACKNOWLEDGED: 409,
    Code.SWITCH_IN_PROGRESS: 409,
    Code.NO_CHANGE: 409,
    Code.NOT_APPROVED: 403,
    Code.UNSUPPORTED: 422,
    Code.SWITCH_ABORTED: 500,
    Code.ENGINE_LOST: 503,
    Code.OVERLOADED: 503,
    Code.BAD_DEPLOYMENT: 500,
    Code.STORE: 503,
    Code.START: 503,
    Code.INTERNAL: 500,
}

CODE_OF_STATUS = {404: Code.NOT_FOUND, 405: Code.METHOD_NOT_ALLOWED, 503: Code.OVERLOADED}


def problem(
    code: Code, detail: str, errors: Sequence[Detail] = (), members: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """A problem document; its ``type`` is the code as a URI reference."""
    return {
        **(members or {}),
        "type": f"/problems/{code.value}",
        "title": code.value.replace("_", " ").capitalize(),
        "status": STATUS[code],
        "detail": detail,
        "code": code.value,
        "errors": [
            {"pointer": e.pointer, "code": e.code or code.value, "message": e.message} for e in errors
        ],
    }


def problem_of(error: ServiceError) -> dict[str, Any]:
    """The problem an error of this service becomes."""
    return problem(error.code, str(error), error.errors, error.members)
