"""Who asks, and the keys they ask with."""

from typing import TYPE_CHECKING

from service import documents as docs
from service.api.operation import READING, get, post
from service.documents.access import RIGHTS, Right, Role
from service.documents.errors import RefusedError
from service.documents.problems import Code
from service.store.clock import wall_s

if TYPE_CHECKING:
    from service.api.context import Context

DAY_S = 86_400


@get("/v1/me", Right.LOOK)
def me(here: "Context") -> docs.MeDocument:
    """Whose key this is and what it may do; the service's clock, time zone and version."""
    from importlib.metadata import version

    from service.deployment.profiles import crowded
    from service.serving.hosts import endings

    all_devices = {gpu.index for gpu in here.deployment.cluster.gpus}
    caller = here.service.caller
    return docs.MeDocument(
        name=caller.name,
        role=caller.role,
        key=caller.key,
        rights=tuple(right for right in Right if right in RIGHTS[caller.role]),
        timezone=here.deployment.timezone,
        now_s=wall_s(),
        version=version("intentctl"),
        warnings=tuple(
            filter(None, (*endings(here.service.parts.metrics.certificate_ends), crowded(here.deployment, all_devices)))
        ),
    )


@post("/v1/keys", Right.KEYS, *READING, Code.CONFLICT, status=201, is_secret=True)
def create_key(here: "Context", body: docs.KeyRequest) -> docs.NewKeyDocument:
    """Make a key. This answer alone has the whole of it; what is kept is a hash.

    Takes no `Idempotency-Key`.
    """
    from service.access.people import RESERVED, folded

    caller = here.service.caller
    access = here.service.parts.access
    _refuse_tenant(body, list(here.deployment.tenants))
    now_s = wall_s()
    person = body.person or body.name
    for what, name in (("name", body.name), ("person", person)):
        if folded(name) in RESERVED:
            raise _refused(what, "reserved_name", f"{name!r} is a name of the service's own; choose another")
    expires_s = None if body.days is None else now_s + body.days * DAY_S
    with access.keys.change():
        for kept in access.keys.kept():
            if folded(kept.name) == folded(body.name) and not kept.wrong(now_s):
                how = f"name this one otherwise, with person {kept.person!r} if it is theirs, or revoke that one first"
                message = f"the key {kept.prefix} has the name {kept.name!r}; {how}"
                raise _refused("name", "repeated_name", message, Code.CONFLICT)
            person = kept.person if folded(kept.person) == folded(person) else person
        whole, key = access.keys.create(body.name, body.role, body.tenant, caller.name, expires_s, person)
        made = docs.KeyDocument.model_validate(key)
        fields = made.model_dump(mode="json", include={"name", "person", "role", "tenant", "expires_s"})
        access.audit.add(caller, "key.create", key.prefix, after=fields)
    return docs.NewKeyDocument(key=whole, **dict(made))


def _refuse_tenant(body: docs.KeyRequest, tenants: list[str]) -> None:
    """Refuse a tenant that is not known, or that is named for another role."""
    if (body.tenant is not None) is not (body.role is Role.TENANT):
        raise _refused("tenant", "tenant_without_role", "a tenant is named for the role tenant alone")
    if body.tenant is not None and body.tenant not in tenants:
        known = ", ".join(tenants) or "none; name them under tenants in the deployment file"
        raise _refused("tenant", "unknown_tenant", f"no tenant {body.tenant!r} here; there are {known}")


def _refused(key: str, why: str, message: str, code: Code = Code.INVALID_REQUEST) -> RefusedError:
    return RefusedError(code, message, [docs.Detail(f"/{key}", message, why)])


@get("/v1/keys", Right.KEYS, Code.STORE)
def keys(here: "Context") -> docs.KeysDocument:
    """All keys, without their secrets."""
    return docs.KeysDocument(keys=tuple(map(docs.KeyDocument.model_validate, here.service.parts.access.keys.kept())))


@post("/v1/keys/{prefix}:revoke", Right.KEYS, Code.NOT_FOUND, Code.CONFLICT, Code.STORE)
def revoke_key(here: "Context", prefix: str) -> docs.KeyDocument:
    """Let a key open nothing any more, at once. The last key of an administrator stays."""
    access = here.service.parts.access
    with access.keys.change():
        key = access.keys.revoke(prefix)
        if key is None:
            raise RefusedError(Code.NOT_FOUND, f"no key {prefix}; `intentctl keys list` shows all")
        if not access.keys.has_admin():
            message = f"{prefix} is the last key of an administrator; make another first, or nobody could"
            raise RefusedError(Code.CONFLICT, message)
        fields: docs.Json = {"name": key.name, "person": key.person, "role": key.role.value}
        access.audit.add(here.service.caller, "key.revoke", prefix, after=fields)
    return docs.KeyDocument.model_validate(key)
