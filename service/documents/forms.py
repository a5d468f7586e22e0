"""What all documents have in common.

Answers that may grow, requests that may not, and an intent as JSON.
"""

import json
import math
import re
from functools import cache
from typing import Annotated, Literal, TypeVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    InstanceOf,
    JsonValue,
    PlainSerializer,
    PlainValidator,
    TypeAdapter,
    ValidationError,
    WithJsonSchema,
)
from pydantic_core import InitErrorDetails, PydanticCustomError

from intent.document import from_document as intent_of
from intent.document import goal_document, goal_of, to_document
from intent.errors import DocumentError
from intent.models import Goal, Intent
from intent.windows import MOMENT

NO_CHARACTER = re.compile("[\ud800-\udfff]")
"""What bytes that are no UTF-8 become, and what JSON may carry: halves of a character."""


_T = TypeVar("_T")
Json = dict[str, JsonValue]
"""An object of somebody else's form."""


class Document(BaseModel):
    """An answer, and what stands in one; keys of a later version are passed over."""

    model_config = ConfigDict(frozen=True, from_attributes=True)


class Request(BaseModel):
    """What is sent; an unknown key is refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")


@cache
def form_of(kind: type[_T]) -> TypeAdapter[_T]:
    """How a noun is written and read."""
    return TypeAdapter(kind)


def json_of(noun: object) -> Json:
    """A noun as JSON has it."""
    form = form_of(type(noun))  # type: ignore[arg-type] # mypy takes the instances' __hash__ for the type's
    found: Json = form.dump_python(noun, mode="json")
    return found


Text = InstanceOf[str]
"""Words; a string with halves of characters is one too, and gets an intent that says what is wrong with it."""

_DATE = r"(19[7-9]\d|2\d{3})-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])"
_CLOCK = r"([01]\d|2[0-3]):[0-5]\d(:[0-5]\d(\.\d+)?)?"
MomentText = Annotated[str, Field(json_schema_extra={"pattern": rf"^{_DATE}([T ]{_CLOCK}(Z|[+-]{_CLOCK})?)?$"})]
"""A moment as people write it; what Python reads beside that is read too."""
Moment = Annotated[MomentText | None, Field(description=f"the clock, instead of the present: {MOMENT}")]


def _or_none(value: object) -> object:
    return None if isinstance(value, float) and not math.isfinite(value) else value


Finite = Annotated[float | None, BeforeValidator(_or_none)]
"""A number; null stands for one without end, for which JSON has no word."""


def _read(kind: Literal["Intent", "Goal"], data: object) -> Intent | Goal:
    """A noun of an intent from its JSON form; what that says of itself counts for nothing.

    Raises:
        ValidationError: it is none; the place is named.
    """
    if isinstance(data, Intent | Goal):
        return data
    try:
        _check_text(json.dumps(data, ensure_ascii=False, allow_nan=False))
        return intent_of(data) if kind == "Intent" else goal_of(data, "")
    except DocumentError as error:
        raise _refused(kind, error.pointer, error.problem, data) from None
    except ValueError as error:  # Python reads NaN and Infinity, JSON has none
        raise _refused(kind, "", str(error), data) from None


def _check_text(text: str) -> None:
    if NO_CHARACTER.search(text):
        raise DocumentError("", "has places that are no characters")


def _refused(kind: str, pointer: str, problem: str, data: object) -> ValidationError:
    """An error at a place of a document."""
    place = tuple(part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")[1:])
    words = PydanticCustomError("document", "{problem}", {"problem": problem})
    return ValidationError.from_exception_data(kind, [InitErrorDetails(type=words, loc=place, input=data)])


SCHEMA = "https://intentctl.dev/schema/intent.v1.json"
"""Stands for ``validator/schema/intent.v1.json`` in a JSON Schema; the OpenAPI document puts its own place there."""

IntentForm = Annotated[
    Intent,
    PlainValidator(lambda data: _read("Intent", data)),
    PlainSerializer(to_document, return_type=dict),
    WithJsonSchema({"$ref": SCHEMA}),
]
"""An intent."""

GoalForm = Annotated[
    Goal,
    PlainValidator(lambda data: _read("Goal", data)),
    PlainSerializer(goal_document, return_type=dict),
    WithJsonSchema({"$ref": f"{SCHEMA}#/$defs/goal"}),
]
"""A goal of an intent."""
