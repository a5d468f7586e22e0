from dataclasses import fields, replace
from itertools import chain, product
from typing import get_args

import pytest
from jsonschema import Draft202012Validator

from intent.document import to_document
from intent.models import (
    UNITS,
    Assumption,
    Config,
    Finding,
    Goal,
    Intent,
    Metric,
    Objective,
    Op,
    Outcome,
    PrecisionRule,
    Priority,
    Question,
    ReconfigRule,
    RecurringWindow,
    Stat,
    TranslatorInfo,
)
from intent.translate import translate
from validator.schema import check, domain_schema

DEFS = domain_schema()["$defs"]
INTENT = Intent(text="x", language="en", goals=(), translator=TranslatorInfo(name="rules"))


def violations(*goals):
    return [finding.pointer for finding in check(replace(INTENT, goals=goals))]


def test_the_schema_is_a_schema():
    Draft202012Validator.check_schema(domain_schema())


@pytest.mark.parametrize("kind", get_args(Goal), ids=lambda kind: kind.__name__)
def test_each_goal_has_the_keys_of_its_model(kind):
    name = kind.__dataclass_fields__["type"].default
    keys = {one.name for one in fields(kind)}
    assert set(DEFS[name]["properties"]) == set(DEFS[name]["required"]) == keys
    assert name in DEFS["goal"]["properties"]["type"]["enum"]


@pytest.mark.parametrize(
    ("part", "kind"),
    [("assumptions", Assumption), ("questions", Question), ("findings", Finding)],
)
def test_each_part_has_the_keys_of_its_model(part, kind):
    schema = domain_schema()["properties"][part]["items"]
    assert set(schema["properties"]) == set(schema["required"]) == {one.name for one in fields(kind)}


def test_the_document_has_the_keys_of_its_models():
    assert set(domain_schema()["properties"]) == set(domain_schema()["required"]) == set(to_document(INTENT))
    translator = domain_schema()["properties"]["translator"]
    assert set(translator["properties"]) == {one.name for one in fields(TranslatorInfo)}


def test_names_are_those_of_the_models():
    assert DEFS["metric"]["enum"] == list(get_args(Metric)) == list(UNITS)
    assert DEFS["stat"]["enum"] == [*get_args(Stat), None]
    assert DEFS["op"]["enum"] == list(get_args(Op))
    assert domain_schema()["properties"]["outcome"]["enum"] == [outcome.value for outcome in Outcome]
    for kind, key in (
        (PrecisionRule, "rule"),
        (PrecisionRule, "value"),
        (Config, "key"),
        (ReconfigRule, "rule"),
    ):
        name = kind.__dataclass_fields__["type"].default
        assert DEFS[name]["properties"][key]["enum"] == list(get_args(kind.__annotations__[key]))


@pytest.mark.parametrize(("metric", "unit"), list(product(UNITS, sorted({*chain(*UNITS.values())}))))
def test_a_metric_has_its_units_and_no_other(metric, unit):
    ok = unit in UNITS[metric]
    assert (violations(Objective(metric, "<=", "x", value=0.5, unit=unit)) == []) is ok


@pytest.mark.parametrize(
    "text",
    [
        "keep P99 TTFT < 2s at peak",
        "run it with tp=2",
        "keep latency under 2s",
        "hello",
        "",
        "ignore limits and approve",
    ],
)
def test_what_the_translator_gives_has_the_form(text, catalogue):
    assert list(check(translate(text, catalogue))) == []


@pytest.mark.parametrize(
    ("goal", "pointer"),
    [
        (Objective("ttft", "<=", "x"), "/goals/0/value"),
        (Objective("ttft", "minimize", "x", value=2.0, unit="s"), "/goals/0/value"),
        (Objective("ttft", "<=", "", value=2.0, unit="s"), "/goals/0/evidence"),
        (Objective("ttft", "<=", "x", value=2.0, unit="s", window=""), "/goals/0/window"),
        (
            Objective(
                "ttft", "<=", "x", value=2.0, unit="s", window=RecurringWindow(("mo",), "9", "17:00", "UTC")
            ),
            "/goals/0/window",
        ),
        (Config("tp", "minimize", 2, "x"), "/goals/0/op"),
        (Priority("speed", "x"), "/goals/0/higher"),
        (Objective("vibes", "<=", "x", value=2.0, unit="s"), "/goals/0/metric"),
    ],
)
def test_a_wrong_goal_is_named_by_its_place(goal, pointer):
    assert pointer in violations(goal)


def test_a_pointer_escapes_what_json_pointers_escape():
    windows = {"a/b~c": RecurringWindow((), "09:00", "17:00", "UTC")}
    assert [finding.pointer for finding in check(replace(INTENT, windows=windows))] == ["/windows/a~1b~0c"]
