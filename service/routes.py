"""The control API under /v1, health and metrics."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Annotated, Any, cast

from fastapi import APIRouter, Depends, Header, Query, Request, Response
from fastapi.sse import EventSourceResponse, ServerSentEvent
from prometheus_client import CONTENT_TYPE_LATEST

from intent.document import to_document
from intent.models import Intent, Outcome
from service import intents, openslo, outlook, usecases
from service.api_models import (
    AmendmentBody,
    AmendRequest,
    AmendStoredRequest,
    ApplyRequest,
    ExportBody,
    FrontiersBody,
    Health,
    ImportBody,
    ImportRequest,
    OperationBody,
    PlanAnswer,
    PlanBody,
    PlanRequest,
    ProfilesAnswer,
    SimulationBody,
    TopologyAnswer,
    TranslateRequest,
    VersionBody,
    WishRequest,
)
from service.composition import Composition
from service.documents import inventory_document, plan_document, profiles_document


def _parts(request: Request) -> Composition:
    return cast("Composition", request.app.state.parts)


Parts = Annotated[Composition, Depends(_parts)]

routes = APIRouter()


@routes.post("/v1/intents:translate", tags=["intents"])
async def translate(body: TranslateRequest, parts: Parts) -> dict[str, Any]:
    """Words to a checked intent document. Keeps nothing, changes nothing."""
    return to_document(await _translated(body.text, parts, body.now))


@routes.post("/v1/intents:amend", tags=["intents"], response_model=AmendmentBody)
async def amend(body: AmendRequest, parts: Parts) -> dict[str, Any]:
    """What a follow-up makes of an intent document. Keeps nothing, changes nothing."""
    deployment = parts.serving.deployment
    moment = usecases.clock(body.now, deployment)
    previous = intents.read_intent(body.intent, deployment, moment)
    follow_up = intents.FollowUp(body.text, body.mode)
    amendment = await asyncio.to_thread(intents.amend, previous, follow_up, deployment, moment, parts.llm)
    return intents.amendment_document(amendment)


@routes.post("/v1/intents", tags=["intents"], status_code=201, response_model=VersionBody)
async def create_intent(body: TranslateRequest, response: Response, parts: Parts) -> dict[str, Any]:
    """Words to a checked intent that is kept, as its version 1; it may have a question to answer."""
    intent = await _translated(body.text, parts, body.now)
    version = await asyncio.to_thread(intents.create, intent, parts.store)
    return _located(version, response)


@routes.get("/v1/intents/{intent_id}", tags=["intents"], response_model=VersionBody)
async def intent(
    intent_id: str, parts: Parts, version: Annotated[int | None, Query(ge=1, le=1_000_000)] = None
) -> dict[str, Any]:
    """An intent that is kept: its latest version, or another."""
    return await asyncio.to_thread(intents.version_of, parts.store, intent_id, version)


@routes.post("/v1/intents/{intent_id}:amend", tags=["intents"], status_code=201, response_model=VersionBody)
async def amend_intent(
    intent_id: str, body: AmendStoredRequest, response: Response, parts: Parts
) -> dict[str, Any]:
    """The next version of an intent that is kept: an answer to its question, or a change."""
    deployment = parts.serving.deployment
    follow_up = intents.FollowUp(body.text, body.mode, body.version)
    moment = usecases.clock(body.now, deployment)
    kept = intents.Kept(parts.store, deployment, parts.llm)
    version = await asyncio.to_thread(intents.follow, kept, intent_id, follow_up, moment)
    return _located(version, response)


@routes.post(
    "/v1/plans",
    tags=["plans"],
    status_code=201,
    response_model=PlanAnswer,
    responses={200: {"model": PlanAnswer, "description": "A question must be answered first"}},
)
async def make_plan(body: PlanRequest, response: Response, parts: Parts) -> dict[str, Any]:
    """The best topology for words or an intent document. Changes nothing that runs."""
    intent, version = await _wished(body, parts, body.now)
    document = to_document(intent)
    if intent.outcome is Outcome.CLARIFY:
        response.status_code = 200
        return {"outcome": "clarify", "intent": document, "plan": None}
    serving, when = parts.serving, usecases.When(body.at, body.window, body.now)
    plan = await asyncio.to_thread(
        usecases.plan, intent, serving.deployment, serving.situation(), parts.profiles, when, body.intent_id
    )
    seen = usecases.to_acknowledge(intent)
    answer = {**plan_document(plan), "intent_version": version, "to_acknowledge": seen}
    await asyncio.to_thread(parts.store.save_plan, plan.intent_id, document, answer)
    response.headers["Location"] = f"/v1/plans/{plan.id}"
    return {"outcome": "ok", "intent": document, "plan": answer}


@routes.post("/v1/openslo:export", tags=["openslo"], response_model=ExportBody)
async def export_openslo(body: WishRequest, parts: Parts) -> dict[str, Any]:
    """OpenSLO v1 documents of a wish, and what they leave out of it."""
    intent, _ = await _wished(body, parts)
    return openslo.exported(intent, parts.serving.deployment)


@routes.post("/v1/openslo:import", tags=["openslo"], response_model=ImportBody)
async def import_openslo(body: ImportRequest, parts: Parts) -> dict[str, Any]:
    """The checked intent of OpenSLO v1 documents, and what it leaves out of them. Keeps nothing."""
    deployment = parts.serving.deployment
    return await asyncio.to_thread(openslo.imported, body.documents, deployment, datetime.now(UTC))


@routes.get("/v1/plans/{plan_id}", tags=["plans"], response_model=PlanBody)
async def plan(plan_id: str, parts: Parts) -> dict[str, Any]:
    """A plan made before."""
    return await parts.serving.plan(plan_id)


@routes.get("/v1/plans/{plan_id}/simulation", tags=["plans"], response_model=SimulationBody)
async def simulation(plan_id: str, parts: Parts) -> dict[str, Any]:
    """A plan's target served in virtual time: Poisson arrivals of its window's workload through an event-driven simulator."""
    made = await parts.serving.plan(plan_id)
    engine = parts.serving.situation().capabilities
    return await asyncio.to_thread(outlook.simulation, made, parts.serving.deployment, parts.profiles, engine)


@routes.get("/v1/plans/{plan_id}/frontiers", tags=["plans"], response_model=FrontiersBody)
async def frontiers(plan_id: str, parts: Parts) -> dict[str, Any]:
    """P99 TTFT and TPOT against the rate of requests for a plan's target, its runner-up and what ran."""
    made = await parts.serving.plan(plan_id)
    engine = parts.serving.situation().capabilities
    return await asyncio.to_thread(outlook.frontiers, made, parts.serving.deployment, parts.profiles, engine)


@routes.post(
    "/v1/plans/{plan_id}:apply",
    tags=["plans"],
    status_code=202,
    response_model=OperationBody,
    response_model_exclude_unset=True,
)
async def apply(
    plan_id: str, response: Response, parts: Parts, body: ApplyRequest | None = None
) -> dict[str, Any]:
    """Start the switch to a plan's target; its progress is at the Location answered.

    A plan whose `to_acknowledge` names findings is refused (409 `finding_not_acknowledged`) until `acknowledge` has their codes.
    """
    operation = await parts.serving.apply(plan_id, body.acknowledge if body else ())
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


@routes.get("/v1/profiles", tags=["state"], response_model=ProfilesAnswer)
async def profiles(parts: Parts) -> dict[str, Any]:
    """The model's sizes and the profile of each device kind, as plans take them."""
    return profiles_document(parts.serving.deployment.model.spec, parts.profiles)


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


async def _wished(body: WishRequest, parts: Composition, now: str | None = None) -> tuple[Intent, int]:
    """The checked intent of a wish at the present or the clock given, and its version."""
    moment = usecases.clock(now, parts.serving.deployment)
    if body.text is not None:
        return await _translated(body.text, parts, now), 1
    document, version = body.intent or {}, 1
    if body.intent_id is not None:
        kept = await asyncio.to_thread(intents.settled, parts.store, body.intent_id)
        document, version = kept["intent"], kept["version"]
    return intents.read_intent(document, parts.serving.deployment, moment), version


def _located(version: dict[str, Any], response: Response) -> dict[str, Any]:
    """A version, and where it is found again."""
    response.headers["Location"] = f"/v1/intents/{version['id']}?version={version['version']}"
    return version
