"""What an operator can do, in this process: from a deployment file alone, or with what serves it."""
# ruff: noqa: ARG002 - without a service some methods of the protocol can only refuse

import asyncio
from collections.abc import AsyncIterator, Coroutine, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING, NoReturn, TypeVar

from pydantic import JsonValue

from intent.models import Intent, LlmSettings, Outcome
from selector.models import Profile
from service import engines, intents, openslo, outlook, usecases
from service.deployment import Deployment
from service.documents.intents import (
    AmendmentDocument,
    ExportDocument,
    FollowUp,
    ImportDocument,
    VersionDocument,
    VersionedFollowUp,
)
from service.documents.operations import OperationDocument
from service.documents.plans import (
    FrontiersDocument,
    PlanAnswer,
    PlanDocument,
    PlanRequest,
    SimulationDocument,
    WishRequest,
)
from service.documents.problems import Code
from service.documents.state import Event, Health, ProfilesDocument, StateDocument
from service.errors import RefusedError
from service.profiles import load_profiles
from service.settings import llm_settings, read_settings

if TYPE_CHECKING:
    from service.composition import Composition

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
        previous = usecases.check(intent, self._deployment, now)
        return AmendmentDocument.of(intents.amend(previous, follow_up, self._deployment, now, self._llm))

    def amend_kept(self, intent_id: str, follow_up: VersionedFollowUp) -> VersionDocument:
        """Needs a service."""
        self._refuse(f"{intent_id} is kept by a service, or by nobody")

    def plan(self, asked: PlanRequest) -> PlanAnswer:
        """As the protocol says; the plan starts from the deployment's ``start`` topology."""
        intent, version = self._wished(asked, asked.now)
        if intent.outcome is Outcome.CLARIFY:
            return PlanAnswer(outcome="clarify", intent=intent, plan=None)
        made = usecases.plan(
            intent, self._deployment, self._situation(), self._profiles, asked, asked.intent_id
        )
        seen = usecases.to_acknowledge(intent)
        plan = PlanDocument.model_validate(made).model_copy(
            update={"intent_version": version if self.serves else None, "to_acknowledge": seen}
        )
        self._save(intent, plan)
        return PlanAnswer(outcome="ok", intent=intent, plan=plan)

    def saved_plan(self, plan_id: str) -> PlanDocument:
        """As the protocol says."""
        if plan_id not in self._plans:
            self._refuse(f"{plan_id} is kept by a service, or by nobody")
        return self._plans[plan_id]

    def simulation(self, plan_id: str) -> SimulationDocument:
        """As the protocol says."""
        plan = self.saved_plan(plan_id)
        return outlook.simulation(plan, self._deployment, self._profiles, self._situation().capabilities)

    def frontiers(self, plan_id: str) -> FrontiersDocument:
        """As the protocol says."""
        plan = self.saved_plan(plan_id)
        return outlook.frontiers(plan, self._deployment, self._profiles, self._situation().capabilities)

    def apply(self, plan_id: str, acknowledge: Sequence[str] = ()) -> OperationDocument:
        """Needs a service."""
        self._refuse(f"{plan_id} was not applied")

    def operation(self, operation_id: str) -> OperationDocument:
        """Needs a service."""
        self._refuse(f"{operation_id} is known to a service, or to nobody")

    def watch(self) -> Iterator[Event]:
        """Needs a service."""
        self._refuse("nothing happens here")

    def topology(self) -> StateDocument:
        """Needs a service."""
        self._refuse("nothing runs here")

    def profiles(self) -> ProfilesDocument:
        """As the protocol says."""
        return ProfilesDocument(model=self._deployment.model.spec, profiles=dict(self._profiles))

    def health(self) -> Health:
        """Needs a service."""
        self._refuse("nothing runs here")

    def export_openslo(self, wish: WishRequest) -> ExportDocument:
        """As the protocol says."""
        return openslo.exported(self._wished(wish, None)[0], self._deployment)

    def import_openslo(self, documents: Sequence[JsonValue]) -> ImportDocument:
        """As the protocol says."""
        return openslo.imported(documents, self._deployment, datetime.now(UTC))

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
        return usecases.check(intent, self._deployment, self._clock(now)), version

    def _settled(self, intent_id: str) -> VersionDocument:
        """The version of an intent that is kept which can be planned for."""
        return self.intent(intent_id)

    def _situation(self) -> usecases.Situation:
        can = engines.capabilities(self._deployment)
        return usecases.Situation(self._deployment.model.start, 0, can)

    def _save(self, intent: Intent, plan: PlanDocument) -> None:
        self._plans[plan.id] = plan

    @cached_property
    def _profiles(self) -> Mapping[str, Profile]:
        return load_profiles(self._deployment, read_settings().folder)

    @cached_property
    def _llm(self) -> LlmSettings | None:
        return llm_settings(self._deployment.llm) if self._deployment.llm else None

    def _refuse(self, what: str) -> NoReturn:
        raise RefusedError(
            Code.UNREACHABLE,
            f"{what}: no service was asked; start one (intentctl serve) or name its --server",
        )


class Served(FromFile):
    """An ``Operator`` beside the engine that it steers. Its methods block: call them from another thread than the loop's."""

    serves = True

    def __init__(self, parts: "Composition", loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(parts.serving.deployment)
        self._parts, self._loop = parts, loop
        self._store, self._serving = parts.store, parts.serving
        self._profiles, self._llm = parts.profiles, parts.llm

    def keep(self, text: str, now: str | None = None) -> VersionDocument:
        """As the protocol says."""
        return intents.create(self.translate(text, now), self._store)

    def intent(self, intent_id: str, version: int | None = None) -> VersionDocument:
        """As the protocol says."""
        return intents.version_of(self._store, intent_id, version)

    def amend_kept(self, intent_id: str, follow_up: VersionedFollowUp) -> VersionDocument:
        """As the protocol says."""
        kept = intents.Kept(self._store, self._deployment, self._llm)
        return intents.follow(kept, intent_id, follow_up, self._clock(follow_up.now))

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
        return self._in_loop(self._serving.apply(plan_id, acknowledge))

    def operation(self, operation_id: str) -> OperationDocument:
        """As the protocol says."""
        return self._in_loop(self._serving.operation(operation_id))

    def watch(self) -> Iterator[Event]:
        """As the protocol says."""
        events = self._parts.events.subscribe(self._parts.events.last_id)
        while (event := self._in_loop(_next(events))) is not None:
            yield event

    def topology(self) -> StateDocument:
        """As the protocol says."""
        return self._serving.state

    def health(self) -> Health:
        """As the protocol says."""
        self._in_loop(self._serving.engine.stats())
        return Health(
            status="ok", model=self._deployment.model.spec.name, shape=self._serving.engine.topology.shape
        )

    def _settled(self, intent_id: str) -> VersionDocument:
        return intents.settled(self._store, intent_id)

    def _situation(self) -> usecases.Situation:
        return self._serving.situation()

    def _save(self, intent: Intent, plan: PlanDocument) -> None:
        self._store.save_plan(intent, plan)

    def _in_loop(self, work: Coroutine[None, None, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()


async def _next(events: AsyncIterator[Event]) -> Event | None:
    return await anext(events, None)
