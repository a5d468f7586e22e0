"""What is kept from now on, and what comes of it."""

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from runtime.errors import RuntimeFault
from service import documents as docs
from service.api.operation import READING, SAYING, WISHING, get, post
from service.api.plans import apply
from service.documents.access import Right
from service.documents.errors import RefusedError, ServiceError, problem_of
from service.documents.problems import Code

if TYPE_CHECKING:
    from service.api.context import Context


ACTIVATING = (
    *WISHING,
    Code.NOT_A_PROMISE,
    Code.NOT_ACTIVE,
    Code.NOT_APPROVED,
    Code.FINDING_NOT_ACKNOWLEDGED,
)


@post("/v1/intents/{intent_id}:activate", Right.APPROVE, *ACTIVATING, threads="planning", status=201)
def activate(here: "Context", intent_id: str, body: docs.ActivateRequest | None = None) -> docs.PromiseDocument:
    """Keep an intent from now on in every window it names, until superseded, retired or expired.

    It is refused where it contradicts what is active (409 `conflict`: name those in `replace`), and where some window of the
    next eight days cannot be held (422 `infeasible`, with what could be).
    """
    from service.promises import handlers

    service = here.service
    active = service.parts.promises.active
    version = here.settled(intent_id)
    with here.turn, active.changing:
        made = handlers.activate(
            version, body or docs.ActivateRequest(), active, here.planning_context(), service.acts, service.store
        )
    service.promised_anew(made)
    return made


@post("/v1/intents/{intent_id}:keep", Right.APPROVE, *ACTIVATING, threads="planning", status=201)
def keep(here: "Context", intent_id: str, body: docs.KeepRequest) -> docs.KeptDocument:
    """Keep an intent from now on, then apply its plans that are named.

    A plan that is not applied, as where its window does not hold now, is told with the reason; the promise stands.
    """
    for plan_id in body.plans:
        if here.saved_plan(plan_id).intent_id != intent_id:
            raise RefusedError(Code.INVALID_REQUEST, f"{plan_id} is no plan of {intent_id}; nothing was done")
    promise = activate(here, intent_id, docs.ActivateRequest(replace=body.replace, acknowledge=body.acknowledge))
    begun = list[docs.OperationDocument]()
    refused = dict[str, docs.Problem]()
    for plan_id in body.plans:
        try:
            begun.append(apply(here, plan_id, docs.ApplyRequest(acknowledge=body.acknowledge)))
        except (ServiceError, RuntimeFault) as error:  # the promise is kept already, and the answer has to say so
            refused[plan_id] = problem_of(error)
    return docs.KeptDocument(promise=promise, operations=tuple(begun), not_switched=refused)


@post("/v1/intents/{intent_id}:retire", Right.APPROVE, Code.NOT_FOUND, Code.NOT_ACTIVE, Code.STORE)
def retire(here: "Context", intent_id: str) -> docs.PromiseDocument:
    """Keep an intent no longer. What runs stays until something else asks for a change."""
    from service.promises import handlers

    service = here.service
    active = service.parts.promises.active
    with active.changing:
        ended = handlers.retire(intent_id, active, service.acts, service.store)
    service.promised_anew(ended)
    return ended


@get("/v1/promises", Right.LOOK, Code.STORE)
def promises(here: "Context") -> docs.PromisesDocument:
    """Intents that were activated, newest first, with what became of each."""
    return docs.PromisesDocument(promises=tuple(here.service.parts.promises.active.book.promises(active=False)))


@get("/v1/agenda", Right.LOOK, *SAYING, threads="planning")
def agenda(here: "Context", query: docs.AgendaQuery) -> docs.AgendaDocument:
    """The time ahead as what is active has it: segments, what is to serve each, the switches between."""
    with here.turn:
        return here.planning_context().agenda(here.promised(), here.clock(None), timedelta(hours=query.hours))


@post("/v1/agenda:preview", Right.SAY, *WISHING, Code.NOT_A_PROMISE, threads="asking")
def preview(here: "Context", body: docs.AgendaRequest) -> docs.AgendaDocument:
    """The time ahead as it would be with a wish beside what is active. Keeps nothing, changes nothing."""
    from service.promises.handlers import seen_with

    with here.turn:
        now = here.clock(body.now)
        intent, _ = here.wished(body, body.now)
        moments = here.first_said(body.intent_id, intent) or [now] * len(intent.goals)
        others = [goal for goal in here.promised() if goal.intent_id not in {body.intent_id, *body.replace}]
        ahead = here.planning_context()
        seen = seen_with(body.intent_id or "this", intent, moments, others, ahead)
        return ahead.agenda(seen, now, timedelta(hours=body.hours))


@get("/v1/controller", Right.LOOK)
def control(here: "Context") -> docs.ControlDocument:
    """How the controller stands: mode, pause, overrides, and its last decision for each model."""
    return here.service.parts.promises.control()


@post("/v1/controller", Right.APPROVE, *READING, Code.NOT_APPROVED)
def set_control(here: "Context", body: docs.ControlRequest) -> docs.ControlDocument:
    """Change the controller's mode, pause it or let it go on, which ends overrides."""
    service = here.service
    kept = service.parts.promises
    kept.refuse_mode(body.mode)
    active = kept.active
    fields = body.model_dump(mode="json", exclude_none=True)
    with active.changing, active.written(), service.store.transaction():
        active.book.set_control(active.controlled(body, service.caller.name))
        service.acts.note("control.set", "controller", after=fields)
    service.soon(kept.wake)
    stands = kept.control()
    service.publish("control", stands)
    return stands


@get("/v1/load", Right.LOOK, Code.ENGINE_LOST)
def load(here: "Context") -> docs.LoadsDocument:
    """What is asked of each model now, and how it is served: by everybody, and tenant by tenant."""
    service = here.service
    kept = service.parts.promises
    return docs.LoadsDocument(models=tuple(service.in_loop(kept.load(name)) for name in kept.servings))


@get("/v1/load/recent", Right.LOOK, Code.INVALID_REQUEST)
def recent_load(here: "Context", query: docs.RecentQuery) -> docs.RecentLoadDocument:
    """The last minutes of each model in steps of unix time, the last of which may not be over.

    Streams and tokens are as the loop saw them, at each `promises.tick_s` (5 s where nothing else is said): null where
    it did not look. Steps before the service began to watch, or of which something is forgotten, are left out.
    """
    from service.promises.recent import recent_document

    service = here.service
    kept = service.parts.promises
    seen = {name: service.in_loop(kept.minutes(name)) for name in kept.servings}
    return docs.RecentLoadDocument(
        models=tuple(recent_document(name, minutes, query) for name, minutes in seen.items())
    )


@get("/v1/load/history", Right.LOOK, *READING)
def load_history(here: "Context", query: docs.ReportQuery) -> docs.LoadHistoryDocument:
    """What was asked of each model and how it was served, five minutes at a time; kept for 15 days."""
    since_s = datetime.now(UTC).timestamp() - query.hours * 3600
    return docs.LoadHistoryDocument(loads=tuple(here.service.parts.promises.active.book.loads(since_s)))


@get("/v1/report", Right.LOOK, *READING)
def report(here: "Context", query: docs.ReportQuery) -> docs.ReportDocument:
    """How far each goal was kept, and each switch with its cause and its verdict."""
    from service.promises import handlers

    service = here.service
    kept = service.parts.promises
    since = datetime.now(UTC) - timedelta(hours=query.hours)
    for runner in kept.runners.values():
        runner.book()
    return handlers.report(kept.active, here.planning_context(), service.store, since)
