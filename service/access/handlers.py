"""What is done with keys, on behalf of somebody."""

import time
from collections.abc import Collection
from importlib.metadata import version

from service import documents as docs
from service.access.caller import Caller
from service.access.people import RESERVED, folded
from service.access.rights import RIGHTS, Right, Role
from service.access.wiring import AccessControl
from service.errors import RefusedError

DAY_S = 86_400


def me(caller: Caller, timezone: str, warnings: tuple[str, ...]) -> docs.MeDocument:
    """Who asks, what they may do, and what has to be done soon."""
    return docs.MeDocument(
        name=caller.name,
        role=caller.role,
        key=caller.key,
        rights=tuple(right for right in Right if right in RIGHTS[caller.role]),
        timezone=timezone,
        now_s=time.time(),
        version=version("intentctl"),
        warnings=warnings,
    )


def create_key(
    access: AccessControl, tenants: Collection[str], caller: Caller, request: docs.KeyRequest
) -> docs.NewKeyDocument:
    """Make a key, and keep in the audit who had it made.

    Raises:
        RefusedError: there is no such tenant, the role is another than a tenant's, a key of that name opens something,
            or a name is the service's own.
    """
    if (request.tenant is not None) is not (request.role is Role.TENANT):
        raise _refused("tenant", "tenant_without_role", "a tenant is named for the role tenant alone")
    if request.tenant is not None and request.tenant not in tenants:
        known = ", ".join(tenants) or "none; name them under tenants in the deployment file"
        raise _refused("tenant", "unknown_tenant", f"no tenant {request.tenant!r} here; there are {known}")
    now_s = time.time()
    person = request.person or request.name
    for what, name in (("name", request.name), ("person", person)):
        if folded(name) in RESERVED:
            raise _refused(what, "reserved_name", f"{name!r} is a name of the service's own; choose another")
    expires_s = None if request.days is None else now_s + request.days * DAY_S
    with access.keys.change():
        for kept in access.keys.kept():
            if folded(kept.name) == folded(request.name) and not kept.wrong(now_s):
                how = f"name this one otherwise, with person {kept.person!r} if it is theirs, or revoke that one first"
                message = f"the key {kept.prefix} has the name {kept.name!r}; {how}"
                raise _refused("name", "repeated_name", message, docs.Code.CONFLICT)
            person = kept.person if folded(kept.person) == folded(person) else person
        whole, key = access.keys.create(request.name, request.role, request.tenant, caller.name, expires_s, person)
        made = docs.KeyDocument.model_validate(key)
        fields = made.model_dump(mode="json", include={"name", "person", "role", "tenant", "expires_s"})
        access.audit.add(caller, "key.create", key.prefix, after=fields)
    return docs.NewKeyDocument(key=whole, **dict(made))


def _refused(key: str, why: str, message: str, code: docs.Code = docs.Code.INVALID_REQUEST) -> RefusedError:
    return RefusedError(code, message, [docs.Detail(f"/{key}", message, why)])


def revoke_key(access: AccessControl, caller: Caller, prefix: str) -> docs.KeyDocument:
    """Let a key open nothing any more.

    Raises:
        RefusedError: there is none, or it is the last of an administrator.
    """
    with access.keys.change():
        key = access.keys.revoke(prefix)
        if key is None:
            raise RefusedError(docs.Code.NOT_FOUND, f"no key {prefix}; `intentctl keys list` shows all")
        if not access.keys.has_admin():
            message = f"{prefix} is the last key of an administrator; make another first, or nobody could"
            raise RefusedError(docs.Code.CONFLICT, message)
        fields: docs.Json = {"name": key.name, "person": key.person, "role": key.role.value}
        access.audit.add(caller, "key.revoke", prefix, after=fields)
    return docs.KeyDocument.model_validate(key)
