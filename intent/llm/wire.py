"""The LLM's answer as a strict value: JSON that is complete, without duplicate keys or NaN, and in the wire schema."""

import json
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from jsonschema import Draft202012Validator

from intent.document import pointer_to
from intent.errors import ExtractionError, Failure, Problem

Slots = Mapping[str, str | None]
"""A goal of the wire schema."""

MOST_PROBLEMS = 8
"""How many things that are wrong are said of one answer."""


@cache
def wire_schema() -> dict[str, Any]:
    """The flat schema an LLM is held to: every field required and nullable, no bounds."""
    loaded: dict[str, Any] = json.loads(
        files(__package__).joinpath("schema", "wire.json").read_text(encoding="utf-8")
    )
    return loaded


def schema_of(title: str, properties: Mapping[str, Any]) -> dict[str, Any]:
    """A schema of an object that has all of these properties and no other."""
    required = list(properties)
    return {
        "title": title, "type": "object", "additionalProperties": False, "required": required, "properties": properties,
    }  # fmt: skip


def parse_answer(content: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    """The answer's JSON, one code fence allowed around it.

    Raises:
        ExtractionError: it is not one complete JSON object in the schema; names what and where.
    """
    try:
        answer = json.loads(_unfenced(content), object_pairs_hook=_unique, parse_constant=_refused_constant)
    except (ValueError, RecursionError) as error:
        raise unusable(Failure.NOT_JSON, [Problem("", f"not one complete JSON object ({error})")]) from error
    found = sorted(
        Draft202012Validator(schema).iter_errors(answer), key=lambda one: list(map(str, one.absolute_path))
    )
    if problems := [Problem(pointer_to(one.absolute_path), one.message[:200]) for one in found]:
        raise unusable(Failure.NOT_IN_SCHEMA, problems)
    return dict(answer)


def filled(answer: Mapping[str, Any], schema: Mapping[str, Any]) -> dict[str, Any]:
    """An answer of which only what is said was written, in the whole form of the schema."""
    properties = schema["properties"]
    slots = properties["goals"]["items"]["required"]
    goals = [{slot: goal.get(slot) for slot in slots} for goal in answer.get("goals", ())]
    return {name: list(answer.get(name, ())) for name in properties} | {"goals": goals}


def unusable(failure: Failure, problems: list[Problem]) -> ExtractionError:
    """The error of an answer with these problems, which a second try may put right."""
    said = "; ".join(map(str, problems[:MOST_PROBLEMS]))
    return ExtractionError(
        failure, f"the model's answer is unusable at {said}", tuple(problems[:MOST_PROBLEMS])
    )


def _unfenced(content: str) -> str:
    stripped = content.strip()
    if stripped.startswith("```") and stripped.endswith("```") and "\n" in stripped:
        return stripped[:-3].split("\n", 1)[1]
    return stripped


def _unique(pairs: list[tuple[str, Any]]) -> Mapping[str, Any]:
    keys = [key for key, _ in pairs]
    if len(set(keys)) < len(keys):
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"it says {twice[:60]!r} twice")
    return dict(pairs)


def _refused_constant(name: str) -> None:
    raise ValueError(f"it holds {name}, which is no JSON number")
