"""What the OpenAI API accepts: requests, checked; what is not served is refused by name, never ignored."""

from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, JsonValue

from runtime.engine import SamplingParams
from runtime.errors import RequestError
from runtime.router import GenerationParams

DEFAULT_COMPLETION_TOKENS = 16


def _one(value: object) -> object:
    """A list of one prompt (or one stop string) is that one."""
    if isinstance(value, list) and len(value) == 1 and isinstance(value[0], str | list):
        return value[0]
    return value


Stops = Annotated[
    list[str],
    Field(max_length=4),
    BeforeValidator(lambda value: [value] if isinstance(value, str) else value),
]


class StreamOptions(BaseModel):
    """How a stream reports."""

    model_config = ConfigDict(extra="forbid")

    include_usage: bool = False
    include_obfuscation: bool = False


class Sampling(BaseModel):
    """What both kinds of request have in common; a field of one allowed value names what is not served."""

    model_config = ConfigDict(extra="forbid")

    model: str
    stream: bool = False
    stream_options: StreamOptions | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    top_k: Annotated[int, Field(ge=-1)] = 0
    """-1 and 0 keep all."""
    seed: int | None = None
    stop: Stops | None = None
    ignore_eos: bool = False
    n: Literal[1] | None = None
    logit_bias: None = None
    frequency_penalty: Literal[0] | None = None
    presence_penalty: Literal[0] | None = None
    user: str | None = None
    metadata: dict[str, str] | None = None

    @property
    def include_usage(self) -> bool:
        """Whether a stream ends with a usage chunk."""
        return self.stream_options is not None and self.stream_options.include_usage

    def generation(self, max_tokens: int, num_logprobs: int) -> GenerationParams:
        """As the router takes it."""
        sampling = SamplingParams(
            max_tokens=max_tokens,
            temperature=1.0 if self.temperature is None else self.temperature,
            top_p=1.0 if self.top_p is None else self.top_p,
            top_k=max(self.top_k, 0),
            seed=self.seed,
            num_logprobs=num_logprobs,
        )
        return GenerationParams(sampling, tuple(self.stop or ()), self.ignore_eos)


class CompletionRequest(Sampling):
    """``POST /completions``."""

    prompt: Annotated[str | list[int], BeforeValidator(_one)]
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    best_of: Literal[1] | None = None
    echo: Literal[False] | None = None
    suffix: None = None

    def params(self) -> GenerationParams:
        """As the router takes it."""
        return self.generation(self.max_tokens or DEFAULT_COMPLETION_TOKENS, self.logprobs or 0)


class TextPart(BaseModel):
    """A part of a message's content; only text is served."""

    type: Literal["text"]
    text: str


class Message(BaseModel):
    """One message of a conversation."""

    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[TextPart]
    name: str | None = None

    def as_template(self) -> dict[str, str]:
        """As a chat template takes it."""
        content = (
            self.content if isinstance(self.content, str) else "".join(part.text for part in self.content)
        )
        return {"role": self.role, "content": content}


class ResponseFormat(BaseModel):
    """Only plain text is served."""

    type: Literal["text"]


class ChatRequest(Sampling):
    """``POST /chat/completions``."""

    messages: Annotated[list[Message], Field(min_length=1)]
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    max_completion_tokens: Annotated[int, Field(ge=1)] | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    response_format: ResponseFormat | None = None
    tools: Annotated[list[JsonValue], Field(max_length=0)] | None = None
    tool_choice: Literal["none", "auto"] | None = None

    def params(self, room_tokens: int) -> GenerationParams:
        """As the router takes it; without a limit, up to the ``room_tokens`` that the model's context leaves."""
        limit = self.max_completion_tokens or self.max_tokens or room_tokens
        if limit < 1:
            raise RequestError("messages: they fill the model's context; shorten them")
        return self.generation(limit, self.top_logprobs or 0)

    def conversation(self) -> Sequence[dict[str, str]]:
        """The messages as a chat template takes them."""
        return [message.as_template() for message in self.messages]
