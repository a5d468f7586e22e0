"""The tables of docs/openai-api.md, made of the declaration: ``python -m tests.service.openai_page`` writes them."""

import json
from collections.abc import Iterator
from pathlib import Path

from pydantic import JsonValue
from pydantic.fields import FieldInfo

from service.openai.declaration import Declared, NoEffect, NotServed
from service.openai.forms import NamedSchema, ResponseFormat, StructuredOutputs
from service.openai.messages import Message
from service.openai.requests import ChatRequest, CompletionRequest, Generation, StreamOptions
from service.openai.tools import Function, JsonObject

PAGE = Path(__file__).parents[2] / "docs" / "openai-api.md"

BEGIN, END = "<!-- made by `python -m tests.service.openai_page` -->", "<!-- end of what is made -->"

ENDPOINTS: tuple[tuple[str, type[Declared], type[Declared]], ...] = (
    ("Both endpoints", Generation, Declared),
    ("`/completions` only", CompletionRequest, Generation),
    ("`/chat/completions` only", ChatRequest, Generation),
)
"""A title, a request, and what it has in common with those before."""

OBJECTS: tuple[tuple[str, type[Declared]], ...] = (
    ("stream_options.", StreamOptions),
    ("response_format.", ResponseFormat),
    ("response_format.json_schema.", NamedSchema),
    ("structured_outputs.", StructuredOutputs),
    ("messages[].", Message),
    ("tools[].function.", Function),
)
"""Where objects stand in a request, and what they hold."""

HEAD = ("| parameter | built-in | vLLM | may be | meaning |", "|---|---|---|---|---|")
BOUNDS = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}
TYPES = {"string": "a text", "array": "a list", "object": "an object", "boolean": "`true`, `false`"}

Row = tuple[int, str]
"""Its place among others, and its text: what is served comes first, then what has no effect, then what is refused."""


def made(text: str) -> str:
    """The page with its tables made anew."""
    before, _, rest = text.partition(BEGIN)
    return "\n".join([before + BEGIN, *_tables(), "", END + rest.partition(END)[2]])


def _tables() -> Iterator[str]:
    for title, request, known in ENDPOINTS:
        yield from ("", f"## {title}", "", *HEAD, *_sorted(_rows("", request, known)))
    rows = [row for where, held in OBJECTS for row in _rows(where, held, Declared)]
    yield from ("", "## What objects hold", "", *HEAD, *_sorted(rows))


def _sorted(rows: list[Row]) -> list[str]:
    return [text for _, text in sorted(rows, key=lambda row: row[0])]


def _rows(where: str, request: type[Declared], known: type[Declared]) -> list[Row]:
    properties = request.model_json_schema()["properties"]
    fields = {
        field.alias or name: field for name, field in request.model_fields.items() if name not in known.model_fields
    }
    return [_row(where + name, field, properties[name]) for name, field in fields.items()]


def _row(name: str, field: FieldInfo, schema: JsonObject) -> Row:
    for mark in field.metadata:
        match mark:
            case NoEffect(why):
                return 1, f"| `{name}` | without effect | without effect | anything | {why} |"
            case NotServed(nothing, instead):
                allowed = "" if nothing is None else f"`{json.dumps(nothing)}`"
                return 2, f"| `{name}` | refused | refused | {allowed} | {instead} |"
    return 0, f"| `{name}` | served | served | {_may_be(schema)} | {field.description or ''} |"


def _may_be(schema: JsonValue) -> str:
    """A JSON Schema in a few words."""
    if not isinstance(schema, dict):
        return ""
    match schema:
        case {"anyOf": [one, {"type": "null"}]}:
            return _may_be(one)
        case {"enum": list(values)}:
            return ", ".join(f"`{value}`" for value in values)
        case {"const": value}:
            return f"`{json.dumps(value)}`"
        case {"$ref": _}:
            return "an object"
    bounds = [f"{sign} {schema[bound]}" for bound, sign in BOUNDS.items() if bound in schema]
    return ", ".join(bounds) or TYPES.get(str(schema.get("type")), "")


if __name__ == "__main__":
    PAGE.write_text(made(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
