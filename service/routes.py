"""The control API under /v1, health and metrics: an ``Operator`` over HTTP."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from enum import Enum
from functools import partial, wraps
from itertools import chain
from typing import Annotated, ParamSpec, TypedDict, TypeVar, cast

from anyio import CapacityLimiter, to_thread
from anyio.lowlevel import RunVar
from fastapi import APIRouter, Depends, Header, Query, Request, Response
from fastapi.sse import EventSourceResponse, ServerSentEvent
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.convertors import StringConvertor, register_url_convertor

from intent.models import Intent
from service import documents as docs
from service.access.caller import CALLER, Caller
from service.access.chain import Head
from service.access.rights import Right
from service.bodies import needs
from service.composition import Composition
from service.errors import RefusedError
from service.metrics import merged
from service.operator import Operator
from service.repeatable import SECRET, RepeatableRoute
from service.serving import ready


async def _operator(request: Request) -> Operator:  # in the loop, whatever the thread pool does
    """What acts on behalf of whoever asks."""
    return cast("Operator", request.app.state.operator_for(request.scope["state"][CALLER]))


async def _parts(request: Request) -> Composition:  # in the loop, too
    return cast("Composition", request.app.state.parts)


P = ParamSpec("P")
T = TypeVar("T")
OperatorDep = Annotated[Operator, Depends(_operator)]
Parts = Annotated[Composition, Depends(_parts)]

routes = APIRouter(route_class=RepeatableRoute)


class Threads:
    """Threads of their own for endpoints that wait long, so that they keep nobody else waiting.

    As many in each event loop.
    """

    def __init__(self, purpose: str, most: int) -> None:
        self._most = most
        self._limiters = RunVar[CapacityLimiter](purpose)  # which tells them apart

    def __call__(self, endpoint: Callable[P, T]) -> Callable[P, Coroutine[None, None, T]]:
        """The endpoint, run in them; it is refused where as many again wait for a thread."""

        @wraps(endpoint)
        async def run(*arguments: P.args, **named: P.kwargs) -> T:
            limiter = self._limiters.get(None) or CapacityLimiter(self._most)
            self._limiters.set(limiter)
            if limiter.statistics().tasks_waiting >= self._most:
                message = f"{2 * self._most} requests that take long are under way; ask again later"
                raise RefusedError(docs.Code.OVERLOADED, message)
            return await to_thread.run_sync(partial(endpoint, *arguments, **named), limiter=limiter)

        return run


ASKING = Threads("asking", 64)
"""For what may ask the LLM that translates."""
PLANNING = Threads("planning", 64)
"""For what waits for the process that plans."""
CANCELLING = Threads("cancelling", 8)
"""For what must work whatever else is slow."""


class _Id(StringConvertor):
    """An id in a path: a colon begins what is done with it."""

    regex = "[^/:]+"


register_url_convertor("id", _Id())


def refusals(*codes: docs.Code) -> dict[int | str, dict[str, object]]:
    """The problems that a route may answer with, by their status."""
    found: dict[int | str, dict[str, object]] = {}
    for status in sorted({code.status for code in codes}):
        named = ", ".join(f"`{code}`" for code in codes if code.status == status)
        found[status] = {"model": docs.Problem, "description": named}
    return found


class RouteDeclaration(TypedDict):
    """What the OpenAPI document says of a route beside its path.

    Its tag, its problems, the right that it needs.
    """

    tags: list[str | Enum]
    responses: dict[int | str, dict[str, object]]
    openapi_extra: dict[str, object]


def call(tag: str, right: Right, *codes: docs.Code, **says: object) -> RouteDeclaration:
    """The keywords of a route for those who have a right, that may answer with these problems.

    ``says`` is what its OpenAPI document says beside that.
    """
    return RouteDeclaration(tags=[tag], responses=refusals(*codes), openapi_extra={**needs(right), **says})


READING = (docs.Code.INVALID_REQUEST, docs.Code.STORE)
SAYING = (*READING, docs.Code.OVERLOADED)
WISHING = (
    *SAYING,
    docs.Code.NOT_FOUND,
    docs.Code.CLARIFY,
    docs.Code.CONFLICT,
    docs.Code.INFEASIBLE,
    docs.Code.OUT_OF_SCOPE,
)
LOOKING = (
    docs.Code.NOT_FOUND,
    docs.Code.STALE_PLAN,
    docs.Code.INFEASIBLE,
    docs.Code.STORE,
    docs.Code.OVERLOADED,
)
DECIDING = (*READING, docs.Code.NOT_FOUND, docs.Code.ALREADY_DECIDED, docs.Code.ALREADY_APPLIED)
APPLYING = (
    *READING,
    docs.Code.NOT_FOUND,
    docs.Code.NOT_APPROVED,
    docs.Code.ALREADY_APPLIED,
    docs.Code.STALE_PLAN,
    docs.Code.NO_CHANGE,
    docs.Code.FINDING_NOT_ACKNOWLEDGED,
    docs.Code.OUTSIDE_WINDOW,
    docs.Code.SWITCH_IN_PROGRESS,
    docs.Code.UNSUPPORTED,
    docs.Code.ENGINE_LOST,
)


@routes.post("/v1/intents:translate", response_model=docs.IntentForm, **call("intents", Right.SAY, *SAYING))
@ASKING
def translate(body: docs.TranslateRequest, operator: OperatorDep) -> Intent:
    """Words to a checked intent document. Keeps nothing, changes nothing."""
    return operator.translate(body.text, body.now)


@routes.post("/v1/intents:amend", **call("intents", Right.SAY, *SAYING, docs.Code.OUT_OF_SCOPE, docs.Code.NO_CHANGE))
@ASKING
def amend(body: docs.AmendRequest, operator: OperatorDep) -> docs.AmendmentDocument:
    """What a follow-up makes of an intent document. Keeps nothing, changes nothing."""
    return operator.amend(body.intent, docs.FollowUp(text=body.text, mode=body.mode, now=body.now))


@routes.post("/v1/intents", status_code=201, **call("intents", Right.SAY, *SAYING, docs.Code.OUT_OF_SCOPE))
@ASKING
def create_intent(body: docs.TranslateRequest, response: Response, operator: OperatorDep) -> docs.VersionDocument:
    """Words to a checked intent that is kept, as its version 1; it may have a question to answer."""
    return _located(operator.keep(body.text, body.now), response)


@routes.get("/v1/intents", **call("intents", Right.LOOK, *READING))
def intents(request: Annotated[docs.PageRequest, Query()], operator: OperatorDep) -> docs.IntentsDocument:
    """Intents that are kept, each in its latest version, newest first."""
    return operator.intents(request)


@routes.get("/v1/plans", **call("plans", Right.LOOK, *READING))
def plans(request: Annotated[docs.PlansRequest, Query()], operator: OperatorDep) -> docs.PlansDocument:
    """Plans that were made and the operations that applied them, newest first."""
    return operator.plans(request)


@routes.get("/v1/operations", **call("operations", Right.LOOK, *READING))
def operations(request: Annotated[docs.OperationsRequest, Query()], operator: OperatorDep) -> docs.OperationsDocument:
    """Operations, newest first."""
    return operator.operations(request)


@routes.get("/v1/intents/{intent_id:id}", **call("intents", Right.LOOK, *READING, docs.Code.NOT_FOUND))
def intent(
    intent_id: str, operator: OperatorDep, version: Annotated[int | None, Query(ge=1, le=1_000_000)] = None
) -> docs.VersionDocument:
    """An intent that is kept: its latest version, or another."""
    return operator.intent(intent_id, version)


@routes.post(
    "/v1/intents/{intent_id:id}:amend",
    status_code=201,
    **call(
        "intents",
        Right.SAY,
        *SAYING,
        docs.Code.NOT_FOUND,
        docs.Code.OUT_OF_SCOPE,
        docs.Code.NO_CHANGE,
        docs.Code.STALE_INTENT,
    ),
)
@ASKING
def amend_intent(
    intent_id: str, body: docs.VersionedFollowUp, response: Response, operator: OperatorDep
) -> docs.VersionDocument:
    """The next version of an intent that is kept: an answer to its question, or a change."""
    return _located(operator.amend_kept(intent_id, body), response)


@routes.post(
    "/v1/plans",
    tags=["plans"],
    status_code=201,
    responses={
        200: {"model": docs.PlanAnswer, "description": "A question must be answered first"},
        **refusals(*WISHING),
    },
    openapi_extra=needs(Right.SAY),
)
@ASKING
def make_plan(body: docs.PlanRequest, response: Response, operator: OperatorDep) -> docs.PlanAnswer:
    """The best topology of each model that words or an intent document are about.

    Changes nothing that runs.
    """
    answer = operator.plan(body)
    if answer.plan is not None:
        response.headers["Location"] = f"/v1/plans/{answer.plan.id}"
    if not answer.plans:
        response.status_code = 200
    return answer


@routes.post("/v1/openslo:export", **call("openslo", Right.SAY, *WISHING, docs.Code.UNSUPPORTED))
@ASKING
def export_openslo(body: docs.WishRequest, operator: OperatorDep) -> docs.ExportDocument:
    """OpenSLO v1 documents of a wish, and what they leave out of it."""
    return operator.export_openslo(body)


@routes.post("/v1/openslo:import", **call("openslo", Right.SAY, *READING, docs.Code.UNSUPPORTED))
def import_openslo(body: docs.ImportRequest, operator: OperatorDep) -> docs.ImportDocument:
    """The checked intent of OpenSLO v1 documents, and what it leaves out of them. Keeps nothing."""
    return operator.import_openslo(body.documents)


@routes.get("/v1/plans/{plan_id:id}", **call("plans", Right.LOOK, docs.Code.NOT_FOUND, docs.Code.STORE))
def plan(plan_id: str, operator: OperatorDep) -> docs.PlanDocument:
    """A plan made before."""
    return operator.saved_plan(plan_id)


@routes.get("/v1/plans/{plan_id:id}/simulation", **call("plans", Right.SAY, *LOOKING))
@PLANNING
def simulation(plan_id: str, operator: OperatorDep) -> docs.SimulationDocument:
    """A plan's target served in virtual time.

    Requests drawn from its window's workload go through an event-driven simulator; null is without end.
    """
    return operator.simulation(plan_id)


@routes.get("/v1/plans/{plan_id:id}/frontiers", **call("plans", Right.SAY, *LOOKING))
@PLANNING
def frontiers(plan_id: str, operator: OperatorDep) -> docs.FrontiersDocument:
    """P99 TTFT and TPOT against the rate of requests for a plan's target, its runner-up and what ran."""
    return operator.frontiers(plan_id)


@routes.post("/v1/plans/{plan_id:id}:apply", status_code=202, **call("plans", Right.APPLY, *APPLYING))
def apply(
    plan_id: str, response: Response, operator: OperatorDep, body: docs.ApplyRequest | None = None
) -> docs.OperationDocument:
    """Start the switch to a plan's target; its progress is at the Location answered.

    A plan whose `to_acknowledge` names findings is refused (409 `finding_not_acknowledged`) until `acknowledge` has their codes,
    and a promise for a window that does not hold now (409 `outside_window`) until it has that code.
    """
    operation = operator.apply(plan_id, body.acknowledge if body else ())
    response.headers["Location"] = f"/v1/operations/{operation.id}"
    return operation


@routes.post(
    "/v1/plans/{plan_id:id}:approve",
    status_code=201,
    **call(
        "plans",
        Right.APPROVE,
        *DECIDING,
        docs.Code.STALE_PLAN,
        docs.Code.NOT_APPROVED,
        docs.Code.FINDING_NOT_ACKNOWLEDGED,
    ),
)
def approve(plan_id: str, body: docs.ApproveRequest, operator: OperatorDep) -> docs.ApprovalDocument:
    """Say yes to what was read of a plan, for a while; whoever may apply plans can then apply this one.

    The plan is checked against what runs when it is applied. Words approve nothing: this is the only way, beside the
    deployment's `approval.within`.
    """
    return operator.approve(plan_id, body)


@routes.post("/v1/plans/{plan_id:id}:reject", status_code=201, **call("plans", Right.APPROVE, *DECIDING))
def reject(plan_id: str, operator: OperatorDep, body: docs.RejectRequest | None = None) -> docs.ApprovalDocument:
    """Say no to a plan, for good; a yes that held ends.

    Refused once the plan is applied (409 `already_applied`).
    """
    return operator.reject(plan_id, body or docs.RejectRequest())


@routes.get("/v1/operations/{operation_id:id}", **call("operations", Right.LOOK, docs.Code.NOT_FOUND, docs.Code.STORE))
def operation(operation_id: str, operator: OperatorDep) -> docs.OperationDocument:
    """How far a switch has come."""
    return operator.operation(operation_id)


@routes.get(
    "/v1/events",
    response_class=EventSourceResponse,
    **call("operations", Right.LOOK, docs.Code.INVALID_REQUEST),
)
async def events(
    request: Request, parts: Parts, last_event_id: Annotated[int | None, Header(ge=0, le=2**53)] = None
) -> AsyncIterator[ServerSentEvent]:
    """What happens from now on, or after ``Last-Event-ID``, restarts included.

    Operations, topologies, promises, approvals, …

    The stream ends when the key opens nothing any more.
    """
    caller: Caller = request.scope["state"][CALLER]
    async for event in parts.events.subscribe(last_event_id, partial(parts.access.may_stay, caller)):
        number = None if event.id is None else str(event.id)
        yield ServerSentEvent(data=event.data, event=event.event, id=number)


@routes.get("/v1/models", **call("state", Right.LOOK))
def models(operator: OperatorDep) -> docs.ModelsDocument:
    """What runs of each model, on what, and whether it is being changed."""
    return operator.models()


@routes.get("/v1/devices", **call("state", Right.LOOK))
def devices(operator: OperatorDep) -> docs.DevicesDocument:
    """All devices: whose each is, whether something runs on it, whether it is out, and why."""
    return operator.devices()


@routes.post("/v1/devices/{device}:out", **call("state", Right.APPROVE, *READING, docs.Code.NOT_FOUND))
def take_out(device: int, operator: OperatorDep, body: docs.OutRequest | None = None) -> docs.DeviceDocument:
    """Let no plan and no restart use a device from now on, over restarts of the service, too.

    What runs on it stays.
    """
    return operator.take_out(device, body or docs.OutRequest())


@routes.post("/v1/devices/{device}:in", **call("state", Right.APPROVE, *READING, docs.Code.NOT_FOUND))
def take_in(device: int, operator: OperatorDep) -> docs.DeviceDocument:
    """Let a device be used again. Nothing moves there until a plan asks for it."""
    return operator.take_in(device)


@routes.get("/v1/models/{model:path}/topology", **call("state", Right.LOOK, docs.Code.NOT_FOUND))
def topology_of(model: str, operator: OperatorDep) -> docs.StateDocument:
    """What runs of one model, on what, and whether it is being changed."""
    return operator.topology(model)


@routes.get("/v1/models/{model:path}/profiles", **call("state", Right.LOOK, docs.Code.NOT_FOUND))
def profiles_of(model: str, operator: OperatorDep) -> docs.ProfilesDocument:
    """A model's sizes and the profile of each of its device kinds, as plans take them."""
    return operator.profiles(model)


@routes.get("/v1/topology", **call("state", Right.LOOK, docs.Code.INVALID_REQUEST))
def topology(operator: OperatorDep) -> docs.StateDocument:
    """What runs of the only model; where several are served, each has a path of its own."""
    return operator.topology()


@routes.get("/v1/profiles", **call("state", Right.LOOK, docs.Code.INVALID_REQUEST))
def profiles(operator: OperatorDep) -> docs.ProfilesDocument:
    """What predictions of the only model are made from.

    Where several are served, each has a path of its own.
    """
    return operator.profiles()


@routes.post("/v1/keys", status_code=201, **call("keys", Right.KEYS, *READING, docs.Code.CONFLICT, **{SECRET: True}))
def create_key(body: docs.KeyRequest, operator: OperatorDep) -> docs.NewKeyDocument:
    """Make a key. This answer alone has the whole of it; what is kept is a hash.

    Takes no `Idempotency-Key`.
    """
    return operator.create_key(body)


@routes.get("/v1/keys", **call("keys", Right.KEYS, docs.Code.STORE))
def keys(operator: OperatorDep) -> docs.KeysDocument:
    """All keys, without their secrets."""
    return operator.keys()


@routes.post(
    "/v1/keys/{prefix:id}:revoke",
    **call("keys", Right.KEYS, docs.Code.NOT_FOUND, docs.Code.CONFLICT, docs.Code.STORE),
)
def revoke_key(prefix: str, operator: OperatorDep) -> docs.KeyDocument:
    """Let a key open nothing any more, at once. The last key of an administrator stays."""
    return operator.revoke_key(prefix)


@routes.get("/v1/audit", **call("audit", Right.AUDIT, *READING))
def audit(page: Annotated[docs.AuditPage, Query()], operator: OperatorDep) -> docs.AuditDocument:
    """What was done, newest first: who, in which role, what, to what, from where."""
    return operator.audit(page)


@routes.get("/v1/audit/head", **call("audit", Right.AUDIT, docs.Code.STORE))
def audit_head(operator: OperatorDep) -> docs.HeadDocument:
    """The end of the audit's chain: kept elsewhere, it shows later that nothing before it was changed."""
    return operator.audit_head()


@routes.get("/v1/audit/verdict", **call("audit", Right.AUDIT, *READING))
def verify_audit(
    operator: OperatorDep, head: Annotated[str | None, Query(pattern=Head.PATTERN)] = None
) -> docs.VerdictDocument:
    """Whether the audit is what it was.

    Rows that were changed, removed, put in or moved, and a tail that was cut off.
    """
    return operator.verify_audit(head)


@routes.get("/healthz", tags=["state"])
async def health() -> docs.Health:
    """Answers 200 while the service lives, whatever its engines do."""
    return docs.Health()


@routes.get("/readyz", tags=["state"], responses=refusals(docs.Code.ENGINE_LOST, docs.Code.STOPPING))
async def readiness(parts: Parts) -> docs.Readiness:
    """Each model's state; a problem (503) if none of them can serve, or the service is stopping."""
    return ready(parts.servings, parts.store)


@routes.get("/metrics", response_class=Response, **call("state", Right.METRICS))
async def metrics(parts: Parts) -> Response:
    """Prometheus text exposition.

    The service's metrics, of itself and for each model, then those of the engines themselves.
    """
    texts = await asyncio.gather(*(serving.exposition() for serving in parts.servings.values()))
    parts.metrics.store_stalled.set(parts.store.calls.stalled_s is not None)
    return Response(merged([parts.metrics.render(), *chain(*texts)]), media_type=CONTENT_TYPE_LATEST)


def _located(version: docs.VersionDocument, response: Response) -> docs.VersionDocument:
    """A version, and where it is found again."""
    response.headers["Location"] = f"/v1/intents/{version.id}?version={version.version}"
    return version
