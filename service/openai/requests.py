"""What the OpenAI API accepts.

Every parameter of both endpoints, declared once (``openai_declaration``).
"""

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Annotated, ClassVar

from pydantic import BeforeValidator, Field, JsonValue, PlainValidator, model_validator

from runtime import grammar
from runtime.engine import SamplingParams
from runtime.stream import GenerationParams
from service.openai.calls import CLOSE
from service.openai.declaration import Declared, NoEffect, NotServed, ParameterError, naming, refusal
from service.openai.echo import EnginePrompt
from service.openai.forms import ResponseFormat, StructuredOutputs
from service.openai.messages import Message, Rendered
from service.openai.tools import JsonObject, Tool, ToolChoice, calls_grammar

MAX_CHOICES = 128
MAX_STOPS = 16
MAX_STOP_CHARACTERS = 256
MAX_BIASES = 1024
MAX_BIAS = 100.0
SEEDS = 2**64

Prompt = str | tuple[int, ...]


def _listed(value: object) -> object:
    """One stop string is a list of one."""
    return [value] if isinstance(value, str) else value


def _prompts(value: object) -> tuple[Prompt, ...]:
    """One prompt or several, each a text or token ids."""
    are_several = isinstance(value, list) and not (value and type(value[0]) is int)
    prompts = value if isinstance(value, list) and are_several else [value]
    if not 1 <= len(prompts) <= MAX_CHOICES:
        raise refusal(f"should have 1 to {MAX_CHOICES} prompts")
    return tuple(map(_prompt, prompts))


def _prompt(value: object) -> Prompt:
    if isinstance(value, str):
        return value
    if isinstance(value, list) and value and all(type(item) is int and item >= 0 for item in value):
        return tuple(value)
    raise refusal("should be a text, a list of texts, a list of token ids or a list of such lists")


def _biases(value: object) -> tuple[tuple[int, float], ...]:
    """Pairs of token id and bias."""
    if not isinstance(value, dict) or len(value) > MAX_BIASES:
        raise refusal(f"should be an object of at most {MAX_BIASES} token ids and their biases")
    for token_id, bias in value.items():
        if not token_id.isdecimal() or len(token_id) > 9:
            raise refusal(f"{token_id[:80]!r} is no token id")
        if type(bias) not in {int, float} or not -MAX_BIAS <= bias <= MAX_BIAS:
            raise refusal(f"the bias of token {token_id} should be a number from -100 to 100")
    return tuple((int(token_id), float(bias)) for token_id, bias in value.items())


class StreamOptions(Declared):
    """How a stream reports."""

    include_usage: bool = False
    """A last chunk with `usage` and no choices."""
    continuous_usage_stats: Annotated[JsonValue, NoEffect("usage comes once, at the end")] = None
    include_obfuscation: Annotated[JsonValue, NoEffect("chunks are not padded")] = None


_STRUCTURED = "send structured_outputs"


class Generation(Declared):
    """Parameters of both endpoints."""

    told_by: ClassVar[str]
    """The parameter that has the prompt."""
    usual_tokens: ClassVar[int | None] = None
    """Of an answer without a limit, where the endpoint says so."""

    model: str
    """A name under `GET /models`."""
    stream: bool = False
    """An event for each token as it comes."""
    stream_options: StreamOptions = StreamOptions()
    """Without `stream` of no effect."""
    n: Annotated[int, Field(ge=1, le=MAX_CHOICES)] = 1
    """Answers to each prompt; prompts times answers are at most 128. A seed is raised by one from answer to answer."""
    temperature: Annotated[float, Field(ge=0, le=2)] = 1.0
    """0 takes the most probable token."""
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    """The most probable tokens that have this share together."""
    top_k: Annotated[int, Field(ge=-1)] = 0
    """So many of the most probable tokens; 0 and -1 keep all."""
    min_p: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Tokens with less than this share of the best one's probability are left out."""
    seed: Annotated[int, Field(ge=-(2**63), lt=2**63)] | None = None
    """The same request gives the same tokens."""
    presence_penalty: Annotated[float, Field(ge=-2, le=2)] = 0.0
    """Taken once from the logits of tokens that were said."""
    frequency_penalty: Annotated[float, Field(ge=-2, le=2)] = 0.0
    """The same, as often as they were said."""
    repetition_penalty: Annotated[float, Field(gt=0, le=10)] = 1.0
    """Logits of tokens of prompt and answer are divided by it, negative ones multiplied."""
    logit_bias: Annotated[tuple[tuple[int, float], ...], PlainValidator(_biases)] = ()
    """Token id to what is added to its logit, -100 to 100; at most 1,024, all in the vocabulary."""
    stop: Annotated[
        list[Annotated[str, Field(min_length=1, max_length=MAX_STOP_CHARACTERS)]],
        Field(max_length=MAX_STOPS),
        BeforeValidator(_listed),
    ] = Field(default=[])
    """Texts that end the answer and are no part of it, across tokens too: at most 16 of at most 256 characters."""
    stop_token_ids: Annotated[list[Annotated[int, Field(ge=0)]], Field(max_length=MAX_CHOICES)] = Field(default=[])
    """The same by token."""
    ignore_eos: bool = False
    """Go on after the model's end token."""
    min_tokens: Annotated[int, Field(ge=0)] = 0
    """So many tokens come before an end token or one of `stop_token_ids` may; texts in `stop` end an answer before."""
    response_format: ResponseFormat | None = None
    """The form of the answer."""
    structured_outputs: StructuredOutputs | None = None
    """The same, as vLLM takes it: exactly one of `json`, `regex`, `choice`, `grammar`, `json_object`."""

    user: Annotated[JsonValue, NoEffect("there are no accounts")] = None
    metadata: Annotated[JsonValue, NoEffect("nothing is stored")] = None
    store: Annotated[JsonValue, NoEffect("nothing is stored")] = None
    service_tier: Annotated[JsonValue, NoEffect("there is one")] = None
    safety_identifier: Annotated[JsonValue, NoEffect("there are no accounts")] = None
    prompt_cache_key: Annotated[JsonValue, NoEffect("prefixes are found without")] = None
    prompt_cache_retention: Annotated[JsonValue, NoEffect("prefixes stay while there is room")] = None

    include_stop_str_in_output: Annotated[JsonValue, NotServed(False, "add it yourself")] = None
    skip_special_tokens: Annotated[JsonValue, NotServed(True, "special tokens are never text")] = None
    use_beam_search: Annotated[JsonValue, NotServed(False, "send n")] = None
    length_penalty: Annotated[JsonValue, NotServed(1.0, "there is no beam search")] = None
    bad_words: Annotated[JsonValue, NotServed([], "send logit_bias")] = None
    allowed_token_ids: Annotated[JsonValue, NotServed(None, "send structured_outputs or logit_bias")] = None
    prompt_logprobs: Annotated[JsonValue, NotServed(None, "leave it out")] = None
    priority: Annotated[JsonValue, NotServed(0, "requests run in order of arrival")] = None
    guided_json: Annotated[JsonValue, NotServed(None, f'{_STRUCTURED}: {{"json": …}}')] = None
    guided_regex: Annotated[JsonValue, NotServed(None, f'{_STRUCTURED}: {{"regex": …}}')] = None
    guided_choice: Annotated[JsonValue, NotServed(None, f'{_STRUCTURED}: {{"choice": […]}}')] = None
    guided_grammar: Annotated[JsonValue, NotServed(None, f'{_STRUCTURED}: {{"grammar": …}}')] = None
    guided_decoding_backend: Annotated[JsonValue, NotServed(None, f"{_STRUCTURED}")] = None
    guided_whitespace_pattern: Annotated[JsonValue, NotServed(None, f"{_STRUCTURED}")] = None

    @model_validator(mode="after")
    def _has_one_form(self) -> "Generation":
        if self.response_format is not None and self.structured_outputs is not None:
            raise ParameterError("structured_outputs", "is not served beside response_format; send one of them")
        return self

    @property
    def schema_of_answer(self) -> JsonObject | None:
        """What ``response_format`` asks for; None: any text."""
        return None if self.response_format is None else self.response_format.schema_of_answer

    def grammar(self) -> tuple[str, str]:
        """What the answer must match, as engines take it (empty: anything), after the parameter that says so.

        Raises:
            ParameterError: it cannot be read.
        """
        if self.structured_outputs is not None:
            with naming("structured_outputs"):
                return "structured_outputs", self.structured_outputs.built()
        schema = self.schema_of_answer
        with naming("response_format"):
            return "response_format", "" if schema is None else grammar.json_schema(schema)

    def check_tokens(self, vocab_size: int) -> None:
        """Refuse token ids that the model does not know.

        Raises:
            ParameterError: naming the parameter and the token.
        """
        for parameter, token_ids in self._token_ids():
            if (highest := max(token_ids, default=0)) >= vocab_size:
                raise ParameterError(parameter, f"token {highest} is not in the vocabulary of {vocab_size} tokens")

    def _token_ids(self) -> Iterator[tuple[str, Sequence[int]]]:
        yield "logit_bias", [token_id for token_id, _ in self.logit_bias]
        yield "stop_token_ids", self.stop_token_ids

    def generations(self, max_tokens: int, prompt: EnginePrompt, ends: tuple[int, ...] = ()) -> list[GenerationParams]:
        """What each answer to a prompt is asked for; where there is a seed it differs. ``ends`` end it too."""
        sampling = SamplingParams(
            max_tokens=prompt.num_scored + max_tokens,
            temperature=self.temperature,
            top_p=self.top_p,
            top_k=max(self.top_k, 0),
            min_p=self.min_p,
            seed=self.seed,
            presence_penalty=self.presence_penalty,
            frequency_penalty=self.frequency_penalty,
            repetition_penalty=self.repetition_penalty,
            logit_bias=self.logit_bias,
            grammar=prompt.grammar,
            num_logprobs=self.num_logprobs,
            stop_token_ids=(*self.stop_token_ids, *ends),
            min_tokens=self.min_tokens and prompt.num_scored + self.min_tokens,
        )
        return [
            GenerationParams(replace(sampling, seed=self._seed(number)), self.stops, self.goes_on, told=prompt.told)
            for number in range(self.n)
        ]

    @property
    def stops(self) -> tuple[str, ...]:
        """Texts that end an answer."""
        return tuple(self.stop)

    @property
    def goes_on(self) -> bool:
        """The model's end token does not end an answer."""
        return self.ignore_eos

    @property
    @abstractmethod
    def asked_tokens(self) -> tuple[str, int | None]:
        """The limit of each answer, after its parameter."""

    @property
    @abstractmethod
    def num_logprobs(self) -> int:
        """Of the most probable tokens, beside each token's own."""

    def _seed(self, number: int) -> int | None:
        """Of an answer; within what engines take."""
        return None if self.seed is None else (self.seed + number + SEEDS // 2) % SEEDS - SEEDS // 2


_PENALTIES = ("presence_penalty", "frequency_penalty", "repetition_penalty")
_NOT_SCORED = ("stop", "response_format", "structured_outputs", *_PENALTIES)
"""Of these, the prompt's tokens would be a part of the answer."""


class CompletionRequest(Generation):
    """``POST /completions``."""

    told_by = "prompt"
    usual_tokens = 16

    prompt: Annotated[tuple[Prompt, ...], PlainValidator(_prompts)]
    """A text, token ids, or a list of these. Choices are numbered prompt by prompt."""
    max_tokens: Annotated[int, Field(ge=0)] | None = None
    """Of each answer; left out: 16. 0 with `echo` and `logprobs` only."""
    logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    """Logprobs of the tokens, and of so many of the most probable ones."""
    echo: bool = False
    """Each answer begins with its prompt. With `logprobs` its tokens have theirs, at a step each: 2 to 4,000 tokens."""
    best_of: Annotated[JsonValue, NotServed(1, "send n and choose")] = None
    suffix: Annotated[JsonValue, NotServed(None, "leave it out")] = None
    add_special_tokens: Annotated[JsonValue, NotServed(True, "send token ids")] = None

    @model_validator(mode="after")
    def _is_not_too_many(self) -> "CompletionRequest":
        if len(self.prompt) * self.n > MAX_CHOICES:
            raise ParameterError(
                "n", f"{len(self.prompt)} prompts with {self.n} answers each are more than {MAX_CHOICES}"
            )
        return self

    @model_validator(mode="after")
    def _scores_alone(self) -> "CompletionRequest":
        if self.max_tokens == 0 and not self.is_scored:
            raise ParameterError("max_tokens", "0 is served with echo and logprobs only; send 1 or more")
        for name in _NOT_SCORED if self.is_scored else ():
            if getattr(self, name) != type(self).model_fields[name].default:
                raise ParameterError("echo", f"with logprobs is not served beside {name}; leave one of the three out")
        return self

    @property
    def is_scored(self) -> bool:
        """Logprobs of the prompt's tokens are asked for."""
        return self.echo and self.logprobs is not None

    @property
    def goes_on(self) -> bool:
        """The model's end token does not end an answer; nor a scored prompt, where at most one token follows."""
        return self.ignore_eos or (self.is_scored and self.max_tokens in (0, 1))

    @property
    def asked_tokens(self) -> tuple[str, int | None]:
        """The limit of each answer, after its parameter."""
        return "max_tokens", self.max_tokens

    @property
    def num_logprobs(self) -> int:
        """Of the most probable tokens, beside each token's own."""
        return self.logprobs or 0

    def _token_ids(self) -> Iterator[tuple[str, Sequence[int]]]:
        yield from super()._token_ids()
        yield from (("prompt", prompt) for prompt in self.prompt if not isinstance(prompt, str))


class ChatRequest(Generation):
    """``POST /chat/completions``."""

    told_by = "messages"

    messages: Annotated[list[Message], Field(min_length=1, fail_fast=True)]
    """The conversation."""
    max_completion_tokens: Annotated[int, Field(ge=1)] | None = None
    """Of each answer. Left out: `max_new_tokens` of the checkpoint's `generation_config.json`, else what the context leaves."""
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    """The older name of `max_completion_tokens`."""
    logprobs: bool = False
    """Logprobs of the tokens."""
    top_logprobs: Annotated[int, Field(ge=0, le=20)] = 0
    """With `logprobs`: so many of the most probable tokens."""
    tools: list[Tool] = Field(default=[], max_length=128)
    """Functions, for models whose chat template writes calls in the Hermes form; others are refused."""
    tool_choice: Annotated[ToolChoice, PlainValidator(ToolChoice.read)] | None = None
    """`none` (tools are not told to the model), `auto`, `required`, or a function by name; the last two by a grammar."""
    parallel_tool_calls: bool = True
    """False: at most one call."""

    functions: Annotated[JsonValue, NotServed([], "send tools")] = None
    function_call: Annotated[JsonValue, NotServed("none", "send tool_choice")] = None
    modalities: Annotated[JsonValue, NotServed(["text"], "answers are text")] = None
    audio: Annotated[JsonValue, NotServed(None, "answers are text")] = None
    prediction: Annotated[JsonValue, NotServed(None, "leave it out")] = None
    reasoning_effort: Annotated[JsonValue, NotServed(None, "leave it out")] = None
    verbosity: Annotated[JsonValue, NotServed("medium", "say it in a message")] = None
    web_search_options: Annotated[JsonValue, NotServed(None, "send tools")] = None
    chat_template: Annotated[JsonValue, NotServed(None, "send a prompt to /completions")] = None
    chat_template_kwargs: Annotated[JsonValue, NotServed({}, "leave it out")] = None
    add_generation_prompt: Annotated[JsonValue, NotServed(True, "send a prompt to /completions")] = None
    continue_final_message: Annotated[JsonValue, NotServed(False, "send a prompt to /completions")] = None

    @model_validator(mode="after")
    def _fits_together(self) -> "ChatRequest":
        names = [tool.function.name for tool in self.tools]
        choice = self.tool_choice or ToolChoice("none")
        if len(set(names)) < len(names):
            raise ParameterError("tools", "two functions have the same name")
        if choice.mode == "required" and not names:
            raise ParameterError("tool_choice", "there are no tools")
        if choice.name is not None and choice.name not in names:
            raise ParameterError("tool_choice", f"there is no tool {choice.name!r}; there are {', '.join(names)}")
        if self.top_logprobs and not self.logprobs:
            raise ParameterError("top_logprobs", "needs logprobs: true")
        if self.offered and self.structured_outputs is not None:
            raise ParameterError("structured_outputs", "is not served beside tools; send response_format")
        return self

    @property
    def offered(self) -> Sequence[Tool]:
        """Tools that the model is told of."""
        return [] if self.tool_choice == ToolChoice("none") else self.tools

    @property
    def stops(self) -> tuple[str, ...]:
        """Texts that end an answer; where only one call may be made its end is one."""
        return (*self.stop, CLOSE) if self.offered and not self.parallel_tool_calls else tuple(self.stop)

    @property
    def asked_tokens(self) -> tuple[str, int | None]:
        """The limit of each answer, after its parameter."""
        if self.max_completion_tokens is not None:
            return "max_completion_tokens", self.max_completion_tokens
        return "max_tokens", self.max_tokens

    @property
    def num_logprobs(self) -> int:
        """Of the most probable tokens, beside each token's own."""
        return self.top_logprobs

    def conversation(self) -> list[Rendered]:
        """The messages as a chat template takes them."""
        return [message.rendered() for message in self.messages]

    def grammar(self) -> tuple[str, str]:
        """With tools: calls where they have to be made, else calls or what ``response_format`` asks for."""
        choice = self.tool_choice or ToolChoice("auto")
        schema = self.schema_of_answer
        if not self.offered or (choice.mode == "auto" and schema is None):
            return super().grammar()
        tools = [tool for tool in self.offered if choice.name in {None, tool.function.name}]
        several = self.parallel_tool_calls and choice.name is None
        answer = schema if choice.mode == "auto" else None
        with naming("tools"):
            return "tools", grammar.lark(calls_grammar(tools, several=several, answer=answer))
