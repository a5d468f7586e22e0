"""What the router of replicas keeps to: shares of the last plan, and bounds that are promised."""

from collections.abc import Iterable

from intent.models import Goal, Objective
from runtime.replicas.choice import Bounds
from runtime.replicas.replica import Policy, Share
from selector.models import Plan


def shares_of(plan: Plan | None) -> dict[str, Share]:
    """Of each replica of a plan's target, by its text."""
    parts = plan.replicas if plan else ()
    return {
        str(part.topology): Share(
            part.share,
            frozenset(part.not_for),
            frozenset(part.only_for) if part.only_for else None,
            part.speed,
        )
        for part in parts
    }


def policy_of(plan: Plan | None, goals: Iterable[Goal]) -> Policy:
    """For everyone, and for each tenant of whom goals speak."""
    bounds = [goal for goal in goals if isinstance(goal, Objective) and goal.op == "<=" and goal.unit == "s"]
    tenants = {goal.tenant for goal in bounds if goal.tenant}
    of_all = [goal for goal in bounds if not goal.tenant]
    return Policy(
        shares_of(plan),
        _tightest(of_all),
        {name: _tightest([*of_all, *(goal for goal in bounds if goal.tenant == name)]) for name in tenants},
    )


def _tightest(goals: Iterable[Objective]) -> Bounds:
    least = {"ttft": Bounds().ttft_s, "tpot": Bounds().tpot_s}
    for goal in goals:
        if goal.metric in least and goal.value is not None:
            least[goal.metric] = min(least[goal.metric], goal.value)
    return Bounds(least["ttft"], least["tpot"])
