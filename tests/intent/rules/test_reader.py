"""The rules, sentence by sentence: what operators write, with what must come out."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from intent.document import to_document
from intent.models import Intent, Outcome, TranslatorInfo
from intent.readback import render
from intent.rules import read
from intent.rules.kinds import Kind
from intent.rules.phrasing import tokenize
from intent.rules.reader import without_orders
from intent.translate import translate
from tests.validator.goals import CATALOGUE, goal_sets

UNDERSTOOD = {
    "keep P99 TTFT < 2s at peak": ["ttft p99 <= 2 s peak"],
    "keep P99\u200b TTFT ＜ ２ｓ at peak": ["ttft p99 <= 2 s peak"],
    "run it with tp=2": ["tp == 2"],
    "Please make sure that the 95th percentile of the time to first token never goes above 1.5 seconds during peak hours.": [
        "ttft p95 <= 1.5 s peak"
    ],
    "99% of requests should get their first token within 2 seconds": ["ttft p99 <= 2 s"],
    "first token in under a second, always": ["ttft p95 <= 1 s"],
    "We want average inter-token latency below 40ms": ["tpot mean <= 0.04 s"],
    "never let the gpu utilization drop below 60 percent": ["gpu_util >= 0.6 ratio"],
    "spend no more than 200 dollars a day": ["cost <= 200 USD/day"],
    "keep cost as low as possible while P99 TTFT stays under 2s": ["cost minimize", "ttft p99 <= 2 s"],
    "4-way tensor parallelism with 2 pipeline stages": ["tp == 4", "pp == 2"],
    "P99 TTFT < 2s with tp=2": ["ttft p99 <= 2 s", "tp == 2"],
    "P99 TTFT < 2s\nP99 TPOT < 50ms": ["ttft p99 <= 2 s", "tpot p99 <= 0.05 s"],
    "1. TTFT < 2s\n2. TPOT < 50 ms": ["ttft p95 <= 2 s", "tpot p95 <= 0.05 s"],
    "P99 TTFT under 2s at peak and 5s overnight": ["ttft p99 <= 2 s peak", "ttft p99 <= 5 s overnight"],
    "P99 TTFT under 2s at peak and overnight": ["ttft p99 <= 2 s peak", "ttft p99 <= 2 s overnight"],
    "at peak, TTFT < 2s; TPOT < 50 ms. cost < $4/h": ["ttft p95 <= 2 s peak", "tpot p95 <= 0.05 s peak", "cost <= 4 USD/h"],
    "at peak TTFT < 2s, at all times TPOT < 50 ms, E2E < 9s": ["ttft p95 <= 2 s peak", "tpot p95 <= 0.05 s", "e2e p95 <= 9 s"],
    "paid p99 TTFT ≤ 1 s; free 4 s": ["ttft p99 <= 1 s paid", "ttft p99 <= 4 s free"],
    "keep TTFT < 2s, ideally < 1s": ["ttft p95 <= 2 s", "ttft p95 <= 1 s soft"],
    "TTFT < 2s for counting at peak, 3s overnight": ["ttft p95 <= 2 s peak counting", "ttft p95 <= 3 s overnight counting"],
    "no INT4 at peak, full precision off-peak": ["forbid int4 peak", "require full off_peak"],
    "latency-critical on A100, the rest on L40S; leave gpu-1 alone": [
        "latency_critical require gpu_type:A100",
        "rest require gpu_type:L40S",
        "freeze gpu:gpu-1",
    ],
    "TTFT < 2s, at most 2 reconfigurations per hour, latency over cost": ["ttft p95 <= 2 s", "limit 2 1/h", "latency > cost"],
    "cut TTFT by 20%, double the throughput": ["ttft p95 <= x0.8", "throughput_tok >= x2"],
    "TTFT < 2s from 9am to 5pm on weekdays": ["ttft p95 <= 2 s mon,tue,wed,thu,fri 09:00-17:00 UTC"],
    "TTFT < 2s every day 22:00-06:00 Asia/Shanghai": ["ttft p95 <= 2 s mon,tue,wed,thu,fri,sat,sun 22:00-06:00 Asia/Shanghai"],
    "TTFT < 2s for the next two hours": ["ttft p95 <= 2 s 7200s"],
    "TTFT < 2s on 2026-12-24": ["ttft p95 <= 2 s 2026-12-24 00:00-24:00 UTC"],
    "TTFT < 2s at month end": ["ttft p95 <= 2 s month_end"],
    "because the customers complain, keep TTFT < 2s": ["ttft p95 <= 2 s"],
    "keep TTFT < 2s because the customers complain": ["ttft p95 <= 2 s"],
    "TTFT is too high, keep it under 2s": ["ttft p95 <= 2 s"],
    "TTFT is 3 s now, get it under 2 s": ["ttft p95 <= 2 s"],
    "TTFT under 3 s now, and under 2 s at peak": ["ttft p95 <= 3 s", "ttft p95 <= 2 s peak"],
    "reduce TTFT from 3s down to 2s": ["ttft p95 <= 2 s"],
    "marketing runs a campaign, so TTFT < 2s": ["ttft p95 <= 2 s"],
    "昨晚首字p99飙到了4秒，拉回2秒以内": ["ttft p99 <= 2 s"],
    "首字延迟尽量低于 2 秒": ["ttft p95 <= 2 s soft"],
    "首字延迟尽量低": ["ttft p95 minimize"],
    "周末每天不超过 200 美元": ["cost <= 200 USD/day sat,sun 00:00-24:00 UTC"],
    "JIRA-1234: TTFT < 2s, see https://x.y/z @bob": ["ttft p95 <= 2 s"],
    "Morning folks! TTFT < 2s. Thanks!": ["ttft p95 <= 2 s"],
    "Zed here. TTFT < 2s. Zed": ["ttft p95 <= 2 s"],
    "高峰期首字延迟不超过 2 秒，夜间不超过 5 秒": ["ttft p95 <= 2 s peak", "ttft p95 <= 5 s overnight"],
    "高峰期首字延迟不超过 2 秒，夜间 5 秒": ["ttft p95 <= 2 s peak", "ttft p95 <= 5 s overnight"],
    "高峰TTFT<2s非高峰5s": ["ttft p95 <= 2 s peak", "ttft p95 <= 5 s off_peak"],
    "高峰期禁止 INT4，非高峰用全精度": ["forbid int4 peak", "require full off_peak"],
    "成本越低越好，同时首字延迟不超过 2 秒": ["cost minimize", "ttft p95 <= 2 s"],
    "延迟优先于成本；别动 gpu-1；每小时最多切换 2 次": ["latency > cost", "freeze gpu:gpu-1", "limit 2 1/h"],
    "把首字延迟降低 20%，吞吐翻倍": ["ttft p95 <= x0.8", "throughput_tok >= x2"],
    "工作日 9:00 到 18:00 首字延迟不超过 2 秒": ["ttft p95 <= 2 s mon,tue,wed,thu,fri 09:00-18:00 UTC"],
    "因为客户抱怨，首字延迟不超过 2 秒": ["ttft p95 <= 2 s"],
    "把 p99 TTFT 压到 2s 以内，谢谢": ["ttft p99 <= 2 s"],
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("text", "expected"), UNDERSTOOD.items(), ids=str)
def test_a_clear_sentence_gives_exactly_its_goals(text, expected, goals):
    assert goals(text) == expected


@pytest.mark.slow
@pytest.mark.parametrize("text", UNDERSTOOD)
def test_the_evidence_of_a_goal_stands_in_the_text(text, catalogue):
    assert all(goal.evidence and goal.evidence in text for goal in read(text, catalogue).goals)


@pytest.mark.parametrize(
    "text",
    [
        "hello, how are you?",
        "what is the weather",
        "what is the TTFT?",
        "why is TTFT above 2s?",
        "现在的首字延迟是多少",
        "DROP TABLE intents;",
        "😀😀😀",
        "at peak",
        "minimise",
        "halve it",
        "reconfigure",
        "...",
        "leave everything as it is",
        "保持现状",
        "不要",
        "0",
    ],
)
def test_what_names_no_goal_is_out_of_scope_with_an_example(text, catalogue):
    draft = read(text, catalogue)
    assert (draft.goals, draft.questions) == ([], [])
    assert "keep P99 TTFT < 2s at peak" in draft.findings[0].message


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("TTFT < 2s per GPU", "per GPU"),
        ("cancel TTFT < 2s", "cancel"),
        ("TTFT < 2s at peak during business hours", "business hours"),
        ("for gold users, run it with tp=2", "gold"),
        ("when reconfiguring, TTFT < 2s", "when reconfiguring"),
        ("首字延迟大约 2 秒", "大约"),
        ("every week 9:00 to 17:00 TTFT < 2s", "every week"),
        ("如果忙的话首字延迟不超过 2 秒", "如果"),
        ("in staging, so TTFT < 2s", "staging"),
        ("长文本请求昨晚首字p99飙到了4秒，拉回2秒以内", "长"),
        ("a switch has to complete within 50 ms", "complete"),
        ("TTFT ≠ 2s", "≠"),
        ("only for long prompts: we're running a demo, so TTFT < 2s", "long"),
        ("as many tokens per second as possible for prompts over 4k tokens", "4k"),
    ],
)
def test_a_word_that_changes_the_wish_is_asked_about(text, left, catalogue):
    draft = read(text, catalogue)
    assert draft.questions
    assert any(left in (finding.evidence or "") for finding in draft.findings)


@pytest.mark.parametrize("text", ["TTFT < 2s yesterday 3s", "TTFT was 3s yesterday, keep it under 2s"])
def test_a_number_that_tells_what_was_becomes_no_bound(text, catalogue):
    assert 3.0 not in {goal.value for goal in read(text, catalogue).goals}


def test_unreadable_digits_are_asked_about(catalogue):
    draft = read("TTFT < 1,5 s, TPOT < 50 ms", catalogue)
    assert [goal.metric for goal in draft.goals] == ["tpot"]
    assert [finding.code for finding in draft.findings] == ["number_unreadable"]


def test_another_deployment_has_other_windows(catalogue):
    draft = read("P99 TTFT < 2s overnight", replace(catalogue, windows=("always", "peak")))
    assert draft.findings[0].code == "unknown_window"
    assert "P99 TTFT < 2s at all times" in draft.questions[0].texts


@pytest.mark.parametrize(
    ("text", "orders", "kept"),
    [
        ("ignore limits, TTFT < 2s", ["ignore limits"], ["TTFT", "<", "2s"]),
        ("TTFT < 2s without approval please", ["without approval"], ["TTFT", "<", "2s", "without approval"]),
        ("approve and run. TTFT < 2s", ["approve"], ["TTFT", "<", "2s"]),
        ("TTFT < 2s", [], ["TTFT", "<", "2s"]),
    ],
)
def test_a_stretch_that_only_gives_orders_is_left_out(text, orders, kept, catalogue):
    places = [(text.index(order), text.index(order) + len(order)) for order in orders]
    silent = {Kind.FILLER, Kind.JOIN, Kind.STOP}
    left = [one for one in without_orders(tokenize(text, catalogue), places) if one.kind not in silent]
    assert "".join(text[one.start : one.end] for one in left).replace(" ", "") == "".join(kept).replace(
        " ", ""
    )


PIECES = [
    *UNDERSTOOD, "latency", "的", "不", "除了", "acme", "A100", "reconfigure", "may exceed", "as cheap as possible", "first",
    "by", "and", ",", "not", "0", "-1", "$", "%", "9" * 40, "between", "p", "a", "k", "\n", "§", "半", "百分之", "25:00", "倍",
    "¥3", "/h",
]  # fmt: skip
texts = st.lists(st.one_of(st.sampled_from(PIECES), st.text(max_size=12)), max_size=6).map(" ".join)


@st.composite
def mutated(draw):
    """A sentence with a stretch lost, doubled or put elsewhere."""
    text = draw(st.sampled_from(list(UNDERSTOOD)))
    for _ in range(draw(st.integers(1, 3))):
        start, end = sorted(draw(st.tuples(st.integers(0, len(text)), st.integers(0, len(text)))))
        put = draw(st.integers(0, len(text)))
        part = draw(st.sampled_from(["", text[start:end] * 2, draw(st.sampled_from(PIECES))]))
        text = (text[:start] + text[end:])[:put] + part + (text[:start] + text[end:])[put:]
    return text


@pytest.mark.slow
@settings(max_examples=400)
@given(st.one_of(texts, mutated()))
def test_no_text_raises_and_all_evidence_stands_in_it(catalogue, text):
    intent = translate(text, catalogue)
    assert all(goal.evidence and goal.evidence in intent.text for goal in intent.goals)
    assert (intent.outcome is Outcome.OK) == (bool(intent.goals) and not intent.questions)
    assert intent.goals or intent.findings
    for question in intent.questions:
        assert 2 <= len(question.options) <= 4
        assert all(question.options)


def facts(goals):
    """Goals without their evidence, as the document has them, numbers to the digits that are printed."""
    document = to_document(Intent("x", "en", tuple(goals), TranslatorInfo("rules")))
    return {
        repr([(key, f"{value:.12g}" if isinstance(value, float) else value) for key, value in sorted(goal.items())
              if key != "evidence"])
        for goal in document["goals"]
    }  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("language", ["en", "zh"])
def test_goals_that_are_read_back_are_the_same_goals(language):
    @settings(max_examples=300, derandomize=True)
    @given(goal_sets())
    def holds(said):
        text = render(Intent("x", language, tuple(said), TranslatorInfo("rules")))
        back = read(text, CATALOGUE)
        assert not back.questions, text
        assert facts(back.goals) == facts(said), text

    holds()
