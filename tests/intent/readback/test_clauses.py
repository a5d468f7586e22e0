import re
from dataclasses import fields, replace
from typing import get_args

import pytest
from hypothesis import given
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
    ReconfigRule,
    RecurringWindow,
    Relative,
    TenantException,
    TranslatorInfo,
)
from intent.readback import Words, in_words, name, plain, render
from intent.rules import read
from intent.times import spoken
from tests.intent.rules.conftest import short
from tests.intent.tables import table
from tests.rows import rows
from tests.tries import tries
from tests.validator.goals import CATALOGUE, TYPES, any_goals, goals, windows
from validator.models import MessageWords as ValidatorWords
from validator.schema import check


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


@rows(("said", "en", "zh"), table("readback.txt"))
def test_a_goal_has_its_sentence_in_both_languages_and_the_rules_read_it_back(said, en, zh):
    (goal,) = read(f"{en}.", CATALOGUE).goals
    assert short(goal) == said
    assert in_words([goal], "en") == f"{en}."
    assert in_words([goal], "zh") == f"{zh}。"
    draft = read(f"{zh}。", CATALOGUE)
    assert [meant(one) for one in draft.goals] == [meant(goal)]
    assert draft.questions == read(f"{en}.", CATALOGUE).questions == []


@rows(("goal", "en", "zh"), ODD)
def test_what_only_a_document_says_has_its_sentence_too(goal, en, zh):
    assert in_words([goal], "en") == f"{en}."
    assert in_words([goal], "zh") == f"{zh}。"


@rows("language", ["en", "zh"])
def test_the_rules_read_the_text_of_several_goals_to_the_goals(language):
    some = [read(f"{en}.", CATALOGUE).goals[0] for _, en, _ in table("readback.txt")[::5]]
    assert {meant(one) for one in read(in_words(some, language), CATALOGUE).goals} == set(map(meant, some))


def test_there_is_a_sentence_of_every_type_on_file():
    said = "; ".join(en for _, en, _ in table("readback.txt"))
    assert {type(goal) for goal in read(said, CATALOGUE).goals} == set(get_args(Goal))


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


@rows(
    "window",
    [
        RecurringWindow(("mon", "fri"), "09:00", "17:00", "UTC"),
        DatedWindow("2026-11-27", "00:00", "24:00", "UTC"),
        FromNowWindow(7200.0),
    ],
)
@rows("language", ["en", "zh"])
def test_a_window_said_in_the_text_is_spelt_out(window, language):
    assert spoken(window, language) in in_words([Config("tp", "==", 2, "x", window)], language)


@rows(
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


def test_a_loss_that_is_assumed_says_it():
    said = in_words([Config("lost_devices", ">=", 1, "x")], "en", [Assumption("/goals/0/key", "why")])
    assert said == "Survive the loss of 1 GPU at all times [why]."


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
@tries(300)
@given(st.one_of(goals(), any_goals()), st.one_of(goals(), any_goals()), st.sampled_from(["en", "zh"]))
def test_two_different_goals_never_have_the_same_words(a, b, language):
    if not (valid(a) and valid(b)):
        return
    one, other = (in_words([goal], language) for goal in (a, b))
    assert one != other or meant(a) == meant(b)


@pytest.mark.slow
@tries(300)
@given(goals(), st.data(), st.sampled_from(["en", "zh"]))
def test_changing_one_fact_changes_the_words(goal, data, language):
    near = data.draw(TYPES[type(goal)])
    slot = data.draw(st.sampled_from([one.name for one in fields(goal) if one.name not in {"evidence", "type"}]))
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
