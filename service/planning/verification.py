"""A closer look at a plan.

Its target in the simulator, and latency against load of all that it compares.
"""

from collections.abc import Mapping

from runtime.capabilities import Batching, Capabilities, Limits
from runtime.errors import TopologyError
from runtime.models import Topology
from selector.models import Frontier, Plan, Profile, SearchInput, Simulation
from service import documents as docs
from service.deployment.models import ServedModel
from service.documents.errors import RefusedError


def simulation(
    plan: Plan,
    limits: Limits,
    model: ServedModel,
    profiles: Mapping[str, Profile],
    engine: Capabilities | None,
) -> Simulation:
    """What a plan's target is predicted to do under its window's workload now, which a simulation says.

    Raises:
        RefusedError: the deployment has changed since, and has no place for the target.
    """
    from selector.prediction import outcome  # here, for a service that starts need not wait for numpy

    topology = _topology(plan.target, plan, model)
    found = outcome(topology, model.problem(plan.window, limits, None, engine), profiles, plan.batching)
    if found is None:
        raise RefusedError(docs.Code.INFEASIBLE, f"{plan.id}: no request fits into {topology}")
    return Simulation(
        plan_id=plan.id,
        topology=str(topology),
        requests=found.requests,
        waits_grow=found.waits_grow,
        ttft_s=found.ttft_s,
        tpot_s=found.tpot_s,
        e2e_s=found.e2e_s,
    )


def frontiers(
    plan: Plan,
    limits: Limits,
    model: ServedModel,
    profiles: Mapping[str, Profile],
    engine: Capabilities | None,
) -> docs.FrontiersDocument:
    """P99 TTFT and TPOT against the rate, up to saturation, of target, runner-up and today's topology.

    Raises:
        RefusedError: the deployment has changed since, and has no place for one of them.
    """
    problem = model.problem(plan.window, limits, None, engine)
    named = {
        "target": (plan.target, plan.batching),
        "runner-up": (plan.runner_up.topology, plan.runner_up.batching) if plan.runner_up else None,
        "today": (plan.now, plan.now_batching) if plan.now and plan.changes else None,
    }
    curves = tuple(
        _frontier(f"{name}: {place[0].shape}", (_topology(place[0], plan, model), place[1]), problem, profiles)
        for name, place in named.items()
        if place
    )
    return docs.FrontiersDocument(plan_id=plan.id, rate_rps=problem.workload.rate_rps, curves=curves)


def _frontier(
    label: str, place: tuple[Topology, Batching | None], problem: SearchInput, profiles: Mapping[str, Profile]
) -> Frontier:
    from selector.prediction import frontier  # here, as above

    topology, steps = place
    return frontier(label, topology, problem, profiles, steps)


def _topology(topology: Topology, plan: Plan, model: ServedModel) -> Topology:
    try:
        topology.check(model.cluster, model.spec)
    except TopologyError as error:
        raise RefusedError(docs.Code.STALE_PLAN, f"{plan.id}: {error}; make a new plan") from error
    return topology
