"""JSON forms of plans, refusals, topologies and reports: what the API and ``-o json`` show. Pure."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from runtime.models import Cluster, CutoverReport, ModelSpec, Topology
from selector.models import Candidate, Infeasible, Plan, Profile


def topology_document(topology: Topology | None) -> dict[str, Any] | None:
    """A topology in text form, its shape for people, and its devices."""
    if topology is None:
        return None
    return {"text": str(topology), "shape": topology.shape, "devices": list(topology.devices)}


def plan_document(plan: Plan) -> dict[str, Any]:
    """A plan; ``changes`` is False when the target is what runs."""
    document: dict[str, Any] = _finite(dataclasses.asdict(plan))
    document["now"] = topology_document(plan.now)
    document["target"] = topology_document(plan.target)
    document["replicas"] = [topology_document(one) for one in plan.replicas]
    document["runner_up"] = _candidate(plan.runner_up)
    document["changes"] = plan.now is None or str(plan.now) != str(plan.target)
    return document


def infeasible_document(infeasible: Infeasible) -> dict[str, Any]:
    """Why nothing holds, and what comes closest."""
    document: dict[str, Any] = _finite(dataclasses.asdict(infeasible))
    document["nearest"] = _candidate(infeasible.nearest)
    return document


def report_document(report: CutoverReport) -> dict[str, Any]:
    """What a switch did; times in seconds or milliseconds as named."""
    return dataclasses.asdict(report)


def inventory_document(cluster: Cluster) -> list[dict[str, Any]]:
    """The devices by node."""
    return [
        {"name": node.name, "link": node.link.kind, "gpus": [dataclasses.asdict(gpu) for gpu in node.gpus]}
        for node in cluster.nodes
    ]


def profiles_document(model: ModelSpec, profiles: Mapping[str, Profile]) -> dict[str, Any]:
    """What predictions are made from."""
    return {
        "model": dataclasses.asdict(model),
        "profiles": {kind: profile.to_mapping() for kind, profile in profiles.items()},
    }


def _candidate(candidate: Candidate | None) -> dict[str, Any] | None:
    if candidate is None:
        return None
    return {
        "topology": topology_document(candidate.topology),
        "replicas": [topology_document(one) for one in candidate.replicas],
        "prediction": _finite(dataclasses.asdict(candidate.prediction)),
        "reason": candidate.reason,
    }


def _finite(value: Any) -> Any:
    """Plain data without what JSON has no word for: a latency without end is null."""
    match value:
        case dict():
            return {key: _finite(item) for key, item in value.items()}
        case list() | tuple():
            return [_finite(item) for item in value]
        case float():
            return value if math.isfinite(value) else None
    return value
