"""A closer look at a plan: its target in the simulator, and latency against load of all that it compares."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from runtime.capabilities import Capabilities
from runtime.models import Topology
from runtime.notation import parse_topology
from selector.models import Problem, Profile
from service.deployment import Deployment
from service.errors import Code, RefusedError

Document = dict[str, Any]


def simulation(
    plan: Mapping[str, Any],
    deployment: Deployment,
    profiles: Mapping[str, Profile],
    engine: Capabilities | None,
) -> Document:
    """Percentiles of a plan's target under its window's workload, from an event-driven simulation.

    Raises:
        RefusedError: the deployment has changed since, and has no place for the target.
    """
    from selector.outlook import simulated  # here, for a service that starts need not wait for numpy

    topology = _topology(plan["target"]["text"], deployment)
    found = simulated(topology, _problem(plan, deployment, engine), profiles)
    if found is None:
        raise RefusedError(Code.INFEASIBLE, f"{plan['id']}: no request fits into {topology}")
    return {"plan_id": plan["id"], "topology": str(topology), **dataclasses.asdict(found)}


def frontiers(
    plan: Mapping[str, Any],
    deployment: Deployment,
    profiles: Mapping[str, Profile],
    engine: Capabilities | None,
) -> Document:
    """P99 TTFT and TPOT against the rate, up to saturation, of target, runner-up and today's topology.

    Raises:
        RefusedError: the deployment has changed since, and has no place for one of them.
    """
    from selector.outlook import frontier  # here, for a service that starts need not wait for numpy

    problem = _problem(plan, deployment, engine)
    runner_up = (plan.get("runner_up") or {}).get("topology")
    named = {
        "target": plan["target"],
        "runner-up": runner_up,
        "today": plan["now"] if plan["changes"] else None,
    }
    curves = [
        {"label": f"{name}: {one['shape']}", "topology": one["text"]}
        | dataclasses.asdict(frontier(_topology(one["text"], deployment), problem, profiles))
        for name, one in named.items()
        if one
    ]
    return {"plan_id": plan["id"], "rate_rps": problem.workload.rate_rps, "curves": curves}


def _topology(text: str, deployment: Deployment) -> Topology:
    spec = deployment.model.spec
    return parse_topology(text, deployment.cluster, spec.num_layers, deployment.model.precision)


def _problem(plan: Mapping[str, Any], deployment: Deployment, engine: Capabilities | None) -> Problem:
    return Problem(
        deployment.cluster,
        deployment.model.spec,
        deployment.workload_in(plan["window"]),
        None,
        deployment.limits,
        engine,
    )
