from dataclasses import replace

import pytest

from intent.llm.sentences import VARIES_BY, fill, join, needed, possible, sentences, template
from intent.llm.testing import goal
from intent.llm.wire import wire_schema
from intent.models import (
    Config,
    Objective,
    Placement,
    PrecisionRule,
    Priority,
    ReconfigRule,
    Relative,
    TenantException,
)
from intent.rules import read

TTFT = {"subject": "ttft", "stat": "p99"}
CASES = {
    "objective": (
        {**TTFT, "comparison": "<=", "amount": "2 s", "tenant": "acme", "model": "counting"},
        Objective("ttft", "<=", "", "p99", 2.0, "s", "peak", "acme", "counting"),
    ),
    "objective.minimize": (
        {**TTFT, "comparison": "minimize", "tenant": "acme"},
        Objective("ttft", "minimize", "", "p99", window="peak", tenant="acme"),
    ),
    "objective.maximize": (
        {"subject": "throughput_tok", "comparison": "maximize", "model": "counting"},
        Objective("throughput_tok", "maximize", "", window="peak", model="counting"),
    ),
    "relative.by": (
        {**TTFT, "change": "by", "comparison": "<=", "amount": "20 %"},
        Relative("ttft", "<=", "", "p99", 0.8, window="peak"),
    ),
    "relative.to": (
        {**TTFT, "change": "to", "comparison": "<=", "amount": "2 s"},
        Objective("ttft", "<=", "", "p99", 2.0, "s", "peak"),
    ),
    "exception": (
        {"subject": "ttft", "tenant": "acme"},
        TenantException("acme", "ttft", "", window="peak"),
    ),
    "exception.to": (
        {"subject": "ttft", "change": "to", "tenant": "acme", "amount": "5 s"},
        TenantException("acme", "ttft", "", limit=5.0, unit="s", window="peak"),
    ),
    "exception.by": (
        {"subject": "cost", "change": "by", "tenant": "acme", "amount": "20 %"},
        TenantException("acme", "cost", "", factor=1.2, window="peak"),
    ),
    "exception.times": (
        {"subject": "cost", "change": "times", "tenant": "acme", "amount": "1.2"},
        TenantException("acme", "cost", "", factor=1.2, window="peak"),
    ),
    "precision.forbid": ({"rule": "forbid", "precision": "int4"}, PrecisionRule("forbid", "int4", "", "peak")),
    "precision.require": (
        {"rule": "require", "precision": "full", "tenant": "acme"},
        PrecisionRule("require", "full", "", "peak", "acme"),
    ),
    "precision.allow": (
        {"rule": "allow", "precision": "int8", "model": "counting"},
        PrecisionRule("allow", "int8", "", "peak", None, "counting"),
    ),
    "precision.min": ({"rule": "min", "precision": "fp8"}, PrecisionRule("min", "fp8", "", "peak")),
    "placement.require": (
        {"rule": "require", "place": "A100", "workload": "batch"},
        Placement("require", "gpu_type:A100", "", "batch", "peak"),
    ),
    "placement.prefer": ({"rule": "prefer", "place": "A100"}, Placement("prefer", "gpu_type:A100", "", window="peak")),
    "placement.forbid": ({"rule": "forbid", "place": "node b"}, Placement("forbid", "node:b", "", window="peak")),
    "placement.freeze": ({"rule": "freeze", "place": "gpu-1"}, Placement("freeze", "gpu:gpu-1", "", window="peak")),
    "priority": ({"higher": "latency", "lower": "cost"}, Priority("latency", "", "cost", "peak")),
    "priority.first": ({"higher": "acme"}, Priority("tenant:acme", "", None, "peak")),
    "config": (
        {"subject": "pp", "comparison": "<=", "amount": "4", "model": "counting"},
        Config("pp", "<=", 4, "", "peak", "counting"),
    ),
    "reconfig.forbid": ({"rule": "forbid"}, ReconfigRule("forbid", "", window="peak")),
}  # fmt: skip
"""Sentence to slots, and what the rules must read it as; all of them at peak."""
WINDOW = {"en": "at peak", "zh": "高峰期"}


def said(kind, slots, language):
    filled = {**goal(type=kind.partition(".")[0], window=WINDOW[language]), **slots}
    sentence = template(filled, language)
    assert sentence == sentences(language)[kind]
    return fill(sentence, filled, language)


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("kind", CASES)
def test_the_rules_read_a_sentence_as_what_its_slots_say(kind, language, catalogue):
    slots, meant = CASES[kind]
    text = said(kind, slots, language)
    draft = read(text, replace(catalogue, devices={"A100": 4, "L40S": 4}, nodes=("a", "b")))
    assert ([replace(one, evidence="") for one in draft.goals], draft.questions) == ([meant], []), text


OWN = {
    ("relative.times", "en"): {"subject": "throughput_tok", "change": "times", "comparison": ">=", "amount": "double"},
    ("relative.times", "zh"): {"subject": "throughput_tok", "change": "times", "comparison": ">=", "amount": "翻倍"},
    ("reconfig.limit", "en"): {"rule": "limit", "number": "2", "unit": "per hour"},
    ("reconfig.limit", "zh"): {"rule": "limit", "number": "2", "unit": "每小时"},
}  # fmt: skip
"""Slots whose words are the language's own."""


@pytest.mark.parametrize(("kind", "language"), OWN)
def test_words_of_the_text_are_read_in_its_language(kind, language, catalogue):
    (one,) = read(said(kind, OWN[kind, language], language), catalogue).goals
    assert replace(one, evidence="") in (
        Relative("throughput_tok", ">=", "", None, 2.0, window="peak"),
        ReconfigRule("limit", "", 2.0, "1/h", "peak"),
    )


@pytest.mark.parametrize("language", ["en", "zh"])
def test_several_sentences_are_one_text(language, catalogue):
    some = ["objective", "exception", "config"]
    text = join((said(kind, CASES[kind][0], language) for kind in some), language)
    assert [replace(one, evidence="") for one in read(text, catalogue).goals] == [
        CASES[kind][1] for kind in some
    ]


def test_every_sentence_is_read_above():
    assert {*CASES, *(kind for kind, _ in OWN)} == set(sentences("en"))


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
