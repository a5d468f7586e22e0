"""Messages of a conversation, as clients send them and as chat templates take them."""

import json
from contextlib import suppress
from typing import Annotated, Literal

from pydantic import BeforeValidator, ConfigDict, Field, JsonValue, model_validator

from service.openai.declaration import Declared, NoEffect, NotServed, refusal

Rendered = dict[str, JsonValue]
"""A message as a chat template takes it."""


class TextPart(Declared):
    """A part of a message's content."""

    type: Literal["text"]
    text: str


def _parts(value: object) -> object:
    """Content as a list of parts."""
    if isinstance(value, str):
        return [{"type": "text", "text": value}]
    if not isinstance(value, list):
        raise refusal("should be a text, or a list of parts with the type text")
    return value


Content = Annotated[list[TextPart], Field(fail_fast=True), BeforeValidator(_parts)]


class CalledFunction(Declared):
    """The function of a call."""

    name: str
    arguments: str = "{}"
    """JSON in a string."""


class ToolCall(Declared):
    """A call that the assistant made."""

    id: str = ""
    type: Literal["function"] = "function"
    function: CalledFunction
    index: Annotated[JsonValue, NoEffect("of a streamed call that is sent back")] = None

    def rendered(self) -> Rendered:
        """With arguments as an object, which templates write as JSON; text that is no JSON stays text."""
        arguments: JsonValue = self.function.arguments
        with suppress(ValueError, RecursionError):
            arguments = json.loads(self.function.arguments)
        function: Rendered = {"name": self.function.name, "arguments": arguments}
        return {"id": self.id, "type": self.type, "function": function}


class Message(Declared):
    """One message of a conversation.

    Keys that are not known are passed over: clients send answers back as they came.
    """

    model_config = ConfigDict(extra="ignore")

    role: Literal["system", "developer", "user", "assistant", "tool"]
    """Who says it; the chat template decides which roles it knows."""
    content: Content | None = None
    """A text, or parts of type text; images, audio and files are refused."""
    name: str | None = None
    """Handed to the chat template."""
    tool_calls: list[ToolCall] = Field(default=[], max_length=128)
    """Calls that the assistant made, with their `id`, `function.name` and `function.arguments`."""
    tool_call_id: str | None = None
    """Which call a message of the role `tool` answers."""
    reasoning_content: str | None = None
    """Handed to the chat template."""
    reasoning: str | None = None
    """Its other name."""
    annotations: Annotated[JsonValue, NoEffect("part of answers that are sent back")] = None
    refusal: Annotated[JsonValue, NoEffect("part of answers that are sent back")] = None
    parsed: Annotated[JsonValue, NoEffect("part of answers that are sent back")] = None
    audio: Annotated[JsonValue, NotServed(None, "send text")] = None
    function_call: Annotated[JsonValue, NotServed(None, "send tool_calls")] = None

    @model_validator(mode="after")
    def _says_something(self) -> "Message":
        if self.content is None and not (self.role == "assistant" and self.tool_calls):
            raise refusal("has no content")
        if self.tool_calls and self.role != "assistant":
            raise refusal(f"has tool_calls, which a message of the role {self.role} cannot have")
        return self

    def rendered(self) -> Rendered:
        """As a chat template takes it."""
        found: Rendered = {"role": self.role, "content": "".join(part.text for part in self.content or ())}
        if self.tool_calls:
            found["tool_calls"] = [call.rendered() for call in self.tool_calls]
        facts = {"name": self.name, "tool_call_id": self.tool_call_id}
        facts |= {"reasoning_content": self.reasoning_content or self.reasoning}
        found |= {key: value for key, value in facts.items() if value is not None}
        return found
