"""The rules, sentence by sentence: what operators write, with what must come out."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from intent.models import Objective, Outcome
from intent.rules import read
from intent.translate import translate


def short(goal) -> str:
    """``ttft p99 <= 2 s peak`` for an objective, ``tp == 2 always`` for a setting."""
    head = [goal.metric, goal.stat] if isinstance(goal, Objective) else [goal.key]
    value = f"{goal.value:g}" if goal.value is not None else None
    parts = [
        *head,
        goal.op,
        value,
        getattr(goal, "unit", None),
        goal.window,
        getattr(goal, "tenant", None),
        goal.model,
    ]
    return " ".join(part for part in parts if part)


UNDERSTOOD = {
    "keep P99 TTFT < 2s at peak": ["ttft p99 <= 2 s peak"],
    "run it with tp=2": ["tp == 2 always"],
    "P99 TTFT ≤ 2s at peak!": ["ttft p99 <= 2 s peak"],
    "Please make sure that the 95th percentile of the time to first token never goes above 1.5 seconds during peak hours.": [
        "ttft p95 <= 1.5 s peak"
    ],
    "Time to first token should be less than 800ms for 99% of requests": ["ttft p99 <= 0.8 s always"],
    "99% of requests should get their first token within 2 seconds": ["ttft p99 <= 2 s always"],
    "first token in under a second, always": ["ttft p95 <= 1 s always"],
    "don't let TTFT exceed 2s": ["ttft p95 <= 2 s always"],
    "TTFT should be no more than 2 s off-peak": ["ttft p95 <= 2 s off_peak"],
    "TTFT better than 2s": ["ttft p95 <= 2 s always"],
    "TTFT no slower than 2s": ["ttft p95 <= 2 s always"],
    "Keep the P99 TTFT lower than or equal to 2s": ["ttft p99 <= 2 s always"],
    "ttft p99 2s": ["ttft p99 <= 2 s always"],
    "cap P90 TTFT at 2s": ["ttft p90 <= 2 s always"],
    "2s or less P99 TTFT at month end": ["ttft p99 <= 2 s month_end"],
    "We want average inter-token latency below 40ms": ["tpot mean <= 0.04 s always"],
    "ITL p95 < 30 ms, TTFT p95 < 1 s": ["tpot p95 <= 0.03 s always", "ttft p95 <= 1 s always"],
    "latency under 30 ms per token": ["tpot p95 <= 0.03 s always"],
    "at least 20 tokens/s per user": ["tpot p95 <= 0.05 s always"],
    "keep p99.9 e2e latency under 30s at all times": ["e2e p99.9 <= 30 s always"],
    "median end-to-end latency no worse than 10 seconds": ["e2e p50 <= 10 s always"],
    "response time p90 within 2 minutes overnight": ["e2e p90 <= 120 s overnight"],
    "throughput of at least 1.5k tok/s": ["throughput_tok >= 1500 tokens/s always"],
    "throughput >= 2,000 tokens per second": ["throughput_tok >= 2000 tokens/s always"],
    "min 100 tok/s": ["throughput_tok >= 100 tokens/s always"],
    "at least 20 req/s during business hours": ["throughput_req >= 20 requests/s business_hours"],
    "serve 300 requests per minute": ["throughput_req >= 5 requests/s always"],
    "keep thoughput above 100 tokens per second": ["throughput_tok >= 100 tokens/s always"],
    "GPU utilisation above 70%": ["gpu_util >= 0.7 ratio always"],
    "never let the gpu utilization drop below 60 percent": ["gpu_util >= 0.6 ratio always"],
    "gpu util between 60 and 80% overnight": [
        "gpu_util >= 0.6 ratio overnight",
        "gpu_util <= 0.8 ratio overnight",
    ],
    "GPU utilisation above 0.8": ["gpu_util >= 0.8 ratio always"],
    "max cost $12/h": ["cost <= 12 USD/h always"],
    "spend no more than 200 dollars a day": ["cost <= 200 USD/day always"],
    "cost under $5k/month": ["cost <= 5000 USD/month always"],
    "costs below 0.5 USD per million tokens": ["cost <= 0.5 USD/Mtok always"],
    "pause at most 50 ms": ["reconfig_pause <= 0.05 s always"],
    "no switch pause above 50 ms": ["reconfig_pause <= 0.05 s always"],
    "minimise cost": ["cost minimize always"],
    "keep cost as low as possible while P99 TTFT stays under 2s": [
        "cost minimize always",
        "ttft p99 <= 2 s always",
    ],
    "maximize throughput at peak": ["throughput_tok maximize peak"],
    "maximise requests per second": ["throughput_req maximize always"],
    "lowest TTFT please": ["ttft p95 minimize always"],
    "minimise cost under $5/h": ["cost minimize always", "cost <= 5 USD/h always"],
    "minimise cost and TTFT": ["cost minimize always", "ttft p95 minimize always"],
    "use 2 pipeline stages": ["pp == 2 always"],
    "run it on a two-stage pipeline": ["pp == 2 always"],
    "tensor parallel 4": ["tp == 4 always"],
    "4-way tensor parallelism with 2 pipeline stages": ["tp == 4 always", "pp == 2 always"],
    "switch to pp 2": ["pp == 2 always"],
    "TP2": ["tp == 2 always"],
    "tp2pp2 at peak": ["tp == 2 peak", "pp == 2 peak"],
    "tp at most 4": ["tp <= 4 always"],
    "tp=2 at peak, tp=1 overnight": ["tp == 2 peak", "tp == 1 overnight"],
    "run on one GPU": ["gpu_count == 1 gpus always"],
    "use at most 4 GPUs": ["gpu_count <= 4 gpus always"],
    "use tp=2 for the counter": ["tp == 2 always counting"],
    "P99 TTFT < 2s for tenant ACME Corp": ["ttft p99 <= 2 s always acme"],
    "P99 TTFT < 2 s at peak and P99 TPOT < 50ms overnight": [
        "ttft p99 <= 2 s peak",
        "tpot p99 <= 0.05 s overnight",
    ],
    "At peak, keep P99 TTFT < 2s and mean TPOT below 50 ms; overnight, cost at most $4/h": [
        "ttft p99 <= 2 s peak",
        "tpot mean <= 0.05 s peak",
        "cost <= 4 USD/h overnight",
    ],
    "P99 TTFT under 2s at peak and 5s overnight": ["ttft p99 <= 2 s peak", "ttft p99 <= 5 s overnight"],
    "P99 TTFT under 2s at peak and overnight": ["ttft p99 <= 2 s peak", "ttft p99 <= 2 s overnight"],
    "TTFT, TPOT and E2E p99 below 3 s": [
        "ttft p99 <= 3 s always",
        "tpot p99 <= 3 s always",
        "e2e p99 <= 3 s always",
    ],
    "P99 TTFT < 2s with tp=2": ["ttft p99 <= 2 s always", "tp == 2 always"],
    "keep P99\u200b TTFT ＜ ２ｓ at peak": ["ttft p99 <= 2 s peak"],
    "P99 TTFT < 2s\nP99 TPOT < 50ms": ["ttft p99 <= 2 s always", "tpot p99 <= 0.05 s always"],
}


@pytest.mark.parametrize(("text", "goals"), UNDERSTOOD.items(), ids=str)
def test_a_clear_sentence_gives_exactly_its_goals(text, goals, catalogue):
    draft = read(text, catalogue)
    assert [short(goal) for goal in draft.goals] == goals
    assert not draft.questions
    assert all(goal.evidence in text for goal in draft.goals)


ASKED = {
    "as fast as possible": "wish_without_metric",
    "make it cheaper": "wish_without_metric",
    "keep latency under 2s": "metric_ambiguous",
    "keep latnecy under 2s": "metric_ambiguous",
    "keep the vibes under 2s": "unknown_metric",
    "under 2s": "unknown_metric",
    "P99 < 2s": "unknown_metric",
    "TTFT under 80%": "unit_impossible",
    "GPU utilisation under 2s": "unit_impossible",
    "cost under 3 tok/s": "unit_impossible",
    "TTFT < 2": "unit_missing",
    "cost under $5": "unit_missing",
    "throughput above 500": "unit_missing",
    "GPU utilisation above 1.2": "unit_missing",
    "GPU utilisation 80%": "comparison_missing",
    "TTFT above 2s": "direction_unusual",
    "throughput below 100 tok/s": "direction_unusual",
    "TTFT should not be under 2s": "direction_unusual",
    "maximise cost": "direction_unusual",
    "p97 TTFT < 2s": "unknown_stat",
    "100% of requests under 2s TTFT": "unknown_stat",
    "TTFT": "bound_missing",
    "keep cost low": "bound_missing",
    "reduce TTFT by 20%": "bound_missing",
    "tp": "value_missing",
    "tp=2.5": "not_a_whole_number",
    "2.5 GPUs": "not_a_whole_number",
    "tp=2s": "not_a_whole_number",
    "E2E under 1,5 s": "number_unreadable",
    "TTFT under 1e400 s": "number_unreadable",
    "minimise TTFT to 2s": "words_not_understood",
    "minimise TTFT, 2s": "bound_and_optimum",
    "don't minimise cost": "words_not_understood",
    "not at peak: tp=1": "words_not_understood",
    "run with tp=2 or tp=4": "words_not_understood",
    "keep P99 TTFT < 2s at peak for gold customers": "words_not_understood",
    "keep P99 TTFT < 2s from 9am to 5pm": "words_not_understood",
    "P99 TTFT < 2s except for tenant acme": "words_not_understood",
    "P99 TTFT < 2s unless cost exceeds $4/h": "direction_unusual",
    "P99 TTFT < 2s at peak during business hours": "words_not_understood",
    "P99 TTFT < 2s for 2 hours": "words_not_understood",
    "P99 TTFT < 2s at peak, otherwise 5s": "words_not_understood",
    "keep P99 TTFT < 2s with 8 concurrent users": "words_not_understood",
    "about 2s TTFT": "words_not_understood",
    "P95 TTFT < 2s by Friday": "words_not_understood",
}


@pytest.mark.parametrize(("text", "code"), ASKED.items(), ids=str)
def test_what_could_mean_two_things_is_asked(text, code, catalogue):
    intent = translate(text, catalogue)
    assert intent.outcome is Outcome.CLARIFY
    assert code in [finding.code for finding in intent.findings]
    (question,) = intent.questions
    assert 2 <= len(question.options) <= 4
    assert question.default in question.options


@pytest.mark.parametrize("text", ASKED)
def test_no_answer_leads_back_to_the_same_question(text, catalogue):
    question = translate(text, catalogue).questions[0]
    for option in question.options:
        assert question not in translate(option, catalogue).questions


@pytest.mark.parametrize(
    "text",
    [
        "hello, how are you?",
        "what is the weather",
        "DROP TABLE intents;",
        "😀😀😀",
        "at peak",
        "minimise",
        "use fp8",
        "...",
        "leave everything as it is",
        "不要",
    ],
)
def test_what_names_no_goal_is_out_of_scope_with_an_example(text, catalogue):
    intent = translate(text, catalogue)
    assert intent.outcome is Outcome.OUT_OF_SCOPE
    assert "keep P99 TTFT < 2s at peak" in intent.findings[-1].message
    assert not intent.goals


def test_an_unknown_metric_names_the_known_ones(catalogue):
    finding = translate("keep the vibes under 2s", catalogue).findings[0]
    assert finding.evidence == "vibes"
    assert all(
        name in finding.message for name in ("TTFT", "TPOT", "E2E", "throughput", "GPU utilisation", "cost")
    )


@pytest.mark.parametrize(
    ("text", "pointers"),
    [
        ("P99 TTFT < 2s at peak", []),
        ("TTFT < 2s at peak", ["/goals/0/stat"]),
        ("P99 TTFT < 2s", ["/goals/0/window"]),
        ("P99 TTFT 2s at peak", ["/goals/0/op"]),
        ("maximise throughput at peak", ["/goals/0/metric"]),
        ("P99 TTFT < 2s at peak, GPU utilisation above 80 at peak", ["/goals/1/unit"]),
        ("thoughput > 5 tok/s at peak", ["/goals/0/evidence"]),
        ("TTFT < 2, P99 TPOT < 2s", ["/goals/0/window"]),
    ],
)
def test_each_default_is_an_assumption_at_its_place(text, pointers, catalogue):
    assert [one.pointer for one in read(text, catalogue).assumptions] == pointers


def test_a_window_the_deployment_does_not_define_is_asked_about(catalogue):
    from dataclasses import replace

    small = replace(catalogue, windows=("always", "peak"))
    intent = translate("P99 TTFT < 2s overnight", small)
    assert intent.findings[0].code == "unknown_window"
    assert intent.questions[0].options == ("P99 TTFT < 2s at all times", "P99 TTFT < 2s peak")


PIECES = [
    *UNDERSTOOD,
    *ASKED,
    "and",
    ",",
    "not",
    "0",
    "-1",
    "$",
    "%",
    "9" * 40,
    "between",
    "by",
    "p",
    "a",
    "k",
    "\n",
    "§",
]


@given(st.lists(st.one_of(st.sampled_from(PIECES), st.text(max_size=12)), max_size=6).map(" ".join))
def test_no_text_raises_and_all_evidence_stands_in_it(catalogue, text):
    intent = translate(text, catalogue)
    assert all(goal.evidence and goal.evidence in intent.text for goal in intent.goals)
    assert (intent.outcome is Outcome.OK) == (bool(intent.goals) and not intent.questions)
    assert intent.goals or intent.findings
