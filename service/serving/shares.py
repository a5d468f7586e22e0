"""What the router of replicas keeps to: shares of the last plans, and what is promised."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from intent.models import Goal, Objective, Placement, PrecisionRule
from runtime.models import Topology
from runtime.replicas.choice import Bounds
from runtime.replicas.replica import NO_SHARE, Policy, Share
from selector.models import Plan, SearchInput
from selector.objectives import barred_tenants, said_for


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


def barred_of(sets: Sequence[Topology], problem: SearchInput, goals: Iterable[Goal]) -> dict[str, frozenset[str]]:
    """The tenants whom each replica of some sets may not serve as goals say, by its text.

    Whom no replica of one of them may serve is served all the same: that promise is missed, and told.
    """
    rules = [goal for goal in goals if isinstance(goal, PrecisionRule | Placement) and said_for(goal)]
    here = replace(problem, for_tenants=tuple(rules))
    found = {each: barred_tenants(each, here) for topology in sets for each in topology.replicas}
    nowhere = [frozenset.intersection(*(found[each] for each in topology.replicas)) for topology in sets]
    return {str(each): names.difference(*nowhere) for each, names in found.items()}


def policy_of(plans: Iterable[Plan | None], goals: Iterable[Goal], barred: Mapping[str, frozenset[str]]) -> Policy:
    """For everyone, and for each tenant of whom goals speak.

    Of the plans the last one that has a replica counts.
    """
    shares = dict[str, Share]()
    for plan in filter(None, plans):  # one of a single replica has no shares, and ends what was said of it
        shares |= dict.fromkeys(map(str, plan.target.replicas), NO_SHARE) | shares_of(plan)
    known = [(text, names, shares.get(text, NO_SHARE)) for text, names in barred.items() if names]
    shares |= {text: replace(share, barred=share.barred | names) for text, names, share in known}
    bounds = [goal for goal in goals if isinstance(goal, Objective) and goal.op == "<=" and goal.unit == "s"]
    tenants = {goal.tenant for goal in bounds if goal.tenant}
    of_all = [goal for goal in bounds if not goal.tenant]
    return Policy(
        shares,
        _tightest(of_all),
        {name: _tightest([*of_all, *(goal for goal in bounds if goal.tenant == name)]) for name in tenants},
    )


def _tightest(goals: Iterable[Objective]) -> Bounds:
    least = {"ttft": Bounds().ttft_s, "tpot": Bounds().tpot_s}
    for goal in goals:
        if goal.metric in least and goal.value is not None:
            least[goal.metric] = min(least[goal.metric], goal.value)
    return Bounds(least["ttft"], least["tpot"])
