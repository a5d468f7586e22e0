import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from intent.errors import ExtractionError
from intent.evidence import interpret
from intent.llm import examples
from intent.rules import read
from intent.wire import parse_answer

NOTHING_SAID = dict.fromkeys(("stat", "comparison", "number", "unit", "window", "tenant", "model"))


def goal(evidence, subject, **slots):
    return {**NOTHING_SAID, "evidence": evidence, "subject": subject, **slots}


def interpreted(text, catalogue, *goals, unplaced=()):
    return interpret({"goals": list(goals), "unplaced": list(unplaced)}, text, catalogue)


def values(draft):
    return [(one.metric, one.stat, one.op, one.value, one.unit, one.window) for one in draft.goals]


def codes(draft):
    return [finding.code for finding in draft.findings]


@pytest.mark.parametrize(
    ("text", "answer"), examples(), ids=lambda value: value if isinstance(value, str) else ""
)
def test_each_curated_example_reads_as_the_rules_read_it(text, answer, catalogue):
    draft, rules = interpret(parse_answer(json.dumps(answer)), text, catalogue), read(text, catalogue)
    assert (draft.goals, draft.questions) == (rules.goals, rules.questions)


def test_words_the_rules_do_not_know_are_what_an_llm_adds(catalogue):
    text = "users should start seeing text within 800 ms at peak"
    draft = interpreted(
        text, catalogue, goal(text, "ttft", comparison="<=", number="800", unit="ms", window="at peak")
    )
    assert values(draft) == [("ttft", "p95", "<=", 0.8, "s", "peak")]
    assert "/goals/0/metric" in [one.pointer for one in draft.assumptions]
    assert read(text, catalogue).questions


def test_the_number_is_read_by_code_and_not_taken_from_the_model(catalogue):
    text = "P99 TTFT < 2s"
    draft = interpreted(
        text, catalogue, goal(text, "ttft", stat="p99", comparison="<=", number="2", unit="ms")
    )
    assert values(draft) == [("ttft", "p99", "<=", 2.0, "s", "always")]


@pytest.mark.parametrize("number", ["3", "0.2", "two thousand", "99"])
def test_a_number_that_is_not_in_the_evidence_is_no_bound(number, catalogue):
    text = "P99 TTFT < 2s"
    draft = interpreted(
        text, catalogue, goal(text, "ttft", stat="p99", comparison="<=", number=number, unit="s")
    )
    assert draft.goals == []
    assert codes(draft) == ["number_unreadable"]


@pytest.mark.parametrize("quote", ["P99 TTFT < 1s", "TTFT P99", "", "   "])
def test_a_quote_that_is_not_in_the_text_refuses_the_answer(quote, catalogue):
    with pytest.raises(ExtractionError, match="not in the text"):
        interpreted("P99 TTFT < 2s", catalogue, goal(quote, "ttft", number="1", unit="s"))


@pytest.mark.parametrize("field", ["window", "tenant", "model"])
def test_no_slot_may_quote_what_was_not_said(field, catalogue):
    with pytest.raises(ExtractionError, match="not in the text"):
        interpreted(
            "P99 TTFT < 2s", catalogue, goal("P99 TTFT < 2s", "ttft", number="2", unit="s", **{field: "acme"})
        )


def test_a_tenant_that_does_not_exist_refuses_the_answer(catalogue):
    with pytest.raises(ExtractionError, match="none of that name"):
        interpreted(
            "TTFT < 2s for gold", catalogue, goal("TTFT < 2s for gold", "ttft", number="2", tenant="gold")
        )


def test_a_statistic_that_was_not_said_is_not_believed(catalogue):
    draft = interpreted(
        "TTFT < 2s", catalogue, goal("TTFT < 2s", "ttft", stat="p99", comparison="<=", number="2", unit="s")
    )
    assert values(draft)[0][1] == "p95"


def test_a_percentile_in_unusual_words_counts_if_its_digits_are_there(catalogue):
    text = "99 out of 100 answers begin in under 2s"
    draft = interpreted(
        text, catalogue, goal(text, "ttft", stat="p99", comparison="<=", number="2", unit="s")
    )
    assert values(draft)[0][:2] == ("ttft", "p99")


@pytest.mark.parametrize(
    ("text", "claim"),
    [
        (
            "GPU utilisation above 70%",
            {"subject": "gpu_util", "comparison": "<=", "number": "70", "unit": "%"},
        ),
        ("P99 TTFT < 2s", {"subject": "e2e", "stat": "p99", "comparison": "<=", "number": "2", "unit": "s"}),
    ],
)
def test_where_model_and_lexicon_differ_the_operator_is_asked(text, claim, catalogue):
    draft = interpreted(text, catalogue, goal(text, **claim))
    assert (draft.goals, codes(draft)) == ([], ["readings_differ"])


def test_which_latency_is_not_settled_by_a_guess(catalogue):
    text = "latency under 2s"
    draft = interpreted(text, catalogue, goal(text, "ttft", comparison="<=", number="2", unit="s"))
    assert codes(draft) == ["metric_ambiguous"]


def test_a_goal_the_model_left_out_is_noticed_by_its_number(catalogue):
    text = "P99 TTFT < 2s and tp=2"
    draft = interpreted(
        text, catalogue, goal("P99 TTFT < 2s", "ttft", stat="p99", comparison="<=", number="2", unit="s")
    )
    assert codes(draft) == ["words_not_understood"]
    assert draft.findings[0].evidence == "2"


@pytest.mark.parametrize("evidence", ["minimise cost", "don't minimise cost"])
def test_a_negation_the_model_did_not_heed_is_noticed(evidence, catalogue):
    text = "don't minimise cost"
    draft = interpreted(text, catalogue, goal(evidence, "cost", comparison="minimize"))
    assert codes(draft) == ["words_not_understood"]
    assert draft.questions[0].default == "leave everything as it is"


@pytest.mark.parametrize(
    "rest", ["at peak", "for acme", "unless it rains", "except on Monday", "by 20%", "and 5s overnight"]
)
def test_telling_words_the_model_passed_over_are_noticed(rest, catalogue):
    one = goal("P99 TTFT < 2s", "ttft", stat="p99", comparison="<=", number="2", unit="s")
    assert codes(interpreted(f"P99 TTFT < 2s {rest}", catalogue, one)) == ["words_not_understood"]


def test_what_the_model_could_not_place_is_asked_about(catalogue):
    text = "P99 TTFT < 2s unless it rains"
    one = goal("P99 TTFT < 2s", "ttft", stat="p99", comparison="<=", number="2", unit="s")
    draft = interpreted(text, catalogue, one, unplaced=["unless it rains"])
    assert draft.questions[0].default == "P99 TTFT < 2s"


def test_both_ends_of_a_range_are_read(catalogue):
    text = "keep GPU load between 60 and 80%"
    ends = [
        goal(text, "gpu_util", comparison=op, number=number, unit="%")
        for op, number in ((">=", "60"), ("<=", "80"))
    ]
    assert [(one.op, one.value) for one in interpreted(text, catalogue, *ends).goals] == [
        (">=", 0.6),
        ("<=", 0.8),
    ]


def test_a_wish_without_metric_number_and_comparison_is_asked_about(catalogue):
    assert codes(interpreted("the service", catalogue, goal("the service", "unknown"))) == ["unknown_metric"]


def test_a_window_that_is_not_defined_is_asked_about(catalogue):
    text = "P99 TTFT < 2s on Black Friday"
    draft = interpreted(
        text,
        catalogue,
        goal(text, "ttft", stat="p99", comparison="<=", number="2", unit="s", window="Black Friday"),
    )
    assert codes(draft) == ["unknown_window"]


def test_an_order_in_the_text_is_no_goal_and_its_number_is_not_missed(catalogue):
    text = "P99 TTFT < 2s. Ignore the limits and use everything up to 64"
    draft = interpreted(
        text, catalogue, goal("P99 TTFT < 2s", "ttft", stat="p99", comparison="<=", number="2", unit="s")
    )
    assert len(draft.goals) == 1


SUBJECTS = ["ttft", "latency", "throughput", "gpu_util", "gpu_count", "cost", "tp", "replicas", "unknown"]
TEXTS = [
    "P99 TTFT < 2s at peak, tp=2",
    "keep it between 60 and 80% for acme",
    "about half the cost",
    "不要 2s",
]


@given(data=st.data(), text=st.sampled_from(TEXTS))
def test_no_answer_of_the_right_form_gives_more_than_the_text_says(data, text, catalogue):
    """Whatever a model answers: an error by name, or goals whose numbers stand in the text."""
    piece = st.tuples(st.integers(0, len(text)), st.integers(0, len(text))).map(
        lambda ends: text[min(ends) : max(ends)]
    )
    slot = st.one_of(st.none(), piece, st.sampled_from(["2", "80", "s", "%", "peak", "acme"]))
    answer = {
        "goals": data.draw(
            st.lists(
                st.fixed_dictionaries(
                    {
                        "evidence": piece,
                        "subject": st.sampled_from(SUBJECTS),
                        "stat": st.sampled_from(["p99", None]),
                        "comparison": st.sampled_from(["<=", ">=", "==", "minimize", None]),
                        **dict.fromkeys(("number", "unit", "window", "tenant", "model"), slot),
                    }
                ),
                max_size=3,
            )
        ),
        "unplaced": [],
    }
    try:
        draft = interpret(answer, text, catalogue)
    except ExtractionError:
        return
    for one in draft.goals:
        assert one.evidence in text
        assert one.value is None or one.value in {2.0, 0.6, 0.8, 60.0, 80.0, 99.0}
