"""Topologies and how full their steps are, each judged once by the simulation. Pure."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby

from intent.models import LATENCIES, Config, Objective
from runtime.capabilities import Batching
from runtime.models import Topology
from selector.layer_rules import in_formats
from selector.losses import COUNTED, counts_of
from selector.models import Candidate, Profile, SearchInput
from selector.objectives import Bound, wants_use
from selector.prediction import candidate, known, usual_batching
from selector.ranking import Ranking
from selector.space import mixed

STEP_TOKENS = (256, 512, 1024, 2048, 4096, 8192)
"""Tokens in a step that are tried, as far as the engine may be set to them."""
SEQUENCES = (8, 16, 32, 64, 128, 256, 512)
"""Sequences at once that are tried."""
MOST = 32
"""Topologies of one shortlist that are simulated."""
TUNED = 2
"""Of them, those whose steps are tuned."""
_NEAR = 0.7
"""A sum of relative misses up to which tuning may help: about twice of one bound."""
_HALVINGS = 6

Worth = Callable[[Candidate], tuple[float, ...]]


@dataclass(frozen=True)
class Trial:
    """What was judged for one problem."""

    ranking: Ranking
    profiles: Mapping[str, Profile]
    seen: dict[tuple[Topology, Batching], Candidate | None] = field(default_factory=dict)

    @property
    def problem(self) -> SearchInput:
        """What is to be solved."""
        return self.ranking.problem

    @property
    def candidates(self) -> list[Candidate]:
        """All that hold the load's KV."""
        return [found for found in self.seen.values() if found]

    def judge(self, topology: Topology, batching: Batching | None = None) -> Candidate | None:
        """What a topology does; None where it does not hold the load's KV, has no figures, or is no answer."""
        topology = in_formats(topology, self.ranking.demands.rules, self.problem.model.num_layers)
        if self._is_only_slower(topology) or mixed(topology, self.problem):
            return None
        steps = batching or usual_batching(topology, self.problem)
        if (topology, steps) not in self.seen:
            found = known(topology, self.problem, self.profiles, steps)
            wishes = [goal for goal in self.ranking.demands.bounds if isinstance(goal, Config) and goal.key in COUNTED]
            if found and wishes:
                found = replace(found, counts=counts_of(found, wishes, self.problem.cluster, self._keeps_up))
            self.seen[topology, steps] = found
        return self.seen[topology, steps]

    def _keeps_up(self, topology: Topology, steps: Batching) -> bool:
        """Whether what is left of a set holds every hard latency goal."""
        found = known(topology, self.problem, self.profiles, steps)
        bounds = self.ranking.demands.bounds
        timed = [goal for goal in bounds if isinstance(goal, Objective) and goal.metric in LATENCIES]
        return found is not None and not self.ranking.piles_up(found) and not self.ranking.missed(timed, found)

    @property
    def wants_use(self) -> bool:
        """Whether busy devices are asked for."""
        demands = self.ranking.demands
        return any(map(wants_use, (*demands.bounds, *demands.optimised)))

    def _is_only_slower(self, topology: Topology) -> bool:
        """Where busy devices are asked for: whether it is neither what runs, nor cheaper, nor on fewer."""
        now = self.problem.now
        if now is None or topology == now or not self.wants_use:
            return False
        prices = {gpu.index: gpu.usd_per_hour for gpu in self.problem.cluster.gpus}
        spent, runs = (math.fsum(prices.get(device, 0.0) for device in side.devices) for side in (topology, now))
        return len(topology.devices) >= len(now.devices) and spent >= runs

    def judge_until(self, topologies: Sequence[Topology], bounds: Sequence[Bound]) -> list[Candidate]:
        """Those of a list that rises in cost, up to the first at which one holds the bounds, tuned or not."""
        found = list[Candidate]()
        prices = {gpu.index: gpu.usd_per_hour for gpu in self.problem.cluster.gpus}

        def cost(topology: Topology) -> float:
            spent = sum(prices[device] for device in topology.devices)
            return float(len(topology.devices)) if self.problem.unpriced else round(spent, 6)

        for _, alike in groupby(topologies[:MOST], key=cost):
            level = self.judge_all(alike)
            if all(self.ranking.missed(bounds, each) for each in level):
                level += self.tune(level, bounds)
            found += level
            if not all(self.ranking.missed(bounds, each) for each in level):
                break
        return found

    def judge_all(self, topologies: Iterable[Topology]) -> list[Candidate]:
        """What these do, as far as they hold the load's KV."""
        return [judged for topology in topologies if (judged := self.judge(topology))]

    def tune(
        self, found: Iterable[Candidate], bounds: Sequence[Bound], objective: Bound | None = None
    ) -> list[Candidate]:
        """The nearest to some bounds, or the best at an objective, with steps that suit them better."""
        if self.wants_use:
            return []  # what is slow is busy
        found = [each for each in found if not each.replicas]  # those were tuned one by one

        def worth(each: Candidate) -> tuple[float, ...]:
            aim = self.ranking.reading(objective, each) if objective else self.ranking.read(each)
            return (self.ranking.shortfall(each, bounds), -aim if objective and objective.op == "maximize" else aim)

        near = [each for each in sorted(found, key=worth) if objective or worth(each)[0] <= _NEAR]
        return [self._tuned(each, worth) for each in first_of_each(near)[:TUNED]]

    def _tuned(self, start: Candidate, worth: Worth) -> Candidate:
        """By one knob, by the other and by the first again, each as long as that helps."""
        assert start.batching is not None, "judged ones say it"
        most = self.problem.batching
        best = start
        sweeps: list[tuple[str, tuple[int, ...], int]] = [
            ("max_step_tokens", STEP_TOKENS, most.max_step_tokens),
            ("max_sequences", SEQUENCES, most.max_sequences),
        ]
        for name, values, limit in (*sweeps, sweeps[0]):
            here: int = getattr(best.batching, name)
            felt = here if name == "max_step_tokens" else min(here, best.prediction.peak)
            below = [value for value in values[::-1] if value < felt]
            above = [value for value in (*values, limit) if here < value <= limit and felt == here]
            for direction in (below, above):
                for value in direction:
                    tried = self._with(best, name, value)
                    if tried is None or worth(tried) >= worth(best):
                        break
                    best = tried
        return best

    def _with(self, each: Candidate, knob: str, value: int) -> Candidate | None:
        """The same with a knob set; every running sequence has to fit a step."""
        assert each.batching is not None, "judged ones say it"
        is_tokens = knob == "max_step_tokens"
        steps = (
            replace(each.batching, max_step_tokens=value) if is_tokens else replace(each.batching, max_sequences=value)
        )
        fits = replace(steps, max_sequences=min(steps.max_sequences, steps.max_step_tokens))
        return self.judge(each.topology, fits)

    def ranking_at(self, share: float) -> Ranking:
        """The same demands at a part of the load's rate."""
        part = replace(self.problem.workload, rate_rps=self.problem.workload.rate_rps * share)
        return replace(self.ranking, problem=replace(self.problem, workload=part))

    def at(self, share: float, each: Candidate) -> Candidate | None:
        """A candidate at a part of the load's rate."""
        return candidate(each.topology, self.ranking_at(share).problem, self.profiles, each.batching)

    def shortfall_at(self, share: float, each: Candidate, bounds: Sequence[Bound]) -> float:
        """By how much it misses some bounds there."""
        found = self.at(share, each)
        return self.ranking_at(share).shortfall(found, bounds) if found else math.inf

    def share(self, each: Candidate, bounds: Sequence[Bound]) -> float:
        """The largest part of the load, in steps of a 64th, at which a candidate holds some bounds."""
        share = 0.0
        step = 0.5
        for _ in range(_HALVINGS):
            if self.shortfall_at(share + step, each, bounds) == 0:
                share += step
            step /= 2
        return share


def first_of_each(candidates: Iterable[Candidate]) -> list[Candidate]:
    """The first of each topology, in their order."""
    found = dict[Topology, Candidate]()
    for each in candidates:
        found.setdefault(each.topology, each)
    return list(found.values())
