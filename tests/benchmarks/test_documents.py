import json

import jsonschema

from benchmarks.documents import MAX_TOKENS, Written, main, nested_schema, round_document, summary
from benchmarks.strategy import Switched
from intentctl.measure import TimeInterval
from runtime.engine import Finish
from tests.rows import rows


def written(number: int, text: str, *made_by: str) -> Written:
    tokens = [ord(character) for character in text]
    fingerprints = dict.fromkeys(made_by, 1)
    return Written(number, tokens, [-1.0] * len(text), text, fingerprints, Finish.STOP)


def shortest(schema: dict[str, object]) -> object:
    """The smallest value that a schema allows."""
    match schema:
        case {"type": "object", "properties": dict(properties), "required": list(required)}:
            return {name: shortest(properties[name]) for name in required}
        case {"type": "array"}:
            return [shortest(schema["items"])] * schema.get("minItems", 0)  # type: ignore[arg-type,operator]
        case {"type": "string"}:
            return "x" * int(schema["minLength"])  # type: ignore[call-overload]
        case {"type": "integer"}:
            return schema["minimum"]
        case {"type": "boolean"}:
            return True
    return None


def switched(**paths: int) -> Switched:
    return Switched(TimeInterval(0.0, 1.0), 0.1, paths)


@rows("number", range(0, 60, 7))
def test_schemas_can_be_followed_and_differ(number):
    schema = nested_schema(number)
    value = shortest(schema)
    jsonschema.validate(value, schema)
    assert 150 < len(json.dumps(value)) < MAX_TOKENS
    assert schema == nested_schema(number) != nested_schema(number + 1)


def test_rounds_count_what_is_valid_equal_and_cut_and_rows_add_them_up():
    text = json.dumps(shortest(nested_schema(3)))
    plain = [written(3, text, "a"), written(3, text, "a"), written(3, text, "a")]
    through = [written(3, text, "a", "b"), written(3, text[:-1], "a", "b"), written(3, text, "b")]
    through[2].logprobs[4] = -1.5
    found = round_document(plain, through, switched(patch=2))
    assert (found["documents"], found["valid"], found["equal"], found["cut_inside"]) == (3, 2, 2, 2)
    assert (found["moved"], found["worst_logprob_difference"]) == (2, 0.5)
    through[0].finish = Finish.LENGTH
    assert round_document(plain, through, switched())["valid"] == 1
    counts = {"documents": 2, "valid": 2, "equal": 1, "cut_inside": 2, "moved": 2, "left_to_drain": 0}
    rounds = [
        {"pair": pair, **counts, "tokens": [n, 9], "worst_logprob_difference": apart}
        for pair, n, apart in [("a-b", 5, 1e-6), ("a-b", 30, None), ("a-c", 4, None)]
    ]
    first, second = summary(rounds)
    assert (first["switches"], first["documents"], first["equal"]) == (2, 4, 2)
    assert (first["fewest_tokens"], first["most_tokens"], first["worst_logprob_difference"]) == (5, 30, 1e-6)
    assert second["worst_logprob_difference"] is None


def test_documents_go_through_a_switch(tmp_path):
    assert main(["--pairs", "1x1-pp2", "--switches", "1", "--together", "4", "--json", str(tmp_path / "d.json")]) == 0
    (row,) = json.loads((tmp_path / "d.json").read_text())["rows"]
    assert {row[name] for name in ("documents", "valid", "equal", "cut_inside", "moved")} == {4}
