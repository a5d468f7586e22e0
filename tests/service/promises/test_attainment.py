"""Which requests met a goal: tenants, exceptions, percentiles, and what chance explains."""

import math
from dataclasses import replace

from intent.models import Objective, TenantException
from service.promises.attainment import (
    RequestSample,
    ServiceSample,
    Tally,
    counted,
    look_meets,
    needed,
    requests,
)
from tests.rows import rows

TTFT = Objective("ttft", "<=", "2s", "p99", 2.0, "s")
SAMPLES = [
    RequestSample("ttft", tenant, 0.0, value) for tenant, value in [("", 1), ("free", 3), ("free", 9), ("paid", 2)]
]
LOOK = ServiceSample(
    devices=2, gpu_util=0.3, usd_per_hour=4.0, rate_rps=1.0, rate_tok_s=90.0, waiting=0, means={"ttft": 1.5}
)


def objective(metric: str, op: str, value: float, **facts: str) -> Objective:
    return Objective(metric, op, "said", value=value, **{"unit": "s", **facts})  # type: ignore[arg-type]


def test_requests_of_everybody_or_of_the_tenant_that_a_goal_is_about() -> None:
    assert requests(TTFT, SAMPLES) == Tally(2, 4)
    assert requests(replace(TTFT, tenant="free"), SAMPLES) == Tally(0, 2)


@rows(
    ("exception", "tally"),
    [
        (TenantException("free", "ttft", "free 4 s", 4.0, "s"), Tally(3, 4)),
        (TenantException("free", "ttft", "free five times that", factor=5), Tally(4, 4)),
        (TenantException("free", "ttft", "not free"), Tally(2, 2)),
        (TenantException("free", "tpot", "free 4 s", 4.0, "s"), Tally(2, 4)),
    ],
)
def test_an_exception_relaxes_the_bound_for_its_tenant(exception: TenantException, tally: Tally) -> None:
    assert requests(TTFT, SAMPLES, [exception]) == tally


def test_an_error_rate_counts_requests_that_failed() -> None:
    ended = [RequestSample("error_rate", "", 0.0, failed) for failed in (0, 0, 1)]
    goal = objective("error_rate", "<=", 0.01, unit="ratio")
    assert (requests(goal, ended), needed(goal)) == (Tally(2, 3), 0.99)


@rows(("stat", "share"), [("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999)])
def test_a_percentile_is_the_share_that_it_needs(stat: str, share: float) -> None:
    assert math.isclose(needed(objective("e2e", "<=", 1, stat=stat)), share)


@rows(
    ("goal", "meets"),
    [
        (objective("gpu_util", ">=", 0.4), False),
        (objective("gpu_count", "<=", 2), True),
        (objective("gpu_count", "==", 1), False),
        (objective("cost", "<=", 90, unit="USD/day"), False),
        (objective("throughput_req", ">=", 5), True),
        (objective("ttft", "<=", 1, stat="mean"), False),
        (objective("tpot", "<=", 1, stat="mean"), None),
    ],
)
def test_a_look_at_the_service(goal: Objective, meets: bool | None) -> None:
    assert counted(goal) == "ticks"
    assert look_meets(goal, LOOK) is meets


@rows(
    "goal",
    [
        objective("availability", ">=", 0.99),
        objective("ttft", "minimize", 1),
        objective("ttft", ">=", 1, stat="p99"),
    ],
)
def test_what_nothing_here_tells(goal: Objective) -> None:
    assert counted(goal) is None


@rows(
    ("met", "total", "short"),
    [(29, 30, False), (27, 30, True), (0, 4, False), (0, 5, True), (100, 100, False)],
)
def test_a_share_falls_short_when_chance_does_not_explain_it(met: int, total: int, short: bool) -> None:
    assert Tally(met, total).falls_short(0.99) is short
