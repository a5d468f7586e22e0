"""Sets of replicas that may hold the goals: what each box runs alone, and the choice of it. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import islice

from intent.models import LATENCIES, Config, Objective
from runtime.capabilities import Batching
from runtime.models import Cluster, Gpu, Node, Topology
from selector.finder import Finder
from selector.models import Candidate, SearchInput
from selector.objectives import COMPARED, Bound, barred_tenants, hangs_on_the_load, named_tenants
from selector.packing import Box, BoxPipeline, Pack, Wanted, packs
from selector.performance.load import IDLE_RPS
from selector.prediction import confidence, known
from selector.switching import way
from selector.trial import STEP_TOKENS, Trial

MOST_RATE = Objective("throughput_tok", "maximize", evidence="what a box can do")
_HALVINGS = 5
_BETTER = 1.01
"""By what a smaller step, or a larger pipeline, has to be better."""
_DEEPER = 1.1
"""The same of more stages on as many devices: tokens take longer there."""
_SLACK = 1.15
"""By how much a set may do better than its replicas alone: a router evens out what comes by chance."""
_LOOKED = 4
"""Sets of each kind (quick, cheap for what they do) that are simulated; of the cheapest more, up to one that holds."""
_SHAPES = 3
"""Pipelines of one device count that are looked at in a box."""


@dataclass(frozen=True)
class SetSearch:
    """Looks for sets on the devices of a finder, in its formats."""

    finder: Finder
    trial: Trial
    goals: tuple[Bound, ...]
    """That a set is to hold."""

    @property
    def problem(self) -> SearchInput:
        """What is to be solved."""
        return self.finder.problem

    def judged(self, objective: Bound | None, below: float) -> list[Candidate]:
        """What promising sets do that cost less than so much: the cheapest, up to one that holds the goals.

        Where there is something else to be good at, also those that promise most of it.
        """
        every = [pack for pack in self.packs if len(pack.chosen) > 1 and pack.cost < below]
        found = list[Candidate]()
        for pack in [pack for pack in every if self._may_hold(pack)][: 3 * _LOOKED]:
            found += self._judged(pack)
            if self.trial.ranking.holding(self.goals, found):
                break
        if self.finder.timed(objective) or not found:
            for pack in sorted(every, key=lambda pack: -self.wanted.left(pack, self.boxes)[0])[:_LOOKED]:
                found += self._judged(pack)
        if balance := self.trial.ranking.demands.balance:
            by_score = sorted(every, key=lambda pack: balance.score(1 / max(1e-9, pack.rates_rps[0]), pack.cost))
            for pack in by_score[:_LOOKED]:
                found += self._judged(pack)
        return found

    def most_below(self, cost: float) -> float:
        """The highest rate that replicas hold, each alone, for less than a cost."""
        return max((self.wanted.left(pack, self.boxes)[0] for pack in self.packs if pack.cost < cost), default=0.0)

    @cached_property
    def packs(self) -> list[Pack]:
        """The sets that none beats of those as sure: the least sure replica decides how sure a set is."""
        bands = sorted({pipeline.error_band for box in self.boxes for pipeline in box.pipelines}, reverse=True)
        found = dict.fromkeys(pack for band in bands for pack in packs(self._sure(band), self.wanted))
        return sorted(found, key=lambda pack: (pack.cost, -pack.rates_rps[0]))

    def _sure(self, band: float) -> list[Box]:
        """With pipelines of which so much is known, at least."""
        return [
            replace(box, pipelines=tuple(each for each in box.pipelines if each.error_band <= band))
            for box in self.boxes
        ]

    def _judged(self, pack: Pack) -> list[Candidate]:
        topology, batching = self._placed(pack)
        is_near = way(topology, self.problem) in self.finder.ways
        found = self.trial.judge(topology, batching) if is_near else None
        return [found] if found else []

    def _placed(self, pack: Pack) -> tuple[Topology, Batching]:
        """On devices: replicas that run stay where they are."""
        running = list(self.problem.now.replicas) if self.problem.now else []
        free = [list(box.devices) for box in self.boxes]
        placed = list[tuple[Topology, Batching]]()
        left = list[tuple[int, BoxPipeline]]()
        for place, pipeline in pack.chosen:
            stays = next((each for each in running if _on(pipeline.topology, each.devices) == each), None)
            if stays and set(stays.devices) <= set(free[place]):
                running.remove(stays)
                free[place] = [device for device in free[place] if device not in stays.devices]
                placed.append((stays, pipeline.batching))
            else:
                left.append((place, pipeline))
        for place, pipeline in sorted(left, key=lambda each: -each[1].size):
            devices = free[place][: pipeline.size]
            del free[place][: pipeline.size]
            placed.append((_on(pipeline.topology, devices), pipeline.batching))
        order = {each: number for number, each in enumerate(self.problem.now.replicas if self.problem.now else ())}
        placed.sort(key=lambda each: (order.get(each[0], len(order)), each[0].devices))
        return Topology.of_replicas(each for each, _ in placed), Batching.of_replicas([steps for _, steps in placed])

    def _may_hold(self, pack: Pack) -> bool:
        rate_rps = self.problem.workload.rate_rps
        needed = [rate_rps, *(rate_rps / len(self.tenants) for _ in self.tenants)]
        left = self.wanted.left(pack, self.boxes)
        return all(rate * _SLACK >= least for rate, least in zip(left, needed, strict=True))

    @cached_property
    def tenants(self) -> tuple[str, ...]:
        """Those of whom something was said alone, and everyone else; none where nothing was."""
        names = named_tenants(self.problem)
        return (*names, "") if names else ()

    @cached_property
    def wanted(self) -> Wanted:
        """What goals say of replicas."""
        wishes = {goal.key: goal for goal in self.goals if isinstance(goal, Config)}
        tests = {key: partial(_is_met, wish) for key, wish in wishes.items()}
        lost = {key: wish.value for key, wish in wishes.items() if wish.op != "<="}
        return Wanted(
            tests.get("replicas"),
            tests.get("replicas_per_node"),
            self.problem.limits.max_gpus or float("inf"),
            lost.get("lost_devices", 0),
            lost.get("lost_nodes", 0),
        )

    @cached_property
    def boxes(self) -> tuple[Box, ...]:
        """The devices of each kind in each node, with what they can run; those that are alike can run alike."""
        known_boxes = dict[object, tuple[BoxPipeline, ...]]()
        found = []
        for node in self.problem.cluster.nodes:
            for kind in dict.fromkeys(gpu.kind for gpu in node.gpus if gpu.kind in self.finder.profiles):
                gpus = [gpu for gpu in node.gpus if gpu.kind == kind]
                like = (node.link, *((gpu.kind, gpu.memory_bytes, gpu.usd_per_hour) for gpu in gpus))
                if self.problem.for_tenants:
                    like = (*like, node.name)
                if like not in known_boxes:
                    known_boxes[like] = tuple(self._pipelines(node, gpus))
                found.append(Box(node.name, tuple(gpu.index for gpu in gpus), known_boxes[like]))
        return tuple(found)

    def _pipelines(self, node: Node, gpus: Sequence[Gpu]) -> list[BoxPipeline]:
        """Of each device count what does more than smaller ones together (alone, if replicas are counted)."""
        found = list[BoxPipeline]()
        is_counted = self.wanted.replicas or self.wanted.per_node
        for precision in self.finder.precisions:
            mine = list[BoxPipeline]()
            for size in range(1, len(gpus) + 1):
                part = Cluster((replace(node, gpus=tuple(gpus[:size])),))
                for topology in self._shapes(part, precision, size):
                    is_deeper = any(each.size == size for each in mine)
                    smaller_rps = max((each.rates_rps[0] for each in mine), default=0.0)
                    together_rps = smaller_rps if is_counted else _most_of(mine, size)
                    least_rps = together_rps * (_DEEPER if is_deeper else _BETTER)
                    batching, rate_rps = self._tuned(topology, least_rps)
                    if rate_rps > least_rps:
                        mine.append(self._pipeline(topology, batching, rate_rps))
            found += mine
        return found

    def _pipeline(self, topology: Topology, batching: Batching, rate_rps: float) -> BoxPipeline:
        barred = barred_tenants(topology, self.problem)
        rates = (rate_rps, *(rate_rps * (name not in barred) for name in self.tenants))
        cost = sum(self.problem.cluster.gpu(device).usd_per_hour for device in topology.devices)
        _, band = confidence(topology, self.finder.profiles)
        return BoxPipeline(topology, batching, rates, len(topology.devices) if self.problem.unpriced else cost, band)

    def _shapes(self, part: Cluster, precision: str, size: int) -> list[Topology]:
        """Pipelines on all devices of a part, those of few stages first."""
        alone = replace(self._alone(IDLE_RPS), cluster=part)
        finder = replace(self.finder, problem=alone, precisions=(precision,), ways=("shadow",))
        shapes = [goal for goal in self.goals if isinstance(goal, Config) and goal.key in {"tp", "pp"}]
        topologies = finder.shortlist([*shapes, *self._latencies], MOST_RATE)
        whole = [topology for topology in topologies if len(topology.devices) == size]
        return sorted(whole, key=lambda topology: topology.pp_size)[:_SHAPES]

    @cached_property
    def _latencies(self) -> list[Bound]:
        return [goal for goal in self.goals if isinstance(goal, Objective) and goal.metric in LATENCIES]

    @cached_property
    def _timed(self) -> list[Bound]:
        return [goal for goal in self.goals if hangs_on_the_load(goal)]

    def _tuned(self, topology: Topology, least_rps: float) -> tuple[Batching, float]:
        """With the steps that hold the goals at the highest rate, as far as that may be more than is known."""
        batching = self.problem.batching
        rate_rps = self._rate(topology, batching, least_rps)
        for tokens in (
            [tokens for tokens in STEP_TOKENS[::-1] if tokens < batching.max_step_tokens] if self._latencies else ()
        ):
            steps = Batching(min(batching.max_sequences, tokens), tokens)
            tried_rps = self._rate(topology, steps, max(rate_rps, least_rps))
            if tried_rps <= rate_rps * _BETTER:
                break
            batching = steps
            rate_rps = tried_rps
        return batching, rate_rps

    def _rate(self, topology: Topology, batching: Batching, least_rps: float) -> float:
        """The highest rate at which a pipeline alone holds the goals; 0 where that is no more than known."""
        idle = self._at(IDLE_RPS, topology, batching)
        high = idle.prediction.throughput_tok_s / max(1, self.problem.workload.output_tokens) if idle else 0.0
        if high <= least_rps or not self._holds(topology, batching, least_rps or high / 2**_HALVINGS):
            return 0.0
        low = least_rps
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            low, high = (middle, high) if self._holds(topology, batching, middle) else (low, middle)
        return low

    def _holds(self, topology: Topology, batching: Batching, rate_rps: float) -> bool:
        found = self._at(rate_rps, topology, batching)
        ranking = replace(self.trial.ranking, problem=self._alone(rate_rps))
        return found is not None and not ranking.missed(self._timed, found)

    def _at(self, rate_rps: float, topology: Topology, batching: Batching) -> Candidate | None:
        return known(topology, self._alone(rate_rps), self.finder.profiles, batching)

    def _alone(self, rate_rps: float) -> SearchInput:
        """For one replica of a set, which has a part of the load."""
        workload = replace(self.problem.workload, rate_rps=rate_rps, concurrency=1)
        return replace(self.problem, workload=workload, now=None)


def _on(topology: Topology, devices: Sequence[int]) -> Topology:
    """A pipeline on other devices, in their order; not on others where there are more or fewer."""
    if len(devices) != len(topology.devices):
        return topology
    given = iter(devices)
    return Topology(tuple(replace(stage, devices=tuple(islice(given, stage.tp_size))) for stage in topology.stages))


def _is_met(wish: Config, count: int) -> bool:
    return bool(COMPARED[wish.op](count, wish.value))


def _most_of(pipelines: Sequence[BoxPipeline], size: int) -> float:
    """The highest rate of some pipelines together on so many devices."""
    most = [0.0] * (size + 1)
    for count in range(1, size + 1):
        rates = [most[count - each.size] + each.rates_rps[0] for each in pipelines if each.size <= count]
        most[count] = max([most[count - 1], *rates])
    return most[size]
