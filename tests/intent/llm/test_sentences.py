from dataclasses import replace
from typing import get_args

import pytest

from intent.llm.sentences import VARIES_BY, fill, join, needed, possible, sentences, spoken, template
from intent.llm.testing import goal
from intent.llm.wire import wire_schema
from intent.models import (
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
from intent.rules import read

WEEKDAYS = ("mon", "tue", "wed", "thu", "fri")
GOALS: tuple[Goal, ...] = (
    Objective("ttft", "<=", "", "p99", 2.0, "s", "peak", "acme", "counting"),
    Objective("tpot", "<=", "", "p95", 0.05, "s", "overnight"),
    Objective("e2e", "<=", "", "mean", 12.5, "s", "month_end"),
    Objective("e2e", "<=", "", "p99.9", 90.0, "s", soft=True),
    Objective("reconfig_pause", "<=", "", None, 0.05, "s"),
    Objective("throughput_tok", ">=", "", None, 1500.0, "tokens/s"),
    Objective("throughput_req", ">=", "", None, 10.0, "requests/s", RecurringWindow(WEEKDAYS, "09:00", "17:00", "UTC")),
    Objective("gpu_util", ">=", "", None, 0.6, "ratio"),
    Objective("gpu_util", "<=", "", None, 0.8, "ratio", "off_peak"),
    Objective("availability", ">=", "", None, 0.999, "ratio"),
    Objective("error_rate", "<=", "", None, 0.001, "ratio", DatedWindow("2026-11-27", "08:00", "20:00", "UTC")),
    Objective("quality_loss", "<=", "", None, 0.02, "ratio"),
    Objective("gpu_count", "==", "", None, 4.0, "gpus"),
    Objective("gpu_count", "<=", "", None, 6.0, "gpus", FromNowWindow(7200.0)),
    Objective("cost", "<=", "", None, 40.0, "USD/h"),
    Objective("cost", "<=", "", None, 2.5, "USD/Mtok"),
    Objective("cost", "minimize", ""),
    Objective("throughput_tok", "maximize", "", window="peak"),
    Objective("ttft", "minimize", "", "p99"),
    Relative("ttft", "<=", "", "p95", 0.8),
    Relative("throughput_tok", ">=", "", None, 1.5, window="peak"),
    Relative("ttft", "<=", "", "p99", None, -0.2, "s"),
    Relative("gpu_util", ">=", "", None, None, 0.1, "ratio"),
    TenantException("acme", "cost", "", factor=1.2),
    TenantException("acme", "ttft", "", limit=5.0, unit="s", window="peak"),
    TenantException("acme", "ttft", ""),
    PrecisionRule("forbid", "int4", "", "peak"),
    PrecisionRule("require", "bf16", "", tenant="acme"),
    PrecisionRule("require", "full", "", "off_peak"),
    PrecisionRule("allow", "int8", ""),
    PrecisionRule("min", "fp8", ""),
    Placement("require", "gpu_type:A100", "", "latency_critical"),
    Placement("require", "gpu_type:L40S", "", "rest"),
    Placement("prefer", "gpu_type:A100", ""),
    Placement("forbid", "gpu_type:L40S", "", "tenant:acme"),
    Placement("freeze", "gpu:gpu-1", "", window="peak"),
    Placement("freeze", "node:b", ""),
    Priority("latency", "", "cost"),
    Priority("tenant:acme", "", "quality", "peak"),
    Priority("throughput", ""),
    Config("tp", "==", 2, ""),
    Config("pp", "<=", 4, "", "peak", "counting"),
    Config("replicas", ">=", 2, ""),
    ReconfigRule("forbid", "", window="business_hours"),
    ReconfigRule("limit", "", 2.0, "1/h"),
    ReconfigRule("limit", "", 1.0, "1/day", "peak"),
)  # fmt: skip


def meanings(goals):
    return [replace(one, evidence="") for one in goals]


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("wish", GOALS, ids=lambda wish: spoken(wish, "en"))
def test_a_goal_is_said_in_words_that_the_rules_read_as_it(wish, language, catalogue):
    named = replace(catalogue, gpu_kinds=("A100", "L40S"), nodes=("a", "b"))
    said = spoken(wish, language)
    draft = read(said, named)
    assert meanings(draft.goals) == [wish], said
    assert draft.questions == [], said


@pytest.mark.parametrize("language", ["en", "zh"])
def test_several_goals_are_said_in_one_text(language, catalogue):
    some = [GOALS[0], GOALS[7], GOALS[25], GOALS[-2]]
    assert meanings(read(join((spoken(one, language) for one in some), language), catalogue).goals) == some


def test_there_is_a_goal_of_every_type_above():
    assert {type(one) for one in GOALS} == set(get_args(Goal))


@pytest.mark.parametrize("language", ["en", "zh"])
def test_every_sentence_has_only_slots_of_the_wire_schema(language):
    slots = {*wire_schema()["properties"]["goals"]["items"]["required"], "amount", "direction"}
    for name, sentence in sentences(language).items():
        assert possible(sentence) <= slots, name


def test_both_languages_have_the_same_sentences_with_the_same_slots():
    english, chinese = sentences("en"), sentences("zh")
    assert english.keys() == chinese.keys()
    for name, sentence in english.items():
        assert (possible(sentence), needed(sentence)) == (possible(chinese[name]), needed(chinese[name])), (
            name
        )


def test_every_choice_that_picks_a_sentence_has_one():
    slots = wire_schema()["properties"]["goals"]["items"]["properties"]
    for kind, slot in VARIES_BY.items():
        found = {
            choice for choice in slots[slot]["enum"] if template(goal(type=kind, **{slot: choice}), "en")
        }
        assert found, kind
    names = {name.partition(".")[0] for name in sentences("en")}
    assert names == set(slots["type"]["enum"])


def test_what_was_not_said_is_left_out():
    slots = goal(type="objective", subject="ttft", comparison="<=")
    sentence = template(slots, "en")
    assert fill(sentence, {**slots, "amount": "2s"}, "en") == "TTFT at most 2s"
    assert fill(sentence, {**slots, "amount": "2s", "window": "at peak"}, "en") == "TTFT at most 2s at peak"


def test_words_of_the_text_stay_as_they_are_even_if_they_look_like_a_slot():
    slots = {**goal(type="precision", rule="forbid", precision="int4"), "window": "at {peak}"}
    assert fill(template(slots, "en"), slots, "en") == "no INT4 at {peak}"


def test_a_choice_that_no_goal_has_is_no_sentence():
    assert template(goal(type="precision", rule="freeze"), "en") is None
