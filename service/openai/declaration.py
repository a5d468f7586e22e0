"""How parameters of the OpenAI API are declared: a field that is served, has no effect, or is refused.

The models made of these are the one declaration of the API: they check requests, and docs/openai-api.md is written from them.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict, GetCoreSchemaHandler, JsonValue, model_validator
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from runtime.errors import RequestError


class Declared(BaseModel):
    """An object of a request: unknown keys and wrong types are refused, null is as if left out."""

    model_config = ConfigDict(
        extra="forbid", strict=True, frozen=True, allow_inf_nan=False, use_attribute_docstrings=True
    )

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, data: object) -> object:
        if not isinstance(data, dict):
            raise PydanticCustomError("object_type", "should be a JSON object")
        return {key: value for key, value in data.items() if value is not None}


@dataclass(frozen=True, slots=True)
class NoEffect:
    """Marks a parameter that clients send by habit and that changes nothing here."""

    why: str


@dataclass(frozen=True, slots=True, eq=False)
class NotServed:
    """Marks a parameter that is refused, unless its value asks for nothing.

    One equals only itself: ``typing`` gives equal marks one type, and 0 equals False.
    """

    nothing: JsonValue
    """The value that asks for nothing."""
    instead: str
    """What to do about it."""

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        """The check, as pydantic takes it."""
        return core_schema.no_info_after_validator_function(self._check, core_schema.any_schema())

    def _check(self, value: object) -> None:
        if value != self.nothing:
            raise refusal(f"is not served here; {self.instead}")


def refusal(reason: str) -> PydanticCustomError:
    """The error for a value that is refused; its place is added by the model."""
    return PydanticCustomError("refused", "{reason}", {"reason": reason})


class ParameterError(RequestError):
    """A request that can never be served, for one of its parameters."""

    def __init__(self, parameter: str, why: str) -> None:
        super().__init__(f"{parameter}: {why}")
        self.parameter = parameter


@contextmanager
def naming(parameter: str) -> Iterator[None]:
    """Name the parameter that a request is refused for."""
    try:
        yield
    except ParameterError:
        raise
    except RequestError as problem:
        raise ParameterError(parameter, str(problem)) from problem
