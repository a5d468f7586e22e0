import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from intent.errors import ExtractionError, Failure
from intent.llm.evidence import hold_against
from intent.llm.testing import goal
from intent.llm.wire import wire_schema


def claims(text, catalogue, *goals, unplaced=()):
    return hold_against({"goals": list(goals), "unplaced": list(unplaced)}, text, catalogue)


def bound(evidence, **slots):
    return goal(**{"evidence": evidence, "type": "objective", "subject": "ttft", "comparison": "<=", **slots})


def refused(text, catalogue, *goals, unplaced=()):
    with pytest.raises(ExtractionError) as failure:
        claims(text, catalogue, *goals, unplaced=unplaced)
    return failure.value.failure, [problem.pointer for problem in failure.value.problems]


# -- quotes ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("quote", ["P99 TTFT < 1s", "TTFT P99", "", "   ", "TTF", "99 TTFT < 2"])
def test_a_quote_that_is_not_in_the_text_refuses_the_answer(quote, catalogue):
    one = bound(quote, number="2", unit="s")
    if quote == "99 TTFT < 2":  # a piece of a word is no quote; a number beside a letter is
        assert claims("P99 TTFT < 2s", catalogue, one).goals
    else:
        assert refused("P99 TTFT < 2s", catalogue, one) == (Failure.NOT_IN_TEXT, ["/goals/0/evidence"])


@pytest.mark.parametrize("quote", ["p99 ttft < 2S", "P99 TTFT < 2s", "P99 TTFT < 2s "])
def test_case_and_width_of_a_quote_do_not_matter(quote, catalogue):
    text = "keep P99 TTFT < 2s"
    (one,) = claims(text, catalogue, bound(quote, number="2", unit="s")).goals
    assert text[slice(*one.place)] == "P99 TTFT < 2s"


@pytest.mark.parametrize("slot", ["window", "tenant", "model", "soft"])
def test_no_slot_may_quote_what_was_not_said(slot, catalogue):
    one = bound("P99 TTFT < 2s", number="2", unit="s", **{slot: "acme"})
    assert refused("P99 TTFT < 2s", catalogue, one) == (Failure.NOT_IN_TEXT, [f"/goals/0/{slot}"])


def test_a_window_that_is_a_piece_of_a_word_was_not_said(catalogue):
    assert refused("TTFT < 2s", catalogue, bound("TTFT < 2s", number="2", window="T"))[1] == [
        "/goals/0/window"
    ]


def test_every_problem_is_named_at_once(catalogue):
    one = bound("TTFT < 2s", number="3", window="at night", stat="p50")
    _, pointers = refused(
        "TTFT < 2s", catalogue, one, goal(evidence="cost", type="priority"), unplaced=["nothing"]
    )
    assert set(pointers) == {
        "/goals/0/number",
        "/goals/0/window",
        "/goals/0/stat",
        "/goals/1/evidence",
        "/goals/1/higher",
        "/unplaced/0",
    }


# -- slots of a type -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("slots", "pointer"),
    [
        ({"type": "placement", "rule": "require"}, "/goals/0/place"),
        ({"type": "precision", "rule": "forbid"}, "/goals/0/precision"),
        ({"type": "priority"}, "/goals/0/higher"),
        ({"type": "exception", "subject": "cost"}, "/goals/0/tenant"),
        ({"type": "config", "subject": "tp"}, "/goals/0/number"),
        ({"type": "reconfig", "rule": "limit", "number": "2"}, "/goals/0/unit"),
        ({"type": "relative", "change": "by", "subject": "ttft", "number": "2"}, "/goals/0/comparison"),
        ({"type": "relative", "subject": "ttft", "number": "2"}, "/goals/0"),
        ({"type": "precision", "rule": "freeze", "precision": "int4"}, "/goals/0"),
        ({"type": "precision", "rule": "forbid", "precision": "int4", "number": "2"}, "/goals/0/number"),
        ({"type": "config", "subject": "tp", "number": "2", "tenant": "x"}, "/goals/0/tenant"),
    ],
)
def test_a_goal_has_the_slots_of_its_type_and_no_others(slots, pointer, catalogue):
    failure, pointers = refused("x 2", catalogue, goal(evidence="x 2", **slots))
    assert (failure, pointers) == (Failure.NOT_IN_SCHEMA, [pointer])


# -- numbers and units -----------------------------------------------------------------------------


@pytest.mark.parametrize("number", ["3", "0.2", "two thousand", "99", "20", "2 s 5"])
def test_a_number_that_is_not_in_the_evidence_is_refused(number, catalogue):
    one = bound("P99 TTFT < 2s", stat="p99", number=number, unit="s")
    assert refused("P99 TTFT < 2s", catalogue, one) == (Failure.NOT_IN_TEXT, ["/goals/0/number"])


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("TTFT < 1,500 ms", "1"),
        ("TTFT < 1,500 ms", "500"),
        ("TTFT < 2.5 s", "2"),
        ("TTFT < 2.5 s", "5"),
        ("首字延迟不超过四十毫秒", "四"),
        ("TTFT < 250 ms", "25"),
    ],
)
def test_a_piece_of_a_number_is_not_the_number(text, number, catalogue):
    assert refused(text, catalogue, bound(text, number=number))[1] == ["/goals/0/number"]


def test_a_number_from_another_part_of_the_text_is_refused(catalogue):
    text = "TTFT < 2s, TPOT < 50 ms"
    assert refused(text, catalogue, bound("TTFT < 2s", number="50"))[1] == ["/goals/0/number"]


@pytest.mark.slow
@pytest.mark.parametrize("unit", ["ms", "min", "tokens/s", "x"])
def test_the_unit_is_that_of_the_number(unit, catalogue):
    text = "TTFT < 2s, TPOT < 50 ms"
    assert refused(text, catalogue, bound("TTFT < 2s", number="2", unit=unit))[1] == ["/goals/0/unit"]


@pytest.mark.parametrize(
    ("text", "subject", "number", "unit", "said"),
    [
        ("TTFT < 2s", "ttft", "2", "s", "TTFT at most 2s"),
        ("TTFT < 2s", "ttft", "2s", "s", "TTFT at most 2s"),
        ("TTFT < 2s", "ttft", "2", None, "TTFT at most 2s"),
        ("cost under $40/h", "cost", "40", "$/h", "cost at most $40/h"),
        ("TTFT < 2, in seconds", "ttft", "2", "seconds", "TTFT at most 2 seconds"),
        ("TTFT within half a second", "ttft", "half a", "second", "TTFT at most half a second"),
        ("gpu util between 60 and 80%", "gpu_util", "60", "%", "GPU utilisation at most 60 %"),
    ],
)
def test_amounts_are_put_as_they_stand_in_the_text(text, subject, number, unit, said, catalogue):
    (one,) = claims(text, catalogue, bound(text, subject=subject, number=number, unit=unit)).goals
    assert one.sentence == said


# -- statistics and names --------------------------------------------------------------------------


def test_a_statistic_that_was_not_said_is_refused(catalogue):
    one = bound("TTFT < 50 ms", stat="p50", number="50", unit="ms")
    assert refused("TTFT < 50 ms", catalogue, one)[1] == ["/goals/0/stat"]


@pytest.mark.parametrize(
    ("text", "stat"), [("99 out of 100 answers begin in under 2s", "p99"), ("P99.9 TTFT 2s", "p99.9")]
)
def test_a_statistic_counts_if_its_words_or_its_digits_are_there(text, stat, catalogue):
    assert claims(text, catalogue, bound(text, stat=stat, number="2", unit="s")).goals


def test_a_percentile_is_no_piece_of_another(catalogue):
    assert refused("P99.9 TTFT 2s", catalogue, bound("P99.9 TTFT 2s", stat="p99", number="2"))[1] == [
        "/goals/0/stat"
    ]


def test_a_tenant_is_called_by_its_name_whatever_words_were_used(catalogue):
    text = "TTFT < 2s for acme corp"
    (one,) = claims(text, catalogue, bound(text, number="2", unit="s", tenant="acme corp")).goals
    assert one.sentence == "TTFT at most 2s for tenant acme"


def test_the_sentence_is_in_the_language_of_the_text(catalogue):
    text = "高峰期首字延迟不超过 2 秒"
    (one,) = claims(text, catalogue, bound(text, number="2", unit="秒", window="高峰期")).goals
    assert one.sentence == "高峰期 TTFT 不超过 2 秒"


def test_what_the_model_could_not_name_is_left_in_its_own_words(catalogue):
    one = bound("vibes under 2s", subject="unknown", number="2", unit="s")
    assert claims("keep the vibes under 2s", catalogue, one).goals[0].sentence == "vibes under 2s"


# -- anything --------------------------------------------------------------------------------------

TEXTS = [
    "P99 TTFT < 2s at peak, tp=2",
    "keep it between 60 and 80% for acme",
    "不要 INT4，成本低于 $40/h",
    "leave gpu-1 alone",
]
SLOTS = wire_schema()["properties"]["goals"]["items"]["properties"]


@pytest.mark.slow
@given(data=st.data(), text=st.sampled_from(TEXTS))
def test_every_answer_of_the_schema_is_refused_by_name_or_quotes_the_text(data, text, catalogue):
    piece = st.tuples(st.integers(0, len(text)), st.integers(0, len(text))).map(
        lambda ends: text[min(ends) : max(ends)]
    )
    free = st.one_of(st.none(), piece, st.sampled_from(["2", "80", "s", "%", "peak", "acme", "\x00", "１"]))
    slots = {name: st.sampled_from(node["enum"]) if "enum" in node else free for name, node in SLOTS.items()}
    answer = data.draw(
        st.fixed_dictionaries(
            {
                "goals": st.lists(st.fixed_dictionaries({**slots, "evidence": piece}), max_size=3),
                "unplaced": st.lists(piece, max_size=2),
            }
        )
    )
    before = json.dumps(answer)
    try:
        found = hold_against(answer, text, replace(catalogue, devices={"A100": 4}))
    except ExtractionError:
        return
    assert all(0 <= one.place[0] < one.place[1] <= len(text) and one.sentence for one in found.goals)
    assert json.dumps(answer) == before
