"""The LLM's answer as a strict value: JSON that is complete, without duplicate keys or NaN, and in the wire schema."""

import json
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from jsonschema import Draft202012Validator

from intent.errors import ExtractionError


@cache
def wire_schema() -> dict[str, Any]:
    """The flat schema an LLM is held to: every field required and nullable, no bounds."""
    loaded: dict[str, Any] = json.loads(
        files(__package__).joinpath("schema", "wire.json").read_text(encoding="utf-8")
    )
    return loaded


@cache
def _validator() -> Draft202012Validator:
    return Draft202012Validator(wire_schema())


def parse_answer(content: str) -> dict[str, Any]:
    """The answer's JSON, one code fence allowed around it.

    Raises:
        ExtractionError: it is not one complete JSON object in the wire schema; names what and where.
    """
    try:
        answer = json.loads(_unfenced(content), object_pairs_hook=_unique, parse_constant=_refuse_constant)
    except (json.JSONDecodeError, RecursionError) as error:
        raise ExtractionError(f"the model's answer is not complete JSON ({error})") from error
    for problem in sorted(
        _validator().iter_errors(answer), key=lambda one: list(map(str, one.absolute_path))
    ):
        raise ExtractionError(
            f"the model's answer breaks the wire schema at {problem.json_path}: {problem.message[:200]}"
        )
    return dict(answer)


def _unfenced(content: str) -> str:
    stripped = content.strip()
    if stripped.startswith("```") and stripped.endswith("```") and "\n" in stripped:
        return stripped[:-3].split("\n", 1)[1]
    return stripped


def _unique(pairs: list[tuple[str, Any]]) -> Mapping[str, Any]:
    keys = [key for key, _ in pairs]
    if len(set(keys)) < len(keys):
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ExtractionError(f"the model's answer says {twice!r} twice")
    return dict(pairs)


def _refuse_constant(name: str) -> None:
    raise ExtractionError(f"the model's answer holds {name}, which is no JSON number")
