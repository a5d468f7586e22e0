"""The JSON Schema (Draft 2020-12) of the intent document, made of the nouns.

``python -m tests.validator.intent_schema > validator/schema/intent.v1.json`` writes it anew.
"""

import json
import sys
from typing import Any

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema

from intent.models import API_VERSION, Intent

_WIDTH = 130


def json_schema() -> dict[str, Any]:
    """The schema; null in a goal means "not said", and every key is there."""
    body = TypeAdapter(Intent).json_schema(schema_generator=_Generator)
    envelope = {"apiVersion": {"const": API_VERSION}, "kind": {"const": "Intent"}}
    return {
        "$schema": _Generator.schema_dialect,
        "$id": "urn:intentctl:schema:intent:v1",
        **body,
        "required": [*envelope, *body["required"]],
        "properties": envelope | body["properties"],
    }


def written(value: Any, indent: str = "") -> str:
    """JSON, whatever fits on a line written on one."""
    line = json.dumps(value, ensure_ascii=False)
    if len(indent + line) <= _WIDTH or not isinstance(value, dict | list):
        return line
    inner = indent + "  "
    if isinstance(value, dict):
        parts = [f"{json.dumps(key)}: {written(one, inner)}" for key, one in value.items()]
    else:
        parts = [written(one, inner) for one in value]
    opening, closing = ("{", "}") if isinstance(value, dict) else ("[", "]")
    return f"{opening}\n{inner}" + f",\n{inner}".join(parts) + f"\n{indent}{closing}"


class _Generator(GenerateJsonSchema):
    """Every key is required, and a type that may be null is one type with null beside it: one problem at one place."""

    def sort(self, value: Any, parent_key: str | None = None) -> Any:
        return value

    def field_is_required(self, field: Any, total: bool) -> bool:
        return True

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def default_schema(self, schema: Any) -> dict[str, Any]:
        return self.generate_inner(schema["schema"])

    def nullable_schema(self, schema: Any) -> dict[str, Any]:
        inner = self.generate_inner(schema["schema"])
        choices = {"enum": [*inner["enum"], None]} if "enum" in inner else {}
        return {**inner, "type": [inner["type"], "null"], **choices}


if __name__ == "__main__":
    sys.stdout.write(written(json_schema()) + "\n")
