"""Routes about promises: what is active, the time ahead, the controller, load and report."""

from typing import Annotated

from fastapi import APIRouter, Query

from service import documents as docs
from service.access.rights import Right
from service.repeatable import RepeatableRoute
from service.routes import ASKING, PLANNING, READING, SAYING, WISHING, OperatorDep, call

promise_routes = APIRouter(route_class=RepeatableRoute)


@promise_routes.post(
    "/v1/intents/{intent_id:id}:activate",
    status_code=201,
    **call(
        "promises",
        Right.APPROVE,
        *WISHING,
        docs.Code.NOT_A_PROMISE,
        docs.Code.NOT_ACTIVE,
        docs.Code.NOT_APPROVED,
        docs.Code.FINDING_NOT_ACKNOWLEDGED,
    ),
)
@PLANNING
def activate(intent_id: str, operator: OperatorDep, body: docs.ActivateRequest | None = None) -> docs.PromiseDocument:
    """Keep an intent from now on in every window it names, until superseded, retired or expired.

    It is refused where it contradicts what is active (409 `conflict`: name those in `replace`), and where some window of the
    next eight days cannot be held (422 `infeasible`, with what could be).
    """
    return operator.activate(intent_id, body or docs.ActivateRequest())


@promise_routes.post(
    "/v1/intents/{intent_id:id}:retire",
    **call("promises", Right.APPROVE, docs.Code.NOT_FOUND, docs.Code.NOT_ACTIVE, docs.Code.STORE),
)
def retire(intent_id: str, operator: OperatorDep) -> docs.PromiseDocument:
    """Keep an intent no longer. What runs stays until something else asks for a change."""
    return operator.retire(intent_id)


@promise_routes.get("/v1/promises", **call("promises", Right.LOOK, docs.Code.STORE))
def promises(operator: OperatorDep) -> docs.PromisesDocument:
    """Intents that were activated, newest first, with what became of each."""
    return operator.promises()


@promise_routes.get("/v1/agenda", **call("promises", Right.LOOK, *SAYING))
@PLANNING
def agenda(query: Annotated[docs.AgendaQuery, Query()], operator: OperatorDep) -> docs.AgendaDocument:
    """The time ahead as what is active has it: segments, what is to serve each, the switches between."""
    return operator.agenda(query)


@promise_routes.post("/v1/agenda:preview", **call("promises", Right.SAY, *WISHING, docs.Code.NOT_A_PROMISE))
@ASKING
def preview(body: docs.AgendaRequest, operator: OperatorDep) -> docs.AgendaDocument:
    """The time ahead as it would be with a wish beside what is active. Keeps nothing, changes nothing."""
    return operator.agenda(body)


@promise_routes.get("/v1/controller", **call("promises", Right.LOOK))
def control(operator: OperatorDep) -> docs.ControlDocument:
    """How the controller stands: mode, pause, overrides, and its last decision for each model."""
    return operator.control()


@promise_routes.post("/v1/controller", **call("promises", Right.APPROVE, *READING, docs.Code.NOT_APPROVED))
def set_control(body: docs.ControlRequest, operator: OperatorDep) -> docs.ControlDocument:
    """Change the controller's mode, pause it or let it go on, which ends overrides."""
    return operator.set_control(body)


@promise_routes.get("/v1/load", **call("promises", Right.LOOK, docs.Code.ENGINE_LOST))
def load(operator: OperatorDep) -> docs.LoadsDocument:
    """What is asked of each model now, and how it is served: by everybody, and tenant by tenant."""
    return operator.load()


@promise_routes.get("/v1/load/recent", **call("promises", Right.LOOK, docs.Code.INVALID_REQUEST))
def recent_load(query: Annotated[docs.RecentQuery, Query()], operator: OperatorDep) -> docs.RecentLoadDocument:
    """The last minutes of each model in steps of unix time, the last of which may not be over.

    Streams and tokens are as the loop saw them, at each `promises.tick_s` (5 s where nothing else is said): null where
    it did not look. Steps before the service began to watch, or of which something is forgotten, are left out.
    """
    return operator.recent_load(query)


@promise_routes.get("/v1/load/history", **call("promises", Right.LOOK, *READING))
def load_history(query: Annotated[docs.ReportQuery, Query()], operator: OperatorDep) -> docs.LoadHistoryDocument:
    """What was asked of each model and how it was served, five minutes at a time; kept for 15 days."""
    return operator.load_history(query)


@promise_routes.get("/v1/report", **call("promises", Right.LOOK, *READING))
def report(query: Annotated[docs.ReportQuery, Query()], operator: OperatorDep) -> docs.ReportDocument:
    """How far each goal was kept, and each switch with its cause and its verdict."""
    return operator.report(query)
