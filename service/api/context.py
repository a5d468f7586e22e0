"""Where an operation runs: a deployment file alone, or beside the engines of a service."""
# ruff: noqa: ARG002 - what a service does with arguments, a file alone does without

import asyncio
from collections.abc import Callable, Coroutine, Hashable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Concatenate, NoReturn, ParamSpec, TypeVar

from intent.models import Intent, LlmSettings
from selector.models import Plan, Profile
from service import documents as docs
from service.deployment import engines
from service.deployment.file import Deployment
from service.deployment.models import ServedModel
from service.deployment.profiles import fitted, load_profiles
from service.deployment.settings import llm_settings, read_settings
from service.documents.access import Caller
from service.documents.errors import RefusedError
from service.planning import lifecycle, targets

if TYPE_CHECKING:
    from service.control.composition import Composition
    from service.promises.agenda import ActiveGoal
    from service.promises.handlers import PlanningContext
    from service.serving.serving import Serving

P = ParamSpec("P")
T = TypeVar("T")


class Context:
    """A deployment file alone: words are read and plans made. Nothing runs, and nothing outlives it."""

    def __init__(self, deployment: Deployment) -> None:
        self.deployment = deployment
        self._plans: dict[str, Plan] = {}

    @property
    def service(self) -> "ServiceContext":
        """What runs here.

        Raises:
            RefusedError: nothing does.
        """
        self._refuse("this needs a service that runs")

    def _refuse(self, what: str) -> NoReturn:
        how = "no service was asked; start one (intentctl serve) or name its --server"
        raise RefusedError(docs.Code.UNREACHABLE, f"{what}: {how}")

    @cached_property
    def llm(self) -> LlmSettings | None:
        """What reads words beside the rules, if anything does."""
        return llm_settings(self.deployment.llm, read_settings()) if self.deployment.llm else None

    def clock(self, text: str | None) -> datetime:
        """The moment that counts as now.

        Raises:
            RefusedError: what was said is no moment.
        """
        return lifecycle.clock(text, self.deployment)

    def translated(self, text: str, now: str | None) -> Intent:
        """Words as a checked intent."""
        return self.read(lifecycle.translate, text, self.deployment, self.llm, self.clock(now))

    def checked(self, intent: Intent, now: datetime) -> Intent:
        """A document from outside, checked again: what it says of itself counts for nothing.

        Raises:
            RefusedError: it has another form than the domain schema allows.
        """
        found = lifecycle.check(intent, self.deployment, now)
        lifecycle.refuse_outside_schema(found)
        return found

    def wished(self, wish: docs.WishRequest, now: str | None) -> tuple[Intent, int]:
        """The checked intent of a wish, and its version where it is kept."""
        if wish.text is not None:
            return self.translated(wish.text, now), 1
        if wish.intent_id is not None:
            kept = self.settled(wish.intent_id)
            return self.checked(kept.intent, self.clock(now)), kept.version
        assert wish.intent is not None, "a wish is words, a document or an id"
        return self.checked(wish.intent, self.clock(now)), 1

    def settled(self, intent_id: str) -> docs.VersionDocument:
        """The version of an intent that is kept which can be planned for.

        Raises:
            RefusedError: there is none.
        """
        self._refuse(f"{intent_id} is kept by a service, or by nobody")

    def first_said(self, intent_id: str | None, intent: Intent) -> Sequence[datetime]:
        """When each goal was said; nothing: just now."""
        return ()

    def saved_plan(self, plan_id: str) -> Plan:
        """A plan made before.

        Raises:
            RefusedError: there is none.
        """
        if plan_id not in self._plans:
            self._refuse(f"{plan_id} is kept by a service, or by nobody")
        return self._plans[plan_id]

    def keep_plan(self, intent: Intent, plan: Plan) -> None:
        """Find a plan again later."""
        self._plans[plan.id] = plan

    def version_kept(self, version: int) -> int | None:
        """The version of an intent that a plan says it is for: none where nothing is kept."""
        return None

    def promised(self) -> "list[ActiveGoal]":
        """What is kept from now on already."""
        return []

    def planning_context(self) -> "PlanningContext":
        """What is planned for, and who plans."""
        from service.promises.handlers import PlanningContext  # here, for words alone need not wait for numpy
        from service.promises.planner import Planner

        models = self.deployment.models
        places = map(self.placed, models)
        planners = {each.model.name: Planner(self.deployment, each.model, each.profiles) for each in places}
        situations = {model.name: self.situation(model) for model in models}
        return PlanningContext(self.deployment, planners, situations, self.deployment.mode)

    def placed(self, model: ServedModel) -> targets.ModelContext:
        """A model where it is served."""
        profiles = self.profiles(model)
        known = fitted(model, profiles, read_settings().folder)
        return targets.ModelContext(self.deployment, known, self.situation(model), profiles)

    def situation(self, model: ServedModel) -> lifecycle.Situation:
        """What runs of a model: the deployment's ``start`` topology."""
        return lifecycle.Situation(model.start, 0, engines.capabilities(model))

    def profiles(self, model: ServedModel) -> Mapping[str, Profile]:
        """What is known of a model's devices."""
        return load_profiles(self.deployment, model, read_settings().folder)

    def looked(self, look: Callable[..., T], plan: Plan) -> T:
        """A closer look at a plan: at its model, with what is known of its devices and its engine."""
        model = self.deployment.model(plan.model)
        engine = self.situation(model).capabilities
        profiles = dict(self.profiles(model))
        once = (look, plan.id, engine)
        return self.compute(look, plan, self.deployment.limits, model, profiles, engine, once=once)

    def read(self, work: Callable[..., T], *arguments: object) -> T:
        """What a function that reads words returns."""
        return work(*arguments)

    def compute(self, work: Callable[..., T], *arguments: object, once: Hashable = None) -> T:
        """What a function that plans returns. ``once`` names work whose answer stays right."""
        return work(*arguments)

    @property
    def turn(self) -> AbstractContextManager[None]:
        """The caller's turn to have something planned."""
        return nullcontext()


class ServiceContext(Context):
    """A service that runs. Its methods block: call them from another thread than the loop's."""

    def __init__(self, parts: "Composition", loop: "asyncio.AbstractEventLoop", caller: Caller) -> None:
        """``caller`` is on whose behalf it acts, and who stands in the audit."""
        from service.access.wiring import Acts  # here, as above

        super().__init__(parts.deployment)
        self.parts = parts
        self.store = parts.store
        self.caller = caller
        self.acts = Acts(parts.access, caller)
        self.llm = parts.llm
        self._loop = loop

    @property
    def service(self) -> "ServiceContext":
        """This."""
        return self

    def serving(self, model: str | None) -> "Serving":
        """What serves a model, which need not be named where there is one.

        Raises:
            RefusedError: there is none of that name.
        """
        return self.parts.servings[self.deployment.model(model).name]

    def operation(self, operation_id: str) -> docs.OperationDocument:
        """How far a switch has come.

        Raises:
            RefusedError: there was none.
        """
        under_way = [serving.operation for serving in self.parts.servings.values()]
        found = next((operation for operation in under_way if operation and operation.id == operation_id), None)
        found = found or self.store.operation(operation_id)
        if found is None:
            raise RefusedError(docs.Code.NOT_FOUND, f"no operation {operation_id}")
        return found

    def in_loop(self, work: Coroutine[None, None, T]) -> T:
        """What is done in the event loop, waited for."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def soon(self, act: Callable[..., object], *arguments: object) -> None:
        """Have the event loop do something, without waiting for it."""
        self._loop.call_soon_threadsafe(act, *arguments)

    def publish(self, kind: docs.Kind, document: docs.Happened) -> None:
        """Tell those who listen."""
        self.soon(self.parts.events.publish, kind, document)

    def promised_anew(self, promise: docs.PromiseDocument) -> None:
        """Tell of a promise, and have the loops look."""
        self.soon(self.parts.promises.wake)
        self.publish("promise", promise)

    def keep_version(self, version: docs.VersionDocument) -> bool:
        """Keep the next version of an intent; False if somebody else has made it."""
        from service.access.keys import redacted

        after: docs.Json = {"version": version.version, "text": redacted(version.text)}
        with self.store.transaction():
            is_next = self.store.save_amendment(version)
            if is_next:
                self.acts.note("intent.amend", version.id, before={"version": version.supersedes}, after=after)
        return is_next

    def settled(self, intent_id: str) -> docs.VersionDocument:
        """See ``Context``."""
        from service.planning import intents

        return intents.settled(self.store, intent_id)

    def first_said(self, intent_id: str | None, intent: Intent) -> Sequence[datetime]:
        """See ``Context``."""
        from service.planning import intents

        return intents.first_said(self.store, intent_id, intent.goals) if intent_id else ()

    def saved_plan(self, plan_id: str) -> Plan:
        """See ``Context``."""
        return self.store.saved_plan(plan_id)

    def keep_plan(self, intent: Intent, plan: Plan) -> None:
        """See ``Context``."""
        self.acts.keep_plan(intent, plan, before={"topology": plan.now.text if plan.now else None})

    def version_kept(self, version: int) -> int | None:
        """See ``Context``."""
        return version

    def promised(self) -> "list[ActiveGoal]":
        """See ``Context``."""
        return list(self.parts.promises.active.promised)

    def planning_context(self) -> "PlanningContext":
        """See ``Context``."""
        return self.parts.promises.here()

    def situation(self, model: ServedModel) -> lifecycle.Situation:
        """See ``Context``."""
        return self.parts.servings[model.name].situation()

    def profiles(self, model: ServedModel) -> Mapping[str, Profile]:
        """See ``Context``."""
        return self.parts.profiles[model.name]

    def read(self, work: Callable[..., T], *arguments: object) -> T:
        """See ``Context``; in a process of its own."""
        return self.parts.reading.do(work, *arguments)

    def compute(self, work: Callable[..., T], *arguments: object, once: Hashable = None) -> T:
        """See ``Context``; in a process of its own."""
        with self.turn:
            return self.parts.planning.do(work, *arguments, once=once)

    @property
    def turn(self) -> AbstractContextManager[None]:
        """See ``Context``."""
        return self.parts.planning.turn(self.caller.key or self.caller.name)


class Offline:
    """Carries operations out in this process, from a deployment file alone: an ``Api``."""

    serves = False

    def __init__(self, deployment: Deployment) -> None:
        self.context = Context(deployment)

    def __call__(self, function: Callable[Concatenate[Context, P], T], /, *arguments: P.args, **named: P.kwargs) -> T:
        """See ``Api``."""
        return function(self.context, *arguments, **named)
