"""Goals as tests say them, and answers as they expect them."""

from intent.models import Config, Objective
from selector.models import Infeasible, Plan

CHEAPEST = Objective("cost", "minimize", "as cheap as possible")


def ttft(value: float, **more: object) -> Objective:
    return Objective("ttft", "<=", "keep p99 TTFT", stat="p99", value=value, unit="s", **more)  # type: ignore[arg-type]  # keywords vary by test


def cost(value: float) -> Objective:
    return Objective("cost", "<=", "cheap", value=value, unit="USD/h")


def config(key: str, op: str, value: int) -> Config:
    return Config(key, op, value, "run it so")  # type: ignore[arg-type]  # literals vary by test


def plan_of(answer: Plan | Infeasible) -> Plan:
    assert isinstance(answer, Plan), answer
    return answer


def infeasible(answer: Plan | Infeasible) -> Infeasible:
    assert isinstance(answer, Infeasible), answer
    return answer
