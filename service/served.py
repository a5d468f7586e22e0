"""What an operator can do beside the engine that it steers, on behalf of whoever asks."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Hashable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from intent.models import Intent
from selector.models import Profile
from service import documents as docs
from service import intents, targets, undo, usecases
from service import preflight as preflights
from service.access import consent as consents
from service.access import handlers
from service.access.caller import Caller
from service.access.chain import Head
from service.access.keys import redacted
from service.access.wiring import Acts
from service.cancelling import refusal
from service.documents.state import place
from service.errors import RefusedError
from service.hosts import endings
from service.inprocess import FromFile
from service.models import ServedModel
from service.promises import handlers as promise_handlers
from service.promises.agenda import ActiveGoal
from service.promises.handlers import PlanningContext
from service.promises.limits import still_broken
from service.promises.recent import recent_document

if TYPE_CHECKING:
    from service.composition import Composition
    from service.serving import Serving

T = TypeVar("T")


class ServedOperator(FromFile):
    """An ``Operator`` beside the engine that it steers.

    Its methods block: call them from another thread than the loop's.
    """

    serves = True

    def __init__(self, parts: "Composition", loop: asyncio.AbstractEventLoop, caller: Caller) -> None:
        """``caller`` is on whose behalf it acts, and who stands in the audit."""
        super().__init__(parts.deployment)
        self._parts = parts
        self._loop = loop
        self._store = parts.store
        self._caller = caller
        self._llm = parts.llm

    def keep(self, text: str, now: str | None = None) -> docs.VersionDocument:
        intent = self.translate(text, now)
        with self._store.transaction():
            kept = intents.create(intent, self._store, self._caller.name)
            self._acts.note("intent.create", kept.id, after={"text": redacted(kept.text)})
        return kept

    def intent(self, intent_id: str, version: int | None = None) -> docs.VersionDocument:
        return intents.version_of(self._store, intent_id, version)

    def amend_kept(self, intent_id: str, follow_up: docs.VersionedFollowUp) -> docs.VersionDocument:
        kept = intents.IntentStorage(
            store=self._store,
            save=self._save_version,
            deployment=self._deployment,
            llm=self._llm,
            said_by=self._caller.name,
            amend=partial(self._ask, intents.amend),
        )
        return intents.follow(kept, intent_id, follow_up, self._clock(follow_up.now))

    def saved_plan(self, plan_id: str) -> docs.PlanDocument:
        return self._store.saved_plan(plan_id)[0]

    def apply(self, plan_id: str, acknowledge: Sequence[str] = ()) -> docs.OperationDocument:
        plan = self.saved_plan(plan_id)
        consent = partial(consents.consent_now, plan, self._deployment.approval, acknowledge, self._acts)
        return self._in_loop(self._serving(plan.model).apply(plan, consent, self._acts))

    def preflight(self, plan_id: str, acknowledge: Sequence[str] = ()) -> docs.PreflightDocument:
        plan, applied_by = self._store.saved_plan(plan_id)
        serving = self._serving(plan.model)
        active = self._parts.promises.active
        standing = preflights.Standing(
            applied_by=applied_by,
            rule=self._deployment.approval,
            known=consents.known_of(plan, self._acts),
            caller=self._caller,
            acknowledged=acknowledge,
            operation=serving.operation.id if serving.operation else None,
            streams=serving.router.num_streams,
            num_blocks=self._in_loop(serving.engine.stats()).total_blocks,
            barred=serving.barred(),
            to_acknowledge=still_broken(plan.to_acknowledge, active.kept()),
            unchecked=active.unchecked(plan, datetime.now(UTC)),
        )
        return preflights.preflight(plan, self._placed(serving.model), standing)

    def standing(self, plan_id: str) -> docs.StandingDocument:
        plan, applied_by = self._store.saved_plan(plan_id)
        access = self._parts.access
        made = access.audit.newest("plan.create", plan_id)
        return docs.StandingDocument(
            plan_id=plan_id,
            made_by=made.who if made else None,
            made_s=made.at_s if made else None,
            approval=access.approvals.of(plan_id),
            applied_by=applied_by,
            generation=self._serving(plan.model).situation().generation,
        )

    def approvals(self, request: docs.PageRequest) -> docs.ApprovalsDocument:
        found = self._parts.access.approvals.page(request.page)
        return docs.ApprovalsDocument(approvals=found.items, next=place(found.next))

    def approve(self, plan_id: str, request: docs.ApproveRequest) -> docs.ApprovalDocument:
        plan = self.saved_plan(plan_id)
        known = consents.known_of(plan, self._acts)
        return self._decided(consents.approve(plan, request, self._deployment.approval, known, self._acts))

    def reject(self, plan_id: str, request: docs.RejectRequest) -> docs.ApprovalDocument:
        return self._decided(consents.reject(self.saved_plan(plan_id), request, self._acts))

    def _decided(self, approval: docs.ApprovalDocument) -> docs.ApprovalDocument:
        """Tell of a yes or a no."""
        self._loop.call_soon_threadsafe(self._parts.events.publish, "approval", approval)
        return approval

    def operation(self, operation_id: str) -> docs.OperationDocument:
        under_way = [serving.operation for serving in self._parts.servings.values()]
        found = next((operation for operation in under_way if operation and operation.id == operation_id), None)
        found = found or self._store.operation(operation_id)
        if found is None:
            raise RefusedError(docs.Code.NOT_FOUND, f"no operation {operation_id}")
        return found

    def cancel(self, operation_id: str, request: docs.CancelRequest) -> docs.OperationDocument:
        found = self.operation(operation_id)
        if found.done:
            raise refusal(found)
        return self._in_loop(self._serving(found.model).cancel(operation_id, request, self._acts))

    def undoable(self, operation_id: str) -> docs.UndoDocument:
        return self._undoable(operation_id)[0]

    def undo(self, operation_id: str) -> docs.PlanAnswer:
        found, place = self._undoable(operation_id)
        undone = self.saved_plan(self.operation(operation_id).plan_id)
        source = undone.now
        if not found.possible or source is None:
            raise RefusedError(docs.Code.CANNOT_UNDO, f"{found.why}; instead: {found.instead}")
        words = f"undo {operation_id}: {targets.words_for(source.noun)}"
        return self._plan_to(source.noun, words, place, docs.When(), undone.now_batching)

    def _undoable(self, operation_id: str) -> tuple[docs.UndoDocument, targets.ModelContext]:
        """Whether an operation can be undone, and the place as it was then.

        A plan for it is for no other generation.
        """
        operation = self.operation(operation_id)
        plan = self.saved_plan(operation.plan_id)
        serving = self._serving(plan.model)
        under_way = serving.operation
        place = self._placed(serving.model)
        window = usecases.window_of(self._deployment, docs.When())
        known = undo.OperationFacts(
            plan=plan,
            led_to=self._store.generation_of(operation_id),
            runs=place.situation.generation,
            under_way=under_way.id if under_way else None,
        )
        barred = targets.target_blocker(plan.now.noun, place, window) if plan.now else ""
        return undo.undoable(operation, known, barred), place

    def watch(self) -> Iterator[docs.Event]:
        events = self._parts.events.subscribe()
        while (event := self._in_loop(_next(events))) is not None:
            yield event

    def me(self) -> docs.MeDocument:
        warnings = endings(self._parts.metrics.certificate_ends)
        return handlers.me(self._caller, self._deployment.timezone, warnings)

    def create_key(self, request: docs.KeyRequest) -> docs.NewKeyDocument:
        return handlers.create_key(self._parts.access, self._deployment.tenants, self._caller, request)

    def keys(self) -> docs.KeysDocument:
        return docs.KeysDocument(keys=tuple(map(docs.KeyDocument.model_validate, self._parts.access.keys.kept())))

    def revoke_key(self, prefix: str) -> docs.KeyDocument:
        return handlers.revoke_key(self._parts.access, self._caller, prefix)

    def audit(self, page: docs.AuditPage) -> docs.AuditDocument:
        entries = self._parts.access.audit.page(page.before, page.limit, page.act)
        following = entries[-1].seq if len(entries) == page.limit and entries[-1].seq > 1 else None
        return docs.AuditDocument(entries=tuple(map(docs.EntryDocument.model_validate, entries)), next=following)

    def audit_head(self) -> docs.HeadDocument:
        head = self._parts.access.audit.head()
        return docs.HeadDocument(seq=head.seq, hash=head.hash, head=str(head))

    def verify_audit(self, head: str | None = None) -> docs.VerdictDocument:
        audit = self._parts.access.audit
        flaws = audit.verify(None if head is None else Head.parse(head))
        found = tuple(map(docs.FlawDocument.model_validate, flaws))
        return docs.VerdictDocument(is_whole=not found, entries=audit.head().seq, flaws=found)

    def activate(self, intent_id: str, request: docs.ActivateRequest) -> docs.PromiseDocument:
        promises = self._parts.promises
        version = self._settled(intent_id)
        with self._turn, promises.active.changing:
            made = promise_handlers.activate(version, request, promises.active, self._here(), self._acts, self._store)
        self._promised_anew(made)
        return made

    def retire(self, intent_id: str) -> docs.PromiseDocument:
        active = self._parts.promises.active
        with active.changing:
            ended = promise_handlers.retire(intent_id, active, self._acts, self._store)
        self._promised_anew(ended)
        return ended

    def promises(self) -> docs.PromisesDocument:
        return docs.PromisesDocument(promises=tuple(self._parts.promises.active.book.promises(active=False)))

    def control(self) -> docs.ControlDocument:
        return self._parts.promises.control()

    def set_control(self, request: docs.ControlRequest) -> docs.ControlDocument:
        promises = self._parts.promises
        promises.refuse_mode(request.mode)
        active = promises.active
        fields = request.model_dump(mode="json", exclude_none=True)
        with active.changing, active.written(), self._store.transaction():
            active.book.set_control(active.controlled(request, self._acts.caller.name))
            self._acts.note("control.set", "controller", after=fields)
        self._loop.call_soon_threadsafe(promises.wake)
        stands = promises.control()
        self._loop.call_soon_threadsafe(self._parts.events.publish, "control", stands)
        return stands

    def load(self) -> docs.LoadsDocument:
        promises = self._parts.promises
        return docs.LoadsDocument(models=tuple(self._in_loop(promises.load(name)) for name in promises.servings))

    def recent_load(self, query: docs.RecentQuery) -> docs.RecentLoadDocument:
        promises = self._parts.promises
        seen = {name: self._in_loop(promises.minutes(name)) for name in promises.servings}
        return docs.RecentLoadDocument(
            models=tuple(recent_document(name, minutes, query) for name, minutes in seen.items())
        )

    def load_history(self, query: docs.ReportQuery) -> docs.LoadHistoryDocument:
        since_s = datetime.now(UTC).timestamp() - query.hours * 3600
        return docs.LoadHistoryDocument(loads=tuple(self._parts.promises.active.book.loads(since_s)))

    def report(self, query: docs.ReportQuery) -> docs.ReportDocument:
        promises = self._parts.promises
        since = datetime.now(UTC) - timedelta(hours=query.hours)
        for runner in promises.runners.values():
            runner.book()
        return promise_handlers.report(promises.active, self._here(), self._store, since)

    def _promised_anew(self, promise: docs.PromiseDocument) -> None:
        """Tell of a promise, and have the loops look."""
        self._loop.call_soon_threadsafe(self._parts.promises.wake)
        self._loop.call_soon_threadsafe(self._parts.events.publish, "promise", promise)

    def intents(self, request: docs.PageRequest) -> docs.IntentsDocument:
        found = self._store.intents(request.page)
        return docs.IntentsDocument(intents=found.items, next=place(found.next))

    def plans(self, request: docs.PlansRequest) -> docs.PlansDocument:
        found = self._store.plans(request.page, request.model, request.intent)
        plans = tuple(docs.AppliedPlan(**dict(plan), applied_by=by) for plan, by in found.items)
        return docs.PlansDocument(plans=plans, next=place(found.next))

    def operations(self, request: docs.OperationsRequest) -> docs.OperationsDocument:
        found = self._store.operations(request.page, request.model, request.done)
        return docs.OperationsDocument(operations=found.items, next=place(found.next))

    def models(self) -> docs.ModelsDocument:
        return docs.ModelsDocument(models=tuple(serving.state for serving in self._parts.servings.values()))

    def topology(self, model: str | None = None) -> docs.StateDocument:
        return self._serving(model).state

    def devices(self) -> docs.DevicesDocument:
        parts = self._parts
        known = parts.devices.all
        owners = {gpu.index: model.name for model in self._deployment.models for gpu in model.cluster.gpus}
        used = {index for serving in parts.servings.values() for index in serving.engine.topology.devices}
        return docs.DevicesDocument(
            devices=tuple(
                docs.DeviceDocument(
                    device=gpu.index,
                    kind=gpu.kind,
                    node=node.name,
                    model=owners.get(gpu.index),
                    used=gpu.index in used,
                    out=known[gpu.index].why if gpu.index in known else None,
                    out_by=known[gpu.index].by if gpu.index in known else None,
                    out_since_s=known[gpu.index].since_s if gpu.index in known else None,
                )
                for node in self._deployment.cluster.nodes
                for gpu in node.gpus
            )
        )

    def take_out(self, device: int, request: docs.OutRequest) -> docs.DeviceDocument:
        return self._set_device(device, request.why or f"taken out by {self._caller.name}")

    def take_in(self, device: int) -> docs.DeviceDocument:
        return self._set_device(device, None)

    def _set_device(self, device: int, why: str | None) -> docs.DeviceDocument:
        if device not in [gpu.index for gpu in self._deployment.cluster.gpus]:
            raise RefusedError(docs.Code.NOT_FOUND, f"no device {device}; see `intentctl devices`")
        self._parts.devices.change(device, why, self._caller)
        return next(listed for listed in self.devices().devices if listed.device == device)

    def agenda(self, request: docs.AgendaRequest | docs.AgendaQuery) -> docs.AgendaDocument:
        with self._turn:
            return super().agenda(request)

    @property
    def _turn(self) -> AbstractContextManager[None]:
        """The caller's turn to have something planned."""
        return self._parts.apart.turn(self._caller.key or self._caller.name)

    def _ask(self, work: Callable[..., T], *arguments: object) -> T:
        return self._parts.reading.do(work, *arguments)

    def _do(self, work: Callable[..., T], *arguments: object, once: Hashable = None) -> T:
        with self._turn:
            return self._parts.apart.do(work, *arguments, once=once)

    def _settled(self, intent_id: str) -> docs.VersionDocument:
        return intents.settled(self._store, intent_id)

    def _first_said(self, intent_id: str | None, intent: Intent) -> Sequence[datetime]:
        return intents.first_said(self._store, intent_id, intent.goals) if intent_id else ()

    def _active(self) -> list[ActiveGoal]:
        return list(self._parts.promises.active.promised)

    def _here(self) -> PlanningContext:
        return self._parts.promises.here()

    def _situation(self, model: ServedModel) -> usecases.Situation:
        return self._parts.servings[model.name].situation()

    def _profiles(self, model: ServedModel) -> Mapping[str, Profile]:
        return self._parts.profiles[model.name]

    def _serving(self, model: str | None) -> "Serving":
        return self._parts.servings[self._deployment.model(model).name]

    def _save_version(self, version: docs.VersionDocument) -> bool:
        after: docs.Json = {"version": version.version, "text": redacted(version.text)}
        with self._store.transaction():
            is_next = self._store.save_amendment(version)
            if is_next:
                self._acts.note("intent.amend", version.id, before={"version": version.supersedes}, after=after)
        return is_next

    def _save(self, intent: Intent, plan: docs.PlanDocument) -> None:
        self._acts.keep_plan(intent, plan, before={"topology": plan.now.text if plan.now else None})

    @property
    def _acts(self) -> Acts:
        return Acts(self._parts.access, self._caller)

    def _in_loop(self, work: Coroutine[None, None, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()


async def _next(events: AsyncIterator[docs.Event]) -> docs.Event | None:
    return await anext(events, None)
