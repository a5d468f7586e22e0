"""What cannot be on these devices: inventory, memory, capacity, limits. Pure."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, chain

from intent.models import (
    HOURS_OF_COST,
    LATENCIES,
    LOSSES,
    PER_NODE,
    Config,
    Finding,
    Goal,
    Objective,
    Placement,
    PrecisionRule,
)
from runtime.footprint import HEADROOM, block_bytes, value_bytes, weight_bytes
from runtime.models import BYTES_PER_VALUE, Cluster, Gpu, LayerRange, ModelSpec, Precision, Stage, Topology
from validator.consistency import everywhere, left_for, open_to, permitted
from validator.intervals import covers, hard, interval, satisfies
from validator.models import MessageWords, Site


def check_inventory(goals: Sequence[Goal], site: Site, words: MessageWords) -> Iterator[Finding]:
    """Degrees that do not fit the devices or divide the model, each by itself."""
    rules = {"tp": _tensor_parallel, "pp": _pipeline}
    for number, goal in enumerate(goals):
        if isinstance(goal, Config) and goal.model in {None, *site.models}:
            rule = rules.get(goal.key, _counted)
            checked = (
                rule(f"/goals/{number}/value", goal, site.cluster, model, words) for model in served(goal.model, site)
            )
            yield from dict.fromkeys(chain.from_iterable(checked))
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
    place: str, goal: Config, cluster: Cluster, model: ModelSpec, words: MessageWords
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


def _pipeline(place: str, goal: Config, cluster: Cluster, model: ModelSpec, words: MessageWords) -> Iterator[Finding]:
    have = len(cluster.gpus)
    most = min(model.num_layers, have)
    if goal.op == "<=" or goal.value <= most:
        return
    facts = {"value": goal.value, "model": model.name, "setting": "PP", "most": most}
    if goal.value > model.num_layers:
        yield words.finding("more_stages_than_layers", place, goal, "at_most", layers=model.num_layers, **facts)
    else:
        yield words.finding("too_few_for_pp", place, goal, "at_most", have=have, **facts)


_TOO_MANY = {
    "replicas": "too_few_for_replicas",
    PER_NODE: "too_few_on_a_node",
    "lost_devices": "lost_devices_too_many",
    "lost_nodes": "lost_nodes_too_many",
}


def _counted(
    place: str,
    goal: Config,
    cluster: Cluster,
    model: ModelSpec,  # noqa: ARG001 - one signature for all settings
    words: MessageWords,
) -> Iterator[Finding]:
    """Each replica has devices of its own, and of what may be lost one is left."""
    sizes = [len(node.gpus) for node in cluster.nodes]
    devices = sum(sizes)
    counts = {"replicas": devices, PER_NODE: min(sizes), "lost_devices": devices - 1, "lost_nodes": len(sizes) - 1}
    most = counts[goal.key]
    if goal.op == "<=" or goal.value <= most:
        return
    facts = {"value": goal.value, "setting": words.setting(goal.key), "most": most, "have": most + (goal.key in LOSSES)}
    code = _TOO_MANY[goal.key] if most else f"{goal.key}_only_one"
    yield words.finding(code, place, goal, "at_most" if most else f"{goal.key}_add", **facts)


REQUEST_TOKENS = 256
"""A request whose KV cache must fit beside the weights."""


@dataclass(frozen=True, slots=True)
class AllowedResources:
    """What a text leaves for a model at the time of one of its goals."""

    gpus: tuple[Gpu, ...]
    """The largest first."""
    most: int
    """How many of them at once."""
    formats: frozenset[str]

    @property
    def usable_bytes(self) -> float:
        """On as many devices as may be used at once."""
        return self.sums()[self.most - 1] if self.most else 0.0

    def sums(self) -> list[float]:
        """Usable bytes of the first one, two, … devices."""
        return list(accumulate(gpu.memory_bytes * (1 - HEADROOM) for gpu in self.gpus))


def check_memory(goals: Sequence[Goal], site: Site, words: MessageWords) -> Iterator[Finding]:
    """A finding for the first goal whose scope leaves too little memory.

    Only if the whole deployment has enough.
    """
    for number, goal in enumerate(goals):
        if not _narrows(goal):
            continue
        for model in served(getattr(goal, "model", None), site):
            left = room(goal, goals, site)
            everything = whole(site)
            if left.formats and left.gpus and _short(left, model, site) and not _short(everything, model, site):
                yield _finding(number, goal, left, model, site, words)
                return


def room(goal: Goal, goals: Sequence[Goal], site: Site) -> AllowedResources:
    """What every goal that covers this one leaves together."""
    everything = whole(site)
    devices = open_to(goal, goals, site)
    gpus = tuple(gpu for gpu in everything.gpus if gpu.index in devices)
    covering = [other_goal for other_goal in goals if hard(other_goal) and covers(other_goal, goal, site)]
    most = max(0, min(everything.most, len(gpus), *_most_devices(covering, site)))
    return AllowedResources(gpus, int(most), left_for(goal, goals, site))


def whole(site: Site) -> AllowedResources:
    """What the deployment has, within its limits."""
    gpus = tuple(sorted(site.cluster.gpus, key=lambda gpu: -gpu.memory_bytes))
    return AllowedResources(gpus, min(len(gpus), site.limits.max_gpus or len(gpus)), permitted(site.limits))


@lru_cache(maxsize=256)
def needed_bytes(model: ModelSpec, kinds: tuple[str, ...], formats: frozenset[str]) -> int:
    """Least bytes of weights and one request's KV cache, over formats and device kinds."""
    return min(_bytes(model, kind, name) for kind in kinds for name in formats)


def _bytes(model: ModelSpec, kind: str, precision: str) -> int:
    """On one device, where nothing is held twice."""
    stage = Stage(kind, (0,), LayerRange(0, model.num_layers), Precision.named(precision, kind))
    alone = Topology((stage,))
    return weight_bytes(alone, model)[0] + block_bytes(alone, model, REQUEST_TOKENS)[0]


def _narrows(goal: Goal) -> bool:
    """Whether a goal takes devices or formats away."""
    if isinstance(goal, Objective):
        return goal.metric == "gpu_count" and goal.op in {"<=", "=="} and hard(goal)
    if isinstance(goal, Config):
        return goal.key in {"tp", "pp"} and goal.op in {"<=", "=="}
    if isinstance(goal, Placement):
        return goal.rule in {"require", "forbid"} and goal.workload is None
    return isinstance(goal, PrecisionRule) and goal.rule in {"require", "min", "forbid"} and not goal.layers


def _most_devices(goals: Sequence[Goal], site: Site) -> Iterator[float]:
    """Upper bounds on the devices at once: a number of GPUs, or TP times PP."""
    most = {
        "tp": float(len(site.cluster.gpus)),
        "pp": float(max(site.limits.allowed_pp or (len(site.cluster.gpus),))),
    }
    for goal in goals:
        if isinstance(goal, Objective) and goal.metric == "gpu_count":
            yield interval(goal).high
        elif isinstance(goal, Config) and goal.key in most:
            most[goal.key] = min(most[goal.key], interval(goal).high)
    yield most["tp"] * most["pp"]


def _short(left: AllowedResources, model: ModelSpec, site: Site) -> bool:
    return left.usable_bytes < needed_bytes(model, site.cluster.kinds, left.formats)


def _finding(
    number: int, goal: Goal, left: AllowedResources, model: ModelSpec, site: Site, words: MessageWords
) -> Finding:
    slot = "selector" if isinstance(goal, Placement) else "value"
    need = needed_bytes(model, site.cluster.kinds, left.formats)
    enough = next((n for n, have in enumerate(left.sums(), 1) if have >= need), None)
    facts = {
        "model": model.name,
        "need": f"{need / 1e9:.3g}",
        "have": f"{left.usable_bytes / 1e9:.3g}",
        "devices": left.most,
        "formats": words.listed(sorted(left.formats)),
        "enough": enough,
    }
    return words.finding(
        "too_little_memory",
        f"/goals/{number}/{slot}",
        goal,
        "more_devices" if enough else "more_room",
        **facts,
    )


HEAD_BYTES = 2.0
"""Least bytes of a parameter of the output head, whatever the layers have."""
UNIT_BYTES = 1e9
"""Step in which memory is added up for the cheapest devices, rounded in their favour."""


def check_capacity(goals: Sequence[Goal], site: Site, words: MessageWords) -> Iterator[Finding]:
    """One finding for each hard bound that no topology could hold."""
    for number, goal in enumerate(goals):
        if not isinstance(goal, Objective) or not _checked(goal):
            continue
        for model in served(goal.model, site):
            left = room(goal, goals, site)
            if left.most and left.formats:
                place = f"/goals/{number}/value"
                yield from _RULES[goal.metric](place, goal, model, left, site, words)


def _checked(goal: Objective) -> bool:
    if goal.metric not in _RULES or goal.value is None or not hard(goal):
        return False
    return math.isfinite(goal.value) and goal.value > 0


def _latency(
    place: str, goal: Objective, model: ModelSpec, left: AllowedResources, site: Site, words: MessageWords
) -> Iterator[Finding]:
    """A token needs one pass, which reads every weight once.

    TP shares the reading, pipeline stages take turns.
    """
    groups = {(node.name, gpu.kind) for node in site.cluster.nodes for gpu in node.gpus if gpu in left.gpus}
    fastest = max((_bandwidth(*group, model, left, site) for group in groups), default=math.inf)
    floor_s = _pass_bytes(model, left.formats) / fastest
    if interval(goal).high < floor_s:
        least = words.amount(_rounded(floor_s, math.ceil), "s", "")
        facts = {"metric": words.metric(goal.metric), "model": model.name, "least": least}
        yield words.finding("faster_than_memory", place, goal, "at_least", **facts)


def _bandwidth(node: str, kind: str, model: ModelSpec, left: AllowedResources, site: Site) -> float:
    """Of the largest TP group of a kind on a node, in bytes/s.

    Without end where the kind's speed is not known.
    """
    if kind not in site.speeds:
        return math.inf
    names = {node.name: node.gpus for node in site.cluster.nodes}
    count = sum(gpu.kind == kind and gpu in left.gpus for gpu in names[node])
    possible = [tp for tp in degrees(site.cluster, model) if tp <= min(count, left.most)]
    return max(possible, default=1) * site.speeds[kind].memory_bytes_s


def _pass_bytes(model: ModelSpec, formats: frozenset[str]) -> float:
    """Weights that one pass reads.

    Every layer, of its experts those that one token uses, and the output head.
    """
    width = min(value_bytes(name, model) for name in formats)
    return model.num_layers * model.active_layer_parameters * width + model.embedding_parameters * HEAD_BYTES


def _throughput(
    place: str, goal: Objective, model: ModelSpec, left: AllowedResources, site: Site, words: MessageWords
) -> Iterator[Finding]:
    """A token takes two operations per parameter that it meets, and a request has a token at least."""
    ceiling = _tokens_s(left.gpus, left.most, model, site)
    if interval(goal).low > ceiling:
        most = words.amount(_rounded(ceiling, math.floor), goal.unit, "")
        facts = {"metric": words.metric(goal.metric), "model": model.name, "devices": left.most, "most": most}
        yield words.finding("more_than_compute", place, goal, "at_most_amount", **facts)


def _tokens_s(gpus: Sequence[Gpu], most: int, model: ModelSpec, site: Site) -> float:
    speeds = [site.speeds[gpu.kind].flops_s if gpu.kind in site.speeds else math.inf for gpu in gpus]
    fastest = sum(sorted(speeds, reverse=True)[:most])
    return fastest / (2 * (model.num_layers * model.active_layer_parameters + model.embedding_parameters))


def _cost(
    place: str, goal: Objective, model: ModelSpec, left: AllowedResources, site: Site, words: MessageWords
) -> Iterator[Finding]:
    """The cheapest devices that hold the weights; per token, also the cheapest at their peak."""
    unit = goal.unit or "USD/h"
    if unit == "USD/Mtok":
        rates = [gpu.usd_per_hour / (_tokens_s([gpu], 1, model, site) * 3600 / 1e6) for gpu in left.gpus]
        least = min(rates, default=0.0)
    else:
        need = needed_bytes(model, site.cluster.kinds, left.formats)
        least = cheapest_usd_h(left.gpus, need) * HOURS_OF_COST[unit]
    if (goal.value or 0.0) < least * (1 - 1e-9) and goal.op != ">=":
        facts = {"model": model.name, "least": words.amount(_rounded(least, math.ceil), unit, "")}
        yield words.finding("below_cheapest", place, goal, "at_least", **facts)


@lru_cache(maxsize=256)
def cheapest_usd_h(gpus: tuple[Gpu, ...], need_bytes: int) -> float:
    """Least price per hour of devices that hold so many bytes together.

    0 if they do not: another rule's finding.
    """
    need = math.ceil(need_bytes / UNIT_BYTES)
    prices = [0.0, *[math.inf] * need]
    for gpu in gpus:
        gain = math.ceil(gpu.memory_bytes * (1 - HEADROOM) / UNIT_BYTES)
        for have in range(need, 0, -1):
            prices[have] = min(prices[have], prices[max(0, have - gain)] + gpu.usd_per_hour)
    return prices[need] if math.isfinite(prices[need]) else 0.0


def _rounded(value: float, to_whole: Callable[[float], int]) -> float:
    """Two digits, to the side that is possible."""
    step = 10.0 ** (math.floor(math.log10(value)) - 1)
    return to_whole(round(value / step, 6)) * step


_RULES = {
    **dict.fromkeys(LATENCIES, _latency),
    "throughput_tok": _throughput,
    "throughput_req": _throughput,
    "cost": _cost,
}


def check_limits(goals: Sequence[Goal], site: Site, words: MessageWords) -> Iterator[Finding]:
    """One finding for each goal that by itself no allowed topology can meet."""
    for number, goal in enumerate(goals):
        if isinstance(goal, Config):
            yield from _degree(number, goal, site, words)
        elif isinstance(goal, PrecisionRule):
            yield from _format(number, goal, site, words)


def _degree(number: int, goal: Config, site: Site, words: MessageWords) -> Iterator[Finding]:
    allowed = {"tp": site.limits.allowed_tp, "pp": site.limits.allowed_pp}.get(goal.key)
    if allowed is not None and not any(satisfies(degree, goal) for degree in allowed):
        facts = {"setting": words.setting(goal.key), "value": goal.value, "possible": words.listed(allowed)}
        yield words.finding("over_limit", f"/goals/{number}/value", goal, "can_be", **facts)


def _format(number: int, goal: PrecisionRule, site: Site, words: MessageWords) -> Iterator[Finding]:
    """A rule that leaves nothing that is allowed, or allows what is not."""
    for model in served(goal.model, site):
        if not (held := goal.held(model.num_layers)) or held.start < 0 or held.stop > model.num_layers:
            have = {"model": model.name, "have": model.num_layers, "last": model.num_layers - 1}
            yield words.finding("no_such_layers", f"/goals/{number}/layers", goal, "layers_there", **have)
    allowed = permitted(site.limits)
    wanted = goal.formats if goal.rule == "allow" else goal.leaves(BYTES_PER_VALUE)
    if not wanted & allowed:
        listed = words.listed(site.limits.allowed_precisions or ())
        yield words.finding("precision_not_allowed", f"/goals/{number}/value", goal, "formats_allowed", formats=listed)
