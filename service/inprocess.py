"""What an operator can do, in this process: from a deployment file alone, or with what serves it."""
# ruff: noqa: ARG002 - what a service does with arguments, a file alone does without

from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from pydantic import JsonValue

from intent.models import Intent, LlmSettings, Outcome
from runtime.capabilities import Batching
from runtime.models import Topology
from selector.models import Plan, Profile
from service import documents as docs
from service import engines, intents, openslo, targets, usecases, verification
from service.deployment import Deployment
from service.errors import RefusedError
from service.models import ServedModel
from service.profiles import load_profiles
from service.settings import llm_settings, read_settings

if TYPE_CHECKING:
    from service.promises.agenda import ActiveGoal
    from service.promises.handlers import PlanningContext

T = TypeVar("T")


def _refuse(what: str) -> NoReturn:
    raise RefusedError(
        docs.Code.UNREACHABLE,
        f"{what}: no service was asked; start one (intentctl serve) or name its --server",
    )


def _refusing(what: str) -> Callable[..., Any]:
    """A method that needs a service. Its first argument stands in ``what`` for ``{}``."""

    def refuse(_: "FromFile", *arguments: object, **named: object) -> NoReturn:
        _refuse(what.format(*arguments, *named.values()))

    return refuse


class FromFile:
    """An ``Operator`` from a deployment file: it translates and plans.

    Nothing runs, and nothing outlives it.
    """

    serves = False

    def __init__(self, deployment: Deployment) -> None:
        self._deployment = deployment
        self._plans: dict[str, docs.PlanDocument] = {}

    def translate(self, text: str, now: str | None = None) -> Intent:
        return self._ask(usecases.translate, text, self._deployment, self._llm, self._clock(now))

    def amend(self, intent: Intent, follow_up: docs.FollowUp) -> docs.AmendmentDocument:
        now = self._clock(follow_up.now)
        amended = self._ask(intents.amend, self._checked(intent, now), follow_up, self._deployment, now, self._llm)
        return docs.AmendmentDocument.model_validate(amended)

    def plan(self, request: docs.PlanRequest) -> docs.PlanAnswer:
        """As the protocol says; the plan starts from the deployment's ``start`` topology."""
        if request.target is not None:
            place = self._placed(self._deployment.model(request.model))
            target = targets.read(request.target, place)
            return self._plan_to(target, targets.words_for(target), place, request, request.batching)
        intent, version = self._wished(request, request.now)
        if intent.outcome is Outcome.CLARIFY:
            return docs.PlanAnswer(outcome="clarify", intent=intent)
        usecases.refuse_unless_ok(intent)
        intent_id = request.intent_id or usecases.new_id("intent")
        models = usecases.concerned(intent, self._deployment, request.model)
        seen = usecases.to_acknowledge(intent)
        facts = {"intent_version": version if self.serves else None, "kind": usecases.kind_of(intent)}
        moments = self._first_said(request.intent_id, intent)
        made = list[docs.PlanDocument]()
        refused = list[docs.RefusedModel]()
        for model in models:
            try:
                made.append(self._plan(intent, model, request, intent_id, moments))
            except RefusedError as error:
                if len(models) == 1 or (why := error.problem.infeasible) is None:
                    raise
                refused.append(docs.RefusedModel(model=model.name, message=str(error), infeasible=why))
        if refused and not made:
            raise usecases.none_has_a_plan(intent, refused)
        plans = tuple(
            plan.model_copy(update={**facts, "to_acknowledge": (*seen, *plan.to_acknowledge)}).sealed() for plan in made
        )
        for plan in plans:
            self._save(intent, plan)
        return docs.PlanAnswer(outcome="ok", intent=intent, plans=plans, refused=tuple(refused))

    def saved_plan(self, plan_id: str) -> docs.PlanDocument:
        if plan_id not in self._plans:
            _refuse(f"{plan_id} is kept by a service, or by nobody")
        return self._plans[plan_id]

    def simulation(self, plan_id: str) -> docs.SimulationDocument:
        return self._looked(verification.simulation, self.saved_plan(plan_id))

    def frontiers(self, plan_id: str) -> docs.FrontiersDocument:
        return self._looked(verification.frontiers, self.saved_plan(plan_id))

    def profiles(self, model: str | None = None) -> docs.ProfilesDocument:
        served = self._deployment.model(model)
        return docs.ProfilesDocument(model=served.spec, profiles=dict(self._profiles(served)))

    def agenda(self, request: docs.AgendaRequest | docs.AgendaQuery) -> docs.AgendaDocument:
        """As the protocol says; it starts from the deployment's ``start`` topologies."""
        now = self._clock(request.now if isinstance(request, docs.AgendaRequest) else None)
        return self._here().agenda(self._promised(request, now), now, timedelta(hours=request.hours))

    def export_openslo(self, wish: docs.WishRequest) -> docs.ExportDocument:
        return openslo.exported(self._wished(wish, None)[0], self._deployment)

    def import_openslo(self, documents: Sequence[JsonValue]) -> docs.ImportDocument:
        return openslo.imported(documents, self._deployment, datetime.now(UTC))

    keep = _refusing("no intent was kept")
    intent = _refusing("{} is kept by a service, or by nobody")
    amend_kept = _refusing("{} is kept by a service, or by nobody")
    apply = _refusing("{} was not applied")
    preflight = _refusing("{} cannot be applied here")
    standing = _refusing("{} is kept by a service, or by nobody")
    approvals = _refusing("nothing is kept here")
    approve = _refusing("{} was not approved")
    reject = _refusing("{} was not rejected")
    operation = _refusing("{} is known to a service, or to nobody")
    cancel = _refusing("{} was not cancelled")
    undoable = _refusing("{} is known to a service, or to nobody")
    undo = _refusing("{} is known to a service, or to nobody")
    watch = _refusing("nothing happens here")
    intents = _refusing("nothing is kept here")
    plans = _refusing("nothing is kept here")
    operations = _refusing("nothing is kept here")
    models = _refusing("nothing runs here")
    topology = _refusing("nothing runs here")
    devices = _refusing("nothing runs here")
    take_out = _refusing("device {} was not taken out")
    take_in = _refusing("device {} was not taken in")
    me = _refusing("there are no keys here")
    create_key = _refusing("no key was made")
    keys = _refusing("there are no keys here")
    revoke_key = _refusing("{} was not revoked")
    audit = _refusing("there is no audit here")
    audit_head = _refusing("there is no audit here")
    verify_audit = _refusing("there is no audit here")
    activate = _refusing("{} was not activated")
    retire = _refusing("{} was not retired")
    promises = _refusing("nothing is promised here")
    control = _refusing("there is no controller here")
    set_control = _refusing("there is no controller here")
    load = _refusing("nothing runs here")
    recent_load = _refusing("nothing runs here")
    load_history = _refusing("nothing runs here")
    report = _refusing("nothing is promised here")

    def _promised(self, request: docs.AgendaRequest | docs.AgendaQuery, now: datetime) -> "list[ActiveGoal]":
        """What is promised, and a wish beside it."""
        from service.promises.handlers import seen_with  # here, for words alone need not wait for numpy

        beside = self._active()
        if isinstance(request, docs.AgendaQuery):
            return beside
        intent, _ = self._wished(request, request.now)
        moments = self._first_said(request.intent_id, intent) or [now] * len(intent.goals)
        others = [goal for goal in beside if goal.intent_id not in {request.intent_id, *request.replace}]
        return seen_with(request.intent_id or "this", intent, moments, others, self._here())

    def _active(self) -> "list[ActiveGoal]":
        """What is promised already."""
        return []

    def _here(self) -> "PlanningContext":
        """What is planned for, and who plans."""
        from service.promises.handlers import PlanningContext
        from service.promises.planner import Planner

        models = self._deployment.models
        planners = {model.name: Planner(self._deployment, model, self._profiles(model)) for model in models}
        return PlanningContext(self._deployment, planners, {model.name: self._situation(model) for model in models})

    def _plan(
        self,
        intent: Intent,
        model: ServedModel,
        request: docs.PlanRequest,
        intent_id: str,
        moments: Sequence[datetime],
    ) -> docs.PlanDocument:
        place = self._placed(model)

        def found(intent: Intent, when: docs.When, moments: Sequence[datetime]) -> Plan:
            return self._do(
                usecases.plan,
                intent,
                self._deployment,
                model,
                place.situation,
                place.profiles,
                when,
                intent_id,
                moments,
            )

        made = found(intent, request, moments)
        document, promised = self._held_against_promises(made, place, request)
        others = [goal for goal in promised if goal.intent_id != intent_id]
        if not document.to_acknowledge or not others:
            return document
        together = replace(intent, goals=(*intent.goals, *(goal.goal for goal in others)))
        begun = [*(moments or [self._clock(request.now)] * len(intent.goals)), *(goal.said for goal in others)]
        with suppress(RefusedError):  # or nothing keeps the promises as well
            made = found(together, request.model_copy(update={"window": made.window}), begun)
            beside, _ = self._held_against_promises(made, place, request)
            kept = f"chosen among what keeps what is promised, too ({'; '.join(beside.promised)})"
            if not beside.to_acknowledge:
                return beside.model_copy(update={"reasons": (*beside.reasons, kept)})
        return document

    def _plan_to(
        self,
        target: Topology,
        words: str,
        place: targets.ModelContext,
        when: docs.When,
        batching: Batching | None = None,
    ) -> docs.PlanAnswer:
        """The plan to a topology that is named, kept."""
        intent, made = self._do(targets.planned, target, words, place, when, batching)
        facts = {"intent_version": 1 if self.serves else None, "kind": "act"}
        plan = self._held_against_promises(made, place, when)[0].model_copy(update=facts).sealed()
        self._save(intent, plan)
        return docs.PlanAnswer(outcome="ok", intent=intent, plans=(plan,))

    def _held_against_promises(
        self, made: Plan, place: targets.ModelContext, when: docs.When
    ) -> "tuple[docs.PlanDocument, list[ActiveGoal]]":
        """A plan's document with what it breaks of what is promised for its time, and that."""
        document = docs.PlanDocument.model_validate(made)
        if not (active := self._active()):
            return document, []
        from service.promises import limits  # here, for words alone need not wait for numpy

        then = usecases.time_of(made.window, self._deployment, when, self._clock(when.now))
        promised = [goal for goal in limits.binding(active, made.model) if then.holds(goal.goal.window, goal.said)]
        return limits.held_against(document, made, place.problem(made.window), promised), promised

    def _placed(self, model: ServedModel) -> targets.ModelContext:
        return targets.ModelContext(self._deployment, model, self._situation(model), self._profiles(model))

    def _clock(self, text: str | None) -> datetime:
        return usecases.clock(text, self._deployment)

    def _wished(self, wish: docs.WishRequest, now: str | None) -> tuple[Intent, int]:
        """The checked intent of a wish, and its version where it is kept."""
        if wish.text is not None:
            return self.translate(wish.text, now), 1
        if wish.intent_id is not None:
            kept: docs.VersionDocument = self._settled(wish.intent_id)
            return self._checked(kept.intent, self._clock(now)), kept.version
        assert wish.intent is not None, "a wish is words, a document or an id"
        return self._checked(wish.intent, self._clock(now)), 1

    def _checked(self, intent: Intent, now: datetime) -> Intent:
        """A document from outside, checked again: what it says of itself counts for nothing.

        Raises:
            RefusedError: it has another form than the domain schema allows.
        """
        usecases.refuse_outside_schema(intent)
        return usecases.check(intent, self._deployment, now)

    _settled = _refusing("{} is kept by a service, or by nobody")
    """The version of an intent that is kept which can be planned for."""

    def _first_said(self, intent_id: str | None, intent: Intent) -> Sequence[datetime]:
        """When each goal was said; nothing: just now."""
        return ()

    def _situation(self, model: ServedModel) -> usecases.Situation:
        return usecases.Situation(model.start, 0, engines.capabilities(model))

    def _save(self, intent: Intent, plan: docs.PlanDocument) -> None:
        self._plans[plan.id] = plan

    def _ask(self, work: Callable[..., T], *arguments: object) -> T:
        """What a function that reads words returns."""
        return work(*arguments)

    def _do(self, work: Callable[..., T], *arguments: object, once: Hashable = None) -> T:
        """What a function that plans returns. ``once`` names work whose answer stays right."""
        return work(*arguments)

    def _looked(self, look: Callable[..., T], plan: docs.PlanDocument) -> T:
        """A closer look at a plan: at its model, with what is known of its devices and its engine."""
        model = self._deployment.model(plan.model)
        engine = self._situation(model).capabilities
        return self._do(
            look,
            plan,
            self._deployment.limits,
            model,
            dict(self._profiles(model)),
            engine,
            once=(look, plan.id, engine),
        )

    def _profiles(self, model: ServedModel) -> Mapping[str, Profile]:
        return load_profiles(self._deployment, model, read_settings().folder)

    @cached_property
    def _llm(self) -> LlmSettings | None:
        return llm_settings(self._deployment.llm, read_settings()) if self._deployment.llm else None
