import json
from typing import get_args

import pytest
from jsonschema import Draft202012Validator

from intent.errors import ExtractionError
from intent.lexicon import ANY_LATENCY, ANY_THROUGHPUT, METRICS, STATS
from intent.models import Config, Metric, Op
from intent.wire import parse_answer, wire_schema

GOAL = {
    "evidence": "TTFT < 2s", "subject": "ttft", "stat": None, "comparison": "<=", "number": "2", "unit": "s",
    "window": None, "tenant": None, "model": None,
}  # fmt: skip
GOOD = {"goals": [GOAL], "unplaced": []}


def test_a_good_answer_is_read():
    assert parse_answer(json.dumps(GOOD)) == GOOD


def test_one_code_fence_is_taken_off():
    assert parse_answer(f"```json\n{json.dumps(GOOD)}\n```") == GOOD


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (json.dumps(GOOD)[:-9], "not complete JSON"),
        ("Sure! " + json.dumps(GOOD), "not complete JSON"),
        (json.dumps(GOOD) + " Done.", "not complete JSON"),
        ("<html>502 Bad Gateway</html>", "not complete JSON"),
        ("[" * 100_000, "not complete JSON"),
        ('{"goals": [], "goals": [], "unplaced": []}', "'goals' twice"),
        ('{"goals": [], "unplaced": [NaN]}', "NaN"),
        ('{"goals": [], "unplaced": [-Infinity]}', "Infinity"),
        ("[]", "wire schema"),
        ('{"goals": []}', "unplaced"),
        (json.dumps({**GOOD, "approved": True}), "approved"),
        (json.dumps({"goals": [{**GOAL, "number": 2}], "unplaced": []}), r"goals\[0\]\.number"),
        (json.dumps({"goals": [{**GOAL, "subject": "vibes"}], "unplaced": []}), "subject"),
        (json.dumps({"goals": [{}], "unplaced": []}), "evidence"),
    ],
)
def test_a_bad_answer_is_refused_by_name(content, why):
    with pytest.raises(ExtractionError, match=why):
        parse_answer(content)


def test_the_schema_says_what_strict_servers_accept():
    """All required, no extra keys, no bounds, defaults, patterns or combinators."""
    allowed = {
        "title",
        "description",
        "type",
        "additionalProperties",
        "required",
        "properties",
        "items",
        "enum",
    }

    def walk(node):
        assert set(node) <= allowed, set(node) - allowed
        if node.get("type") == "object":
            assert node["additionalProperties"] is False
            assert node["required"] == list(node["properties"])
            for child in node["properties"].values():
                walk(child)
        if "items" in node:
            walk(node["items"])

    walk(wire_schema())
    Draft202012Validator.check_schema(wire_schema())


def test_schema_models_and_lexicon_agree():
    goal = wire_schema()["properties"]["goals"]["items"]["properties"]
    subjects = set(goal["subject"]["enum"]) - {ANY_LATENCY, ANY_THROUGHPUT, "unknown"}
    settings = set(get_args(Config.__annotations__["key"]))
    assert subjects == (set(METRICS) - {ANY_LATENCY, ANY_THROUGHPUT}) | settings
    assert subjects - settings <= set(get_args(Metric))
    assert set(goal["comparison"]["enum"]) - {None} == set(get_args(Op))
    assert set(goal["stat"]["enum"]) - {None} == set(STATS)


def test_evidence_comes_before_what_is_taken_from_it():
    assert wire_schema()["properties"]["goals"]["items"]["required"][0] == "evidence"
