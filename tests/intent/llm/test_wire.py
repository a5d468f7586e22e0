import json
from typing import get_args

import pytest
from jsonschema import Draft202012Validator

from benchmarks.misbehaving_llm import GOOD, NOTHING, TTFT
from intent.errors import ExtractionError, Failure
from intent.llm.quotes import MOST_PROBLEMS, parse_answer, wire_schema
from intent.models import PHRASED, Config, Goal, Metric, Op, Placement, PrecisionRule, ReconfigRule, Stat
from tests.rows import rows

GOAL = wire_schema()["properties"]["goals"]["items"]


def choices(slot):
    return set(GOAL["properties"][slot]["enum"]) - {None}


def test_a_good_answer_is_read():
    assert parse_answer(json.dumps(GOOD), wire_schema()) == GOOD


@rows("fence", ["```json\n{}\n```", "```\n{}\n```", "  \n```JSON\n{}```\n"])
def test_one_code_fence_is_taken_off(fence):
    assert parse_answer(fence.replace("{}", json.dumps(GOOD)), wire_schema()) == GOOD


@rows(
    ("content", "why"),
    [
        (json.dumps(GOOD)[:-9], "not one complete JSON"),
        ("Sure! " + json.dumps(GOOD), "not one complete JSON"),
        (json.dumps(GOOD) + " Done.", "not one complete JSON"),
        (f"```json\n```json\n{json.dumps(GOOD)}\n```\n```", "not one complete JSON"),
        ("<html>502 Bad Gateway</html>", "not one complete JSON"),
        ("[" * 100_000, "not one complete JSON"),
        ('{"goals": [], "goals": [], "unplaced": []}', "'goals' twice"),
        ('{"goals": [], "unplaced": [NaN]}', "NaN"),
        ('{"goals": [], "unplaced": [-Infinity]}', "Infinity"),
    ],
)
def test_what_is_no_complete_json_is_refused_by_name(content, why):
    with pytest.raises(ExtractionError, match=why) as refused:
        parse_answer(content, wire_schema())
    assert refused.value.failure is Failure.NOT_JSON


@rows(
    ("answer", "pointers"),
    [
        ([], [""]),
        ({**NOTHING, "unplaced": "x"}, ["/unplaced"]),
        ({**GOOD, "approved": True}, [""]),
        ({**GOOD, "goals": [{**TTFT, "number": 2, "unit": 7}]}, ["/goals/0/number", "/goals/0/unit"]),
        (
            {**GOOD, "goals": [{**TTFT, "subject": "vibes"}], "unplaced": [1]},
            ["/goals/0/subject", "/unplaced/0"],
        ),
    ],
)
def test_what_breaks_the_schema_is_refused_with_every_place(answer, pointers):
    with pytest.raises(ExtractionError) as refused:
        parse_answer(json.dumps(answer), wire_schema())
    assert refused.value.failure is Failure.NOT_IN_SCHEMA
    assert [problem.pointer for problem in refused.value.problems] == pointers


@pytest.mark.slow
def test_no_more_is_said_than_a_second_try_can_use():
    with pytest.raises(ExtractionError) as refused:
        parse_answer(json.dumps({**NOTHING, "goals": [{}] * 1_000}), wire_schema())
    assert len(refused.value.problems) == MOST_PROBLEMS


# -- the schema itself -----------------------------------------------------------------------------

PORTABLE = {"title", "description", "type", "additionalProperties", "required", "properties", "items", "enum"}


def depth(node):
    children = [*node.get("properties", {}).values(), *([node["items"]] if "items" in node else [])]
    return 1 + max(map(depth, children), default=0)


def nodes(node):
    yield node
    for child in node.get("properties", {}).values():
        yield from nodes(child)
    if "items" in node:
        yield from nodes(node["items"])


def test_the_schema_says_only_what_every_strict_server_accepts():
    Draft202012Validator.check_schema(wire_schema())
    for node in nodes(wire_schema()):
        assert set(node) <= PORTABLE, set(node) - PORTABLE
        if node["type"] == "object":
            assert node["additionalProperties"] is False
            assert node["required"] == list(node["properties"])


def test_the_schema_is_small_enough_for_every_strict_server():
    found = list(nodes(wire_schema()))
    assert wire_schema()["type"] == "object"
    assert depth(wire_schema()) <= 5
    assert sum(len(node.get("enum", ())) for node in found) <= 200
    assert sum(len(node.get("properties", ())) for node in found) <= 100


def test_what_may_be_unsaid_is_null_in_type_and_choice_alike():
    for slot, node in GOAL["properties"].items():
        if slot in {"evidence", "type"}:
            assert node["type"] == "string"
        else:
            assert node["type"] == ["string", "null"]
            assert None in node.get("enum", [None])


def test_evidence_comes_before_what_is_taken_from_it():
    assert GOAL["required"][0] == "evidence"


def test_choices_and_models_agree():
    settings = set(get_args(Config.__annotations__["key"])) - PHRASED  # the prompt knows none of these
    assert choices("subject") == set(get_args(Metric)) | settings | {"latency", "throughput", "unknown"}
    assert choices("stat") == set(get_args(Stat))
    assert choices("comparison") == set(get_args(Op))
    assert choices("precision") == set(get_args(PrecisionRule.__annotations__["value"]))
    assert choices("type") == {one.__dataclass_fields__["type"].default for one in get_args(Goal)}
    rules = [get_args(one.__annotations__["rule"]) for one in (PrecisionRule, Placement, ReconfigRule)]
    assert choices("rule") == {rule for some in rules for rule in some}
