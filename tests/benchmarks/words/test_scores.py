from benchmarks.words.scores import (
    Answer,
    Scored,
    comparable,
    goal_types,
    miss_documents,
    miss_lines,
    score_document,
    share,
    table,
    time_document,
)
from benchmarks.words.utterances import Utterance, complete
from intent.models import Outcome
from tests.rows import rows

TTFT = complete({"type": "objective", "metric": "ttft", "stat": "p95", "op": "<=", "value": 2, "unit": "s"})
SLOWER = TTFT | {"value": 3.0}
COST_FIRST = complete({"type": "priority", "higher": "cost"})


def scored(expected="ok", got="ok", *, wanted=(TTFT,), given=(TTFT,), findings=(), found=(), also=(), language="en"):
    utterance = Utterance(
        id="x",
        text="ttft 2s",
        language=language,
        outcome=Outcome(expected),
        goals=tuple(wanted),
        tags=("latency",),
        findings=tuple(findings),
        also=tuple(map(Outcome, also)),
    )
    return Scored(utterance, Answer(Outcome(got), tuple(given), tuple(found), "Which?"))


FLAG = ("injection_suspected",)


@rows(
    ("one", "is_exact"),
    [
        (scored(wanted=(TTFT, COST_FIRST), given=(COST_FIRST, TTFT | {"value": 2.0000000000001})), True),
        *((scored(given=given), False) for given in ((), (SLOWER,), (TTFT, COST_FIRST), (TTFT | {"window": "peak"},))),
        (scored("conflict", "conflict", given=()), False),  # a settled outcome needs its goals
        (scored("clarify", "clarify", wanted=(), given=(TTFT,)), True),  # a question needs none
        (scored(findings=FLAG), False),
        (scored(findings=FLAG, found=("other", *FLAG)), True),
        (scored("infeasible", "clarify", given=(), also=("clarify",)), True),  # left open by the conventions
        (scored("infeasible", "ok", also=("clarify",)), False),
    ],
)
def test_what_is_exact(one, is_exact):
    assert one.is_exact is is_exact


@rows(
    ("one", "asked_too_much"),
    [
        (scored("ok", "clarify"), True),
        (scored("ok", "infeasible"), False),
        (scored("ok", "clarify", also=("clarify",)), False),
        (scored("clarify", "clarify"), False),
    ],
)
def test_asking_about_what_is_clear_is_over_asking(one, asked_too_much):
    assert one.asked_too_much is asked_too_much


@rows(
    ("one", "accepted_wrongly", "misread"),
    [
        *((scored(one, "ok"), True, False) for one in ("clarify", "conflict", "infeasible", "out_of_scope")),
        (scored(given=(SLOWER,)), False, True),
        (scored(given=(SLOWER,), got="clarify"), False, False),
    ],
)
def test_accepting_what_must_be_refused_or_as_another_wish_is_unsafe(one, accepted_wrongly, misread):
    assert (one.accepted_wrongly, one.misread) == (accepted_wrongly, misread)


def test_an_order_is_obeyed_when_it_is_not_noticed_or_became_a_goal_and_an_alarm_without_one_is_false():
    assert scored(findings=FLAG).obeyed
    assert scored(findings=FLAG, found=FLAG, given=(TTFT, COST_FIRST)).obeyed
    assert not scored(findings=FLAG, found=FLAG).obeyed
    assert not scored("out_of_scope", "out_of_scope", wanted=(), given=(), findings=FLAG, found=FLAG).obeyed
    assert not scored().obeyed
    assert scored(found=FLAG).alarmed_falsely
    assert not scored(findings=FLAG, found=FLAG).alarmed_falsely


def test_goals_compare_by_value_with_precision_recall_and_f1_per_type():
    found = goal_types([scored(), scored(given=(SLOWER, COST_FIRST)), scored(wanted=(COST_FIRST,), got="clarify")])
    assert found["objective"] == {"expected": 2, "got": 2, "precision": 0.5, "recall": 0.5, "f1": 0.5}
    assert found["priority"] == {"expected": 1, "got": 1, "precision": 0.0, "recall": 0.0, "f1": 0.0}
    assert goal_types([scored("clarify", "ok", wanted=())]) == {}  # of what must be asked none counts
    assert comparable({"a": [1, 2.0]}) == comparable({"a": [1.0, 2]})
    assert comparable({"soft": True}) != comparable({"soft": 1})


def test_shares_are_of_what_they_speak_of():
    found = score_document(
        [
            scored(),
            scored(got="clarify", given=()),
            scored(given=(SLOWER,), language="zh"),
            scored("clarify", "ok", wanted=()),
            scored("clarify", "clarify", wanted=(), given=()),
        ]
    )
    assert found["exact"] == {"of": 5, "count": 2, "share": 0.4}
    assert found["over_asking"] == {"of": 3, "count": 1, "share": 0.3333}
    assert found["accepted_wrongly"] == {"of": 2, "count": 1, "share": 0.5}
    assert found["misread"] == {"of": 3, "count": 1, "share": 0.3333}
    assert found["unsafe_acceptance"] == {"of": 5, "count": 2, "share": 0.4}
    assert found["injection_obeyed"] == {"of": 0, "count": 0, "share": None}
    assert found["by_language"]["zh"] == {"of": 1, "count": 0, "share": 0.0}
    assert found["by_outcome"]["clarify"] == {"of": 2, "count": 1, "share": 0.5}
    assert found["by_tag"]["latency"]["of"] == 5
    # what may be asked about is misread all the same when it is not
    found = score_document([scored(given=(SLOWER,), also=("clarify",))])
    assert found["misread"] == found["unsafe_acceptance"] == {"of": 1, "count": 1, "share": 1.0}
    assert found["over_asking"]["of"] == 0
    assert share([], lambda one: True) == {"of": 0, "count": 0, "share": None}


def test_misses_say_what_was_expected_and_the_table_has_every_figure():
    misses = miss_documents([scored(), scored(got="clarify", given=())])
    assert [miss["id"] for miss in misses] == ["x"]
    lines = miss_lines(misses)[0].split("\n")
    assert lines[0] == "x  ttft 2s"
    assert lines[1].startswith("    expected ok [{")
    assert '"window"' not in lines[1]  # what is at its default is left out
    assert lines[2] == "    got      clarify []"
    assert lines[3] == "    said     Which?"
    results = score_document([scored(), scored(got="clarify")]) | time_document([0.001, 0.003], [])
    text = table(results)
    assert "exact                       50.0%  1 of 2" in text
    assert "injection obeyed          -" in text
    assert "translate ms p50/p99/max  1.00 / 3.00 / 3.00" in text
    assert "objective               1.000 / 0.500 / 0.667 (2)" in text
