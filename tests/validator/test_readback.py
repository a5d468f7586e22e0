import re
from dataclasses import fields, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from intent.models import (
    METRIC_LABELS,
    Assumption,
    Config,
    DatedWindow,
    FromNowWindow,
    Goal,
    Objective,
    Placement,
    PrecisionRule,
    Priority,
    ReconfigRule,
    RecurringWindow,
    Relative,
    TenantException,
)
from intent.times import spoken
from validator.readback import render
from validator.schema import check
from validator.testing import TYPES, any_goals, goals, windows
from validator.words import Words, name, plain


def ttft(value=2.0, **said):
    return Objective("ttft", "<=", said.pop("evidence", "x"), said.pop("stat", "p99"), value, "s", **said)


def changed(metric, op, stat=None, **said):
    return Relative(metric, op, "x", stat, **said)


def excepted(metric, **said):
    return TenantException("paid", metric, "x", **said)


CASES = [
    (ttft(window="peak"), "P99 TTFT at most 2 s at peak", "高峰期 P99 首字延迟（TTFT）不超过 2 s"),
    (
        ttft(evidence="2000 ms"),
        "P99 TTFT at most 2000 ms at all times",
        "始终 P99 首字延迟（TTFT）不超过 2000 ms",
    ),
    (
        ttft(stat="mean", soft=True, tenant="acme", model="counting"),
        "Preferably mean TTFT at most 2 s for tenant acme for model counting at all times",
        "始终 平均 首字延迟（TTFT）尽量不超过 2 s，仅限租户 acme，仅限模型 counting",
    ),
    (
        Objective("gpu_count", "==", "x", value=4.0, unit="gpus", window="overnight"),
        "GPU count exactly 4 overnight",
        "夜间 GPU 数量等于 4",
    ),
    (
        Objective("gpu_util", ">=", "x", value=0.6, unit="ratio", window="business_hours"),
        "GPU utilisation at least 60 % during business hours",
        "工作时间 GPU 利用率不低于 60 %",
    ),
    (
        Objective("cost", "minimize", "x", window="off_peak"),
        "Minimise cost off-peak",
        "非高峰期 最小化 成本",
    ),
    (
        Objective("throughput_tok", "maximize", "x", "p50", soft=True, window="month_end"),
        "Preferably maximise P50 token throughput in window month_end",
        "时段 month_end 尽量最大化 P50 token 吞吐",
    ),
    (
        changed("ttft", "<=", "p99", factor=0.8),
        "Reduce P99 TTFT by 20 % at all times",
        "始终 P99 首字延迟（TTFT）降低 20 %",
    ),
    (
        changed("throughput_tok", ">=", factor=6.0),
        "Raise token throughput by 500 % at all times",
        "始终 token 吞吐提高 500 %",
    ),
    (
        changed("ttft", "<=", "p99", delta=-0.2, unit="s"),
        "Reduce P99 TTFT by 200 ms at all times",
        "始终 P99 首字延迟（TTFT）降低 200 ms",
    ),
    (
        changed("gpu_util", ">=", delta=0.1, unit="ratio"),
        "Raise GPU utilisation by 10 percentage points at all times",
        "始终 GPU 利用率提高 10 个百分点",
    ),
    (
        changed("ttft", "<=", "p99", factor=1.2),
        "P99 TTFT at most 1.2 times its present value at all times",
        "始终 P99 首字延迟（TTFT）不超过当前值的 1.2 倍",
    ),
    (
        changed("cost", "<=", delta=2.0, unit="USD/h"),
        "Cost at most 2 USD/h above its present value at all times",
        "始终 成本不超过当前值加 2 USD/h",
    ),
    (
        changed("cost", ">=", delta=-2.0, unit="USD/h"),
        "Cost at least 2 USD/h below its present value at all times",
        "始终 成本不低于当前值减 2 USD/h",
    ),
    (
        excepted("cost", factor=1.2),
        "Tenant paid may exceed the cost bound by up to 20 % at all times",
        "始终 租户 paid 可超出 成本约束最多 20 %",
    ),
    (
        excepted("availability", factor=0.8),
        "Tenant paid may fall below the availability bound by up to 20 % at all times",
        "始终 租户 paid 可低于 可用性约束最多 20 %",
    ),
    (
        excepted("cost", factor=1.0),
        "Tenant paid may exceed the cost bound up to 1 times the bound at all times",
        "始终 租户 paid 可超出 成本约束至约束的 1 倍",
    ),
    (
        excepted("ttft", limit=5.0, unit="s", window="peak"),
        "Tenant paid may exceed the TTFT bound up to 5 s at peak",
        "高峰期 租户 paid 可超出 首字延迟（TTFT）约束至 5 s",
    ),
    (
        excepted("throughput_tok", limit=50.0, unit="tokens/s"),
        "Tenant paid may fall below the token throughput bound down to 50 tokens/s at all times",
        "始终 租户 paid 可低于 token 吞吐约束至 50 tokens/s",
    ),
    (
        excepted("ttft"),
        "The TTFT bound does not apply to tenant paid at all times",
        "始终 首字延迟（TTFT）约束不适用于租户 paid",
    ),
    (PrecisionRule("require", "bf16", "x"), "Require bf16 at all times", "始终 要求 bf16"),
    (PrecisionRule("require", "full", "x"), "Require full precision at all times", "始终 要求 全精度"),
    (
        PrecisionRule("forbid", "int4", "x", window="peak", tenant="acme"),
        "Forbid int4 for tenant acme at peak",
        "高峰期 禁用 int4，仅限租户 acme",
    ),
    (PrecisionRule("allow", "fp8", "x"), "Allow fp8 at all times", "始终 允许 fp8"),
    (PrecisionRule("min", "fp8", "x"), "Precision at least fp8 at all times", "始终 精度不低于 fp8"),
    (
        Placement("require", "gpu_type:A100", "x", "latency_critical"),
        "Run latency_critical only on A100 at all times",
        "始终 latency_critical 只在 A100 上运行",
    ),
    (Placement("require", "node:a", "x"), "Run only on node a at all times", "始终 只在 节点 a 上运行"),
    (
        Placement("prefer", "gpu_type:L40S", "x", "rest"),
        "Run the rest preferably on L40S at all times",
        "始终 其余 尽量在 L40S 上运行",
    ),
    (
        Placement("forbid", "gpu:gpu-3", "x", "tenant:acme"),
        "Keep tenant acme off gpu-3 at all times",
        "始终 租户 acme 不在 gpu-3 上运行",
    ),
    (Placement("freeze", "gpu:gpu-1", "x"), "Leave gpu-1 alone at all times", "始终 不要动 gpu-1"),
    (Priority("latency", "x", "cost"), "Prioritise latency over cost at all times", "始终 延迟 优先于 成本"),
    (
        Priority("tenant:paid", "x"),
        "Prioritise tenant paid over everything else at all times",
        "始终 租户 paid 优先于 一切",
    ),
    (Config("tp", "==", 2, "x"), "Run with TP 2 at all times", "始终 TP 等于 2"),
    (Config("pp", "<=", 4, "x"), "Run with PP at most 4 at all times", "始终 PP 不超过 4"),
    (Config("replicas", ">=", 2, "x"), "Run with replicas at least 2 at all times", "始终 副本数 不低于 2"),
    (
        ReconfigRule("forbid", "x", window="business_hours"),
        "No reconfiguration during business hours",
        "工作时间 禁止重配置",
    ),
    (
        ReconfigRule("limit", "x", 2.0, "1/h"),
        "At most 2 reconfigurations per hour at all times",
        "始终 重配置每小时最多 2 次",
    ),
    (
        ReconfigRule("limit", "x", 1.0, "1/day"),
        "At most 1 reconfiguration per day at all times",
        "始终 重配置每天最多 1 次",
    ),
]


@pytest.mark.parametrize(("goal", "en", "zh"), CASES)
def test_a_goal_has_its_sentence_in_both_languages(goal, en, zh, intent_of):
    assert render(intent_of(goal)) == f"{en}."
    assert render(intent_of(goal, language="zh")) == f"{zh}。"


def test_goals_are_clauses_of_one_text(intent_of):
    two = (ttft(), Config("tp", "==", 2, "x", "peak"))
    assert render(intent_of(*two)) == "P99 TTFT at most 2 s at all times; run with TP 2 at peak."
    assert render(intent_of(*two, language="zh")) == "始终 P99 首字延迟（TTFT）不超过 2 s；高峰期 TP 等于 2。"
    assert render(intent_of()) == ""


@pytest.mark.parametrize(
    "window",
    [
        RecurringWindow(("mon", "fri"), "09:00", "17:00", "UTC"),
        DatedWindow("2026-11-27", "00:00", "24:00", "UTC"),
        FromNowWindow(7200.0),
    ],
)
@pytest.mark.parametrize("language", ["en", "zh"])
def test_a_window_said_in_the_text_is_spelt_out(window, language, intent_of):
    assert spoken(window, language) in render(
        intent_of(Config("tp", "==", 2, "x", window), language=language)
    )


@pytest.mark.parametrize(
    ("language", "slots", "sentence"),
    [
        ("en", ["stat", "window"], "P99 (assumed) TTFT at most 2 s at all times (assumed)."),
        (
            "en",
            ["metric", "op", "value", "unit"],
            "P99 TTFT (assumed) at most (assumed) 2 s (assumed) at all times.",
        ),
        ("en", ["evidence"], "P99 TTFT at most 2 s at all times [why]."),
        ("en", ["soft", "stat"], "P99 (assumed) TTFT at most 2 s at all times [why]."),
        ("zh", ["stat", "op", "window"], "始终（默认） P99（默认） 首字延迟（TTFT）不超过（默认） 2 s。"),
        ("zh", ["evidence"], "始终 P99 首字延迟（TTFT）不超过 2 s [why]。"),
    ],
)
def test_what_was_assumed_is_marked(language, slots, sentence, intent_of):
    assumed = tuple(Assumption(f"/goals/0/{slot}", "why") for slot in slots)
    assert render(replace(intent_of(ttft(), language=language), assumptions=assumed)) == sentence


def test_an_assumption_about_another_goal_is_not_marked(intent_of):
    assumed = (Assumption("/goals/1/stat", "why"), Assumption("/goals/10/window", "why"))
    assert render(replace(intent_of(ttft()), assumptions=assumed)) == "P99 TTFT at most 2 s at all times."


def test_a_setting_whose_comparison_is_assumed_says_it(intent_of):
    intent = replace(intent_of(Config("tp", "==", 2, "x")), assumptions=(Assumption("/goals/0/op", "why"),))
    assert render(intent) == "Run with TP exactly (assumed) 2 at all times."


SLOTS = {slot.name for kind in Goal.__args__ for slot in fields(kind)} - {"type", "evidence", "window"}


@given(goals(), st.sets(st.sampled_from(sorted(SLOTS))), st.sampled_from(["en", "zh"]))
def test_every_assumption_is_marked_or_noted(intent_of, goal, slots, language):
    said = [slot for slot in slots if hasattr(goal, slot)]
    bare = intent_of(goal, language=language)
    assumed = tuple(Assumption(f"/goals/0/{slot}", f"why {slot}") for slot in said)
    text = render(replace(bare, assumptions=assumed))
    mark = Words(language).say("assumed")
    assert bool(said) is (mark in text or "[" in text)
    unmarked = re.sub(r" \[why [^]]*\]", "", text.replace(mark, ""))
    assert unmarked == render(bare) or isinstance(goal, Config)  # whose "exactly" shows when it is assumed


def facts(goal, words):
    """What the words of a goal must name."""
    for slot in ("tenant", "model"):
        if said := getattr(goal, slot, None):
            yield name(said)
    if metric := getattr(goal, "metric", None):
        yield words.metric(metric)
    if stat := getattr(goal, "stat", None):
        yield words.say("mean") if stat == "mean" else stat.upper()
    for slot in ("selector", "higher", "lower", "workload", "value"):
        said = getattr(goal, slot, None)
        if isinstance(said, str) and said not in {"rest", "full"}:
            place = words.place if slot == "selector" else words.side if slot in {"higher", "lower"} else str
            yield place(said.removeprefix("tenant:") if slot == "workload" else said)
    if isinstance(goal, Config | ReconfigRule) and goal.value is not None:
        yield plain(goal.value)
    yield words.window(goal.window)


@given(goals(), st.sampled_from(["en", "zh"]))
def test_the_words_name_every_fact(intent_of, goal, language):
    text = render(intent_of(goal, language=language))
    folded = text.lower()
    assert [fact for fact in facts(goal, Words(language)) if fact.lower() not in folded] == []


def meant(goal):
    """A goal without the words it came from, its numbers to the digits that are printed."""
    numbers = {
        slot.name: plain(value)
        for slot in fields(goal)
        if isinstance(value := getattr(goal, slot.name), float) and slot.name != "duration_s"
    }
    return replace(goal, evidence="", **numbers)


@settings(max_examples=300)
@given(st.one_of(goals(), any_goals()), st.one_of(goals(), any_goals()), st.sampled_from(["en", "zh"]))
def test_two_different_goals_never_have_the_same_words(intent_of, a, b, language):
    if any(list(check(intent_of(one), Words("en"))) for one in (a, b)):
        return
    one, other = (render(intent_of(goal, language=language)) for goal in (a, b))
    assert one != other or meant(a) == meant(b)


@settings(max_examples=300)
@given(goals(), st.data(), st.sampled_from(["en", "zh"]))
def test_changing_one_fact_changes_the_words(intent_of, goal, data, language):
    near = data.draw(TYPES[type(goal)])
    slot = data.draw(
        st.sampled_from([one.name for one in fields(goal) if one.name not in {"evidence", "type"}])
    )
    changed = replace(goal, **{slot: getattr(near, slot)})
    if list(check(intent_of(changed), Words("en"))) or meant(changed) == meant(goal):
        return
    assert render(intent_of(changed, language=language)) != render(intent_of(goal, language=language))


@given(windows)
def test_every_window_has_words_in_both_languages(window):
    assert all(Words(language).window(window) for language in ("en", "zh"))


def test_every_metric_has_a_sentence(intent_of):
    said = {render(intent_of(Objective(metric, "minimize", "x"))) for metric in METRIC_LABELS}
    assert len(said) == len(METRIC_LABELS)
