"""What a switch takes, and how candidates compare. Pure."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import groupby

from runtime.footprint import owned, transfer
from runtime.models import BYTES_PER_VALUE, Cluster, ModelSpec, Topology
from selector import explain
from selector.models import Candidate, CrossingPrediction, SearchInput, SwitchPrediction
from selector.objectives import Bound, Demands, holds, margin_of, value_of
from selector.space import crowded, streamed

LOAD_BYTES_S = {"nvlink": 20e9, "pcie": 20e9, "network": 10e9, "shared-memory": 2e9}
"""Link of a node to how fast a device there takes weights from the host: PCIe 4.0 x16 as reached, memory copies on a CPU."""
BUILD_S = 1.0
"""To build communication groups and run a probe step, beside the loading."""


def bytes_to_move(now: Topology | None, target: Topology, model: ModelSpec) -> dict[str, int]:
    """``weights``: bytes the target devices lack.

    ``kv_per_token``: KV bytes copied per token in the cache.

    Weights of a layer are counted by KV heads, as TP cuts them; embedding and head (a few percent) are left
    out.
    """
    return {"weights": _weights(now, target, model), "kv_per_token": _kv_per_token(now, target, model)}


def _weights(now: Topology | None, target: Topology, model: ModelSpec) -> int:
    return round(sum(_lacking(now, target, model).values()))


@lru_cache(maxsize=8)
def _lacking(now: Topology | None, target: Topology, model: ModelSpec) -> Mapping[int, float]:
    """Bytes of weights that each device of the target has to load."""
    held = owned(now, model) if now else {}
    sizes = dict.fromkeys(target.devices, 0.0)
    for device, pieces in owned(target, model).items():
        for piece in pieces:
            width = BYTES_PER_VALUE[target.stage_of(piece.layer).precision_of(piece.layer).weights]
            same = (
                now
                and piece in held.get(device, ())
                and _weights_of(now, piece.layer) == _weights_of(target, piece.layer)
            )
            sizes[device] += 0 if same else width * model.layer_parameters / model.num_kv_heads
    return sizes


def _weights_of(topology: Topology, layer: int) -> str:
    return topology.stage_of(layer).precision_of(layer).weights


def _kv_per_token(now: Topology | None, target: Topology, model: ModelSpec) -> int:
    if now is None:
        return 0
    size = 0.0
    for box in transfer(now, target, model):
        for layer in range(*box.layers):
            width = BYTES_PER_VALUE[now.stage_of(layer).precision_of(layer).kv]
            size += 2 * model.head_dim * width * (box.heads[1] - box.heads[0])
    return round(size)


def switch(
    today: Candidate, target: Candidate, problem: SearchInput, over: CrossingPrediction | None = None
) -> SwitchPrediction:
    """From what runs to another topology.

    How long to prepare, how long streams stand still, when it has paid for itself.

    Preparing is loading what the slowest device lacks; a stop drains one pass of today's pipeline and waits for the first of the
    target's. Where the target cannot come up beside what runs the stop has the loading too. Both sets of devices are occupied
    while it is prepared, which the devices (or the money) saved have to win back. ``over`` is what another host takes besides.
    """
    if today.topology == target.topology:
        return SwitchPrediction("shadow", 0.0, 0.0, 0.0, 0.0)
    passes_s = today.prediction.tpot_s["mean"], target.prediction.tpot_s["mean"]
    stop_s = sum(passes_s)
    pause_s = min(passes_s)
    prices = _prices(problem.cluster)
    if crowded(target.topology, problem):
        loading_s = _loading_s(streamed(target.topology, problem).load_bytes, problem.cluster)
        payback_s = _payback_s(today, target, prices, BUILD_S)
        return SwitchPrediction("stream", BUILD_S, stop_s + loading_s, pause_s + loading_s, payback_s)
    lacking = _lacking(today.topology, target.topology, problem.model)
    prepare_s = BUILD_S + _loading_s(lacking, problem.cluster)
    if over is not None:
        prepare_s += over.sync_s if math.isfinite(over.sync_s) else 0.0
        stop_s += over.cut_s
        pause_s += over.cut_s
    return SwitchPrediction("shadow", prepare_s, stop_s, pause_s, _payback_s(today, target, prices, prepare_s), over)


def _loading_s(sizes: Mapping[int, float], cluster: Cluster) -> float:
    """Until the slowest device has its bytes."""
    links = {gpu.index: node.link.kind for node in cluster.nodes for gpu in node.gpus}
    return max((size / LOAD_BYTES_S.get(links.get(device, ""), 10e9) for device, size in sizes.items()), default=0.0)


def _payback_s(today: Candidate, target: Candidate, prices: Mapping[int, float], prepare_s: float) -> float | None:
    """None where the target occupies no less than today."""
    now, then = (sum(prices[device] for device in candidate.topology.devices) for candidate in (today, target))
    both = sum(prices[device] for device in {*today.topology.devices, *target.topology.devices})
    return prepare_s * (both - now) / (now - then) if then < now else None


def _prices(cluster: Cluster) -> dict[int, float]:
    """By device; all alike where the inventory states none."""
    priced = any(gpu.usd_per_hour for gpu in cluster.gpus)
    return {gpu.index: gpu.usd_per_hour if priced else 1.0 for gpu in cluster.gpus}


@dataclass(frozen=True)
class Ranking:
    """The candidates for one problem and what is demanded of them."""

    demands: Demands
    problem: SearchInput
    candidates: Sequence[Candidate]

    @cached_property
    def best_first(self) -> list[Candidate]:
        """Every candidate, in order; the text of the topology settles what is equal in everything."""
        ordered = sorted(self.candidates, key=self._key)
        alike = (list(group) for _, group in groupby(ordered, key=self._key))
        return [candidate for group in alike for candidate in (self._fewest_bytes_first(group) if group[1:] else group)]

    @cached_property
    def today(self) -> Candidate | None:
        """What runs now, at the best of its batch limits."""
        now = [candidate for candidate in self.candidates if candidate.topology == self.problem.now]
        return min(now, key=lambda candidate: (self._worth(candidate), str(candidate.topology)), default=None)

    def missed(self, bounds: Sequence[Bound], candidate: Candidate) -> list[Bound]:
        """The bounds that a candidate is predicted not to hold."""
        return [bound for bound in bounds if not holds(bound, candidate, self.problem.workload)]

    def why_loses(self, loser: Candidate, winner: Candidate) -> str:
        """The first difference, as the rest of a sentence that begins with "it"."""
        stated = (*self.demands.bounds, *self.demands.wishes)
        for bound in self.missed(stated, loser):
            if holds(bound, winner, self.problem.workload):
                return explain.misses(margin_of(bound, loser, self.problem.workload, explain.goal_words(bound)))
        for goal in self.demands.optimised:
            mine = self._signed(goal, loser)
            best = self._signed(goal, winner)
            if mine != best:
                return explain.optimises_less(goal, abs(mine), abs(best))
        if self.demands.balance and self._weighed_up(loser) != self._weighed_up(winner):
            return explain.balances_less(self.demands.balance, self._balanced(loser), self._balanced(winner))
        if self.cost(loser) != self.cost(winner):
            dearer = self.cost(loser) > self.cost(winner)
            return explain.dearer(loser, winner, priced=not self.problem.unpriced) if dearer else explain.UNASKED
        if self._needless(loser) and not self._needless(winner):
            return explain.not_worth_it(loser, winner)
        return explain.slower(loser, winner)

    def _key(self, candidate: Candidate) -> tuple[float, ...]:
        *worth, ttft_s, throughput, batch = self._worth(candidate)
        return (*worth, self._needless(candidate), ttft_s, throughput, batch)

    def _fewest_bytes_first(self, alike: Sequence[Candidate]) -> list[Candidate]:
        def moved(candidate: Candidate) -> tuple[int, str]:
            sizes = bytes_to_move(self.problem.now, candidate.topology, self.problem.model)
            return sum(sizes.values()), str(candidate.topology)

        return sorted(alike, key=moved)

    def _worth(self, candidate: Candidate) -> tuple[float, ...]:
        return (
            len(self.missed(self.demands.bounds, candidate)),
            len(self.missed(self.demands.wishes, candidate)),
            *(self._signed(goal, candidate) for goal in self.demands.optimised),
            self._weighed_up(candidate),
            self.cost(candidate),
            float(f"{candidate.prediction.ttft_s['p95']:.6g}"),
            -candidate.prediction.throughput_tok_s if math.isinf(candidate.prediction.ttft_s["p95"]) else 0.0,
            candidate.prediction.batch,
        )

    def _signed(self, goal: Bound, candidate: Candidate) -> float:
        """What an optimised goal reads, smaller is better; rounded so that the last digits decide nothing."""
        value = value_of(goal, candidate.topology, candidate.prediction, self.problem.workload)
        return float(f"{value if goal.op == 'minimize' else -value:.6g}")

    def cost(self, candidate: Candidate) -> float:
        """By the hour, or in devices where some have no price."""
        prediction = candidate.prediction
        return float(prediction.devices if self.problem.unpriced else f"{prediction.usd_per_hour:.6g}")

    def _balanced(self, candidate: Candidate) -> tuple[float, float]:
        """What the side that is weighed against cost reads, and the cost."""
        assert self.demands.balance is not None, "asked for only where there is one"
        better = self.demands.balance.better
        value = value_of(better, candidate.topology, candidate.prediction, self.problem.workload)
        return value, self.cost(candidate)

    def _weighed_up(self, candidate: Candidate) -> float:
        """The two together, smaller is better; 0 where nothing is weighed."""
        balance = self.demands.balance
        if balance is None:
            return 0.0
        value, cost = self._balanced(candidate)
        reading = 1 / value if balance.better.op == "maximize" else value
        return float(f"{balance.score(reading, cost):.6g}")

    def _needless(self, candidate: Candidate) -> bool:
        """A switch whose gain in TTFT the error band swallows."""
        today = self.today
        if today is None or candidate.topology == today.topology:
            return False
        return candidate.prediction.ttft_s["p95"] > today.prediction.ttft_s["p95"] * (1 - today.prediction.error_band)
