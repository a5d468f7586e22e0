"""Goals as tests say them, and answers as they expect them."""

from dataclasses import replace

from intent.models import Config, Objective
from runtime.models import Topology
from selector.models import Candidate, Infeasible, Plan, Prediction

CHEAPEST = Objective("cost", "minimize", "as cheap as possible")


STATS = ("mean", "p50", "p90", "p95", "p99", "p99.9")


def alike(value: float) -> dict[str, float]:
    """Every statistic of a latency."""
    return dict.fromkeys(STATS, value)


def predicted(
    topology: Topology, ttft_s: float = 0.5, tpot_s: float = 0.01, usd: float = 1.0, **more: object
) -> Candidate:
    """A topology with a prediction: the band is 10 %, everything keeps up."""
    latencies = alike(ttft_s), alike(tpot_s), alike(1.0)
    prediction = Prediction(*latencies, 1e6, 0.1, usd, 8, 0.0, 0.1, "measured", len(topology.devices))
    return Candidate(topology, replace(prediction, **more), "")


def ttft(value: float, **more: object) -> Objective:
    return Objective("ttft", "<=", "keep p99 TTFT", stat="p99", value=value, unit="s", **more)


def cost(value: float) -> Objective:
    return Objective("cost", "<=", "cheap", value=value, unit="USD/h")


def config(key: str, op: str, value: int) -> Config:
    return Config(key, op, value, "run it so")


def plan_of(answer: Plan | Infeasible) -> Plan:
    assert isinstance(answer, Plan), answer
    return answer


def infeasible(answer: Plan | Infeasible) -> Infeasible:
    assert isinstance(answer, Infeasible), answer
    return answer
