"""What an operator can do, in this process: from a deployment file alone, or with what serves it."""
# ruff: noqa: ARG002 - without a service some methods of the protocol can only refuse

import asyncio
from collections.abc import AsyncIterator, Coroutine, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING, NoReturn, TypeVar

from pydantic import JsonValue

from intent.models import Intent, LlmSettings, Outcome
from runtime.capabilities import Capabilities
from runtime.models import Topology
from selector.models import Profile
from service import engines, intents, openslo, outlook, targets, undo, usecases
from service import preflight as preflights
from service.access import cases
from service.access import consent as consents
from service.access.gate import Caller
from service.access.keys import redacted
from service.access.office import Acts
from service.cancelling import refusal
from service.deployment import Deployment
from service.documents.access import (
    AuditDocument,
    AuditPage,
    HeadDocument,
    KeyDocument,
    KeyRequest,
    KeysDocument,
    NewKeyDocument,
    VerdictDocument,
)
from service.documents.approvals import ApprovalDocument, ApproveRequest, RejectRequest
from service.documents.forms import Json
from service.documents.intents import (
    AmendmentDocument,
    ExportDocument,
    FollowUp,
    ImportDocument,
    VersionDocument,
    VersionedFollowUp,
)
from service.documents.operations import OperationDocument, UndoDocument
from service.documents.plans import (
    FrontiersDocument,
    PlanAnswer,
    PlanDocument,
    PlanRequest,
    SimulationDocument,
    When,
    WishRequest,
)
from service.documents.preflight import PreflightDocument
from service.documents.problems import Code
from service.documents.state import (
    Event,
    Health,
    ModelHealth,
    ModelsDocument,
    ProfilesDocument,
    StateDocument,
)
from service.errors import RefusedError
from service.models import ServedModel
from service.profiles import load_profiles
from service.settings import llm_settings, read_settings

if TYPE_CHECKING:
    from service.composition import Composition
    from service.serving import Serving

T = TypeVar("T")


class FromFile:
    """An ``Operator`` from a deployment file: it translates and plans; nothing runs, and nothing outlives it."""

    serves = False

    def __init__(self, deployment: Deployment) -> None:
        self._deployment = deployment
        self._plans: dict[str, PlanDocument] = {}

    def translate(self, text: str, now: str | None = None) -> Intent:
        """As the protocol says."""
        return usecases.translate(text, self._deployment, self._llm, self._clock(now))

    def keep(self, text: str, now: str | None = None) -> VersionDocument:
        """Needs a service."""
        self._refuse("no intent was kept")

    def intent(self, intent_id: str, version: int | None = None) -> VersionDocument:
        """Needs a service."""
        self._refuse(f"{intent_id} is kept by a service, or by nobody")

    def amend(self, intent: Intent, follow_up: FollowUp) -> AmendmentDocument:
        """As the protocol says."""
        now = self._clock(follow_up.now)
        previous = self._checked(intent, now)
        return AmendmentDocument.of(intents.amend(previous, follow_up, self._deployment, now, self._llm))

    def amend_kept(self, intent_id: str, follow_up: VersionedFollowUp) -> VersionDocument:
        """Needs a service."""
        self._refuse(f"{intent_id} is kept by a service, or by nobody")

    def plan(self, asked: PlanRequest) -> PlanAnswer:
        """As the protocol says; the plan starts from the deployment's ``start`` topology."""
        if asked.target is not None:
            place = self._placed(self._deployment.model(asked.model))
            target = targets.read(asked.target, place)
            return self._plan_to(target, targets.words_for(target), place, asked)
        intent, version = self._wished(asked, asked.now)
        if intent.outcome is Outcome.CLARIFY:
            return PlanAnswer(outcome="clarify", intent=intent)
        usecases.refuse_unless_ok(intent)
        intent_id = asked.intent_id or usecases.new_id("intent")
        models = usecases.concerned(intent, self._deployment, asked.model)
        seen = usecases.to_acknowledge(intent)
        facts = {"intent_version": version if self.serves else None, "to_acknowledge": seen}
        made = [self._plan(intent, model, asked, intent_id) for model in models]
        plans = tuple(plan.model_copy(update=facts).sealed() for plan in made)
        for plan in plans:
            self._save(intent, plan)
        return PlanAnswer(outcome="ok", intent=intent, plans=plans)

    def saved_plan(self, plan_id: str) -> PlanDocument:
        """As the protocol says."""
        if plan_id not in self._plans:
            self._refuse(f"{plan_id} is kept by a service, or by nobody")
        return self._plans[plan_id]

    def simulation(self, plan_id: str) -> SimulationDocument:
        """As the protocol says."""
        plan = self.saved_plan(plan_id)
        return outlook.simulation(plan, self._deployment.limits, *self._place(plan))

    def frontiers(self, plan_id: str) -> FrontiersDocument:
        """As the protocol says."""
        plan = self.saved_plan(plan_id)
        return outlook.frontiers(plan, self._deployment.limits, *self._place(plan))

    def apply(self, plan_id: str, acknowledge: Sequence[str] = ()) -> OperationDocument:
        """Needs a service."""
        self._refuse(f"{plan_id} was not applied")

    def preflight(self, plan_id: str, acknowledge: Sequence[str] = ()) -> PreflightDocument:
        """Needs a service."""
        self._refuse(f"{plan_id} cannot be applied here")

    def approve(self, plan_id: str, asked: ApproveRequest) -> ApprovalDocument:
        """Needs a service."""
        self._refuse(f"{plan_id} was not approved")

    def reject(self, plan_id: str, asked: RejectRequest) -> ApprovalDocument:
        """Needs a service."""
        self._refuse(f"{plan_id} was not rejected")

    def operation(self, operation_id: str) -> OperationDocument:
        """Needs a service."""
        self._refuse(f"{operation_id} is known to a service, or to nobody")

    def cancel(self, operation_id: str) -> OperationDocument:
        """Needs a service."""
        self._refuse(f"{operation_id} was not cancelled")

    def undoable(self, operation_id: str) -> UndoDocument:
        """Needs a service."""
        self._refuse(f"{operation_id} is known to a service, or to nobody")

    def undo(self, operation_id: str) -> PlanAnswer:
        """Needs a service."""
        self._refuse(f"{operation_id} is known to a service, or to nobody")

    def watch(self) -> Iterator[Event]:
        """Needs a service."""
        self._refuse("nothing happens here")

    def models(self) -> ModelsDocument:
        """Needs a service."""
        self._refuse("nothing runs here")

    def topology(self, model: str | None = None) -> StateDocument:
        """Needs a service."""
        self._refuse("nothing runs here")

    def profiles(self, model: str | None = None) -> ProfilesDocument:
        """As the protocol says."""
        served = self._deployment.model(model)
        return ProfilesDocument(model=served.spec, profiles=dict(self._profiles(served)))

    def health(self) -> Health:
        """Needs a service."""
        self._refuse("nothing runs here")

    def create_key(self, asked: KeyRequest) -> NewKeyDocument:
        """Needs a service."""
        self._refuse("no key was made")

    def keys(self) -> KeysDocument:
        """Needs a service."""
        self._refuse("there are no keys here")

    def revoke_key(self, prefix: str) -> KeyDocument:
        """Needs a service."""
        self._refuse(f"{prefix} was not revoked")

    def audit(self, page: AuditPage) -> AuditDocument:
        """Needs a service."""
        self._refuse("there is no audit here")

    def audit_head(self) -> HeadDocument:
        """Needs a service."""
        self._refuse("there is no audit here")

    def verify_audit(self, head: str | None = None) -> VerdictDocument:
        """Needs a service."""
        self._refuse("there is no audit here")

    def export_openslo(self, wish: WishRequest) -> ExportDocument:
        """As the protocol says."""
        return openslo.exported(self._wished(wish, None)[0], self._deployment)

    def import_openslo(self, documents: Sequence[JsonValue]) -> ImportDocument:
        """As the protocol says."""
        return openslo.imported(documents, self._deployment, datetime.now(UTC))

    def _plan(self, intent: Intent, model: ServedModel, asked: PlanRequest, intent_id: str) -> PlanDocument:
        made = usecases.plan(
            intent, self._deployment, model, self._situation(model), self._profiles(model), asked, intent_id
        )
        return PlanDocument.model_validate(made)

    def _plan_to(self, target: Topology, words: str, place: targets.Place, when: When) -> PlanAnswer:
        """The plan to a topology that is named, kept."""
        intent, made = targets.planned(target, words, place, when)
        facts = {"intent_version": 1 if self.serves else None}
        plan = PlanDocument.model_validate(made).model_copy(update=facts).sealed()
        self._save(intent, plan)
        return PlanAnswer(outcome="ok", intent=intent, plans=(plan,))

    def _placed(self, model: ServedModel) -> targets.Place:
        return targets.Place(self._deployment, model, self._situation(model), self._profiles(model))

    def _clock(self, said: str | None) -> datetime:
        return usecases.clock(said, self._deployment)

    def _wished(self, wish: WishRequest, now: str | None) -> tuple[Intent, int]:
        """The checked intent of a wish, and its version where it is kept."""
        if wish.text is not None:
            return self.translate(wish.text, now), 1
        intent, version = wish.intent, 1
        if wish.intent_id is not None:
            kept = self._settled(wish.intent_id)
            intent, version = kept.intent, kept.version
        assert intent is not None, "a wish is words, a document or an id"
        return self._checked(intent, self._clock(now)), version

    def _checked(self, intent: Intent, now: datetime) -> Intent:
        """A document from outside, checked again: what it says of itself counts for nothing.

        Raises:
            RefusedError: it has another form than the domain schema allows.
        """
        usecases.refuse_outside_schema(intent)
        return usecases.check(intent, self._deployment, now)

    def _settled(self, intent_id: str) -> VersionDocument:
        """The version of an intent that is kept which can be planned for."""
        return self.intent(intent_id)

    def _situation(self, model: ServedModel) -> usecases.Situation:
        return usecases.Situation(model.start, 0, engines.capabilities(model))

    def _save(self, intent: Intent, plan: PlanDocument) -> None:
        self._plans[plan.id] = plan

    def _place(self, plan: PlanDocument) -> tuple[ServedModel, Mapping[str, Profile], Capabilities | None]:
        """The model of a plan, and what is known of its devices and its engine."""
        model = self._deployment.model(plan.model)
        return model, self._profiles(model), self._situation(model).capabilities

    def _profiles(self, model: ServedModel) -> Mapping[str, Profile]:
        return load_profiles(self._deployment, model, read_settings().folder)

    @cached_property
    def _llm(self) -> LlmSettings | None:
        return llm_settings(self._deployment.llm, read_settings()) if self._deployment.llm else None

    def _refuse(self, what: str) -> NoReturn:
        raise RefusedError(
            Code.UNREACHABLE,
            f"{what}: no service was asked; start one (intentctl serve) or name its --server",
        )


class Served(FromFile):
    """An ``Operator`` beside the engine that it steers. Its methods block: call them from another thread than the loop's."""

    serves = True

    def __init__(self, parts: "Composition", loop: asyncio.AbstractEventLoop, caller: Caller) -> None:
        """``caller`` is on whose behalf it acts, and who stands in the audit."""
        super().__init__(parts.deployment)
        self._parts, self._loop, self._store = parts, loop, parts.store
        self._caller, self._llm = caller, parts.llm

    def keep(self, text: str, now: str | None = None) -> VersionDocument:
        """As the protocol says."""
        intent = self.translate(text, now)
        with self._store.transaction():
            kept = intents.create(intent, self._store)
            self._acts.note("intent.create", kept.id, after={"text": redacted(kept.text)})
        return kept

    def intent(self, intent_id: str, version: int | None = None) -> VersionDocument:
        """As the protocol says."""
        return intents.version_of(self._store, intent_id, version)

    def amend_kept(self, intent_id: str, follow_up: VersionedFollowUp) -> VersionDocument:
        """As the protocol says."""
        kept = intents.Kept(self._store, self._deployment, self._llm)
        version = intents.follow(kept, intent_id, follow_up, self._clock(follow_up.now))
        after: Json = {"version": version.version, "text": redacted(version.text)}
        self._acts.note("intent.amend", intent_id, before={"version": version.supersedes}, after=after)
        return version

    def saved_plan(self, plan_id: str) -> PlanDocument:
        """As the protocol says."""
        saved = self._store.plan(plan_id)
        if saved is None:
            raise RefusedError(
                Code.NOT_FOUND, f"no plan {plan_id}; plans made without a service are not kept"
            )
        return saved[0]

    def apply(self, plan_id: str, acknowledge: Sequence[str] = ()) -> OperationDocument:
        """As the protocol says."""
        plan, rule = self.saved_plan(plan_id), self._deployment.approval
        consents.refuse_nobody(rule)
        known = consents.known_of(plan, self._acts)
        consent = consents.consent(plan, rule, known, self._caller, acknowledge)
        return self._in_loop(self._serving(plan.model).apply(plan_id, consent, self._acts))

    def preflight(self, plan_id: str, acknowledge: Sequence[str] = ()) -> PreflightDocument:
        """As the protocol says."""
        plan, applied_by = self._store.plan(plan_id) or (self.saved_plan(plan_id), None)
        serving = self._serving(plan.model)
        standing = preflights.Standing(
            applied_by=applied_by,
            rule=self._deployment.approval,
            known=consents.known_of(plan, self._acts),
            caller=self._caller,
            acknowledged=acknowledge,
            operation=serving.operation.id if serving.operation else None,
            streams=serving.router.num_streams,
            num_blocks=self._in_loop(serving.engine.stats()).total_blocks,
        )
        return preflights.preflight(plan, self._placed(serving.model), standing)

    def approve(self, plan_id: str, asked: ApproveRequest) -> ApprovalDocument:
        """As the protocol says."""
        plan = self.saved_plan(plan_id)
        known = consents.known_of(plan, self._acts)
        return consents.approve(plan, asked, self._deployment.approval, known, self._acts)

    def reject(self, plan_id: str, asked: RejectRequest) -> ApprovalDocument:
        """As the protocol says."""
        return consents.reject(self.saved_plan(plan_id), asked, self._acts)

    def operation(self, operation_id: str) -> OperationDocument:
        """As the protocol says."""
        under_way = [serving.operation for serving in self._parts.servings.values()]
        found = next((one for one in under_way if one and one.id == operation_id), None)
        found = found or self._store.operation(operation_id)
        if found is None:
            raise RefusedError(Code.NOT_FOUND, f"no operation {operation_id}")
        return found

    def cancel(self, operation_id: str) -> OperationDocument:
        """As the protocol says."""
        found = self.operation(operation_id)
        if found.done:
            raise refusal(found)
        return self._in_loop(self._serving(found.model).cancel(operation_id, self._acts))

    def undoable(self, operation_id: str) -> UndoDocument:
        """As the protocol says."""
        return self._undoable(operation_id)[0]

    def undo(self, operation_id: str) -> PlanAnswer:
        """As the protocol says."""
        found, place = self._undoable(operation_id)
        source = self.saved_plan(self.operation(operation_id).plan_id).now
        if not found.possible or source is None:
            raise RefusedError(Code.CANNOT_UNDO, f"{found.why}; instead: {found.instead}")
        words = f"undo {operation_id}: {targets.words_for(source.noun)}"
        return self._plan_to(source.noun, words, place, When())

    def _undoable(self, operation_id: str) -> tuple[UndoDocument, targets.Place]:
        """Whether an operation can be undone, and the place as it was then: a plan for it is for no other generation."""
        operation = self.operation(operation_id)
        plan = self.saved_plan(operation.plan_id)
        serving = self._serving(plan.model)
        under_way, place = serving.operation, self._placed(serving.model)
        window = usecases.window_of(self._deployment, When())
        known = undo.Known(
            plan=plan,
            led_to=self._store.generation_of(operation_id),
            runs=place.situation.generation,
            under_way=under_way.id if under_way else None,
        )
        barred = targets.why_not(plan.now.noun, place, window) if plan.now else ""
        return undo.undoable(operation, known, barred), place

    def watch(self) -> Iterator[Event]:
        """As the protocol says."""
        events = self._parts.events.subscribe(self._parts.events.last_id)
        while (event := self._in_loop(_next(events))) is not None:
            yield event

    def create_key(self, asked: KeyRequest) -> NewKeyDocument:
        """As the protocol says."""
        return cases.create_key(self._parts.access, self._deployment.tenants, self._caller, asked)

    def keys(self) -> KeysDocument:
        """As the protocol says."""
        return cases.keys(self._parts.access)

    def revoke_key(self, prefix: str) -> KeyDocument:
        """As the protocol says."""
        return cases.revoke_key(self._parts.access, self._caller, prefix)

    def audit(self, page: AuditPage) -> AuditDocument:
        """As the protocol says."""
        return cases.audit_page(self._parts.access, page)

    def audit_head(self) -> HeadDocument:
        """As the protocol says."""
        return cases.audit_head(self._parts.access)

    def verify_audit(self, head: str | None = None) -> VerdictDocument:
        """As the protocol says."""
        return cases.verify_audit(self._parts.access, head)

    def models(self) -> ModelsDocument:
        """As the protocol says."""
        return ModelsDocument(models=tuple(serving.state for serving in self._parts.servings.values()))

    def topology(self, model: str | None = None) -> StateDocument:
        """As the protocol says."""
        return self._serving(model).state

    def health(self) -> Health:
        """As the protocol says."""
        servings = self._parts.servings.items()
        for _, serving in servings:
            self._in_loop(serving.engine.stats())
        shapes = tuple(ModelHealth(model=name, shape=one.engine.topology.shape) for name, one in servings)
        return Health(status="ok", models=shapes)

    def _checked(self, intent: Intent, now: datetime) -> Intent:
        """A document from outside, checked again: what it says of itself counts for nothing.

        Raises:
            RefusedError: it has another form than the domain schema allows.
        """
        usecases.refuse_outside_schema(intent)
        return usecases.check(intent, self._deployment, now)

    def _settled(self, intent_id: str) -> VersionDocument:
        return intents.settled(self._store, intent_id)

    def _situation(self, model: ServedModel) -> usecases.Situation:
        return self._parts.servings[model.name].situation()

    def _profiles(self, model: ServedModel) -> Mapping[str, Profile]:
        return self._parts.profiles[model.name]

    def _serving(self, model: str | None) -> "Serving":
        return self._parts.servings[self._deployment.model(model).name]

    def _save(self, intent: Intent, plan: PlanDocument) -> None:
        before: Json = {"topology": plan.now.text if plan.now else None}
        with self._store.transaction():
            self._store.save_plan(intent, plan)
            self._acts.note("plan.create", plan.id, before=before, after={"topology": plan.target.text})

    @property
    def _acts(self) -> Acts:
        return Acts(self._parts.access, self._caller)

    def _in_loop(self, work: Coroutine[None, None, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()


async def _next(events: AsyncIterator[Event]) -> Event | None:
    return await anext(events, None)
