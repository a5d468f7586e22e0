"""Errors of the service: each carries a code that the HTTP status and the exit code are looked up by.

ServiceError
    DeploymentError    the deployment file cannot be used
    StoreError         the database cannot be opened or written
    StartError         the service cannot start (port in use, engine)
    RefusedError       a request that was understood and refused
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


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
    FINDING_NOT_ACKNOWLEDGED = "finding_not_acknowledged"
    SWITCH_IN_PROGRESS = "switch_in_progress"
    NO_CHANGE = "no_change"
    NOT_APPROVED = "not_approved"
    UNSUPPORTED = "unsupported"
    SWITCH_ABORTED = "switch_aborted"
    ENGINE_LOST = "engine_lost"
    OVERLOADED = "overloaded"
    BAD_DEPLOYMENT = "bad_deployment"
    STORE = "store"
    START = "start"
    INTERNAL = "internal"


@dataclass(frozen=True, slots=True)
class Detail:
    """One thing that is wrong; ``pointer`` is a JSON Pointer into what was sent."""

    pointer: str
    message: str
    code: str = ""


class ServiceError(Exception):
    """Root of the tree; every message says what was wrong, where and what to do.

    ``members`` are further facts, as JSON, that a program may want (RFC 9457 extension members).
    """

    def __init__(
        self,
        code: Code,
        message: str,
        errors: Sequence[Detail] = (),
        members: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.errors = tuple(errors)
        self.members = dict(members or {})


class DeploymentError(ServiceError):
    """The deployment file cannot be used."""

    def __init__(self, message: str) -> None:
        super().__init__(Code.BAD_DEPLOYMENT, message)


class StoreError(ServiceError):
    """The database cannot be opened or written."""

    def __init__(self, message: str) -> None:
        super().__init__(Code.STORE, message)


class StartError(ServiceError):
    """The service cannot start."""

    def __init__(self, message: str) -> None:
        super().__init__(Code.START, message)


class RefusedError(ServiceError):
    """A request that was understood and refused; nothing was changed."""
