from dataclasses import replace
from itertools import chain, product
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

import validator.schema
from intent.document import to_document
from intent.models import (
    UNITS,
    Config,
    Intent,
    Objective,
    Placement,
    Priority,
    ReconfigRule,
    RecurringWindow,
    Relative,
    TenantException,
    TranslatorInfo,
)
from intent.translate import translate
from tests.rows import rows
from tests.validator.goals import CATALOGUE, any_goals
from tests.validator.intent_schema import json_schema, written
from validator.models import MessageWords
from validator.schema import check, domain_schema, errors

INTENT = Intent(text="x", language="en", goals=(), translator=TranslatorInfo(name="rules"))


def violations(*goals):
    return [finding.pointer for finding in check(replace(INTENT, goals=goals), MessageWords("en"))]


def ttft(**said):
    return replace(Objective("ttft", "<=", "x", value=2.0, unit="s"), **said)


def test_the_schema_is_a_schema():
    Draft202012Validator.check_schema(domain_schema())


def test_the_file_is_what_the_nouns_say():
    file = Path(validator.schema.__file__).with_name("schema") / "intent.v1.json"
    again = "write it anew: python -m tests.validator.intent_schema > validator/schema/intent.v1.json"
    assert file.read_text(encoding="utf-8") == written(json_schema()) + "\n", again


def test_the_document_has_the_keys_of_the_schema():
    assert set(domain_schema()["properties"]) == set(domain_schema()["required"]) == set(to_document(INTENT))


@rows(("metric", "unit"), list(product(UNITS, sorted({*chain(*UNITS.values())}))))
def test_a_metric_has_its_units_and_no_other(metric, unit):
    ok = unit in UNITS[metric]
    assert (violations(Objective(metric, "<=", "x", value=0.5, unit=unit)) == []) is ok
    assert (violations(Relative(metric, "<=", "x", delta=0.5, unit=unit)) == []) is ok
    assert (violations(TenantException("acme", metric, "x", limit=0.5, unit=unit)) == []) is ok


@rows("text", ["keep P99 TTFT < 2s at peak", "run it with tp=2", "hello", ""])
def test_what_the_translator_gives_has_the_form(text):
    assert list(check(translate(text, CATALOGUE), MessageWords("en"))) == []


@rows(
    ("goal", "pointer"),
    [
        (Objective("ttft", "<=", "x"), "/goals/0/value"),
        (ttft(op="minimize"), "/goals/0/value"),
        (ttft(evidence=""), "/goals/0/evidence"),
        (ttft(window=""), "/goals/0/window"),
        (ttft(window=RecurringWindow(("mo",), "9", "17:00", "UTC")), "/goals/0/window"),
        (Config("tp", "minimize", 2, "x"), "/goals/0/op"),
        (Priority("speed", "x"), "/goals/0/higher"),
        (Objective("vibes", "<=", "x", value=2.0, unit="s"), "/goals/0/metric"),
        (Relative("ttft", "<=", "x"), "/goals/0/delta"),
        (Relative("ttft", "<=", "x", factor=0.8, delta=0.1), "/goals/0/delta"),
        (Relative("ttft", "<=", "x", factor=0.8, unit="s"), "/goals/0/unit"),
        (Relative("ttft", "<=", "x", delta=-0.1), "/goals/0/unit"),
        (Relative("ttft", "minimize", "x", factor=0.8), "/goals/0/op"),
        (TenantException("acme", "ttft", "x", limit=5.0), "/goals/0/unit"),
        (TenantException("acme", "ttft", "x", limit=5.0, unit="s", factor=2.0), "/goals/0/factor"),
        (TenantException("acme", "ttft", "x", unit="s"), "/goals/0/unit"),
        (ReconfigRule("limit", "x"), "/goals/0/value"),
        (ReconfigRule("limit", "x", 2.0), "/goals/0/unit"),
        (ReconfigRule("forbid", "x", 2.0, "1/h"), "/goals/0/value"),
        (Placement("require", "A100", "x"), "/goals/0/selector"),
    ],
)
def test_a_wrong_goal_is_named_by_its_place(goal, pointer):
    assert pointer in violations(goal)


def test_a_pointer_escapes_what_json_pointers_escape():
    windows = {"a/b~c": RecurringWindow((), "09:00", "17:00", "UTC")}
    (finding,) = check(replace(INTENT, windows=windows), MessageWords("en"))
    assert finding.pointer == "/windows/a~1b~0c"


@rows(("language", "phrase"), [("en", "is not one of"), ("zh", "不在")])
def test_what_is_wrong_is_said_in_the_operators_language(language, phrase):
    (finding,) = check(replace(INTENT, goals=(Config("vp", "==", 2, "y"),)), MessageWords(language))
    assert finding.pointer == "/goals/0/key"
    assert '"vp"' in finding.message
    assert phrase in finding.message


@st.composite
def broken(draw):
    """A document with a few values exchanged for others."""
    document = to_document(replace(INTENT, goals=tuple(draw(st.lists(any_goals(), min_size=1, max_size=2)))))
    junk = st.sampled_from([None, 0, -1.5, "", "s", "always", [], {}, True, "24:01"])
    for goal in document["goals"]:
        for key in draw(st.sets(st.sampled_from(sorted(goal.keys() - {"type"})), max_size=3)):
            goal[key] = draw(junk)
        if draw(st.booleans()):
            goal.pop(draw(st.sampled_from(sorted(goal.keys() - {"type"}))))
    document[draw(st.sampled_from(["text", "language", "windows", "readback"]))] = draw(junk)
    return document


WHOLE = Draft202012Validator(domain_schema())


@pytest.mark.slow
@given(broken())
def test_checking_goal_by_goal_blames_what_the_whole_schema_blames(document):
    whole = {tuple(one.absolute_path)[:2] for one in WHOLE.iter_errors(document)}
    assert {path[:2] for path, _ in errors(document)} == whole
