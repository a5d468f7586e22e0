"""Bounds beyond what all the hardware together can do, and budgets below what it costs. Pure.

An optimist's arithmetic, so that nothing is refused that some topology could do: peak bandwidth and peak FLOP/s, the
smallest format left, no queue, no overhead. What is only wished for is not checked, nor what devices without a known
speed might do.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache

from intent.models import HOURS_OF_COST, LATENCIES, Finding, Goal, Objective
from runtime.footprint import HEADROOM
from runtime.models import BYTES_PER_VALUE, Gpu, ModelSpec
from validator.intervals import hard, interval
from validator.inventory import degrees, served
from validator.memory import Room, needed_bytes, room
from validator.models import Site
from validator.words import Words

HEAD_BYTES = 2.0
"""Least bytes of a parameter of the output head, whatever the layers have."""
UNIT_BYTES = 1e9
"""Step in which memory is added up for the cheapest devices, rounded in their favour."""


def check(goals: Sequence[Goal], site: Site, words: Words) -> Iterator[Finding]:
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
    place: str, goal: Objective, model: ModelSpec, left: Room, site: Site, words: Words
) -> Iterator[Finding]:
    """A token needs one pass, which reads every weight once; TP shares the reading, pipeline stages take turns."""
    groups = {(node.name, gpu.kind) for node in site.cluster.nodes for gpu in node.gpus if gpu in left.gpus}
    fastest = max((_bandwidth(*group, model, left, site) for group in groups), default=math.inf)
    floor_s = _pass_bytes(model, left.formats) / fastest
    if interval(goal).high < floor_s:
        least = words.amount(_rounded(floor_s, math.ceil), "s", "")
        facts = {"metric": words.metric(goal.metric), "model": model.name, "least": least}
        yield words.finding("faster_than_memory", place, goal, "at_least", **facts)


def _bandwidth(node: str, kind: str, model: ModelSpec, left: Room, site: Site) -> float:
    """Of the largest TP group of a kind on a node, in bytes/s; without end where the kind's speed is not known."""
    if kind not in site.speeds:
        return math.inf
    names = {one.name: one.gpus for one in site.cluster.nodes}
    count = sum(gpu.kind == kind and gpu in left.gpus for gpu in names[node])
    possible = [tp for tp in degrees(site.cluster, model) if tp <= min(count, left.most)]
    return max(possible, default=1) * site.speeds[kind].memory_bytes_s


def _pass_bytes(model: ModelSpec, formats: frozenset[str]) -> float:
    """Weights that one pass reads: every layer, of its experts those that one token uses, and the output head."""
    width = min(BYTES_PER_VALUE[name] for name in formats)
    return model.num_layers * model.active_layer_parameters * width + model.embedding_parameters * HEAD_BYTES


def _throughput(
    place: str, goal: Objective, model: ModelSpec, left: Room, site: Site, words: Words
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
    place: str, goal: Objective, model: ModelSpec, left: Room, site: Site, words: Words
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
    """Least price per hour of devices that hold so many bytes together; 0 if they do not: another rule's finding."""
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
