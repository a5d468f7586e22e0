"""Replicas: several pipelines that share the load evenly, each the best on its part of the devices.

Pure.

For any number of replicas the search says on which device counts one of them holds the goals at its part of the rate; which parts
cost least in all is a knapsack over those counts. Where something else than devices or money decides, the devices are divided
alike, or by kind.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from intent.models import Config
from runtime.models import Cluster, Topology
from selector.finder import Finder, SearchResult, first_of
from selector.models import Candidate, Prediction, SearchInput
from selector.objectives import Bound, only, thresholds
from selector.pipelines.operating import Pool, pools_of
from selector.pipelines.optimum import device_costs, feasible_counts
from selector.space import no_room

COUNTS = (2, 4, 8)
"""Replicas that are tried."""

Counts = tuple[int, ...]
Values = np.ndarray[Any, np.dtype[np.float64]]
Flags = np.ndarray[Any, np.dtype[np.bool_]]


@dataclass(frozen=True, slots=True)
class Fleets:
    """Finds fleets for the problem of a finder; none where the engine serves one replica."""

    finder: Finder

    def best(self, goals: Sequence[Bound], objectives: Sequence[Bound], alone: Candidate | None) -> SearchResult | None:
        """The best fleet of two replicas or more that holds the goals.

        Goals for devices and cost hold for all of it.

        ``alone`` is the best single pipeline: what costs as much is not looked at.
        """
        engine = self.finder.problem.capabilities
        problem = self.finder.problem
        if problem.cluster.network is None:
            return None
        counts = [count for count in COUNTS if engine is None or count <= engine.max_replicas]
        parts = [part for count in counts for part in self._divisions(count, goals, (objectives, alone))]
        found = [answer for part in parts if (answer := self._on(part, goals, objectives))]
        most = math.inf if problem.limits.max_gpus is None else problem.limits.max_gpus
        found = [
            answer
            for answer in found
            if answer.best.prediction.devices <= most and not self.finder.ranking.missed(goals, answer.best)
        ]
        if not found:
            return None
        return first_of(found, self.finder.ranking)

    def _divisions(
        self, count: int, goals: Sequence[Bound], wanted: tuple[Sequence[Bound], Candidate | None]
    ) -> Iterator[list[Counts]]:
        """Device counts by pool for each replica; none that a goal for replicas rules out."""
        objectives, alone = wanted
        pools = self._pools
        wishes = [goal for goal in goals if isinstance(goal, Config) and goal.key == "replicas"]
        if sum(pool.size for pool in pools) < count or any(not _meets(count, wish) for wish in wishes):
            return
        counted = not objectives or _metric(objectives[0]) in {"cost", "gpu_count"}
        if counted:
            by = "usd_per_hour"
            if self.finder.problem.unpriced or (objectives and _metric(objectives[0]) == "gpu_count"):
                by = "devices"
            limit = getattr(alone.prediction, by) if alone else math.inf
            parts = self._cheapest(count, goals, (by, limit))
            yield from [parts] if parts else []
            return
        yield [tuple(pool.size // count for pool in pools)] * count
        if len(pools) == count:
            yield [tuple(pool.size * (place == own) for place, pool in enumerate(pools)) for own in range(count)]

    @property
    def _pools(self) -> tuple[Pool, ...]:
        cluster = self.finder.problem.cluster
        return pools_of(cluster, [kind for kind in cluster.kinds if kind in self.finder.profiles])

    def _cheapest(self, count: int, goals: Sequence[Bound], wanted: tuple[str, float]) -> list[Counts]:
        """The parts that cost least in all, if any cost less than a limit."""
        by, limit = wanted
        if count * min(pool.usd_per_hour if by == "usd_per_hour" else 1.0 for pool in self._pools) >= limit:
            return []
        finder = self._sharing(count)
        bounds = thresholds(_of_one(goals, count), finder.problem)
        fits = [feasible_counts(grid, bounds) for grid in finder.grids(_wishes(goals))]
        if not fits:
            return []
        return cheapest(np.logical_or.reduce(fits), device_costs(self._pools)[by], (count, limit))

    def _sharing(self, count: int) -> Finder:
        """The finder of one replica: its part of the rate and of the requests in flight."""
        problem = self.finder.problem
        load = problem.workload
        share = replace(load, rate_rps=load.rate_rps / count, concurrency=math.ceil(load.concurrency / count))
        return self._finder(replace(problem, workload=share, observed={}))

    def _finder(self, problem: SearchInput) -> Finder:
        return replace(self.finder, ranking=replace(self.finder.ranking, problem=problem))

    def _on(self, parts: Sequence[Counts], goals: Sequence[Bound], objectives: Sequence[Bound]) -> SearchResult | None:
        """A replica on each part, or nothing if one of them cannot hold the goals."""
        finder = self._sharing(len(parts))
        answers = dict[Counts, SearchResult]()
        found: list[Candidate] = []
        clusters = divided(finder.problem.cluster, self._pools, parts)
        for part, cluster in zip(parts, clusters, strict=False):
            own = self._finder(replace(finder.problem, cluster=cluster))
            if part in answers and (again := _moved(answers[part].best, own.problem)):
                found.append(again)  # on devices that are alike there is nothing to search
                continue
            answer = own.best(_of_one(goals, len(parts)), objectives, then=own.cheapest)
            if answer is None:
                return None
            answers[part] = answer
            found.append(answer.best)
        if len(found) < len(parts):
            return None
        together = combined([candidate.prediction for candidate in found])
        best = Candidate(found[0].topology, together, "", tuple(candidate.topology for candidate in found[1:]))
        return SearchResult(best, tuple, sum(answer.considered for answer in answers.values()))


def _moved(candidate: Candidate, problem: SearchInput) -> Candidate | None:
    """The same pipeline on the devices of another part, kind by kind in their order.

    None where nodes or memory differ.
    """
    devices = {kind: [gpu.index for gpu in problem.cluster.gpus if gpu.kind == kind] for kind in problem.cluster.kinds}
    stages = []
    for stage in candidate.topology.stages:
        stages.append(replace(stage, devices=tuple(devices[stage.kind][: stage.tp_size])))
        del devices[stage.kind][: stage.tp_size]
    topology = Topology(tuple(stages))
    within = all(_on_one_node(stage.devices, problem.cluster) for stage in stages)
    return replace(candidate, topology=topology) if within and not no_room(topology, problem) else None


def _on_one_node(devices: Sequence[int], cluster: Cluster) -> bool:
    return any(set(devices) <= {gpu.index for gpu in node.gpus} for node in cluster.nodes)


def cheapest(fits: Flags, costs: Values, wanted: tuple[int, float]) -> list[Counts]:
    """So many device counts that each fit, are there together and cost least in all, less than a limit.

    Empty without them.
    """
    count, limit = wanted
    items = sorted(_minimal(fits), key=lambda item: float(costs[item]))
    best: dict[Counts, tuple[float, list[Counts]]] = {(0,) * fits.ndim: (0.0, [])}
    for left in range(count - 1, -1, -1):
        grown: dict[Counts, tuple[float, list[Counts]]] = {}
        for used, (cost, taken) in best.items():
            for item in items:
                total = tuple(a + b for a, b in zip(used, item, strict=True))
                spent = cost + float(costs[item])
                if spent + left * float(costs[items[0]]) >= limit:
                    break
                fit = all(count < size for count, size in zip(total, fits.shape, strict=True))
                if fit and (total not in grown or spent < grown[total][0]):
                    grown[total] = (spent, [*taken, item])
        best = grown
    return min(best.values(), key=lambda entry: entry[0], default=(0.0, []))[1]


def _minimal(fits: Flags) -> list[Counts]:
    """Counts that fit and of which nothing can be left out."""
    places = [tuple(int(index) for index in place) for place in np.argwhere(fits)]
    return [
        place
        for place in places
        if not any(other != place and all(a <= b for a, b in zip(other, place, strict=True)) for other in places)
    ]


def divided(cluster: Cluster, pools: Sequence[Pool], parts: Sequence[Counts]) -> list[Cluster]:
    """A cluster of so many devices of each pool for every part, whole nodes first.

    Empty if there are not enough.
    """
    free = [[list(node) for node in pool.nodes] for pool in pools]
    given: dict[int, list[int]] = {}
    for place, part in sorted(enumerate(parts), key=lambda part: -sum(part[1])):
        given[place] = []
        for nodes, wanted in zip(free, part, strict=True):
            given[place] += _taken(nodes, wanted)
        if len(given[place]) != sum(part):
            return []
    return [only(cluster, given[place]) for place in range(len(parts))]


def _taken(nodes: list[list[int]], wanted: int) -> list[int]:
    """Devices from the smallest node that has enough, or from the largest ones."""
    found: list[int] = []
    while len(found) < wanted and any(nodes):
        rest = wanted - len(found)
        enough = [node for node in nodes if len(node) >= rest]
        node = min(enough, key=len) if enough else max(nodes, key=len)
        found += node[:rest]
        del node[:rest]
    return found


def combined(predictions: Sequence[Prediction]) -> Prediction:
    """What replicas do together: the worst latency, the throughput of all, the least sure source."""
    first = max(predictions, key=lambda prediction: prediction.error_band)
    total = sum(prediction.throughput_tok_s for prediction in predictions)
    devices = sum(prediction.devices for prediction in predictions)

    def worst(name: str) -> dict[str, float]:
        return {stat: max(getattr(prediction, name)[stat] for prediction in predictions) for stat in first.ttft_s}

    return replace(
        first,
        ttft_s=worst("ttft_s"),
        tpot_s=worst("tpot_s"),
        e2e_s=worst("e2e_s"),
        throughput_tok_s=total,
        gpu_util=sum(prediction.gpu_util * prediction.devices for prediction in predictions) / devices,
        usd_per_hour=sum(prediction.usd_per_hour for prediction in predictions),
        batch=max(prediction.batch for prediction in predictions),
        quality_loss=sum(prediction.quality_loss for prediction in predictions) / len(predictions),
        devices=devices,
        replicas=len(predictions),
    )


def _of_one(goals: Sequence[Bound], count: int) -> list[Bound]:
    """What each of so many replicas has to hold: its part of a throughput.

    What is counted over all of them is not among it.
    """
    each = [goal for goal in goals if _metric(goal) not in {"cost", "gpu_count", "replicas"}]
    return [_share(goal, count) for goal in each]


def _share(goal: Bound, count: int) -> Bound:
    if isinstance(goal, Config) or goal.metric not in {"throughput_tok", "throughput_req"}:
        return goal
    return replace(goal, value=(goal.value or 0.0) / count)


def _metric(goal: Bound) -> str:
    return goal.key if isinstance(goal, Config) else goal.metric


def _wishes(goals: Sequence[Bound]) -> list[Config]:
    return [goal for goal in goals if isinstance(goal, Config) and goal.key != "replicas"]


def _meets(count: int, wish: Config) -> bool:
    return {"<=": count <= wish.value, ">=": count >= wish.value, "==": count == wish.value}.get(wish.op, True)
