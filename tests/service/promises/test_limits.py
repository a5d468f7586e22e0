"""ActiveGoal limits on reconfiguration."""

import math
from dataclasses import replace
from datetime import UTC, datetime

from intent.models import Config, Goal, Objective, Placement, PrecisionRule, Priority, ReconfigRule, TenantException
from runtime.capabilities import Batching
from runtime.models import Cluster, Gpu, Link, ModelSpec, Node, Topology, uniform
from selector.models import Plan, Prediction, SearchInput, SwitchPrediction, Workload
from service.promises.agenda import ActiveGoal
from service.promises.limits import barred, binding, breaches, still_broken
from tests.rows import rows

NOW = datetime(2026, 1, 5, 12, tzinfo=UTC)
NOW_S = NOW.timestamp()


FREEZE = ReconfigRule("forbid", "no changes")
TWO_AN_HOUR, ONE_A_DAY = (
    ReconfigRule("limit", "2 an hour", 2, "1/h"),
    ReconfigRule("limit", "once a day", 1, "1/day"),
)


@rows(
    ("rule", "ago_s", "said"),
    [
        (FREEZE, [], "a promise forbids switches ('no changes', intent-7)"),
        (TWO_AN_HOUR, [3601, 10], ""),
        (TWO_AN_HOUR, [3599, 10], "2 switches were made in the last hour, and 2 are"),
        (ONE_A_DAY, [86_401], ""),
        (ONE_A_DAY, [80_000], "1 switches were made in the last day, and 1 are"),
    ],
)
def test_a_limit_counts_what_was_switched_in_its_time_and_says_whose_it_is(
    rule: ReconfigRule, ago_s: list[float], said: str
) -> None:
    found = barred([ActiveGoal("intent-7", rule, NOW)], [NOW_S - one for one in ago_s], NOW)
    assert found.startswith(said)
    assert bool(found) is bool(said)


CLUSTER = Cluster(
    (Node("local", tuple(Gpu(index, "CPU", 8 << 30) for index in range(4)), Link("shared-memory", 5e9, 30e-6)),)
)
SPEC = ModelSpec("counting", "Qwen3ForCausalLM", 8, 128, 320, 8, 4, 32, 98, 16384)
PROBLEM = SearchInput(CLUSTER, SPEC, Workload(2.0, 100, 100, 8), None)


def predicted(ttft_s: float) -> Prediction:
    latency = {"mean": ttft_s, "p99": ttft_s}
    return Prediction(latency, latency, latency, 400.0, 0.5, 3.6, 8, 0.0, 0.0, "calibrated", 1)


def a_plan(target: str = "fp32", *, ttft_s: float = 1.0, now_s: float | None = 1.0) -> Plan:
    """From PP 2 on the devices 0 and 1 to the device 0 alone."""
    return Plan(
        id="plan-1",
        intent_id="intent-1",
        generation=1,
        model="counting",
        window="always",
        now=uniform(CLUSTER, "CPU", 1, 2, 8, "fp32"),
        target=uniform(CLUSTER, "CPU", 1, 1, 8, target),
        prediction=predicted(ttft_s),
        now_prediction=None if now_s is None else predicted(now_s),
        runner_up=None,
        reasons=(),
        switch=SwitchPrediction("shadow", 1.0, 0.4, 0.2, None),
    )


TTFT = Objective("ttft", "<=", "P99 TTFT < 2s", stat="p99", value=2.0, unit="s")
PAUSE = Objective("reconfig_pause", "<=", "pause under 100 ms", value=0.1, unit="s")


def place(rule: str, device: int, workload: str | None = None) -> Placement:
    return Placement(rule, f"gpu:gpu-{device}", "there", workload=workload)  # type: ignore[arg-type]


def breach(goal: Goal, plan: Plan) -> tuple[str, bool]:
    found = [*breaches(plan, PROBLEM, binding([ActiveGoal("intent-7", goal, NOW)], "counting"))]
    if not found:
        return "", False
    ((finding, is_new),) = found
    assert (finding.code, finding.pointer) == ("breaks_promise", "/promises/intent-7")
    return finding.message.removeprefix("this breaks what intent-7 promises: "), is_new


@rows(
    ("goal", "plan", "why", "is_new"),
    [
        (TTFT, a_plan(), "", False),
        (TTFT, a_plan(ttft_s=3), "it misses p99 TTFT <= 2 s: 3 s predicted", True),
        (TTFT, a_plan(ttft_s=math.inf), "it misses p99 TTFT <= 2 s: without end predicted", True),
        (
            TTFT,
            a_plan(ttft_s=3, now_s=4),
            "it misses p99 TTFT <= 2 s: 3 s predicted; what runs breaks it, too",
            False,
        ),
        (TTFT, a_plan(ttft_s=3, now_s=None), "it misses p99 TTFT <= 2 s: 3 s predicted", False),
        (replace(TTFT, soft=True), a_plan(ttft_s=3), "", False),
        (replace(TTFT, op="minimize", value=None), a_plan(ttft_s=3), "", False),
        (replace(TTFT, model="another"), a_plan(ttft_s=3), "", False),
        (replace(TTFT, tenant="gold"), a_plan(ttft_s=3), "it misses p99 TTFT <= 2 s: 3 s predicted", True),
        (PAUSE, a_plan(), "it misses reconfiguration pause <= 100 ms: 200 ms predicted", True),
        (replace(PAUSE, value=0.3), a_plan(), "", False),
        (Config("pp", ">=", 2, "pp of 2"), a_plan(), "it misses pp >= 2: it has 1", True),
        (PrecisionRule("min", "bf16", "x", tenant="gold"), a_plan("int8"), "it runs in int8", True),
        (PrecisionRule("require", "bf16", "x"), a_plan(), "it runs in fp32; what runs breaks it, too", False),
        (PrecisionRule("forbid", "int8", "x"), a_plan("int8"), "it runs in int8", True),
        (PrecisionRule("forbid", "int8", "x"), a_plan(), "", False),
        (PrecisionRule("allow", "int8", "x"), a_plan(), "", False),
        (PrecisionRule("forbid", "int8", "x", layers="last 1"), a_plan("int8"), "it has these layers in int8", True),
        (PrecisionRule("forbid", "int8", "x", layers="last 1"), a_plan(), "", False),
        (place("forbid", 0), a_plan(), "it takes the device 0; what runs breaks it, too", False),
        (
            place("forbid", 0, "tenant:gold"),
            a_plan(now_s=None),
            "it takes the device 0; what runs breaks it, too",
            False,
        ),
        (place("forbid", 0, "batch"), a_plan(), "", False),
        (place("forbid", 1), a_plan(), "", False),
        (place("require", 1), a_plan(), "it takes the device 0; what runs breaks it, too", False),
        (place("freeze", 1), a_plan(), "it changes the device 1", True),
        (place("freeze", 3), a_plan(), "", False),
        (place("prefer", 3), a_plan(), "", False),
        (ReconfigRule("forbid", "x"), a_plan(), "", False),
        (Priority("latency", "x"), a_plan(), "", False),
        (TenantException("free", "ttft", "x"), a_plan(), "", False),
    ],
)
def test_each_promise_is_held_against_the_target_of_a_plan(goal: Goal, plan: Plan, why: str, is_new: bool) -> None:
    assert breach(goal, plan) == (why, is_new)


def test_a_plan_that_changes_nothing_breaks_nothing() -> None:
    stays = a_plan(ttft_s=3)
    stays = replace(stays, target=stays.now or stays.target)
    assert breach(TTFT, stays) == ("", False)
    refilled = replace(stays, now_batching=Batching(8, 512), batching=Batching(64, 2048))
    assert breach(TTFT, refilled) == ("it misses p99 TTFT <= 2 s: 3 s predicted", True)


def test_what_is_promised_no_more_is_not_broken() -> None:
    goal = ActiveGoal("intent-7", TTFT, NOW)
    ((found, _),) = breaches(a_plan(ttft_s=3), PROBLEM, [goal])
    assert still_broken([found], [goal]) == [found]
    assert still_broken([found], [replace(goal, intent_id="intent-8")]) == []
    assert still_broken([replace(found, code="injection_suspected")], []) != []


def test_a_set_that_may_lose_a_device_keeps_that_promise() -> None:
    goal = Config("lost_devices", ">=", 1, "survive the loss of one GPU")
    alone = a_plan()
    both = Topology.of_replicas(uniform(CLUSTER.part(devices), "CPU", 1, 1, 8, "fp32") for devices in ((0,), (1,)))
    for plan, is_broken in ((alone, True), (replace(alone, target=both), False)):
        found = list(breaches(plan, PROBLEM, [ActiveGoal("intent-7", goal, NOW)]))
        assert bool(found) is is_broken, found


def test_what_was_said_for_one_tenant_is_kept_by_one_replica() -> None:
    goal = PrecisionRule("require", "bf16", "enterprise stays on bf16", tenant="enterprise")
    int8, bf16 = (
        uniform(CLUSTER.part((device,)), "CPU", 1, 1, 8, name) for device, name in enumerate(("int8", "bf16"))
    )
    for target, is_broken in ((int8, True), (bf16, False), (Topology.of_replicas((int8, bf16)), False)):
        found = list(breaches(replace(a_plan(), target=target), PROBLEM, [ActiveGoal("intent-7", goal, NOW)]))
        assert bool(found) is is_broken, found
