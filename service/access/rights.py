"""Roles and what each may do, one table; and whose request it is. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class Right(StrEnum):
    """What can be allowed. Every route names the one that it needs."""

    LOOK = "look"
    """See what is and was: intents, plans, operations, events."""
    METRICS = "metrics"
    """Read the metrics."""
    SAY = "say"
    """Turn words into intents and plans, which changes nothing that runs."""
    APPLY = "apply"
    """Start, cancel and undo switches that are approved."""
    APPROVE = "approve"
    """Approve and reject plans."""
    AUDIT = "audit"
    """Read the audit."""
    KEYS = "keys"
    """Make, list and revoke keys."""
    INFER = "infer"
    """Generate with the models that are served."""


class Role(StrEnum):
    """What a key is for."""

    VIEWER = "viewer"
    OPERATOR = "operator"
    APPROVER = "approver"
    ADMIN = "admin"
    TENANT = "tenant"
    """A tenant's clients: their requests are that tenant's."""
    GATEWAY = "gateway"
    """A proxy before several tenants' clients, which says in a header whose request it is."""
    METRICS = "metrics"
    """Prometheus, or what reads metrics as it does."""


_VIEWER = frozenset({Right.LOOK, Right.METRICS})
_OPERATOR = _VIEWER | {Right.SAY, Right.APPLY, Right.INFER}
_APPROVER = _OPERATOR | {Right.APPROVE, Right.AUDIT}

RIGHTS: Mapping[Role, frozenset[Right]] = {
    Role.VIEWER: _VIEWER,
    Role.OPERATOR: _OPERATOR,
    Role.APPROVER: _APPROVER,
    Role.ADMIN: _APPROVER | {Right.KEYS},
    Role.TENANT: frozenset({Right.INFER}),
    Role.GATEWAY: frozenset({Right.INFER}),
    Role.METRICS: frozenset({Right.METRICS}),
}


def roles_with(right: Right) -> tuple[Role, ...]:
    """The roles that have a right, in the table's order."""
    return tuple(role for role, rights in RIGHTS.items() if right in rights)


CALLER = "caller"
"""Under this name a request has its caller in its state."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Who sends a request."""

    name: str
    """The person whose key it is."""
    role: Role
    key: str = ""
    """The key's prefix; empty where there are no keys."""
    tenant: str | None = None
    """Whose request it is, for those of tenants."""
    origin: str = ""
    """The address it comes from."""
    request_id: str = ""


CONTROLLER = Caller("the controller", Role.OPERATOR)
"""Who acts where nobody does: it may apply, and approves nothing."""
RECOVERY = Caller("recovery", Role.OPERATOR)
"""Who acts where an engine was lost: it asks nobody."""
