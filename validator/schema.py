"""The strict domain schema: every intent document that leaves the validator has this form."""

import json
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from typing import Any

from jsonschema import Draft202012Validator

from intent.document import to_document
from intent.models import Finding, Intent


@cache
def domain_schema() -> dict[str, Any]:
    """The JSON Schema (Draft 2020-12) of the intent document."""
    text = files(__package__).joinpath("schema", "intent.v1.json").read_text(encoding="utf-8")
    loaded: dict[str, Any] = json.loads(text)
    return loaded


@cache
def _validator() -> Draft202012Validator:
    return Draft202012Validator(domain_schema())


def check(intent: Intent) -> Iterator[Finding]:
    """One finding for each place where the document breaks the schema, in document order."""
    problems = _validator().iter_errors(to_document(intent))
    for problem in sorted(problems, key=lambda one: [str(part) for part in one.absolute_path]):
        pointer = "".join(f"/{_escaped(str(part))}" for part in problem.absolute_path)
        yield Finding("schema_violation", pointer, f"{pointer or '/'}: {problem.message[:300]}")


def _escaped(part: str) -> str:
    return part.replace("~", "~0").replace("/", "~1")
