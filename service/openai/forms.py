"""The form of an answer: ``response_format`` (OpenAI) and ``structured_outputs`` (vLLM)."""

import json
from typing import Annotated, Literal

from pydantic import Field, JsonValue, model_validator

from runtime import grammar
from runtime.errors import RequestError
from service.openai.declaration import Declared, NotServed, refusal
from service.openai.tools import JsonObject


class NamedSchema(Declared):
    """A schema for answers."""

    name: str = ""
    """For the client."""
    description: str | None = None
    """For the client."""
    schema_: JsonObject = Field(default={"type": "object"}, alias="schema")
    """What an answer is valid against."""
    strict: bool = True
    """Answers keep to the schema either way."""


class ResponseFormat(Declared):
    """The form of an answer."""

    type: Literal["text", "json_object", "json_schema"]
    """`json_object` is any JSON object, `json_schema` one that a schema allows."""
    json_schema: NamedSchema | None = None
    """With the type `json_schema`: the schema under `schema`."""

    @model_validator(mode="after")
    def _has_a_schema(self) -> "ResponseFormat":
        if (self.type == "json_schema") != (self.json_schema is not None):
            raise refusal("json_schema comes with the type json_schema, and only with it")
        return self

    @property
    def schema_of_answer(self) -> JsonObject | None:
        """What it may be; None: any text."""
        if self.json_schema is not None:
            return self.json_schema.schema_
        return None if self.type == "text" else {"type": "object"}


class StructuredOutputs(Declared):
    """The form of an answer, as vLLM takes it from 0.12 on."""

    json_: JsonValue = Field(default=None, alias="json")
    """A JSON Schema, as an object or as text."""
    regex: str | None = None
    """A regular expression that the whole answer matches."""
    choice: list[str] | None = None
    """The answers there are."""
    grammar: str | None = None
    """A context-free grammar, in Lark's form or in GBNF."""
    json_object: Literal[True] | None = None
    """`true`: some JSON object."""
    disable_any_whitespace: Annotated[JsonValue, NotServed(False, "leave it out")] = None
    disable_additional_properties: Annotated[JsonValue, NotServed(False, "say it in the schema")] = None
    whitespace_pattern: Annotated[JsonValue, NotServed(None, "leave it out")] = None
    structural_tag: Annotated[JsonValue, NotServed(None, "send a grammar")] = None

    @model_validator(mode="after")
    def _is_one(self) -> "StructuredOutputs":
        forms = ("json_", "regex", "choice", "grammar", "json_object")
        if sum(getattr(self, name) is not None for name in forms) != 1:
            raise refusal("should have exactly one of json, regex, choice, grammar and json_object")
        return self

    def built(self) -> str:
        """As engines take it.

        Raises:
            RequestError: it cannot be read.
        """
        if self.regex is not None:
            return grammar.regex(self.regex)
        if self.choice is not None:
            return grammar.choice(self.choice)
        if self.grammar is not None:
            return grammar.context_free(self.grammar)
        return grammar.json_object() if self.json_object else grammar.json_schema(_schema(self.json_))


def _schema(value: JsonValue) -> JsonObject:
    """A schema, or the text of one."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError) as problem:
            raise RequestError(f"json is not JSON: {problem}") from problem
    if not isinstance(value, dict):
        raise RequestError("json should be a JSON Schema, an object")
    return value
