"""What is done to the running service: approved or rejected, called off, taken back, or told."""

from typing import TYPE_CHECKING, Annotated

import typer

from intentctl.arguments import SWITCH_TIMEOUT_S, OutputFormat, spread
from intentctl.options import InSpiteOf, NoFor, NoInput, Output, Timeout, Where, Yes
from intentctl.status import failure

if TYPE_CHECKING:
    from intentctl.render import Row
    from service.api.operation import Api
    from service.documents.operations import PreflightDocument

Operation = Annotated[str, typer.Argument(help="Id of an operation, as `intentctl get` shows it.")]


@spread
def cancel(where: Where, operation: Operation, for_: NoFor = None, output: Output = OutputFormat.TABLE) -> None:
    """Cancel a switch before it commits. The old topology keeps serving."""
    from intentctl import commands, render
    from service import api
    from service.documents.operations import CancelRequest

    service = commands.service(where)
    service(api.operations.cancel, operation, CancelRequest(for_s=for_))
    *_, ended = commands.follow(service, operation, SWITCH_TIMEOUT_S)
    render.emit(ended, output, render.operation_rows(ended))


@spread
def undo(
    where: Where,
    in_spite_of: InSpiteOf,
    operation: Annotated[str | None, typer.Argument(help="Id of an operation [the last one].")] = None,
    output: Output = OutputFormat.TABLE,
    yes: Yes = False,
    no_input: NoInput = False,
    timeout: Timeout = SWITCH_TIMEOUT_S,
) -> None:
    """Plan the reverse of an operation, then ask to apply it."""
    from intentctl import commands, render
    from service import api

    service = commands.service(where)
    plan = service(api.operations.undo, operation or _last(service)).plans[0]
    render.talk_rows(render.plan_rows(plan))
    commands.apply(service, plan.id, output, commands.ConsentOptions(yes, no_input, in_spite_of.codes), timeout)


def _last(service: "Api") -> str:
    """The operation that led to what runs.

    Raises:
        CommandError: there is none that can be undone, or one for each of several models.
    """
    from service import api
    from service.documents.state import OperationsRequest

    ended = service(api.operations.operations, OperationsRequest(done=True, limit=200)).operations
    last = {operation.model: operation.id for operation in reversed(ended) if operation.result}
    undoable = [service(api.operations.undoable, operation_id) for operation_id in last.values()]
    found = [undo.operation_id for undo in undoable if undo.possible]
    if len(found) == 1:
        return found[0]
    if found:
        raise failure("error", f"say which operation to undo; what runs came by {', '.join(found)}")
    why = "; ".join(f"{undo.why}; {undo.instead}" for undo in undoable)
    raise failure("error", f"there is nothing to undo: {why or 'nothing was applied yet'}")


@spread
def history(
    where: Where,
    limit: Annotated[int, typer.Option("--limit", help="How many switches.", min=1, max=200)] = 20,
    output: Output = OutputFormat.TABLE,
) -> None:
    """List switches, newest first: who applied them, from and to which topology, and the result."""
    from intentctl import commands, lists

    lists.show(commands.service(where), "operations", output, limit)


@spread
def approve(
    where: Where,
    plan_id: Annotated[str, typer.Argument(help="Id of a plan that the service made.")],
    in_spite_of: InSpiteOf,
    minutes: Annotated[float, typer.Option("--minutes", help="Minutes it is valid.", min=0.1)] = 60,
    note: Annotated[str, typer.Option("--note", help="The reason, for the audit.")] = "",
    output: Output = OutputFormat.TABLE,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Approve without prompting.")] = False,
    no_input: NoInput = False,
) -> None:
    """Approve a plan. Others can then apply it."""
    from intentctl import commands

    consent = commands.ConsentOptions(yes, no_input, in_spite_of.codes)
    commands.approve(commands.service(where), plan_id, output, consent, minutes=minutes, note=note)


@spread
def reject(
    where: Where,
    plan_id: Annotated[str, typer.Argument(help="Id of a plan that the service made.")],
    note: Annotated[str, typer.Option("--note", help="The reason, for the audit.")] = "",
    for_: NoFor = None,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Reject a plan. The controller does not switch to its target for a while."""
    from intentctl import commands

    commands.reject(commands.service(where), plan_id, output, note, for_)


def preflight(service: "Api", plan_id: str, output: OutputFormat) -> None:
    """Show what applying a plan would do now.

    Raises:
        CommandError: it would be refused.
    """
    from intentctl import render
    from service import api

    found = service(api.plans.preflight, plan_id)
    render.emit(found, output, _preflight_rows(found))
    if found.refusals:
        first = found.refusals[0]
        raise failure(first.code.value, f"{plan_id} would be refused: {first.detail}")


def _preflight_rows(found: "PreflightDocument") -> "list[Row]":
    from intentctl import render

    rows = [("plan", f"{found.plan_id} {'would be applied' if found.would_apply else 'would be refused'}")]
    rows += [("refused", refusal.detail) for refusal in found.refusals]
    rows += [("given up", found.barred)] if found.barred else []
    rows.append(("approved", f"by {found.approved_by}" if found.approved_by else "by nobody yet"))
    if found.switch:
        rows.append(("switch", render.switch(found.switch)))
    rows.append(("streams", f"{found.streams} open now"))
    held = found.blocks
    rows.append(("KV blocks", f"{held.now} now, at most {held.beside} side by side, at most {held.target} then"))
    for device in found.memory:
        sizes = [
            render.size(size) for size in (device.weights_now_bytes, device.weights_target_bytes, device.beside_bytes)
        ]
        weights_text = f"weights {sizes[0]} now, {sizes[1]} then; {sizes[2]} side by side"
        rows.append((f"{device.kind}[{device.device}]", f"{weights_text}, of {render.size(device.total_bytes)}"))
    return rows
