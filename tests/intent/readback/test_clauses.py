import re
from dataclasses import fields, replace
from typing import get_args

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
    Intent,
    Objective,
    Placement,
    PrecisionRule,
    Priority,
    ReconfigRule,
    RecurringWindow,
    Relative,
    TenantException,
    TranslatorInfo,
)
from intent.readback import Words, in_words, name, plain, render
from intent.rules import read
from intent.times import spoken
from tests.validator.goals import CATALOGUE, TYPES, any_goals, goals, windows
from validator.schema import check
from validator.words import Words as ValidatorWords


def ttft(value=2.0, **said):
    return Objective("ttft", "<=", said.pop("evidence", "x"), said.pop("stat", "p99"), value, "s", **said)


def changed(metric, op, stat=None, **said):
    return Relative(metric, op, "x", stat, **said)


def excepted(metric, **said):
    return TenantException("paid", metric, "x", **said)


def meant(goal):
    """A goal without the words it came from, its numbers to the digits that are printed."""
    numbers = {
        slot.name: plain(value)
        for slot in fields(goal)
        if isinstance(value := getattr(goal, slot.name), float) and slot.name != "duration_s"
    }
    return replace(goal, evidence="", **numbers)


def valid(goal):
    """Whether a document may hold it."""
    return not list(check(Intent("x", "en", (goal,), TranslatorInfo("rules")), ValidatorWords("en")))


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
ODD = [
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
        excepted("cost", factor=1.0),
        "Tenant paid may exceed the cost bound up to 1 times the bound at all times",
        "始终 租户 paid 可超出 成本约束至约束的 1 倍",
    ),
]
"""What only a document says: changes for the worse, and an exception to the bound itself."""


@pytest.mark.parametrize(("goal", "en", "zh"), [*CASES, *ODD])
def test_a_goal_has_its_sentence_in_both_languages(goal, en, zh):
    assert in_words([goal], "en") == f"{en}."
    assert in_words([goal], "zh") == f"{zh}。"


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("goal", [case[0] for case in CASES], ids=[case[1] for case in CASES])
def test_the_rules_read_the_sentence_of_a_goal_to_the_goal(goal, language):
    draft = read(in_words([goal], language), CATALOGUE)
    assert [meant(one) for one in draft.goals] == [meant(goal)]
    assert draft.questions == []


@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_rules_read_the_text_of_several_goals_to_the_goals(language):
    some = [case[0] for case in CASES[::5]]
    assert {meant(one) for one in read(in_words(some, language), CATALOGUE).goals} == set(map(meant, some))


def test_there_is_a_sentence_of_every_type_above():
    assert {type(case[0]) for case in CASES} == set(get_args(Goal))


def test_goals_are_clauses_of_one_text():
    two = (ttft(), Config("tp", "==", 2, "x", "peak"))
    assert in_words(two, "en") == "P99 TTFT at most 2 s at all times; run with TP 2 at peak."
    assert in_words(two, "zh") == "始终 P99 首字延迟（TTFT）不超过 2 s；高峰期 TP 等于 2。"
    assert in_words((), "en") == ""


def test_the_readback_of_an_intent_is_in_its_language_and_marks_its_assumptions():
    intent = Intent("x", "zh", (ttft(),), TranslatorInfo("rules"))
    assert render(intent) == "始终 P99 首字延迟（TTFT）不超过 2 s。"
    assumed = replace(intent, assumptions=(Assumption("/goals/0/window", "why"),))
    assert render(assumed) == "始终（默认） P99 首字延迟（TTFT）不超过 2 s。"


@pytest.mark.parametrize(
    "window",
    [
        RecurringWindow(("mon", "fri"), "09:00", "17:00", "UTC"),
        DatedWindow("2026-11-27", "00:00", "24:00", "UTC"),
        FromNowWindow(7200.0),
    ],
)
@pytest.mark.parametrize("language", ["en", "zh"])
def test_a_window_said_in_the_text_is_spelt_out(window, language):
    assert spoken(window, language) in in_words([Config("tp", "==", 2, "x", window)], language)


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
def test_what_was_assumed_is_marked(language, slots, sentence):
    assumed = [Assumption(f"/goals/0/{slot}", "why") for slot in slots]
    assert in_words([ttft()], language, assumed) == sentence


def test_an_assumption_about_another_goal_is_not_marked():
    assumed = (Assumption("/goals/1/stat", "why"), Assumption("/goals/10/window", "why"))
    assert in_words([ttft()], "en", assumed) == "P99 TTFT at most 2 s at all times."
    both = "P99 TTFT at most 2 s at all times; P99 (assumed) TTFT at most 3 s at peak."
    assert in_words([ttft(), ttft(3.0, window="peak")], "en", assumed) == both


def test_a_setting_whose_comparison_is_assumed_says_it():
    said = in_words([Config("tp", "==", 2, "x")], "en", [Assumption("/goals/0/op", "why")])
    assert said == "Run with TP exactly (assumed) 2 at all times."


SLOTS = {slot.name for kind in get_args(Goal) for slot in fields(kind)} - {"type", "evidence", "window"}


@pytest.mark.slow
@given(goals(), st.sets(st.sampled_from(sorted(SLOTS))), st.sampled_from(["en", "zh"]))
def test_every_assumption_is_marked_or_noted(goal, slots, language):
    said = [slot for slot in slots if hasattr(goal, slot)]
    assumed = [Assumption(f"/goals/0/{slot}", f"why {slot}") for slot in said]
    text, bare = in_words([goal], language, assumed), in_words([goal], language)
    mark = Words(language).say("assumed")
    assert bool(said) is (mark in text or "[" in text)
    unmarked = re.sub(r" \[why [^]]*\]", "", text.replace(mark, ""))
    assert unmarked == bare or isinstance(goal, Config)  # whose "exactly" shows when it is assumed


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


@pytest.mark.slow
@given(goals(), st.sampled_from(["en", "zh"]))
def test_the_words_name_every_fact(goal, language):
    folded = in_words([goal], language).lower()
    assert [fact for fact in facts(goal, Words(language)) if fact.lower() not in folded] == []


@pytest.mark.slow
@settings(max_examples=300)
@given(st.one_of(goals(), any_goals()), st.one_of(goals(), any_goals()), st.sampled_from(["en", "zh"]))
def test_two_different_goals_never_have_the_same_words(a, b, language):
    if not (valid(a) and valid(b)):
        return
    one, other = (in_words([goal], language) for goal in (a, b))
    assert one != other or meant(a) == meant(b)


@pytest.mark.slow
@settings(max_examples=300)
@given(goals(), st.data(), st.sampled_from(["en", "zh"]))
def test_changing_one_fact_changes_the_words(goal, data, language):
    near = data.draw(TYPES[type(goal)])
    slot = data.draw(
        st.sampled_from([one.name for one in fields(goal) if one.name not in {"evidence", "type"}])
    )
    changed = replace(goal, **{slot: getattr(near, slot)})
    if not valid(changed) or meant(changed) == meant(goal):
        return
    assert in_words([changed], language) != in_words([goal], language)


@pytest.mark.slow
@given(windows)
def test_every_window_has_words_in_both_languages(window):
    assert all(Words(language).window(window) for language in ("en", "zh"))


def test_every_metric_has_a_sentence():
    said = {in_words([Objective(metric, "minimize", "x")], "en") for metric in METRIC_LABELS}
    assert len(said) == len(METRIC_LABELS)
