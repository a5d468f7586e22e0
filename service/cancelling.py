"""Why a switch cannot be cancelled: it has ended, or its cut cannot be called back. Pure."""

from runtime.models import Phase
from service.documents.operations import OperationDocument
from service.documents.problems import Code
from service.errors import RefusedError


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
