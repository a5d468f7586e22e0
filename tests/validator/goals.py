"""Hypothesis strategies for goals, for tests of what reads or checks them.

``goal_sets()`` are wishes that operators have, with names of ``CATALOGUE``; ``any_goals()`` is whatever the schema lets pass.
"""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Literal, get_args, get_type_hints

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from intent.models import (
    DAYS,
    HIGHER_IS_BETTER,
    LATENCIES,
    LOSSES,
    NAMED_WINDOWS,
    UNITS,
    Catalogue,
    Config,
    DatedWindow,
    DatesWindow,
    FromNowWindow,
    Goal,
    Metric,
    Objective,
    Op,
    Placement,
    PrecisionRule,
    Priority,
    ReconfigRule,
    RecurringWindow,
    Relative,
    Stat,
    TenantException,
    Window,
)

CATALOGUE = Catalogue(
    models=("counting",),
    windows=(*NAMED_WINDOWS, "month_end"),
    now=datetime(2026, 11, 20, 10, tzinfo=UTC),
    tz="UTC",
    tenants=("acme", "paid"),
    devices={"A100": 4, "L40S": 4},
    nodes=("a", "b"),
)
"""What the names of these goals are names of; there are eight devices."""

CHANGED: tuple[Metric, ...] = (
    "ttft", "tpot", "e2e", "throughput_tok", "throughput_req", "gpu_util", "cost",
)  # fmt: skip
EXCEPTED: tuple[Metric, ...] = ("ttft", "tpot", "e2e", "throughput_tok", "availability", "error_rate", "cost")
SIDES = ("latency", "throughput", "cost", "quality", "tenant:acme", "tenant:paid")
SELECTORS = ("gpu_type:A100", "gpu_type:L40S", "gpu:gpu-0", "gpu:gpu-5", "node:a", "node:b")
WORKLOADS = (None, "latency_critical", "batch", "rest", "tenant:acme")
STATS = get_args(Stat)


def one_of_type(kind: type[Goal], slot: str) -> SearchStrategy[Any]:
    """One of the literal values that a slot of a goal may have."""
    return st.sampled_from(get_args(get_type_hints(kind)[slot]))


evidences = st.sampled_from(["x", "2 s", "300 ms", "1,500", "p99", "60", "0.5"])
tenants = st.sampled_from([None, *CATALOGUE.tenants])
models = st.sampled_from([None, *CATALOGUE.models])
clocks = st.builds("{:02}:{:02}".format, st.integers(0, 23), st.sampled_from([0, 5, 30]))
hours = st.tuples(clocks, clocks.map(lambda clock: clock if clock != "00:00" else "24:00")).filter(
    lambda ends: ends[0] != ends[1]
)
"""Start and end as people say them: midnight ends a day, and nothing begins when it ends."""
zones = st.sampled_from(["UTC", "Asia/Shanghai", "Europe/Berlin", "America/New_York"])
numbers = st.one_of(st.integers(1, 100_000).map(float), st.integers(1, 999_999).map(lambda n: n / 1000))
shares = st.integers(1, 1000).map(lambda n: n / 1000)
percents = st.integers(1, 99).map(float)


@st.composite
def recurring(draw: DrawFn, ends: SearchStrategy[tuple[str, str]], tz: SearchStrategy[str]) -> RecurringWindow:
    """Hours on days of the week, days in their order."""
    days = draw(st.sets(st.sampled_from(DAYS), min_size=1))
    return RecurringWindow(tuple(day for day in DAYS if day in days), *draw(ends), draw(tz))


@st.composite
def dated(draw: DrawFn) -> DatedWindow:
    """Hours on a date that is to come."""
    return DatedWindow(f"2026-12-{draw(st.integers(1, 28)):02}", *draw(hours), draw(zones))


@st.composite
def dates(draw: DrawFn) -> DatesWindow:
    """From a date that is to come to a later one."""
    return DatesWindow(f"2026-12-{draw(st.integers(1, 28)):02}", *draw(hours), draw(zones), "2027-01-03")


from_now = st.builds(FromNowWindow, st.integers(1, 14 * 24 * 60).map(lambda minutes: minutes * 60.0))
periods = st.integers(1, 366 * 24 * 60).map(lambda minutes: minutes * 60)
named: SearchStrategy[Window] = st.sampled_from(CATALOGUE.windows)
windows: SearchStrategy[Window] = st.one_of(named, recurring(hours, zones), dated(), dates(), from_now)


@st.composite
def objectives(draw: DrawFn) -> Objective:
    """A bound on the side that somebody needs, or an optimum."""
    metric = draw(st.sampled_from(get_args(Metric)))
    stat = draw(st.sampled_from(STATS)) if metric in LATENCIES else None
    goal = Objective(
        metric,
        "minimize",
        draw(evidences),
        stat,
        window=draw(windows),
        tenant=draw(tenants),
        model=draw(models),
        soft=draw(st.booleans()),
    )
    up = metric in HIGHER_IS_BETTER or (metric == "gpu_util" and draw(st.booleans()))
    if draw(st.integers(0, 4)) == 0:
        return replace(goal, op="maximize" if up else "minimize")
    unit = draw(st.sampled_from(UNITS[metric]))
    value = draw({"ratio": shares, "gpus": st.integers(1, 64).map(float)}.get(unit, numbers))
    op: Op = draw(st.sampled_from(["<=", ">=", "=="])) if metric == "gpu_count" else ">=" if up else "<="
    return replace(goal, op=op, value=value, unit=unit, over_s=draw(st.none() | periods))


@st.composite
def relatives(draw: DrawFn) -> Relative:
    """Better than now, by a share or by an amount."""
    metric = draw(st.sampled_from(CHANGED))
    up = metric in HIGHER_IS_BETTER or (metric == "gpu_util" and draw(st.booleans()))
    goal = Relative(
        metric,
        ">=" if up else "<=",
        draw(evidences),
        draw(st.sampled_from(STATS)) if metric in LATENCIES else None,
        window=draw(windows),
        tenant=draw(tenants),
        model=draw(models),
    )
    sign = 1 if up else -1
    if draw(st.booleans()):
        return replace(goal, factor=1 + sign * draw(percents) / 100)
    unit = draw(st.sampled_from(UNITS[metric]))
    return replace(goal, delta=sign * draw(shares if unit == "ratio" else numbers), unit=unit)


@st.composite
def exceptions(draw: DrawFn) -> TenantException:
    """Looser than the bound by a share, up to a limit, or without any."""
    metric = draw(st.sampled_from(EXCEPTED))
    goal = TenantException(
        draw(st.sampled_from(CATALOGUE.tenants)),
        metric,
        draw(evidences),
        window=draw(windows),
    )
    kind = draw(st.integers(0, 2))
    if kind == 0:
        return goal
    if kind == 1:
        sign = -1 if metric in HIGHER_IS_BETTER else 1
        return replace(goal, factor=1 + sign * draw(percents) / 100)
    unit = draw(st.sampled_from(UNITS[metric]))
    return replace(goal, limit=draw(shares if unit == "ratio" else numbers), unit=unit)


@st.composite
def precisions(draw: DrawFn) -> PrecisionRule:
    """A rule about numeric formats."""
    rule = draw(one_of_type(PrecisionRule, "rule"))
    return PrecisionRule(
        rule,
        draw(one_of_type(PrecisionRule, "value")),
        draw(evidences),
        draw(windows),
        draw(tenants),
        draw(models),
        draw(st.sampled_from((None, None, "middle", "first 4", "last 1", "0-3", "2-5"))),
    )


@st.composite
def placements(draw: DrawFn) -> Placement:
    """Devices for a workload; what is left alone is left alone for all."""
    rule = draw(one_of_type(Placement, "rule"))
    workload = None if rule == "freeze" else draw(st.sampled_from(WORKLOADS))
    selector, evidence, window = draw(st.sampled_from(SELECTORS)), draw(evidences), draw(windows)
    return Placement(rule, selector, evidence, workload, window)


@st.composite
def priorities(draw: DrawFn) -> Priority:
    """One side before another, or before everything else."""
    higher = draw(st.sampled_from(SIDES))
    lower = draw(st.sampled_from([None, *(side for side in SIDES if side != higher)]))
    return Priority(higher, draw(evidences), lower, draw(windows))


@st.composite
def configs(draw: DrawFn) -> Config:
    """What may be lost is always at least so much."""
    key = draw(one_of_type(Config, "key"))
    op = ">=" if key in LOSSES else draw(st.sampled_from(["==", "<=", ">="]))
    return Config(key, op, draw(st.integers(1, 128)), draw(evidences), draw(windows), draw(models))


@st.composite
def reconfigs(draw: DrawFn) -> ReconfigRule:
    """None, or so many an hour or a day."""
    evidence, window = draw(evidences), draw(windows)
    if draw(st.booleans()):
        return ReconfigRule("forbid", evidence, window=window)
    unit: Literal["1/h", "1/day"] = draw(st.sampled_from(["1/h", "1/day"]))
    value = float(draw(st.integers(1, 48)))
    return ReconfigRule("limit", evidence, value, unit, window)


TYPES: Mapping[type[Goal], SearchStrategy[Goal]] = {
    Objective: objectives(),
    Relative: relatives(),
    TenantException: exceptions(),
    PrecisionRule: precisions(),
    Placement: placements(),
    Priority: priorities(),
    Config: configs(),
    ReconfigRule: reconfigs(),
}
"""Type of goal to its strategy."""


def goals() -> SearchStrategy[Goal]:
    """A goal of any type."""
    return st.one_of(*TYPES.values())


def goal_sets(most: int = 4) -> SearchStrategy[list[Goal]]:
    """One goal to so many, of any type."""
    return st.lists(goals(), min_size=1, max_size=most)


@st.composite
def any_goals(draw: DrawFn) -> Goal:
    """Whatever the schema lets pass, sensible or not: the wrong side, other names, numbers of every size."""
    goal = draw(goals())
    wild = st.one_of(st.floats(allow_nan=True), st.floats(-1e4, 1e4), st.integers(-10, 10).map(float))
    said = st.text(min_size=1, max_size=12)
    changes: dict[str, SearchStrategy[Any]] = {
        "value": st.integers() if isinstance(goal, Config) else wild,
        "limit": wild,
        "factor": wild,
        "delta": wild,
        "op": st.sampled_from(["<=", ">=", "=="]),
        "tenant": said,
        "model": said,
        "workload": said,
        "window": st.one_of(said, windows, st.builds(FromNowWindow, st.floats(1e-9, allow_nan=False))),
        "selector": st.builds("{}:{}".format, st.sampled_from(["gpu", "gpu_type", "node"]), said),
    }
    for slot, strategy in changes.items():
        present = getattr(goal, slot, None) is not None
        if present and getattr(goal, slot) not in {"minimize", "maximize"} and draw(st.booleans()):
            changed: dict[str, Any] = {slot: draw(strategy)}
            goal = replace(goal, **changed)
    return goal
