"""Tools that the model may call, and the grammar of an answer that calls them."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field, JsonValue

from runtime import grammar
from service.openai.calls import CLOSE, OPEN
from service.openai.declaration import Declared, refusal

JsonObject = dict[str, JsonValue]

_NO_PARAMETERS: JsonObject = {"type": "object", "properties": {}}


class Function(Declared):
    """What can be called."""

    name: Annotated[str, Field(pattern=r"^[a-zA-Z0-9_-]{1,64}$")]
    """Letters, digits, `_` and `-`, at most 64."""
    description: str | None = None
    """For the model."""
    parameters: JsonObject = _NO_PARAMETERS
    """The JSON Schema of its arguments."""
    strict: bool = False
    """Calls keep to the schema wherever they are made by a grammar: with the choice `required` or a named one."""


class Tool(Declared):
    """A tool; only functions are served."""

    type: Literal["function"]
    function: Function

    def rendered(self) -> JsonObject:
        """As a chat template takes it."""
        fields: JsonObject = {"name": self.function.name}
        if self.function.description is not None:
            fields["description"] = self.function.description
        return {"type": "function", "function": fields | {"parameters": self.function.parameters}}


@dataclass(frozen=True, slots=True)
class ToolChoice:
    """Whether tools are called."""

    mode: Literal["none", "auto", "required"]
    name: str | None = None
    """The one that has to be called."""

    @classmethod
    def read(cls, value: object) -> "ToolChoice":
        """What a request says.

        Raises:
            PydanticCustomError: neither a mode nor a named function.
        """
        match value:
            case "none" | "auto" | "required":
                return cls(value)
            case {"type": "function", "function": {"name": str(name)}}:
                return cls("required", name)
        served = 'none, auto, required or {"type": "function", "function": {"name": …}}'
        raise refusal(f"{json.dumps(value)} is not served here; send {served}")


def calls_grammar(tools: Sequence[Tool], *, several: bool, answer: JsonObject | None = None) -> str:
    """An answer that calls some of the tools, in Lark's form with JSON Schemas inside.

    ``several``: more than one call may be made; ``answer`` is the schema of what may be said instead of calls.
    """
    start = "calls" if answer is None else "calls | answer"
    calls = 'call ("\\n" call)*' if several else "call"
    names = " | ".join(f"call_{number}" for number in range(len(tools)))
    rules = [f"start: {start}", f"calls: {calls}", f'call: "{OPEN}\\n" ({names}) "\\n{CLOSE}"']
    for number, tool in enumerate(tools):
        head = json.dumps(f'{{"name": "{tool.function.name}", "arguments": ')
        rules.append(f'call_{number}: {head} arguments_{number} "}}"')
        rules.append(f"arguments_{number}: %json {grammar.embedded(tool.function.parameters)}")
    if answer is not None:
        rules.append(f"answer: %json {grammar.embedded(answer)}")
    return "\n".join(rules) + "\n"
