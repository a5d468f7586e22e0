"""A plan for a wish, or to a topology that is named, held against what is promised."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Literal

from intent.models import Intent, Outcome
from runtime.capabilities import Batching
from runtime.models import Topology
from selector.models import Plan
from service import documents as docs
from service.deployment.models import ServedModel
from service.deployment.profiles import crowded
from service.documents.errors import RefusedError
from service.documents.plans import sealed
from service.planning import lifecycle, targets

if TYPE_CHECKING:
    from service.api.context import Context
    from service.promises.agenda import ActiveGoal


def make(here: "Context", request: docs.PlanRequest) -> docs.PlanAnswer:
    """The best topology of each model that a wish is about, and the models for which there is none.

    Nothing where a question has to be answered first.

    Raises:
        RefusedError: the wish cannot be planned for, or no model has a plan.
    """
    if request.target is not None:
        place = here.placed(here.deployment.model(request.model))
        target = targets.read(request.target, place)
        return make_for(here, target, targets.words_for(target), place, request, request.batching)
    intent, version = here.wished(request, request.now)
    if intent.outcome is Outcome.CLARIFY:
        return docs.PlanAnswer(outcome="clarify", intent=intent)
    lifecycle.refuse_unless_ok(intent)
    models = lifecycle.concerned(intent, here.deployment, request.model)
    wish = _Wish(here, request, intent, request.intent_id or lifecycle.new_id("intent"))
    made = list[Plan]()
    refused = list[docs.RefusedModel]()
    for model in models:
        try:
            made.append(wish.plan(model))
        except RefusedError as error:
            if len(models) == 1 or (why := error.problem.infeasible) is None:
                raise
            refused.append(docs.RefusedModel(model=model.name, message=str(error), infeasible=why))
    if refused and not made:
        raise lifecycle.none_has_a_plan(intent, refused)
    seen = lifecycle.to_acknowledge(intent)
    kept = here.version_kept(version)
    kind = lifecycle.kind_of(intent)
    plans = tuple(
        sealed(replace(plan, intent_version=kept, kind=kind, to_acknowledge=(*seen, *plan.to_acknowledge)))
        for plan in made
    )
    for plan in plans:
        here.keep_plan(intent, plan)
    return docs.PlanAnswer(outcome="ok", intent=intent, plans=plans, refused=tuple(refused))


def make_for(
    here: "Context",
    target: Topology,
    words: str,
    place: targets.ModelContext,
    when: docs.When,
    batching: Batching | None = None,
    kind: Literal["act", "promise"] = "act",
) -> docs.PlanAnswer:
    """The plan to a topology that is named; the controller leaves alone what an act applied.

    Raises:
        RefusedError: it cannot run.
    """
    intent, made = here.compute(targets.planned, target, words, place, when, batching)
    held, _ = _held_against_promises(here, made, place, when)
    plan = sealed(replace(held, intent_version=here.version_kept(1), kind=kind))
    here.keep_plan(intent, plan)
    return docs.PlanAnswer(outcome="ok", intent=intent, plans=(plan,))


class _Wish:
    """A checked intent, planned for model by model."""

    def __init__(self, here: "Context", request: docs.PlanRequest, intent: Intent, intent_id: str) -> None:
        self._here = here
        self._request = request
        self._intent = intent
        self._intent_id = intent_id
        self._moments = here.first_said(request.intent_id, intent)

    def plan(self, model: ServedModel) -> Plan:
        """What serves the wish best; where something else that is promised would break, what serves both."""
        place = self._here.placed(model)
        made = self._found(place, self._intent, self._request, self._moments)
        document, promised = _held_against_promises(self._here, made, place, self._request)
        others = [goal for goal in promised if goal.intent_id != self._intent_id]
        if not document.to_acknowledge or not others:
            return document
        together = replace(self._intent, goals=(*self._intent.goals, *(goal.goal for goal in others)))
        now = self._here.clock(self._request.now)
        begun = [*(self._moments or [now] * len(self._intent.goals)), *(goal.said for goal in others)]
        with suppress(RefusedError):  # or nothing keeps the promises as well
            made = self._found(place, together, self._request.model_copy(update={"window": made.window}), begun)
            beside, _ = _held_against_promises(self._here, made, place, self._request)
            kept = f"chosen among what keeps what is promised, too ({'; '.join(beside.promised)})"
            if not beside.to_acknowledge:
                return replace(beside, reasons=(*beside.reasons, kept))
        return document

    def _found(self, place: targets.ModelContext, intent: Intent, when: docs.When, moments: Sequence[datetime]) -> Plan:
        return self._here.compute(
            lifecycle.plan,
            intent,
            place.deployment,
            place.model,
            place.situation,
            place.profiles,
            when,
            self._intent_id,
            moments,
        )


def _held_against_promises(
    here: "Context", made: Plan, place: targets.ModelContext, when: docs.When
) -> "tuple[Plan, list[ActiveGoal]]":
    """A plan with what it breaks of what is promised for its time, and that.

    It says where nothing can be predicted.
    """
    if why := crowded(here.deployment, made.target.devices):
        made = replace(made, reasons=(*made.reasons, why))
    if not (active := here.promised()):
        return made, []
    from service.promises import limits  # here, for words alone need not wait for numpy

    then = lifecycle.time_of(made.window, here.deployment, when, here.clock(when.now))
    promised = [goal for goal in limits.binding(active, made.model) if then.holds(goal.goal.window, goal.said)]
    return limits.held_against(made, place.problem(made.window), promised), promised
