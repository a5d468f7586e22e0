"""What was or is done to the running service."""

from typing import TYPE_CHECKING

from selector.models import Plan
from service import documents as docs
from service.api.operation import READING, get, post
from service.documents.access import Right
from service.documents.problems import Code

if TYPE_CHECKING:
    from service.api.context import Context


@get("/v1/operations", Right.LOOK, *READING)
def operations(here: "Context", request: docs.OperationsRequest) -> docs.OperationsDocument:
    """Operations, newest first."""
    found = here.service.store.operations(request.page, request.model, request.done)
    return docs.OperationsDocument(operations=found.items, next=docs.cursor_text(found.next))


@get("/v1/operations/{operation_id}", Right.LOOK, Code.NOT_FOUND, Code.STORE)
def operation(here: "Context", operation_id: str) -> docs.OperationDocument:
    """How far a switch has come."""
    return here.service.operation(operation_id)


@post(
    "/v1/operations/{operation_id}:cancel",
    Right.APPLY,
    Code.NOT_FOUND,
    Code.TOO_LATE,
    Code.ALREADY_ENDED,
    Code.STORE,
    threads="cancelling",
    status=202,
    location=lambda found: f"/v1/operations/{found.id}",
)
def cancel(here: "Context", operation_id: str, body: docs.CancelRequest | None = None) -> docs.OperationDocument:
    """Give up a switch that has not committed: what it took is given back, and what ran goes on.

    From the cut on it is refused (409 `too_late`). Cancelling twice changes nothing. The controller leaves the target alone for
    `for_s` seconds; without it until the window ends, four hours at most.
    """
    from service.planning.undo import refusal

    service = here.service
    found = service.operation(operation_id)
    if found.done:
        raise refusal(found)
    return service.in_loop(
        service.serving(found.model).cancel(operation_id, body or docs.CancelRequest(), service.acts)
    )


@get("/v1/operations/{operation_id}/undo", Right.LOOK, Code.NOT_FOUND, Code.STORE)
def undoable(here: "Context", operation_id: str) -> docs.UndoDocument:
    """Whether an operation can be undone now, where that leads, and if not, why and what to do instead."""
    return _undoable(here, operation_id)[0]


@post(
    "/v1/operations/{operation_id}:undo",
    Right.SAY,
    Code.NOT_FOUND,
    Code.CANNOT_UNDO,
    Code.INFEASIBLE,
    Code.STORE,
    Code.OVERLOADED,
    threads="planning",
    status=201,
    location=lambda answer: f"/v1/plans/{answer.plans[0].id}",
)
def undo(here: "Context", operation_id: str) -> docs.PlanAnswer:
    """A plan back to where an operation came from, to be approved and applied like any other.

    It is made while what the operation led to runs, or runs again since a restart (409 `cannot_undo` otherwise), and is stale
    once that has changed.
    """
    from service.api.planning import make_for
    from service.documents.errors import RefusedError
    from service.planning import targets

    found, undone = _undoable(here, operation_id)
    source = undone.now
    if not found.possible or source is None:
        raise RefusedError(Code.CANNOT_UNDO, f"{found.why}; instead: {found.instead}")
    words = f"undo {operation_id}: {targets.words_for(source)}"
    place = here.placed(here.deployment.model(undone.model))
    return make_for(here, source, words, place, docs.When(), undone.now_batching)


def _undoable(here: "Context", operation_id: str) -> tuple[docs.UndoDocument, Plan]:
    """Whether an operation can be undone, and the plan that it switched to."""
    from service.planning import lifecycle, targets, undo

    service = here.service
    found = service.operation(operation_id)
    plan = here.saved_plan(found.plan_id)
    serving = service.serving(plan.model)
    under_way = serving.operation
    place = here.placed(serving.model)
    last = service.store.committed(serving.model.name)
    runs = str(place.situation.topology)
    is_kept = last and (last.generation, last.topology) == (service.store.generation_of(operation_id), runs)
    known = undo.OperationFacts(
        plan=plan,
        instead="" if is_kept else f"{runs}: {serving.state.origin}",
        under_way=under_way.id if under_way else None,
    )
    window = lifecycle.window_of(here.deployment, docs.When())
    barred = targets.target_blocker(plan.now, place, window) if plan.now else ""
    return undo.undoable(found, known, barred), plan
