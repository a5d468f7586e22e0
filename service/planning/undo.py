"""Whether an operation can be cancelled, or undone once it is done; and if not, why. Pure."""

from dataclasses import dataclass

from runtime.models import Phase
from selector.models import Plan
from service.documents.errors import RefusedError
from service.documents.operations import OperationDocument, UndoDocument
from service.documents.problems import Code


@dataclass(frozen=True, slots=True)
class OperationFacts:
    """What is known of an operation beside itself."""

    plan: Plan
    """That it switched to."""
    instead: str
    """What runs that it did not lead to, and why; empty: what it led to runs, be it since a restart."""
    under_way: str | None
    """The operation of its model now."""


def undoable(operation: OperationDocument, known: OperationFacts, barred: str) -> UndoDocument:
    """Whether an operation can be undone, and if not, what to do instead.

    ``barred``: why its source may not run.
    """
    name = operation.id
    source = known.plan.now
    instead = "make a new plan" if barred or source is None else f"intentctl plan --target '{source.text}'"
    why = ""
    if operation.error is not None:
        why = f"{name} has ended as {operation.outcome} and changed nothing"
        instead = "there is nothing to do"
    elif not operation.done:
        why = f"{name} has not ended"
        instead = f"wait for it, or intentctl cancel {name}"
    elif known.under_way is not None:
        why = f"operation {known.under_way} is switching"
        instead = "wait for its end"
    elif source is None:
        why = f"nothing ran before {name}"
    elif known.instead:
        why = f"{name} led to {known.plan.target}, and since then came {known.instead}"
    elif barred:
        why = f"what ran before {name} may not run: {barred}"
    return UndoDocument(
        operation_id=name,
        possible=not why,
        target=source.text if source else None,
        why=why or None,
        instead=instead if why else None,
    )


def refusal(operation: OperationDocument) -> RefusedError:
    """What to say of an operation that cannot be given up."""
    name = operation.id
    error = operation.error
    if operation.result is not None:
        message = f"{name} is done: {operation.result.target} runs; to go back: intentctl undo {name}"
        return RefusedError(Code.ALREADY_ENDED, message)
    if error is not None:
        return RefusedError(Code.ALREADY_ENDED, f"{name} has ended as {operation.outcome}: {error.detail}")
    if operation.phase is Phase.ABORTED:
        message = f"{name} is being given up already; see how it ends: intentctl get {name}"
        return RefusedError(Code.ALREADY_ENDED, message)
    if operation.phase is Phase.CUTTING:
        message = f"{name} is at its cut, which nothing calls back; see how it ends, then: intentctl undo {name}"
        return RefusedError(Code.TOO_LATE, message)
    if operation.phase in {Phase.COMMITTED, Phase.CLEANING, Phase.DONE}:
        message = f"{name} has committed; when it is done, to go back: intentctl undo {name}"
        return RefusedError(Code.TOO_LATE, message)
    return RefusedError(
        Code.NOT_FOUND,
        f"{name} is not under way here: another service has it, or one that has ended; ask that one",
    )
