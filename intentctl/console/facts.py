"""What pages show, gathered from the service: each function asks for what one page or part needs."""

import asyncio
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from intent.models import Outcome
from intentctl.console import charts
from intentctl.console.charts import Band, Chart, ChartMark, ChartSpec
from intentctl.console.cluster import Row, inventory_of, picture
from intentctl.console.upstream import Upstream
from intentctl.console.view import zone_of
from selector.models import Plan
from service import api
from service import documents as docs
from service.documents.errors import ServiceError

FRESH_S = 2.0
"""For which an answer is good for others who ask the same."""
LONG_S = 60.0
"""The same of what costs the service time, and of what events tell anyway."""
RECENT_S = 900.0
WEEK_H = 168.0
AROUND_S = 20.0
"""Before a switch and after it that its charts show."""
UNDER_WAY = 1.0
"""Seconds for which an operation under way is taken as it was told."""


@dataclass(frozen=True, slots=True)
class Now:
    """What runs, and how the controller stands."""

    models: tuple[docs.StateDocument, ...]
    control: docs.ControlDocument
    promises: tuple[docs.PromiseDocument, ...]
    report: docs.ReportDocument
    operations: tuple[docs.OperationDocument, ...]

    @property
    def active(self) -> tuple[docs.PromiseDocument, ...]:
        """What is promised now."""
        return tuple(promise for promise in self.promises if promise.state == "active")

    @property
    def broken(self) -> tuple[docs.AttainmentDocument, ...]:
        """Goals that were missed too often in the hours that the report is of."""
        active = {promise.intent_id for promise in self.active}
        return tuple(
            attainment
            for attainment in self.report.attainment
            if is_broken(attainment) and attainment.intent_id in active
        )

    @property
    def last(self) -> docs.OperationDocument | None:
        """The newest switch."""
        return self.operations[0] if self.operations else None

    @property
    def under_way(self) -> tuple[docs.OperationDocument, ...]:
        """Switches that have not ended."""
        return tuple(operation for operation in self.operations if not operation.done)


def is_broken(attainment: docs.AttainmentDocument) -> bool:
    """Whether a goal was met less often than it has to be."""
    return attainment.share is not None and attainment.share < attainment.needed


async def now(upstream: Upstream) -> Now:
    """What the strip at the top of every page needs.

    Raises:
        ServiceError: the service refused, or does not answer.
    """
    models, control, promised, report, operations = await asyncio.gather(
        upstream.recent(("models",), FRESH_S, lambda client: client(api.state.models)),
        upstream.recent(("control",), FRESH_S, lambda client: client(api.promises.control)),
        upstream.recent(("promises",), LONG_S, lambda client: client(api.promises.promises)),
        upstream.recent(
            ("report", 1.0), 2 * FRESH_S, lambda client: client(api.promises.report, docs.ReportQuery(hours=1))
        ),
        upstream.recent(
            ("operations",), LONG_S, lambda client: client(api.operations.operations, docs.OperationsRequest(limit=20))
        ),
    )
    return Now(models.models, control, promised.promises, report, operations.operations)


async def ahead(upstream: Upstream, hours: float = 24) -> docs.AgendaDocument:
    """The time ahead with what is promised: what the strip, the overview and the agenda tell."""
    return await upstream.recent(
        ("agenda", hours), LONG_S, lambda client: client(api.promises.agenda, docs.AgendaQuery(hours=hours))
    )


@dataclass(frozen=True, slots=True)
class ModelView:
    """A model on the overview."""

    state: docs.StateDocument
    observed: docs.ObservedDocument | None
    charts: tuple[Chart, ...]


@dataclass(frozen=True, slots=True)
class Overview:
    """The first page."""

    now: Now
    cluster: tuple[Row, ...]
    models: tuple[ModelView, ...]
    agenda: docs.AgendaDocument
    drains: tuple[docs.DrainDocument, ...]


async def overview(upstream: Upstream, timezone: str) -> Overview:
    """What the first page shows: the last quarter of an hour.

    Raises:
        ServiceError: the service refused, or does not answer.
    """
    stands, drained, loads, coming = await asyncio.gather(
        now(upstream),
        upstream.recent(("drains",), FRESH_S, lambda client: client(api.state.drains)),
        upstream.recent(("load",), FRESH_S, lambda client: client(api.promises.load)),
        ahead(upstream),
    )
    recent = await upstream.recent(
        ("recent", 15.0),
        FRESH_S,
        lambda client: client(api.promises.recent_load, docs.RecentQuery(seconds=RECENT_S, step_s=15)),
    )
    plans = await _plans_of(upstream, stands.operations)
    views = tuple(
        ModelView(
            state,
            next((observed for observed in loads.models if observed.model == state.model), None),
            _charts(
                next((model for model in recent.models if model.model == state.model), None),
                [operation for operation in stands.operations if operation.model == state.model],
                plans,
                timezone,
            ),
        )
        for state in stands.models
    )
    out = {device: why for model in stands.models for device, why in model.out.items()}
    runs = {model.model: [model.topology] for model in stands.models}
    return Overview(stands, picture(inventory_of(stands.models), runs, out), views, coming, drained.drains)


async def _plans_of(upstream: Upstream, operations: Sequence[docs.OperationDocument]) -> dict[str, Plan]:
    """The plans of the newest operation of each model, by operation."""
    newest = {operation.model: operation for operation in reversed(operations) if operation.result is not None}
    found = await asyncio.gather(*(saved_plan(upstream, operation.plan_id) for operation in newest.values()))
    return {operation.id: plan for operation, plan in zip(newest.values(), found, strict=True)}


async def saved_plan(upstream: Upstream, plan_id: str) -> Plan:
    """A plan; it never changes."""
    return await upstream.recent(("plan", plan_id), 3600, lambda client: client(api.plans.plan, plan_id))


def _charts(
    recent: docs.RecentDocument | None,
    operations: Sequence[docs.OperationDocument],
    plans: dict[str, Plan],
    timezone: str,
) -> tuple[Chart, ...]:
    """Latencies, requests and tokens of a model over the last minutes, with its switches."""
    if recent is None:
        return ()
    ends_s = time.time()
    moments = recent.moments
    marks = [ChartMark(operation.phases[0].at, operation.id, f"/operations/{operation.id}") for operation in operations]
    plan = next((plans[operation.id] for operation in operations if operation.id in plans), None)
    since_s = next((operation.phases[-1].at for operation in operations if operation.id in plans), 0.0)

    def band(name: str) -> Band | None:
        if plan is None or math.isinf(value := getattr(plan.prediction, name)["p99"]):
            return None
        wide = plan.prediction.error_band
        return Band(since_s, value * max(0.0, 1 - wide) * 1000, value * (1 + wide) * 1000)

    def latency(title: str, name: str) -> ChartSpec:
        values = {
            which: [
                (moment.begins_s + recent.step_s / 2, _ms(getattr(getattr(moment, name), which))) for moment in moments
            ]
            for which in ("p50", "p99")
        }
        return ChartSpec(title, "ms", [("P50", values["p50"]), ("P99", values["p99"])], 0, 0, band=band(name))

    def count(title: str, unit: str, name: str) -> ChartSpec:
        points = [(moment.begins_s + recent.step_s / 2, getattr(moment, name)) for moment in moments]
        return ChartSpec(title, unit, [(unit, points)], 0, 0)

    questions = (
        latency("TTFT", "ttft_s"),
        latency("TPOT", "tpot_s"),
        count("Requests", "requests/s", "rate_rps"),
        count("Tokens", "tokens/s", "tokens_s"),
    )
    placed = (replace(question, begins_s=ends_s - RECENT_S, ends_s=ends_s, marks=marks) for question in questions)
    return tuple(charts.chart(spec, zone_of(timezone)) for spec in placed)


def _ms(value: float | None) -> float | None:
    return None if value is None else value * 1000


@dataclass(frozen=True, slots=True)
class PlanView:
    """A plan card."""

    plan: Plan
    standing: docs.StandingDocument
    now_rows: tuple[Row, ...]
    next_rows: tuple[Row, ...]
    operation: docs.OperationDocument | None
    promise: docs.PromiseDocument | None
    newest: docs.OperationDocument | None
    """The operation that changed what runs since the plan was made."""

    @property
    def is_stale(self) -> bool:
        """Whether something else runs than what the plan starts from."""
        return self.standing.applied_by is None and self.standing.generation != self.plan.generation

    @property
    def verdict(self) -> str:
        """What was said to it: approved, rejected, or nothing that holds."""
        return self.standing.approval.verdict if self.standing.approval else ""

    @property
    def is_open(self) -> bool:
        """Whether something can still be done with it."""
        return self.standing.applied_by is None and not self.is_stale and self.verdict != "rejected"

    @property
    def title(self) -> str:
        """From what to what."""
        shapes = [topology.shape for topology in (self.plan.now, self.plan.target) if topology]
        return (self.plan.switch and self.plan.switch.swap) or (" → ".join(shapes) if self.plan.changes else shapes[-1])


async def plan_view(upstream: Upstream, plan_id: str) -> PlanView:
    """A plan card.

    Raises:
        ServiceError: there is no such plan, or the service does not answer.
    """
    plan, standing, stands = await asyncio.gather(
        saved_plan(upstream, plan_id),
        upstream.recent(("standing", plan_id), FRESH_S, lambda client: client(api.plans.standing, plan_id)),
        now(upstream),
    )
    inventory = inventory_of(stands.models)
    applied = standing.applied_by
    done = await operation_of(upstream, applied) if applied else None
    others = (
        operation
        for operation in stands.operations
        if operation.model == plan.model and operation.plan_id != plan.id and operation.result
    )
    return PlanView(
        plan,
        standing,
        picture(_seen(inventory, plan), {plan.model: [plan.now] if plan.now else []}),
        picture(_seen(inventory, plan), {plan.model: [plan.target]}),
        done,
        next((promise for promise in stands.promises if promise.intent_id == plan.intent_id), None),
        next(others, None),
    )


def _seen(inventory: Sequence[docs.NodeDocument], plan: Plan) -> Sequence[docs.NodeDocument]:
    """The nodes that the plan's model may use."""
    used = {device for replica in (plan.now, plan.target) if replica for device in replica.devices}
    return [node for node in inventory if used & {gpu.index for gpu in node.gpus}] or inventory


async def operation_of(upstream: Upstream, operation_id: str) -> docs.OperationDocument:
    """An operation as it was last told."""
    return await upstream.recent(
        ("operation", operation_id), UNDER_WAY, lambda client: client(api.operations.operation, operation_id)
    )


@dataclass(frozen=True, slots=True)
class OperationView:
    """A switch, its verdict, and what can be done with it."""

    operation: docs.OperationDocument
    outcome: docs.OutcomeDocument | None
    undo: docs.UndoDocument | None
    charts: tuple[Chart, ...]
    asked_s: float
    """Unix seconds: when this was gathered."""


async def operation_view(upstream: Upstream, operation_id: str, timezone: str) -> OperationView:
    """A switch.

    Raises:
        ServiceError: there is none, or the service does not answer.
    """
    operation, report = await asyncio.gather(
        operation_of(upstream, operation_id),
        upstream.recent(
            ("report", WEEK_H), LONG_S, lambda client: client(api.promises.report, docs.ReportQuery(hours=WEEK_H))
        ),
    )
    mine = await _around(upstream, operation)
    about = ("undoable", operation_id)
    return OperationView(
        operation,
        next((switch for switch in report.switches if switch.operation == operation_id), None),
        await upstream.recent(about, LONG_S, lambda client: client(api.operations.undoable, operation_id))
        if operation.done
        else None,
        _switch_charts(mine, operation, timezone),
        time.time(),
    )


async def _around(upstream: Upstream, operation: docs.OperationDocument) -> docs.RecentDocument | None:
    """The seconds around a switch; None where they are not kept any more."""
    ago_s = time.time() - operation.phases[0].at + AROUND_S
    if ago_s > RECENT_S:
        return None
    query = docs.RecentQuery(seconds=max(AROUND_S, ago_s), step_s=1)
    recent = await upstream.recent(
        ("around", operation.id), UNDER_WAY, lambda client: client(api.promises.recent_load, query)
    )
    return next((model for model in recent.models if model.model == operation.model), None)


def _known(moments: Sequence[docs.MomentDocument], name: str) -> list[tuple[float, float | None]]:
    """What the looks saw; between two of them nothing is known, and the line goes on."""
    found = ((moment.begins_s + 0.5, getattr(moment, name)) for moment in moments)
    return [(at_s, value) for at_s, value in found if value is not None]


def _switch_charts(
    recent: docs.RecentDocument | None, operation: docs.OperationDocument, timezone: str
) -> tuple[Chart, ...]:
    """Tokens per second and open streams around a switch; nothing where that was too long ago."""
    begun_s = operation.phases[0].at
    ended_s = operation.phases[-1].at
    if recent is None:
        return ()
    ends_s = min(time.time(), ended_s + AROUND_S) if operation.done else time.time()
    begins_s = begun_s - AROUND_S
    marks = [ChartMark(phase.at, phase.phase.value, "") for phase in operation.phases]
    seen = [moment for moment in recent.moments if begins_s - 1 <= moment.begins_s <= ends_s]
    questions = (
        ChartSpec(title, unit, [(unit, _known(seen, name))], begins_s, ends_s, marks)
        for title, unit, name in (("Tokens", "tokens/s", "tokens_s"), ("Streams", "streams", "streams"))
    )
    return tuple(charts.chart(question, zone_of(timezone)) for question in questions)


@dataclass(frozen=True, slots=True)
class Thread:
    """What was said of one intent, and what came of it."""

    versions: tuple[docs.VersionDocument, ...]
    plans: tuple[Plan, ...]
    """Of the latest version, the newest first of each model."""
    older: int
    """Plans beside them."""
    promise: docs.PromiseDocument | None

    @property
    def latest(self) -> docs.VersionDocument:
        """What holds of it."""
        return self.versions[-1]

    @property
    def may_be_planned(self) -> bool:
        """Whether nothing is to be answered first."""
        return self.latest.intent.outcome is Outcome.OK


async def thread(upstream: Upstream, intent_id: str) -> Thread:
    """An intent's conversation.

    Raises:
        ServiceError: there is none, or the service does not answer.
    """
    latest, plans, promised = await asyncio.gather(
        upstream.ask(lambda client: client(api.intents.intent, intent_id)),
        upstream.ask(lambda client: client(api.plans.plans, docs.PlansRequest(limit=50, intent=intent_id))),
        upstream.recent(("promises",), LONG_S, lambda client: client(api.promises.promises)),
    )
    earlier = [await version_of(upstream, intent_id, number) for number in range(1, latest.version)]
    current = dict[str, Plan]()
    for plan in plans.plans:
        if plan.intent_version in {None, latest.version}:
            current.setdefault(plan.model, plan)
    promise = next((promise for promise in promised.promises if promise.intent_id == intent_id), None)
    return Thread((*earlier, latest), tuple(current.values()), len(plans.plans) - len(current), promise)


async def version_of(upstream: Upstream, intent_id: str, number: int) -> docs.VersionDocument:
    """An earlier version of an intent; it never changes."""
    return await upstream.recent(
        ("version", intent_id, number), 3600, lambda client: client(api.intents.intent, intent_id, number)
    )


@dataclass(frozen=True, slots=True)
class ConversationThread:
    """An intent in the list of conversations."""

    version: docs.VersionDocument
    plan: Plan | None
    promise: docs.PromiseDocument | None


async def talk(upstream: Upstream, after: str | None) -> tuple[tuple[ConversationThread, ...], str | None]:
    """What was said lately, the newest last, and where the older ones begin.

    Raises:
        ServiceError: the service refused, or does not answer.
    """
    intents, plans, promised = await asyncio.gather(
        upstream.ask(lambda client: client(api.intents.intents, docs.PageRequest(limit=15, after=after))),
        upstream.recent(("plans",), FRESH_S, lambda client: client(api.plans.plans, docs.PlansRequest(limit=100))),
        upstream.recent(("promises",), LONG_S, lambda client: client(api.promises.promises)),
    )
    plan_of = {plan.intent_id: plan for plan in reversed(plans.plans)}
    promise_of = {promise.intent_id: promise for promise in promised.promises}
    threads = [
        ConversationThread(intent, plan_of.get(intent.id), promise_of.get(intent.id)) for intent in intents.intents
    ]
    return tuple(reversed(threads)), intents.next


async def band(upstream: Upstream, intent_id: str, *, is_active: bool) -> docs.AgendaDocument | str:
    """The day ahead with an intent beside what is promised; or why there is none."""
    try:
        if is_active:
            return await ahead(upstream)
        return await upstream.recent(
            ("preview", intent_id),
            LONG_S,
            lambda client: client(api.promises.preview, docs.AgendaRequest(intent_id=intent_id, hours=24)),
        )
    except ServiceError as error:
        return str(error)
