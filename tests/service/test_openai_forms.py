import pytest

from runtime import grammar
from runtime.errors import RequestError
from service.openai.forms import ResponseFormat, StructuredOutputs
from tests.rows import rows

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}


@rows(
    ("said", "schema"),
    [
        ({"type": "text"}, None),
        ({"type": "json_object"}, {"type": "object"}),
        ({"type": "json_schema", "json_schema": {"name": "n", "strict": False, "schema": SCHEMA}}, SCHEMA),
        ({"type": "json_schema", "json_schema": {"name": "n"}}, {"type": "object"}),
    ],
)
def test_a_response_format_is_a_schema_or_none(said, schema):
    assert ResponseFormat.model_validate(said).schema_of_answer == schema


@rows(
    ("said", "built"),
    [
        ({"json": SCHEMA}, grammar.json_schema(SCHEMA)),
        ({"json": '{"type": "integer"}'}, grammar.json_schema({"type": "integer"})),
        ({"json_object": True}, grammar.json_object()),
        ({"regex": "a+"}, grammar.regex("a+")),
        ({"choice": ["a", "b"]}, grammar.choice(["a", "b"])),
        ({"grammar": 'start: "a"'}, grammar.lark('start: "a"')),
    ],
)
def test_structured_outputs_are_grammars(said, built):
    assert StructuredOutputs.model_validate(said).built() == built


@rows("json_", ["{", "[" * 100_000, "5", [1], True])
def test_a_schema_that_is_none_is_refused(json_):
    with pytest.raises(RequestError, match="json "):
        StructuredOutputs.model_validate({"json": json_}).built()
