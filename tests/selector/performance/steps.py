"""Steps on every stage of a topology."""

from collections.abc import Mapping

from runtime.models import Cluster, ModelSpec, Topology
from selector.models import Profile
from selector.performance.perf import Step, stage_costs


def stage_times_s(
    topology: Topology, step: Step, model: ModelSpec, cluster: Cluster, profiles: Mapping[str, Profile]
) -> tuple[float, ...]:
    """Seconds each stage is busy with a step, its hop to the next stage included."""
    return tuple(cost.seconds(step) for cost in stage_costs(topology, model, cluster, profiles))
