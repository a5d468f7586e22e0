"""Goals that are said relative to today: "a fifth cheaper". Pure."""

from collections.abc import Sequence

from intent.models import UNITS, Goal, Objective, Relative
from selector.models import Candidate, Workload
from selector.objectives import EVALUATED, value_of


def absolute(goals: Sequence[Goal], today: Candidate | None, workload: Workload) -> list[Goal]:
    """The goals with relative ones as bounds on what today's topology is predicted to do; they stay as they are without one."""
    return [
        _bound(goal, today, workload)
        if today and isinstance(goal, Relative) and goal.metric in EVALUATED
        else goal
        for goal in goals
    ]


def _bound(goal: Relative, today: Candidate, workload: Workload) -> Objective:
    unit = goal.unit or UNITS[goal.metric][0]
    said = Objective(goal.metric, goal.op, goal.evidence, stat=goal.stat, unit=unit)
    current = value_of(said, today.topology, today.prediction, workload)
    value = current * goal.factor if goal.factor is not None else current + (goal.delta or 0.0)
    return Objective(
        goal.metric,
        goal.op,
        goal.evidence,
        stat=goal.stat,
        value=value,
        unit=unit,
        window=goal.window,
        tenant=goal.tenant,
        model=goal.model,
    )
