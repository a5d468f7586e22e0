"""Whose request it is."""

from dataclasses import dataclass

from service.access.rights import Role

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
