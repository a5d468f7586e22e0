"""The intent document (``apiVersion: intentctl/v1``): an Intent as JSON and back, nothing lost, unknown keys refused."""

from collections.abc import Iterable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import StrEnum
from types import UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from intent.errors import DocumentError
from intent.models import API_VERSION, DatedWindow, FromNowWindow, Goal, Intent, RecurringWindow, Window

_GOALS = {kind.__dataclass_fields__["type"].default: kind for kind in get_args(Goal)}
_KEYS = (
    "text", "language", "outcome", "goals", "windows", "assumptions", "set_aside", "expectations", "questions", "findings",
    "readback",
    "translator",
)  # fmt: skip
_Read = TypeVar("_Read")


def pointer_to(path: Iterable[str | int]) -> str:
    """A JSON Pointer (RFC 6901) from the keys and places on a path."""
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in path)


def to_document(intent: Intent) -> dict[str, Any]:
    """The JSON document of an intent; ``null`` in a goal means "not said"."""
    body = _encoded(intent)
    return {"apiVersion": API_VERSION, "kind": "Intent", **{key: body[key] for key in _KEYS}}


def goal_document(goal: Goal) -> dict[str, Any]:
    """The JSON form of one goal."""
    encoded: dict[str, Any] = _encoded(goal)
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
    return _object(Intent, body, "")


def goal_of(data: object, pointer: str) -> Goal:
    """A goal from its JSON form.

    Raises:
        DocumentError: it has other keys or types than a goal of its type has.
    """
    goal: Goal = _goal(data, pointer)
    return goal


def window_of(data: Any, pointer: str) -> Window:
    """A window that was said, from its JSON form.

    Raises:
        DocumentError: it has other keys or types than a window has.
    """
    if not isinstance(data, Mapping):
        raise DocumentError(pointer, "must be an object")
    window: Window = _window(data, pointer)
    return window


# -- writing ---------------------------------------------------------------------------------------


def _encoded(value: Any) -> Any:
    if isinstance(value, FromNowWindow):
        return {"from": "now", "duration_s": value.duration_s}
    if is_dataclass(value):
        names = sorted((one.name for one in fields(value)), key=lambda name: name != "type")
        return {name: _encoded(getattr(value, name)) for name in names}
    if isinstance(value, Mapping):
        return {key: _encoded(one) for key, one in value.items()}
    if isinstance(value, tuple):
        return [_encoded(one) for one in value]
    return value.value if isinstance(value, StrEnum) else value


# -- reading ---------------------------------------------------------------------------------------


def _object(kind: type[_Read], data: Any, pointer: str) -> _Read:
    """A dataclass from an object with exactly its keys (those with a default may be left out)."""
    if not isinstance(data, Mapping):
        raise DocumentError(pointer, "must be an object")
    hints = get_type_hints(kind)
    known = {one.name: one for one in fields(kind)}  # type: ignore[arg-type] # every kind here is a dataclass
    for key in data:
        if key not in known:
            raise DocumentError(f"{pointer}/{key}", f"unknown key; known are {', '.join(known)}")
    for name, one in known.items():
        if name not in data and one.default is MISSING and one.default_factory is MISSING:
            raise DocumentError(f"{pointer}/{name}", "is missing")
    return kind(**{key: _value(hints[key], value, f"{pointer}/{key}") for key, value in data.items()})


def _value(hint: Any, data: Any, pointer: str) -> Any:
    origin = get_origin(hint)
    if origin is tuple:
        return tuple(
            _value(get_args(hint)[0], one, f"{pointer}/{n}") for n, one in enumerate(_list(data, pointer))
        )
    if (
        isinstance(data, Mapping)
        or hint is Goal
        or is_dataclass(hint)
        or origin not in {None, Union, UnionType, Literal}
    ):
        return _structure(hint, data, pointer)
    return _scalar(hint, data, pointer)


def _list(data: Any, pointer: str) -> list[Any]:
    if not isinstance(data, list):
        raise DocumentError(pointer, "must be a list")
    return data


def _structure(hint: Any, data: Any, pointer: str) -> Any:
    if hint is Goal:
        return _goal(data, pointer)
    if isinstance(hint, type) and is_dataclass(hint):
        return _object(hint, data, pointer)
    if not isinstance(data, Mapping):
        raise DocumentError(pointer, "must be an object")
    if get_origin(hint) is Mapping:
        return {key: _value(get_args(hint)[1], one, f"{pointer}/{key}") for key, one in data.items()}
    if FromNowWindow in get_args(hint):
        return _window(data, pointer)
    raise DocumentError(pointer, f"must be a plain value, not an object with {', '.join(map(str, data))}")


def _goal(data: Any, pointer: str) -> Any:
    kind = _GOALS.get(data.get("type")) if isinstance(data, Mapping) else None
    if kind is None:
        raise DocumentError(f"{pointer}/type", f"must be one of {', '.join(map(str, _GOALS))}")
    return _object(kind, data, pointer)


def _window(data: Mapping[str, Any], pointer: str) -> Any:
    if "from" in data:
        if data["from"] != "now":
            raise DocumentError(f"{pointer}/from", "must be 'now'")
        return _object(FromNowWindow, {key: value for key, value in data.items() if key != "from"}, pointer)
    return _object(DatedWindow if "date" in data else RecurringWindow, data, pointer)


def _scalar(hint: Any, data: Any, pointer: str) -> Any:
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        if data not in set(hint):
            raise DocumentError(pointer, f"must be one of {', '.join(hint)}")
        return hint(data)
    if not _fits(hint, data):
        raise DocumentError(pointer, f"must be {_described(hint)}, not {data!r}")
    return data


def _fits(hint: Any, data: Any) -> bool:
    if get_origin(hint) is Literal:
        return isinstance(data, str) and data in get_args(hint)
    if get_origin(hint) in {Union, UnionType}:
        return any(_fits(one, data) for one in get_args(hint))
    if hint is float:
        return isinstance(data, int | float) and not isinstance(data, bool)
    if hint is int:
        return isinstance(data, int) and not isinstance(data, bool)
    return isinstance(data, hint)


def _described(hint: Any) -> str:
    if get_origin(hint) is Literal:
        return "one of " + ", ".join(map(repr, get_args(hint)))
    if get_origin(hint) in {Union, UnionType}:
        return " or ".join(_described(one) for one in get_args(hint))
    return {
        str: "a text",
        float: "a number",
        int: "a whole number",
        bool: "true or false",
        type(None): "null",
    }.get(hint, "an object")
