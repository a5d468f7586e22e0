"""Settings that the deployment's devices or models cannot have. Pure."""

from collections.abc import Iterator, Sequence

from intent.models import Config, Finding, Goal, Placement
from runtime.models import Cluster, ModelSpec
from validator.intervals import satisfies
from validator.models import Site
from validator.placements import everywhere
from validator.words import Words


def check(goals: Sequence[Goal], site: Site, words: Words) -> Iterator[Finding]:
    """Degrees that do not fit the devices or divide the model, each by itself."""
    rules = {"tp": _tensor_parallel, "pp": _pipeline, "replicas": _replicas}
    for number, goal in enumerate(goals):
        if isinstance(goal, Config) and goal.model in {None, *site.models}:
            for model in served(goal.model, site):
                yield from rules[goal.key](f"/goals/{number}/value", goal, site.cluster, model, words)
        elif isinstance(goal, Placement) and _nowhere(goal, site.cluster):
            yield words.finding("no_device_left", f"/goals/{number}/selector", goal)


def _nowhere(goal: Placement, cluster: Cluster) -> bool:
    return goal.rule == "forbid" and cluster.named(goal.selector) == everywhere(cluster)


def served(model: str | None, site: Site) -> list[ModelSpec]:
    """The models that a goal is about; none if its name is not known."""
    return [spec for name, spec in site.models.items() if model in {None, name}]


def degrees(cluster: Cluster, model: ModelSpec) -> list[int]:
    """TP stays on one node, on devices of one kind, and divides heads and MLP width."""
    return [tp for tp in range(1, largest_group(cluster) + 1) if _divides(tp, model)]


def largest_group(cluster: Cluster) -> int:
    """Most devices of one kind on one node."""
    return max(sum(gpu.kind == kind for gpu in node.gpus) for node in cluster.nodes for kind in cluster.kinds)


def _divides(tp: int, model: ModelSpec) -> bool:
    return not any(size % tp for size in (model.num_kv_heads, model.num_heads, model.intermediate_size))


def _tensor_parallel(
    place: str, goal: Config, cluster: Cluster, model: ModelSpec, words: Words
) -> Iterator[Finding]:
    possible = degrees(cluster, model)
    if any(satisfies(tp, goal) for tp in possible):
        return
    facts = {"value": goal.value, "model": model.name, "setting": "TP", "possible": words.listed(possible)}
    most = largest_group(cluster)
    if goal.value > most:
        yield words.finding("too_few_for_tp", place, goal, "can_be", most=most, **facts)
    else:
        yield words.finding("tp_does_not_divide", place, goal, "can_be", heads=model.num_kv_heads, **facts)


def _pipeline(
    place: str, goal: Config, cluster: Cluster, model: ModelSpec, words: Words
) -> Iterator[Finding]:
    have = len(cluster.gpus)
    most = min(model.num_layers, have)
    if goal.op == "<=" or goal.value <= most:
        return
    facts = {"value": goal.value, "model": model.name, "setting": "PP", "most": most}
    if goal.value > model.num_layers:
        yield words.finding(
            "more_stages_than_layers", place, goal, "at_most", layers=model.num_layers, **facts
        )
    else:
        yield words.finding("too_few_for_pp", place, goal, "at_most", have=have, **facts)


def _replicas(
    place: str,
    goal: Config,
    cluster: Cluster,
    model: ModelSpec,  # noqa: ARG001 - one signature for all settings
    words: Words,
) -> Iterator[Finding]:
    """Each replica has devices of its own; whether more than one can be run is the plan's to say."""
    have = len(cluster.gpus)
    if goal.op != "<=" and goal.value > have:
        facts = {"value": goal.value, "setting": words.setting(goal.key), "most": have}
        yield words.finding("too_few_for_replicas", place, goal, "at_most", have=have, **facts)
