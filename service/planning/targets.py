"""Plans to a topology that somebody named, where others are searched for (docs/decisions/0032)."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from intent.models import Intent, TranslatorInfo
from runtime.capabilities import Batching
from runtime.errors import SwitchError, TopologyError
from runtime.models import Topology
from runtime.notation import parse_topology
from selector.models import Plan, PlanRef, Profile, SearchInput
from service.deployment.engine_settings import unfit_stages
from service.deployment.file import Deployment
from service.deployment.models import ServedModel, refuse_impossible
from service.documents.errors import RefusedError
from service.documents.plans import When
from service.documents.problems import Code, Detail
from service.planning.lifecycle import Situation, new_id, window_of


@dataclass(frozen=True, slots=True)
class ModelContext:
    """A model where it is served: what runs of it, on devices of which something is known."""

    deployment: Deployment
    model: ServedModel
    situation: Situation
    profiles: Mapping[str, Profile]

    def problem(self, window: str) -> SearchInput:
        """What a search in a window is given."""
        situation = self.situation
        return self.model.problem(window, self.deployment.limits, situation.topology, situation.capabilities)


def read(text: str, place: ModelContext) -> Topology:
    """The topology that a text names on the devices of a model.

    Raises:
        RefusedError: it cannot be read, or there are no such devices or layers.
    """
    model = place.model
    try:
        topology = parse_topology(text, model.cluster, model.spec.num_layers, model.precision)
        topology.check(model.cluster, model.spec)
    except TopologyError as error:
        message = f"target: {error}"
        raise RefusedError(Code.INVALID_REQUEST, message, [Detail("/target", str(error), "no_topology")]) from None
    return topology


def target_blocker(target: Topology, place: ModelContext, window: str) -> str:
    """Why the deployment, its devices or its engine do not run a topology in a window, or nothing."""
    from selector.space import load_free_blocker, no_room, weights_of  # here: a start need not wait for numpy
    from selector.switching import way

    model = place.model
    try:
        refuse_impossible(target, model.spec, model.cluster, model.engine.block_tokens)
    except TopologyError as error:
        return str(error)
    if wrong := unfit_stages(model.engine, target):
        return wrong
    problem = place.problem(window)
    why = (
        load_free_blocker(target, problem, weights_of(target))
        or no_room(target, replace(problem, now=None))
        or ("" if way(target, problem) else "an engine of its kind does not fit there, even alone")
    )
    return why and f"{target}: {why}"


def planned(
    target: Topology, words: str, place: ModelContext, when: When, batching: Batching | None = None
) -> tuple[Intent, Plan]:
    """A plan to exactly this topology, and the intent that stands for the words.

    Steps are filled as far as ``batching`` says, or as they are.

    Raises:
        RefusedError: memory, the deployment's limits or the engine say no, each by name.
    """
    from selector.planning import named  # here, as above

    window = window_of(place.deployment, when)
    if why := target_blocker(target, place, window):
        raise _refused(why)
    ticket = PlanRef(new_id("plan"), new_id("intent"), place.situation.generation, window)
    problem = place.problem(window)
    try:
        if batching and problem.capabilities:
            problem.capabilities.accept(batching)
        plan = named(target, problem, place.profiles, ticket, batching or problem.running)
    except (SwitchError, TopologyError) as error:
        raise _refused(str(error)) from None
    readback = f"Run {place.model.name} as {target}{f' with {batching}' if batching else ''}."
    return Intent(words, "en", (), TranslatorInfo("rules"), readback=readback), plan


def _refused(why: str) -> RefusedError:
    message = f"{why}; name another, or say what it must do: intentctl plan TEXT"
    return RefusedError(Code.INFEASIBLE, message, [Detail("/target", why, "topology_refused")])


def words_for(target: Topology) -> str:
    """What somebody who names a topology has said."""
    return f"run it as {target}"
