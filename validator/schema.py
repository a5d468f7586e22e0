"""The strict domain schema: every intent document that leaves the validator has this form."""

import json
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError

from intent.document import pointer_to, to_document
from intent.models import Finding, Intent
from validator.models import MessageWords

if TYPE_CHECKING:
    from pydantic import JsonValue

SCHEMA_VIOLATION = "schema_violation"
"""The code of its findings."""
MOST_CHARACTERS = 200
"""Of a wrong value, shown in a message."""


@cache
def domain_schema() -> "dict[str, JsonValue]":
    """The JSON Schema (Draft 2020-12) of the intent document."""
    text = files(__package__).joinpath("schema", "intent.v1.json").read_text(encoding="utf-8")
    loaded: dict[str, JsonValue] = json.loads(text)
    return loaded


def check(intent: Intent, words: MessageWords) -> Iterator[Finding]:
    """One finding for each place where the document breaks the schema, in document order."""
    problems = sorted(errors(to_document(intent)), key=lambda error: [str(part) for part in error[0]])
    for path, problem in problems:
        pointer = pointer_to(path)
        yield Finding(SCHEMA_VIOLATION, pointer, f"{pointer or '/'}: {_said(problem, words)}")


def errors(document: Mapping[str, object]) -> Iterator[tuple[tuple[str | int, ...], ValidationError]]:
    """Path and error of everything that breaks the schema.

    Each goal is checked by the schema of its own type: a tenth of the time of asking every type whether it is meant.
    """
    goals: Any = document["goals"]
    for problem in _frame().iter_errors({**document, "goals": []}):
        yield tuple(problem.absolute_path), problem
    for number, goal in enumerate(goals):
        for problem in _goal(goal["type"]).iter_errors(goal):
            yield ("goals", number, *problem.absolute_path), problem


@cache
def _frame() -> Draft202012Validator:
    return Draft202012Validator(_flat(domain_schema()))


@cache
def _goal(kind: str) -> Draft202012Validator:
    schema: Any = domain_schema()
    goals = schema["properties"]["goals"]["items"]
    return Draft202012Validator(_flat({"$ref": goals["discriminator"]["mapping"][kind]}))


def _flat(schema: Any) -> Any:
    """A schema with what it refers to written out: following references takes most of the time."""
    if isinstance(schema, list):
        return [_flat(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        definitions: Any = domain_schema()["$defs"]
        return _flat(definitions[schema["$ref"].rsplit("/", 1)[1]])
    return {key: _flat(value) for key, value in schema.items() if key != "$defs"}


def _said(problem: ValidationError, words: MessageWords) -> str:
    """What is wrong, in the operator's language."""
    shown = json.dumps(problem.instance, ensure_ascii=False, default=str)[:MOST_CHARACTERS]
    expected = json.dumps(problem.validator_value, ensure_ascii=False)[:MOST_CHARACTERS]
    key = _KEYS.get(str(problem.validator), "schema.other")
    return words.message(key, shown=shown, expected=expected)


_KEYS = {
    "additionalProperties": "schema.keys",
    "required": "schema.keys",
    "type": "schema.type",
    "enum": "schema.choice",
    "const": "schema.choice",
    "pattern": "schema.pattern",
    "minLength": "schema.short",
    "minItems": "schema.short",
    "maxLength": "schema.long",
    "maxItems": "schema.long",
    "exclusiveMinimum": "schema.small",
}
