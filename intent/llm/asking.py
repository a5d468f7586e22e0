"""One question to an OpenAI-compatible endpoint: two tries, one strict answer, one deadline.

The LLM has no tools and approves nothing. langchain is imported inside, because it takes longer to load than the rules take
to answer.
"""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from threading import Event
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from intent.errors import ExtractionError, Failure, Problem
from intent.llm.endpoint import http_client, within
from intent.llm.wire import parse_answer, unusable
from intent.models import Catalogue, LlmSettings

if TYPE_CHECKING:
    from langchain_core.messages import BaseMessage
    from langchain_core.runnables import Runnable

MAX_ANSWER_TOKENS = 3_000
"""Enough for a dozen goals; a model that runs on is cut here."""
MAX_QUOTED = 4_000
"""Characters of a bad answer that are shown to the model again."""

Answer = Mapping[str, Any]
T_co = TypeVar("T_co", covariant=True)
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Prompt:
    """All that a model is told beside the request."""

    instructions: str
    examples: tuple[tuple[Answer, Answer], ...]
    """Requests with their answers."""
    schema: dict[str, Any]

    @property
    def hash(self) -> str:
        """A fingerprint of all of it."""
        told = json.dumps([self.instructions, self.examples, self.schema], ensure_ascii=False)
        return hashlib.sha256(told.encode()).hexdigest()[:16]


class Reading(Protocol[T_co]):
    """An answer held against the text."""

    @property
    def problems(self) -> Sequence[Problem]:
        """What the model has to put right."""

    def settled(self) -> T_co:
        """What it comes to.

        Raises:
            ExtractionError: nothing.
        """


def ask(request: Answer, prompt: Prompt, settings: LlmSettings, read: Callable[[Answer], Reading[T]]) -> T:
    """What the first answer of two that the text bears comes to, or the second with what is open in it.

    Raises:
        ExtractionError: no usable answer within ``settings.timeout_s``, for whatever reason; never shows the API key.
    """
    return within(settings, lambda given_up: _ask(request, prompt, settings, read, given_up).settled())


def _ask(
    request: Answer,
    prompt: Prompt,
    settings: LlmSettings,
    read: Callable[[Answer], Reading[T]],
    given_up: Event,
) -> Reading[T]:
    from langchain_core.messages import AIMessage, HumanMessage
    from langsmith import tracing_context

    # whatever comes from outside is a JSON string, so that it cannot close its fence
    conversation: list[BaseMessage] = [HumanMessage(_compact(request))]
    # an operator's words go to the endpoint they named and nowhere else
    with http_client(given_up) as client, tracing_context(enabled=False):
        chain = _chain(prompt, settings, client)
        answer = _answer(chain, conversation)
        try:
            reading = read(parse_answer(answer, prompt.schema))
            if not reading.problems:
                return reading
            failure = unusable(Failure.NOT_IN_TEXT, list(reading.problems))
        except ExtractionError as unread:
            failure = unread
        conversation += [AIMessage(answer[:MAX_QUOTED]), HumanMessage(_complaint(failure))]
        return read(parse_answer(_answer(chain, conversation), prompt.schema))


def names_of(catalogue: Catalogue) -> dict[str, list[str]]:
    """The names that a text may use, as a request has them."""
    kinds = ("windows", "tenants", "models", "gpu_kinds", "nodes")
    return {name: list(getattr(catalogue, name)) for name in kinds}


def _complaint(failure: ExtractionError) -> str:
    wrong = [{"at": problem.pointer or "/", "problem": problem.words} for problem in failure.problems]
    return _compact({"wrong": wrong, "wanted": "the whole answer again, put right"})


def _chain(prompt: Prompt, settings: LlmSettings, client: Any) -> "Runnable[dict[str, Any], Any]":
    """Prompt, examples and conversation to an answer in the wire schema."""
    from langchain_core.messages import SystemMessage
    from langchain_core.prompts import (
        ChatPromptTemplate,
        FewShotChatMessagePromptTemplate,
        MessagesPlaceholder,
    )
    from langchain_openai import ChatOpenAI
    from pydantic import SecretStr

    shots = FewShotChatMessagePromptTemplate(
        examples=[
            {"request": _compact(request), "answer": _compact(answer)} for request, answer in prompt.examples
        ],
        example_prompt=ChatPromptTemplate.from_messages([("human", "{request}"), ("ai", "{answer}")]),
    )
    system = SystemMessage(prompt.instructions)
    messages = ChatPromptTemplate.from_messages([system, shots, MessagesPlaceholder("conversation")])
    model = ChatOpenAI(
        base_url=settings.base_url,
        model=settings.model,
        api_key=SecretStr(settings.api_key),
        temperature=0,
        max_completion_tokens=MAX_ANSWER_TOKENS,
        timeout=settings.timeout_s,
        max_retries=1,
        http_client=client,
    )
    return messages | model.with_structured_output(
        prompt.schema, method="json_schema", strict=True, include_raw=True
    )


def _compact(answer: Answer) -> str:
    return json.dumps(answer, ensure_ascii=False)


def _answer(chain: "Runnable[dict[str, Any], Any]", conversation: "Sequence[BaseMessage]") -> str:
    """The raw content; what langchain makes of it is not looked at, it repairs what was cut off."""
    from langchain_core.messages import AIMessage

    result = chain.invoke({"conversation": list(conversation)})
    raw = result["raw"] if isinstance(result, dict) else result
    if not isinstance(raw, AIMessage):
        raise ExtractionError(Failure.NOT_A_COMPLETION, "the endpoint gave no chat message")
    if refusal := raw.additional_kwargs.get("refusal"):
        raise ExtractionError(Failure.REFUSED, f"the model refused: {refusal}")
    return _complete(raw.content, raw.response_metadata.get("finish_reason"))


def _complete(content: object, finish_reason: str | None) -> str:
    if finish_reason == "content_filter":
        raise ExtractionError(Failure.FILTERED, "the endpoint's content filter took the answer")
    if finish_reason not in {"stop", None}:
        raise ExtractionError(Failure.CUT_OFF, f"the model stopped early ({finish_reason})")
    if not isinstance(content, str) or not content.strip():
        raise ExtractionError(Failure.EMPTY, "the model's answer is empty")
    return content
