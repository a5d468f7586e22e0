"""Values that no service can have: percentages over 100, durations of nothing, latencies below what hardware allows. Pure."""

from collections.abc import Iterator, Sequence

from intent.models import METRIC_LABELS, UNITS, Config, Finding, Goal, Objective

FLOORS_S = {"ttft": 1e-3, "tpot": 1e-4, "e2e": 1e-3, "reconfig_pause": 1e-4}
"""Shortest times worth asking for, in seconds: a request crosses a network and a forward pass before its first token
(1 ms), and a token reads the weights once (0.1 ms for 300 MB at 3 TB/s)."""

_MAY_BE_ZERO = frozenset({"availability", "error_rate", "quality_loss"})


def check(goals: Sequence[Goal]) -> Iterator[Finding]:
    """One finding for each goal whose value is impossible by itself."""
    for number, goal in enumerate(goals):
        if isinstance(goal, Config) and goal.value < 1:
            yield _finding(
                "not_positive",
                number,
                goal,
                f"{goal.key.upper()} {goal.value} is impossible; it is at least 1",
            )
        elif isinstance(goal, Objective) and goal.value is not None:
            yield from _objective(number, goal, goal.value)


def _objective(number: int, goal: Objective, value: float) -> Iterator[Finding]:
    label = METRIC_LABELS[goal.metric]
    if value < 0 or (value == 0 and goal.metric not in _MAY_BE_ZERO):
        yield _finding("not_positive", number, goal, f"{goal.evidence!r}: a {label} is more than nothing")
    elif UNITS[goal.metric] == ("ratio",) and value > 1:
        yield _finding(
            "over_100_percent", number, goal, f"{value * 100:g} % is over 100 %, which no {label} can be"
        )
    elif value < (floor := FLOORS_S.get(goal.metric, 0.0)) and goal.op != ">=":
        words = f"{goal.evidence!r} is below {floor * 1e3:g} ms, which no hardware can do"
        yield _finding("below_physical_floor", number, goal, words)


def _finding(code: str, number: int, goal: Objective | Config, message: str) -> Finding:
    return Finding(code, f"/goals/{number}/value", message, goal.evidence)
