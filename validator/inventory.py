"""Wishes that the deployment's devices or models cannot meet. Pure."""

from collections.abc import Iterator, Mapping, Sequence

from intent.models import Config, Finding, Goal
from runtime.models import Cluster, ModelSpec
from validator.intervals import devices_asked, satisfies


def check(goals: Sequence[Goal], cluster: Cluster, models: Mapping[str, ModelSpec]) -> Iterator[Finding]:
    """Degrees that do not fit the devices or divide the model, and more devices than there are."""
    for number, goal in enumerate(goals):
        named = getattr(goal, "model", None)
        if named is not None and named not in models:
            words = f"{named!r} is not served here; models are {', '.join(models)}"
            yield Finding("unknown_model", f"/goals/{number}/model", words, goal.evidence)
        elif isinstance(goal, Config):
            served = [models[named]] if named else list(models.values())
            yield from _setting(number, goal, cluster, served)
    yield from _devices(goals, cluster)


def _setting(number: int, goal: Config, cluster: Cluster, models: Sequence[ModelSpec]) -> Iterator[Finding]:
    rules = {"tp": _tensor_parallel, "pp": _pipeline, "replicas": _replicas}
    for model in models:
        if problem := rules[goal.key](goal, cluster, model):
            code, message, suggestion = problem
            yield Finding(code, f"/goals/{number}/value", message, goal.evidence, suggestion)


_Problem = tuple[str, str, str | None]


def _tensor_parallel(goal: Config, cluster: Cluster, model: ModelSpec) -> _Problem | None:
    """TP stays on one node, on devices of one kind, and divides heads and MLP width."""
    most = max(sum(gpu.kind == kind for gpu in node.gpus) for node in cluster.nodes for kind in cluster.kinds)
    divides = [tp for tp in range(1, model.num_kv_heads + 1) if _divides(tp, model)]
    possible = [tp for tp in divides if tp <= most]
    if any(satisfies(tp, goal) for tp in possible):
        return None
    suggestion = f"TP can be {', '.join(map(str, possible))}" if possible else None
    if goal.value > most:
        words = f"TP {goal.value} needs {goal.value} devices of one kind on one node; the largest such group has {most}"
        return "too_few_devices", words, suggestion
    words = f"TP {goal.value} does not divide the {model.num_kv_heads} KV heads and the MLP of {model.name}"
    return "tp_does_not_divide", words, suggestion


def _divides(tp: int, model: ModelSpec) -> bool:
    return not any(size % tp for size in (model.num_kv_heads, model.num_heads, model.intermediate_size))


def _pipeline(goal: Config, cluster: Cluster, model: ModelSpec) -> _Problem | None:
    if goal.op == "<=" or goal.value <= min(model.num_layers, len(cluster.gpus)):
        return None
    if goal.value > model.num_layers:
        words = (
            f"PP {goal.value} needs at least one layer per stage; {model.name} has {model.num_layers} layers"
        )
        return "more_stages_than_layers", words, f"PP can be up to {min(model.num_layers, len(cluster.gpus))}"
    words = f"PP {goal.value} needs {goal.value} devices; the inventory has {len(cluster.gpus)}"
    return "too_few_devices", words, f"PP can be up to {len(cluster.gpus)}"


def _replicas(goal: Config, cluster: Cluster, model: ModelSpec) -> _Problem | None:  # noqa: ARG001 - one signature for all settings
    if satisfies(1, goal):
        return None
    return (
        "replicas_unsupported",
        f"{goal.value} replicas are asked for; this version serves one per model",
        None,
    )


def _devices(goals: Sequence[Goal], cluster: Cluster) -> Iterator[Finding]:
    """More devices in all than there are; a single setting that is too large is reported as such."""
    have = len(cluster.gpus)
    for number, asked in devices_asked(goals):
        goal = goals[number]
        alone = goal.value if isinstance(goal, Config) else 0
        if asked > have >= alone:
            words = f"{asked} devices are asked for together; the inventory has {have}"
            yield Finding("too_few_devices", f"/goals/{number}/value", words, goal.evidence)
