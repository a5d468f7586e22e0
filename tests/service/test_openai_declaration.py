from typing import Annotated

import pytest
from pydantic import JsonValue, ValidationError

from runtime.errors import RequestError
from service.openai.declaration import Declared, NoEffect, NotServed, ParameterError, naming
from tests.rows import rows


class Asked(Declared):
    count: int = 1
    zero: Annotated[JsonValue, NotServed(0, "leave it out")] = None
    false: Annotated[JsonValue, NotServed(False, "leave it out")] = None
    habit: Annotated[JsonValue, NoEffect("nothing comes of it")] = None


def test_what_is_refused_may_be_said_with_the_value_that_asks_for_nothing():
    assert Asked.model_validate({"zero": 0, "false": False, "habit": {"any": "thing"}}).count == 1
    assert Asked.model_validate(dict.fromkeys(Asked.model_fields)) == Asked()


@rows(
    ("said", "place", "reason"),
    [
        ({"zero": 3}, ("zero",), "is not served here; leave it out"),
        ({"other": 3}, ("other",), "Extra inputs are not permitted"),
        ({"count": "3"}, ("count",), "Input should be a valid integer"),
        (5, (), "should be a JSON object"),
    ],
)
def test_what_cannot_be_asked_is_refused_in_its_place(said, place, reason):
    with pytest.raises(ValidationError) as caught:
        Asked.model_validate(said)
    (error,) = caught.value.errors()
    assert (error["loc"], error["msg"]) == (place, reason)


def test_marks_that_look_alike_are_kept_apart():
    """Annotated[X, 0] and Annotated[X, False] are one type to ``typing`` where the marks are equal."""
    marks = [field.metadata[0] for field in Asked.model_fields.values() if field.metadata]
    assert [mark.nothing for mark in marks if isinstance(mark, NotServed)] == [0, False]
    assert Asked.model_fields["false"].metadata[0].nothing is False


def test_a_refusal_names_the_parameter_once():
    with pytest.raises(ParameterError, match=r"^inner: no$"), naming("outer"), naming("inner"):
        raise RequestError("no")
