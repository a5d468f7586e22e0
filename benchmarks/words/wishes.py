"""Goals that operators could have, drawn at random: every type, every kind of window, good sides only."""

import random
from collections.abc import Callable
from typing import get_args

from intent.models import (
    DAYS,
    HIGHER_IS_BETTER,
    LATENCIES,
    LOSSES,
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

EVIDENCE = "said"
MOST_GOALS = 4

_DAY_SETS = (
    DAYS,
    DAYS[:5],
    DAYS[5:],
    ("mon",),
    ("tue", "thu"),
    ("mon", "wed", "fri"),
    ("fri", "sat", "sun"),
)
_HOURS = (
    ("09:00", "18:00"),
    ("22:00", "06:00"),
    ("08:30", "20:15"),
    ("00:00", "24:00"),
    ("13:00", "14:30"),
    ("18:00", "24:00"),
)
_ZONES = ("Asia/Shanghai", "Europe/Berlin", "America/New_York")
_DURATIONS_S = (1800.0, 2700.0, 3600.0, 7200.0, 86400.0)
_STATS: tuple[Stat, ...] = ("p50", "p90", "p95", "p99", "p99.9", "mean")
_WORKLOADS = ("latency_critical", "batch", "interactive", "rest")
_SIDES = ("latency", "throughput", "cost", "quality")
_VALUES = {
    "s": (0.035, 0.05, 0.2, 0.75, 1.0, 1.5, 2.0, 12.5, 90.0),
    "tokens/s": (50.0, 800.0, 1500.0, 12000.0),
    "requests/s": (0.5, 2.0, 7.5, 10.0, 40.0),
    "ratio": (0.001, 0.005, 0.02, 0.35, 0.6, 0.8, 0.9995),
    "gpus": (2.0, 4.0, 6.0),
    "USD/h": (6.0, 12.5, 40.0),
    "USD/day": (120.0, 250.0),
    "USD/month": (4000.0, 9999.0),
    "USD/Mtok": (0.75, 6.0),
}


def wish(chance: random.Random, catalogue: Catalogue) -> tuple[Goal, ...]:
    """One to four different goals."""
    makers = (
        _objective,
        _objective,
        _relative,
        _exception,
        _precision,
        _placement,
        _priority,
        _config,
        _reconfig,
    )
    many = chance.randint(1, MOST_GOALS)
    return tuple(dict.fromkeys(_made(chance.choice(makers), chance, catalogue) for _ in range(many)))


Maker = Callable[[random.Random, Catalogue], Goal]


def _made(make: Maker, chance: random.Random, catalogue: Catalogue) -> Goal:
    return make(chance, catalogue)


def _objective(chance: random.Random, catalogue: Catalogue) -> Goal:
    metric = chance.choice(list(UNITS))
    unit = chance.choice(UNITS[metric])
    op = chance.choice(_good_ops(metric))
    is_open = chance.random() < 0.1
    return Objective(
        metric=metric,  # type: ignore[arg-type] # the keys of UNITS are the metrics
        op=_optimised(metric) if is_open else op,
        evidence=EVIDENCE,
        stat=chance.choice(_STATS) if metric in LATENCIES else None,
        value=None if is_open else chance.choice(_VALUES[unit]),
        unit=None if is_open else unit,
        window=_window(chance, catalogue),
        tenant=_maybe(chance, catalogue.tenants),
        model=_maybe(chance, catalogue.models),
        soft=chance.random() < 0.15,
        over_s=None if is_open or chance.random() < 0.8 else chance.choice((300, 3600, 604_800, 2_592_000)),
    )


def _good_ops(metric: str) -> tuple[Op, ...]:
    if metric == "gpu_util":
        return ("<=", ">=")
    if metric == "gpu_count":
        return ("<=", "==", ">=")
    return (">=",) if metric in HIGHER_IS_BETTER else ("<=",)


def _optimised(metric: str) -> Op:
    return "maximize" if metric in HIGHER_IS_BETTER | {"gpu_util"} else "minimize"


def _relative(chance: random.Random, catalogue: Catalogue) -> Goal:
    metric: Metric = chance.choice(("ttft", "tpot", "e2e", "throughput_tok", "throughput_req", "gpu_util", "cost"))
    is_raised = metric in HIGHER_IS_BETTER | {"gpu_util"}
    by_delta = metric in LATENCIES and chance.random() < 0.4
    return Relative(
        metric=metric,
        op=">=" if is_raised else "<=",
        evidence=EVIDENCE,
        stat=chance.choice(_STATS) if metric in LATENCIES else None,
        factor=None if by_delta else chance.choice((1.1, 1.3, 2.0, 6.0) if is_raised else (0.5, 0.7, 0.8, 0.95)),
        delta=-chance.choice((0.05, 0.2, 1.5)) if by_delta else None,
        unit="s" if by_delta else None,
        window=_window(chance, catalogue),
        tenant=_maybe(chance, catalogue.tenants),
        model=_maybe(chance, catalogue.models),
    )


def _exception(chance: random.Random, catalogue: Catalogue) -> Goal:
    metric: Metric = chance.choice(("ttft", "tpot", "e2e", "cost"))
    unit = chance.choice(UNITS[metric])
    kind = chance.choice(("limit", "factor", "none"))
    return TenantException(
        tenant=chance.choice(catalogue.tenants),
        metric=metric,
        evidence=EVIDENCE,
        limit=chance.choice(_VALUES[unit]) if kind == "limit" else None,
        unit=unit if kind == "limit" else None,
        factor=chance.choice((1.1, 1.2, 1.5, 2.0)) if kind == "factor" else None,
        window=_window(chance, catalogue),
    )


def _precision(chance: random.Random, catalogue: Catalogue) -> Goal:
    rule, values = chance.choice(
        (
            ("require", ("int8", "fp8", "fp16", "bf16", "full")),
            ("forbid", ("int4", "int8", "fp8", "fp16")),
            ("allow", ("int4", "int8", "fp8", "fp16", "bf16")),
            ("min", ("int8", "fp8", "fp16", "bf16")),
        )
    )
    return PrecisionRule(
        rule=rule,  # type: ignore[arg-type] # the literals above
        value=chance.choice(values),  # type: ignore[arg-type] # the same
        evidence=EVIDENCE,
        window=_window(chance, catalogue),
        tenant=_maybe(chance, catalogue.tenants),
        model=_maybe(chance, catalogue.models),
        layers=_maybe(chance, ("middle", "first 4", "last 1", "8-16", "5-5")),
    )


def _placement(chance: random.Random, catalogue: Catalogue) -> Goal:
    kinds = [f"gpu_type:{kind}" for kind in catalogue.gpu_kinds]
    selector = chance.choice([*kinds, "gpu:gpu-1", "gpu:gpu-6", *(f"node:{node}" for node in catalogue.nodes)])
    workloads = (*_WORKLOADS, *(f"tenant:{tenant}" for tenant in catalogue.tenants))
    is_freeze = chance.random() < 0.25
    return Placement(
        rule="freeze" if is_freeze else chance.choice(("require", "prefer", "forbid")),
        selector=selector,
        evidence=EVIDENCE,
        workload=None if is_freeze else _maybe(chance, workloads, share=0.8),
        window=_window(chance, catalogue),
    )


def _priority(chance: random.Random, catalogue: Catalogue) -> Goal:
    higher, lower = chance.sample((*_SIDES, *(f"tenant:{tenant}" for tenant in catalogue.tenants)), 2)
    return Priority(
        higher=higher,
        evidence=EVIDENCE,
        lower=lower if chance.random() < 0.7 else None,
        window=_window(chance, catalogue),
    )


def _config(chance: random.Random, catalogue: Catalogue) -> Goal:
    key = chance.choice(get_args(Config.__annotations__["key"]))
    return Config(
        key=key,
        op=">=" if key in LOSSES else chance.choice(("==", "<=", ">=")),
        value=chance.choice((1, 2, 4, 8)),
        evidence=EVIDENCE,
        window=_window(chance, catalogue),
        model=_maybe(chance, catalogue.models),
    )


def _reconfig(chance: random.Random, catalogue: Catalogue) -> Goal:
    is_limit = chance.random() < 0.6
    return ReconfigRule(
        rule="limit" if is_limit else "forbid",
        evidence=EVIDENCE,
        value=float(chance.randint(1, 6)) if is_limit else None,
        unit=chance.choice(("1/h", "1/day")) if is_limit else None,
        window=_window(chance, catalogue),
    )


def _maybe(chance: random.Random, names: tuple[str, ...], share: float = 0.25) -> str | None:
    return chance.choice(names) if names and chance.random() < share else None


def _window(chance: random.Random, catalogue: Catalogue) -> Window:
    match chance.choice(("always", "named", "named", "recurring", "dated", "now")):
        case "named":
            return chance.choice([name for name in catalogue.windows if name != "always"])
        case "recurring":
            start, end = chance.choice(_HOURS)
            days = chance.choice(_DAY_SETS)
            if days == DAYS and (start, end) == ("00:00", "24:00"):
                return "always"
            return RecurringWindow(days, start, end, _zone(chance, catalogue))
        case "dated":
            return _dated(chance, catalogue)
        case "now":
            return FromNowWindow(chance.choice(_DURATIONS_S))
        case _:
            return "always"


def _dated(chance: random.Random, catalogue: Catalogue) -> DatedWindow:
    start, end = chance.choice(_HOURS)
    first = f"2026-12-{chance.randint(1, 28):02}"
    zone = _zone(chance, catalogue)
    if chance.random() < 0.5:
        return DatedWindow(first, start, end, zone)
    return DatesWindow(first, start, end, zone, f"2027-01-{chance.randint(1, 28):02}")


def _zone(chance: random.Random, catalogue: Catalogue) -> str:
    return chance.choice((catalogue.tz, catalogue.tz, *_ZONES))
