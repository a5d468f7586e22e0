"""The control API under /v1, health and metrics."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Annotated, Any, cast

from fastapi import APIRouter, Depends, Header, Request, Response
from fastapi.sse import EventSourceResponse, ServerSentEvent
from prometheus_client import CONTENT_TYPE_LATEST

from intent.document import from_document, to_document
from intent.errors import DocumentError
from intent.models import Intent, Outcome
from service import usecases
from service.api_models import (
    Health,
    OperationBody,
    PlanAnswer,
    PlanBody,
    PlanRequest,
    TopologyAnswer,
    TranslateRequest,
)
from service.composition import Composition
from service.documents import inventory_document, plan_document
from service.errors import Code, Detail, RefusedError


def _parts(request: Request) -> Composition:
    return cast("Composition", request.app.state.parts)


Parts = Annotated[Composition, Depends(_parts)]

routes = APIRouter()


@routes.post("/v1/intents:translate", tags=["intents"])
async def translate(body: TranslateRequest, parts: Parts) -> dict[str, Any]:
    """Words to a checked intent document. Keeps nothing, changes nothing."""
    return to_document(await _translated(body.text, parts, body.now))


@routes.post(
    "/v1/plans",
    tags=["plans"],
    status_code=201,
    response_model=PlanAnswer,
    responses={200: {"model": PlanAnswer, "description": "A question must be answered first"}},
)
async def make_plan(body: PlanRequest, response: Response, parts: Parts) -> dict[str, Any]:
    """The best topology for words or an intent document. Changes nothing that runs."""
    intent = (
        await _translated(body.text, parts) if body.text is not None else _checked(body.intent or {}, parts)
    )
    document = to_document(intent)
    if intent.outcome is Outcome.CLARIFY:
        response.status_code = 200
        return {"outcome": "clarify", "intent": document, "plan": None}
    serving = parts.serving
    plan = await asyncio.to_thread(
        usecases.plan, intent, serving.deployment, serving.situation(), parts.profiles, datetime.now(UTC)
    )
    answer = plan_document(plan)
    await asyncio.to_thread(parts.store.save_plan, plan.intent_id, document, answer)
    response.headers["Location"] = f"/v1/plans/{plan.id}"
    return {"outcome": "ok", "intent": document, "plan": answer}


@routes.get("/v1/plans/{plan_id}", tags=["plans"], response_model=PlanBody)
async def plan(plan_id: str, parts: Parts) -> dict[str, Any]:
    """A plan made before."""
    return await parts.serving.plan(plan_id)


@routes.post(
    "/v1/plans/{plan_id}:apply",
    tags=["plans"],
    status_code=202,
    response_model=OperationBody,
    response_model_exclude_unset=True,
)
async def apply(plan_id: str, response: Response, parts: Parts) -> dict[str, Any]:
    """Start the switch to a plan's target; its progress is at the Location answered."""
    operation = await parts.serving.apply(plan_id)
    response.headers["Location"] = f"/v1/operations/{operation['id']}"
    return operation


@routes.get(
    "/v1/operations/{operation_id}",
    tags=["operations"],
    response_model=OperationBody,
    response_model_exclude_unset=True,
)
async def operation(operation_id: str, parts: Parts) -> dict[str, Any]:
    """How far a switch has come."""
    return await parts.serving.operation(operation_id)


@routes.get("/v1/events", tags=["operations"], response_class=EventSourceResponse)
async def events(
    parts: Parts, last_event_id: Annotated[int | None, Header()] = None
) -> AsyncIterator[ServerSentEvent]:
    """What happens from now on, or after ``Last-Event-ID``: events ``operation`` and ``topology``."""
    since = parts.events.last_id if last_event_id is None else last_event_id
    async for event in parts.events.subscribe(since):
        yield ServerSentEvent(data=event.data, event=event.type, id=str(event.id))


@routes.get("/v1/topology", tags=["state"], response_model=TopologyAnswer)
async def topology(parts: Parts) -> dict[str, Any]:
    """What runs, on what, and whether it is being changed."""
    inventory = inventory_document(parts.serving.deployment.cluster)
    return {**parts.serving.topology_document(), "inventory": inventory}


@routes.get("/healthz", tags=["state"])
async def health(parts: Parts) -> Health:
    """Answers 200 while the engine runs, a problem otherwise."""
    serving = parts.serving
    await serving.engine.stats()
    return Health(status="ok", model=serving.deployment.model.spec.name, shape=serving.engine.topology.shape)


@routes.get("/metrics", tags=["state"], response_class=Response)
async def metrics(parts: Parts) -> Response:
    """Prometheus text exposition: the service's metrics, then the engine's own."""
    engine = parts.serving.engine
    text = parts.metrics.render(await engine.stats()) + (await engine.exposition()).encode()
    return Response(text, media_type=CONTENT_TYPE_LATEST)


async def _translated(text: str, parts: Composition, now: str | None = None) -> Intent:
    """In a thread: the LLM, where there is one, is waited for."""
    deployment = parts.serving.deployment
    moment = usecases.clock(now, deployment)
    return await asyncio.to_thread(usecases.translate, text, deployment, parts.llm, moment)


def _checked(document: dict[str, Any], parts: Composition) -> Intent:
    """An intent document from outside, checked again: what it says of itself counts for nothing."""
    try:
        intent = from_document(document)
    except DocumentError as error:
        where = f"/intent{error.pointer}"
        raise RefusedError(Code.INVALID_REQUEST, str(error), [Detail(where, error.problem)]) from error
    return usecases.check(intent, parts.serving.deployment, datetime.now(UTC))
