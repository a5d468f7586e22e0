from dataclasses import replace

import pytest

from intent.messages import say
from intent.models import METRIC_LABELS
from intent.readback.clauses import Words
from intent.rules import read
from intent.translate import translate
from tests.intent.rules.sentences import ASKED
from tests.rows import rows


@rows(("text", "said"), ASKED.items(), ids=str)
def test_what_could_mean_two_things_is_asked_and_no_answer_leads_back(text, said, catalogue):
    found = translate(text, catalogue)
    (question,) = found.questions
    assert found.findings[0].code == said.code
    assert question.options == (said.options or question.options)
    assert question.texts == (said.texts or question.texts)
    assert 2 <= len(question.options) <= 4
    assert len(set(question.options)) == len(question.options)
    assert len(set(question.texts)) == len(question.texts) == len(question.options)
    assert question.default == question.options[0] == found.findings[0].suggestion
    assert question.text == found.findings[0].message
    for answer in question.texts:
        assert answer != text
        again = translate(answer, catalogue).questions
        assert (question.text, question.options) not in [(one.text, one.options) for one in again]


def test_a_rate_per_user_that_is_too_high_is_offered_as_a_least(catalogue):
    question = read("20 tokens/s per user at most", catalogue).questions[0]
    assert question.default == question.options[0] == "at least"
    assert question.stands_for(0) == "20 tokens/s per user at least"


@rows(
    ("text", "elsewhere"),
    [
        ("keep latency under 2 s at peak and no int4", "under 2 s at peak and no int4"),
        ("no int4 on the counter at peak, and p97 TTFT < 2s", "no int4 on the counter at peak"),
        ("P99 TPOT < 50 ms at peak, no int4, cost under $5", "P99 TPOT < 50 ms at peak, no int4"),
        ("P99 TTFT < 2s at peak, no int4, run with tp 2.5", "P99 TTFT < 2s at peak, no int4"),
        ("no int4, P99 TTFT < 2s at peak for gold customers", "no int4, P99 TTFT < 2s at peak"),
        ("no int4, P99 TTFT < 2s at peak unless it rains", "no int4, P99 TTFT < 2s at peak"),
        ("高峰期延迟不超过 2 秒，禁用 int4，成本最低", "不超过 2 秒，禁用 int4，成本最低"),
    ],
)
def test_an_option_is_short_and_repeats_nothing_that_is_not_open(text, elsewhere, catalogue):
    question = translate(text, catalogue).questions[0]
    nothing = {say("intent", language, "nothing") for language in ("en", "zh")}
    assert set(question.options) - nothing
    for n, option in enumerate(question.options):
        assert len(option) <= 40
        assert elsewhere not in option
        if option not in nothing:
            assert elsewhere in question.stands_for(n)
            assert len(option) < len(question.stands_for(n))


@rows("text", ["keep the vibes under 2s", "under 2s"])
def test_an_unknown_metric_names_the_known_ones(text, catalogue):
    message = translate(text, catalogue).findings[0].message
    for name in (
        "TTFT",
        "TPOT",
        "E2E",
        "throughput",
        "GPU utilisation",
        "cost",
        "availability",
        "error rate",
    ):
        assert name in message


@rows("metric", sorted(METRIC_LABELS))
@rows("language", ["en", "zh"])
def test_a_metric_without_its_bound_offers_bounds_that_are_understood(metric, language, catalogue):
    text = Words(language).metric(metric)
    (question,) = translate(text, catalogue).questions
    for answer in set(question.texts) - {question.default}:
        found = translate(answer, catalogue)
        assert not found.questions, answer
        assert [goal.metric for goal in found.goals] == [metric]


NOT_ABOUT_THE_REST = {
    "exception_unclear", "exception_without_tenant", "number_unreadable", "unknown_metric",
}  # fmt: skip
OF_ITSELF = {"enterprise TTFT", "TTFT and TPOT under 2s, 60ms and 5s respectively"}
"""Not asked about beside a goal, or about the TPOT itself."""


@pytest.mark.slow
@rows(
    "text",
    [text for text, said in ASKED.items() if said.code not in NOT_ABOUT_THE_REST and text not in OF_ITSELF],
)
def test_an_answer_keeps_what_else_was_said(text, catalogue):
    nothing = {say("intent", language, "nothing") for language in ("en", "zh")}
    found = translate(f"TPOT p50 < 50 ms at peak. {text}", catalogue)
    kept = [replace(goal, evidence="") for goal in found.goals if getattr(goal, "metric", None) == "tpot"]
    assert len(kept) == 1
    for answer in set(found.questions[0].texts) - nothing:
        assert kept[0] in [replace(goal, evidence="") for goal in translate(answer, catalogue).goals], answer
