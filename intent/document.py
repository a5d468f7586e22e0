"""The intent document (``apiVersion: intentctl/v1``).

An Intent as JSON and back, nothing lost, unknown keys refused.
"""

import json
import reprlib
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from enum import StrEnum
from functools import cache
from typing import TYPE_CHECKING, Any

from intent.errors import DocumentError
from intent.forms import tag
from intent.models import API_VERSION, DatedWindow, DatesWindow, FromNowWindow, Goal, Intent, RecurringWindow, Window

if TYPE_CHECKING:
    from pydantic import JsonValue, TypeAdapter, ValidationError

_WINDOWS = {tag(kind) for kind in (str, RecurringWindow, DatedWindow, DatesWindow, FromNowWindow)}
_KEYS = (
    "text", "language", "outcome", "goals", "windows", "assumptions", "set_aside", "expectations", "questions", "findings",
    "readback", "translator", "ledger",
)  # fmt: skip


def pointer_to(path: Iterable[str | int]) -> str:
    """A JSON Pointer (RFC 6901) from the keys and places on a path."""
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in path)


def to_document(intent: Intent) -> "dict[str, JsonValue]":
    """The JSON document of an intent; ``null`` in a goal means "not said"."""
    body = _encoded(intent)
    return {"apiVersion": API_VERSION, "kind": "Intent", **{key: body[key] for key in _KEYS}}


def goal_document(goal: Goal) -> "dict[str, JsonValue]":
    """The JSON form of one goal."""
    encoded: dict[str, JsonValue] = _encoded(goal)
    return encoded


def from_document(document: object) -> Intent:
    """The intent of a JSON document.

    Raises:
        DocumentError: a key is missing, unknown or of the wrong type; it names the place as a JSON Pointer.
    """
    if not isinstance(document, Mapping):
        raise DocumentError("", "must be an object")
    for key, expected in (("apiVersion", API_VERSION), ("kind", "Intent")):
        if document.get(key) != expected:
            raise DocumentError(f"/{key}", f"must be {expected!r}, not {document.get(key)!r}")
    body = {key: value for key, value in document.items() if key not in {"apiVersion", "kind"}}
    intent: Intent = _read(Intent, body, "")
    return intent


def goal_of(data: object, pointer: str) -> Goal:
    """A goal from its JSON form.

    Raises:
        DocumentError: it has other keys or types than a goal of its type has.
    """
    goal: Goal = _read(Goal, data, pointer)
    return goal


def window_of(data: object, pointer: str) -> Window:
    """A window that was said, from its JSON form.

    Raises:
        DocumentError: it has other keys or types than a window has.
    """
    window: Window = _read(Window, data, pointer)
    return window


# -- writing ---------------------------------------------------------------------------------------


def _encoded(value: Any) -> Any:
    if is_dataclass(value):
        ordered = sorted(fields(value), key=lambda field: field.name != "type")
        return {field.metadata.get("alias", field.name): _encoded(getattr(value, field.name)) for field in ordered}
    if isinstance(value, Mapping):
        return {key: _encoded(item) for key, item in value.items()}
    if isinstance(value, tuple):
        return [_encoded(item) for item in value]
    return value.value if isinstance(value, StrEnum) else value


# -- reading ---------------------------------------------------------------------------------------


def _read(kind: Any, data: Any, pointer: str) -> Any:
    from pydantic import ValidationError  # writing does without

    try:
        return _adapter(kind).validate_json(json.dumps(_whole(data)), strict=True)
    except ValidationError as error:
        place, problem = _first(error, 0 if kind is Goal else 2)
        raise DocumentError(pointer + pointer_to(place), problem) from None


def _whole(data: Any) -> Any:
    """What JSON Schema calls a whole number as one, however it is written: 2.0 is 2."""
    match data:
        case float() if data.is_integer():
            return int(data)
        case Mapping():
            return {key: _whole(value) for key, value in data.items()}
        case list() | tuple():
            return [_whole(value) for value in data]
    return data


@cache
def _adapter(kind: Any) -> "TypeAdapter[Any]":
    from pydantic import TypeAdapter

    return TypeAdapter(kind, config=None if kind is Intent else {"extra": "forbid"})


def _first(error: "ValidationError", goal_type_at: int) -> tuple[list[str | int], str]:
    """Place and words of the first problem; in the path of a goal its type stands at ``goal_type_at``."""
    problem = error.errors(include_url=False)[0]
    place = [step for step in problem["loc"] if step not in _WINDOWS]
    if not goal_type_at or place[:1] == ["goals"]:
        del place[goal_type_at : goal_type_at + 1]
    match problem["type"]:
        case "missing":
            return place, "is missing"
        case "unexpected_keyword_argument":
            return place, "unknown key"
        case "union_tag_not_found":
            return [*place, "type"], "is missing"
        case "union_tag_invalid":
            fields = problem["ctx"]
            return [*place, "type"], f"must be one of {fields['expected_tags']}, not {fields['tag']!r}"
    expected = problem["msg"].replace("Input should be", "must be")
    return place, f"{expected}, not {reprlib.repr(problem['input'])}"
