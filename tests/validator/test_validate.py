from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from intent.models import (
    Config,
    Finding,
    Objective,
    Outcome,
    PrecisionRule,
    Priority,
    Question,
    RecurringWindow,
)
from intent.translate import translate
from runtime.capabilities import Limits
from tests.rows import rows
from tests.tries import tries
from tests.validator.goals import CATALOGUE, any_goals, goal_sets
from validator.models import MessageWords
from validator.schema import check
from validator.validate import validate


def bound(metric, op, value, unit, **said):
    return Objective(metric, op, f"{metric} {op} {value}", value=value, unit=unit, **said)


TTFT = bound("ttft", "<=", 2.0, "s", stat="p99")
TP = Config("tp", "==", 2, "tp=2")
TOO_MANY = Config("tp", "==", 16, "tp=16")
HIGH, LOW = bound("gpu_util", ">=", 0.8, "ratio"), bound("gpu_util", "<=", 0.7, "ratio")
STRANGER = bound("ttft", "<=", 2.0, "s", tenant="payd")
QUESTION = Question("Which latency?", ("TTFT", "TPOT"), "TTFT")
ORDER = Finding("injection_suspected", "/text", "an order", "skip the approval")


@rows(
    ("goals", "outcome", "code"),
    [
        ([TTFT], Outcome.OK, None),
        ([TTFT, TP, PrecisionRule("forbid", "int4", "no int4")], Outcome.OK, None),
        ([], Outcome.OUT_OF_SCOPE, None),
        ([bound("gpu_util", ">=", 1.05, "ratio")], Outcome.INFEASIBLE, "over_100_percent"),
        ([TOO_MANY], Outcome.INFEASIBLE, "too_few_for_tp"),
        ([Config("tp", "==", 3, "tp=3")], Outcome.INFEASIBLE, "tp_does_not_divide"),
        ([TP, Config("tp", "==", 4, "tp=4")], Outcome.CONFLICT, "different_settings"),
        ([HIGH, LOW], Outcome.CONFLICT, "disjoint_bounds"),
        ([TOO_MANY, TP], Outcome.CONFLICT, "different_settings"),
        ([STRANGER], Outcome.CLARIFY, "unknown_tenant"),
        ([STRANGER, HIGH, LOW, TOO_MANY], Outcome.CLARIFY, "unknown_tenant"),
        ([Objective("ttft", "<=", "x", unit="parsecs"), TOO_MANY], Outcome.OUT_OF_SCOPE, "schema_violation"),
        ([Priority("latency", "a"), Priority("cost", "b")], Outcome.CONFLICT, "priority_circle"),
        ([replace(HIGH, soft=True), LOW], Outcome.OK, None),
    ],
)
def test_goals_come_to_their_outcome(goals, outcome, code, checked):
    intent = checked(*goals)
    assert intent.outcome is outcome
    assert [finding.code for finding in intent.findings][:1] == ([code] if code else [])


def test_a_question_of_the_translator_comes_before_everything_but_the_form(intent_of, site):
    asked = replace(intent_of(STRANGER, HIGH, LOW, TOO_MANY), questions=(QUESTION,))
    assert validate(asked, site).outcome is Outcome.CLARIFY
    assert validate(asked, site).questions == (QUESTION,)
    broken = replace(asked, goals=(bound("vibes", "<=", 2.0, "s"),))
    assert validate(broken, site).outcome is Outcome.OUT_OF_SCOPE


def test_an_unknown_name_is_asked_about(checked):
    intent = checked(STRANGER, text="payd ttft < 2s")
    (asked,) = intent.questions
    assert asked.options == ("paid", "acme", "leave everything as it is")
    assert asked.texts == ("paid ttft < 2s", "acme ttft < 2s", "leave everything as it is")


def test_what_was_suspected_stays(intent_of, site):
    suspected = replace(intent_of(TTFT), findings=(ORDER,))
    assert validate(suspected, site).findings == (ORDER,)
    assert validate(replace(suspected, goals=(TOO_MANY,)), site).findings[0] == ORDER


def test_findings_speak_the_language_of_the_text(checked):
    (finding,) = checked(TOO_MANY, language="zh").findings
    assert "需要" in finding.message
    assert finding.suggestion == "TP 可以是 1、2、4"


def test_windows_said_in_the_text_count(intent_of, site):
    late = {"late": RecurringWindow(("mon",), "22:00", "23:00", "UTC")}
    goals = replace(HIGH, window="late"), replace(LOW, window="peak")
    assert validate(replace(intent_of(*goals), windows=late), site).outcome is Outcome.OK
    early = {"late": RecurringWindow(("mon",), "20:00", "23:00", "UTC")}
    assert validate(replace(intent_of(*goals), windows=early), site).outcome is Outcome.CONFLICT


def test_one_place_has_one_finding(intent_of, site):
    narrow = replace(site, limits=Limits(allowed_tp=(1, 2), max_gpus=4))
    intent = validate(intent_of(TOO_MANY), narrow)
    assert [finding.code for finding in intent.findings] == ["too_few_for_tp"]


def test_a_document_that_breaks_the_schema_goes_no_further(checked):
    intent = checked(Objective("ttft", "<=", "x", unit="parsecs"), TOO_MANY)
    assert {finding.code for finding in intent.findings} == {"schema_violation"}
    assert intent.readback == ""


def test_an_outcome_that_was_written_into_the_document_is_not_believed(intent_of, site):
    forged = replace(intent_of(TOO_MANY), outcome=Outcome.OK, readback="all is well")
    assert validate(forged, site).outcome is Outcome.INFEASIBLE
    unclear = replace(intent_of(TTFT), outcome=Outcome.OK, questions=(QUESTION,))
    assert validate(unclear, site).outcome is Outcome.CLARIFY


def test_words_and_goals_come_to_the_same(site):
    intent = validate(translate("keep P99 TTFT < 2s", CATALOGUE), site)
    assert (intent.outcome, intent.readback) == (Outcome.OK, "P99 TTFT at most 2 s at all times (assumed).")


LANGUAGES = st.sampled_from(["en", "zh"])


@pytest.mark.slow
@tries(150)
@given(st.lists(any_goals(), min_size=1, max_size=5), LANGUAGES, st.booleans())
def test_nothing_that_has_the_form_makes_it_raise_and_twice_is_once(intent_of, site, big, goals, language, large):
    where = big if large else site
    once = validate(intent_of(*goals, language=language), where)
    assert validate(once, where) == once
    assert once.questions or once.outcome is not Outcome.CLARIFY
    assert not list(check(once, MessageWords("en"))) or once.outcome is Outcome.OUT_OF_SCOPE


PEAK_TP, NIGHT_PP = replace(TP, window="peak"), Config("pp", "==", 2, "x", window="overnight")


@pytest.mark.slow
@tries(150)
@example(([Config("tp", "==", 9, "x"), Config("pp", "==", 1, "x")],) * 2)
@example(([Config("tp", "==", 3, "x"), Config("pp", "==", 3, "x")],) * 2)
@example(([PEAK_TP, NIGHT_PP, Config("replicas", "==", 4, "x")],) * 2)
@given(goal_sets().flatmap(lambda goals: st.tuples(st.just(goals), st.permutations(goals))))
def test_the_order_of_goals_changes_nothing(intent_of, big, orders):
    """But where a clash is told: at the later goal."""
    goals, shuffled = orders
    outcomes = [validate(intent_of(*order), big) for order in (goals, shuffled, goals[::-1])]
    assert len({one.outcome for one in outcomes}) == 1
    assert len({frozenset(finding.code for finding in one.findings) for one in outcomes}) == 1


@pytest.mark.slow
@tries(100)
@given(goal_sets(), goal_sets(1))
def test_another_goal_never_takes_a_clash_away(intent_of, big, goals, more):
    clashing = validate(intent_of(*goals), big).outcome is Outcome.CONFLICT
    grown = validate(intent_of(*goals, *more), big)
    assert not clashing or grown.outcome in {Outcome.CONFLICT, Outcome.CLARIFY}
