"""Roles and what each may do; keys and the audit as the API shows them.

A secret stands in one answer only, to whoever had the key made.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Annotated

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from runtime.forms import DESCRIBED
from service.documents.forms import Document, Json, Request


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


def lacking(right: Right, name: str, role: Role) -> str:
    """Why somebody may not do something, and who may; empty: they may."""
    if right in RIGHTS[role]:
        return ""
    roles = ", ".join(roles_with(right))
    return f"the key of {name!r} has the role {role} and may not {right}; a key of these roles may: {roles}"


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


SERVICE = Caller("the service", Role.ADMIN)
CONTROLLER = Caller("the controller", Role.OPERATOR)
"""Who acts where nobody does: it may apply, and approves nothing."""
TRANSLATOR = "the translator"
"""The key by which the service asks a model that it serves to translate words."""
RECOVERY = Caller("recovery", Role.OPERATOR)
"""Who acts where an engine was lost: it asks nobody."""


HEAD = "^(0:|[1-9][0-9]{0,17}:[0-9a-f]{64})$"
"""Of the end of the audit's chain as text."""
FORM = r"^[\w.@+-]([\w.@+ -]*[\w.@+-])?$"


def _named(name: str) -> str:
    """A name of a key or a person.

    Raises:
        PydanticCustomError: it is none.
    """
    if re.fullmatch(FORM, name):
        return name
    what = "is no name: it has letters, digits and . _ @ + -, with spaces inside only; write one such as ada"
    raise PydanticCustomError("no_name", "{words}", {"words": f"{name!r} {what}"})


Name = Annotated[
    str,
    Field(max_length=64, json_schema_extra={"pattern": FORM}, examples=["ci", "ada@example.org"]),
    AfterValidator(_named),
]


class KeyRequest(Request):
    """A key that is to be made."""

    name: Name = Field(description="of the key; no two that open something have the same")
    person: Name | None = Field(default=None, description="whose it is, as in the audit; null: as its name")
    role: Role
    tenant: str | None = Field(
        default=None, description="whose requests it makes: with the role `tenant`, and only then"
    )
    days: float | None = Field(default=None, gt=0, le=3650, description="until it expires; null: never")


class KeyDocument(Document):
    """A key, without its secret."""

    prefix: str = Field(examples=["k3v90ab2"])
    name: str
    person: str
    role: Role
    tenant: str | None
    created_s: float
    created_by: str
    expires_s: float | None
    revoked_s: float | None


class NewKeyDocument(KeyDocument):
    """A key that was made just now."""

    key: str = Field(description="the whole key; it is shown this once")


class KeysDocument(Document):
    """All keys, oldest first."""

    keys: tuple[KeyDocument, ...]


class MeDocument(Document):
    """Who asks, what they may do, and by which clock the service goes."""

    name: str = Field(description="the person whose key it is")
    role: Role
    key: str = Field(description="the prefix of the key; empty where keys are not asked for")
    rights: tuple[Right, ...]
    timezone: str = Field(description="of the deployment, as windows are in")
    now_s: float = Field(description="the service's clock, unix seconds")
    version: str = Field(description="of the service")
    warnings: tuple[str, ...] = Field(
        default=(), description="what has to be done soon, as for a certificate that ends, or is known to be wrong"
    )


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """One act, as the audit keeps it."""

    __get_pydantic_json_schema__ = DESCRIBED

    seq: int
    """From 1, without gaps."""
    at_s: float
    """Unix time."""
    who: str
    """Name of the key, or of the part of the service that acted by itself."""
    key: str
    """The key's prefix; empty where there is none."""
    role: str
    act: str
    """As `plan.apply`."""
    subject: str
    """What it was done to, as `plan-1f0c…`."""
    before: Json = field(default_factory=dict)
    after: Json = field(default_factory=dict)
    origin: str = ""
    """The address it came from."""
    request_id: str = ""
    previous: str = ""
    """The hash of the entry before."""
    hash: str = ""

    def sealed(self) -> str:
        """The hash that belongs to what it says: SHA-256 of its other fields as JSON, in hex."""
        fields = {key: value for key, value in asdict(self).items() if key != "hash"}
        text = json.dumps(fields, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
        return hashlib.sha256(text.encode()).hexdigest()


class AuditPage(Request):
    """Which entries are wanted."""

    before: int | None = Field(default=None, ge=1, le=2**53, description="entries with a lower number")
    limit: int = Field(default=50, ge=1, le=500)
    act: str | None = None


class AuditDocument(Document):
    """What was done, newest first."""

    entries: tuple[AuditEntry, ...]
    next: int | None = Field(description="`before` of the next page; null: there is none")


class HeadDocument(Document):
    """The end of the audit's chain."""

    seq: int
    hash: str
    head: str = Field(description="both, as `verify` takes them")


@dataclass(frozen=True, slots=True)
class Flaw:
    """A place where the chain is not what it was."""

    seq: int
    problem: str


class VerdictDocument(Document):
    """Whether the audit is what it was."""

    is_whole: bool
    entries: int
    flaws: tuple[Flaw, ...]
