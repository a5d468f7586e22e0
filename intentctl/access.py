"""`intentctl keys`, `audit` and `whoami`: who may use the service, and what was done with it."""

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from intentctl.arguments import OutputFormat, spread
from intentctl.options import Output, Where
from intentctl.status import failure

if TYPE_CHECKING:
    from pydantic import JsonValue

    from intentctl.render import Row
    from service.documents.access import AuditEntry, KeyDocument, VerdictDocument

keys = typer.Typer(
    help="Manage keys: who may use the service, and for what.", no_args_is_help=True, rich_markup_mode=None
)
audit = typer.Typer(
    help="Read and verify the audit.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


MOMENTS_S = 1e9
"""Seconds from which on a number is a moment, and no span."""
RoleName = StrEnum("RoleName", "viewer operator approver admin tenant gateway metrics")
"""What a key may be for; as ``service.documents.access`` has it, which nothing waits for here."""


@keys.command("create")
@spread
def create_key(
    where: Where,
    name: Annotated[str, typer.Argument(help="Name of the key.")],
    role: Annotated[RoleName, typer.Option("--role", help="What it may do.")],
    person: Annotated[
        str | None,
        typer.Option("--person", help="Its person, in the audit. [default: NAME]"),
    ] = None,
    tenant: Annotated[str | None, typer.Option("--tenant", help="Whose requests it makes, with --role tenant.")] = None,
    days: Annotated[
        float | None, typer.Option("--days", help="Days until it expires [never].", min=0.001, max=3650)
    ] = None,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Create a key and print it. It cannot be shown again: only its hash is stored."""
    from pydantic import ValidationError

    from intentctl import commands, render
    from service import api
    from service.documents.access import KeyRequest

    fields = {"name": name, "person": person, "role": role.value, "tenant": tenant, "days": days}
    try:
        request = KeyRequest.model_validate({key: value for key, value in fields.items() if value is not None})
    except ValidationError as error:
        raise typer.BadParameter(
            "; ".join(f"{found['loc'][0]}: {found['msg'].removeprefix('Value error, ')}" for found in error.errors())
        ) from None
    made = commands.service(where)(api.keys.create_key, request)
    if output is not OutputFormat.TABLE:
        render.emit(made, output, ())
        return
    render.talk(f"a key for {made.name}, {made.role}; it is shown this once")
    print(made.key)


@keys.command("list")
@spread
def list_keys(where: Where, output: Output = OutputFormat.TABLE) -> None:
    """List keys with their people, roles and states."""
    from intentctl import commands, render
    from service import api

    found = commands.service(where)(api.keys.keys)
    render.emit(found, output, [(key.prefix, _about(key)) for key in found.keys])


@keys.command("revoke")
@spread
def revoke_key(
    where: Where,
    prefix: Annotated[str, typer.Argument(help="Prefix of the key, as `keys list` shows it.")],
    output: Output = OutputFormat.TABLE,
) -> None:
    """Revoke a key immediately."""
    from intentctl import commands, render
    from service import api

    gone = commands.service(where)(api.keys.revoke_key, prefix)
    render.emit(gone, output, [(gone.prefix, _about(gone))])


@spread
def whoami(where: Where, output: Output = OutputFormat.TABLE) -> None:
    """Show the current key, its role, and the service's clock and version."""
    from intentctl import commands, render
    from service import api

    me = commands.service(where)(api.keys.me)
    rows = [
        ("name", f"{me.name}, {me.role}" + (f", key {me.key}" if me.key else ", no keys are asked for")),
        ("may", ", ".join(me.rights)),
        ("its clock", f"{render.moment(me.now_s)}; windows are in {me.timezone}"),
        ("its version", me.version),
    ]
    render.emit(me, output, rows)


@audit.command("list")
@spread
def list_audit(
    where: Where,
    limit: Annotated[int, typer.Option("--limit", help="How many entries.", min=1, max=500)] = 50,
    before: Annotated[int | None, typer.Option("--before", help="Entries with a lower number.", min=1)] = None,
    act: Annotated[str | None, typer.Option("--act", help="Only entries of this act, as plan.apply.")] = None,
    output: Output = OutputFormat.TABLE,
) -> None:
    """List audit entries, newest first."""
    from intentctl import commands, render
    from service import api
    from service.documents.access import AuditPage

    found = commands.service(where)(api.audit.audit, AuditPage(before=before, limit=limit, act=act))
    render.emit(found, output, [_entry(entry) for entry in found.entries])
    if found.next is not None and output is OutputFormat.TABLE:
        render.talk(f"older ones: intentctl audit list --before {found.next}")


@audit.command("head")
@spread
def audit_head(where: Where, output: Output = OutputFormat.TABLE) -> None:
    """Print the end of the audit chain, to keep elsewhere and check with `audit verify --head`."""
    from intentctl import commands, render
    from service import api

    head = commands.service(where)(api.audit.audit_head)
    if output is not OutputFormat.TABLE:
        render.emit(head, output, ())
        return
    print(head.head)


@audit.command("verify")
@spread
def verify_audit(
    where: Where,
    head: Annotated[str | None, typer.Option("--head", help="An end of the chain that you kept.")] = None,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Verify that no entry was changed, removed, inserted or moved. Exits with 1 if one was."""
    from intentctl import commands, render
    from service import api

    verdict = commands.service(where)(api.audit.verify_audit, head)
    render.emit(verdict, output, _verdict(verdict))
    if not verdict.is_whole:
        raise failure("error", f"the audit is not what it was: {len(verdict.flaws)} flaws")


def _about(key: "KeyDocument") -> str:
    """Whose a key is, for what, and until when."""
    from intentctl import render

    named = key.name if key.name == key.person else f"{key.name} of {key.person}"
    whose = f"{named}, {key.role}" + (f" {key.tenant}" if key.tenant else "")
    made = f"made {render.moment(key.created_s)} by {key.created_by}"
    if key.revoked_s is not None:
        return f"{whose}; {made}; revoked {render.moment(key.revoked_s)}"
    return f"{whose}; {made}" + (f"; until {render.moment(key.expires_s)}" if key.expires_s is not None else "")


def _entry(entry: "AuditEntry") -> "Row":
    from intentctl import render

    where = f" from {entry.origin}" if entry.origin else ""
    changed = "".join(map(_fact, entry.after.items()))
    return str(
        entry.seq
    ), f"{render.moment(entry.at_s)} {entry.who} ({entry.role}){where}: {entry.act} {entry.subject}{changed}"


def _fact(named: "tuple[str, JsonValue]") -> str:
    """Something that an entry says, where it says anything; a number of this size is a moment."""
    from intentctl import render

    name, value = named
    if isinstance(value, float) and value > MOMENTS_S:
        return f"; {name.removesuffix('_s')} {render.moment(value)}"
    return "" if value in (None, "", [], {}) else f"; {name} {value}"


def _verdict(verdict: "VerdictDocument") -> "list[Row]":
    if verdict.is_whole:
        return [("audit", f"whole: {verdict.entries} entries")]
    return [(f"entry {flaw.seq}", flaw.problem) for flaw in verdict.flaws]
