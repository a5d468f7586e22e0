"""The translator with an LLM: one question to an OpenAI-compatible endpoint, one strict answer, one deadline.

The LLM has no tools and approves nothing: ``intent.llm.reading`` holds each slot of its answer against the text and builds
the goals. langchain is imported inside, because it takes longer to load than the rules take to answer.
"""

import hashlib
import json
from collections.abc import Sequence
from functools import cache
from threading import Event
from typing import TYPE_CHECKING, Any

import yaml

import prompts
from intent.errors import ExtractionError, Failure
from intent.llm.endpoint import http_client, within
from intent.llm.reading import Read, read_answer, refusal, settle
from intent.llm.wire import filled, parse_answer, wire_schema
from intent.models import Catalogue, LlmSettings, TranslatorInfo
from intent.rules.draft import Draft

if TYPE_CHECKING:
    from langchain_core.messages import BaseMessage
    from langchain_core.runnables import Runnable

PROMPT_VERSION = "v3"
MAX_ANSWER_TOKENS = 3_000
"""Enough for a dozen goals; a model that runs on is cut here."""
MAX_QUOTED = 4_000
"""Characters of a bad answer that are shown to the model again."""


def translator(settings: LlmSettings) -> TranslatorInfo:
    """What is kept with every intent that this endpoint reads."""
    return TranslatorInfo(
        name="llm", model=settings.model, prompt_version=PROMPT_VERSION, prompt_hash=prompt_hash()
    )


def prompt_hash() -> str:
    """A fingerprint of everything the model is told beside the text: prompt, examples and wire schema."""
    told = [prompts.load("translate", PROMPT_VERSION), examples(), wire_schema()]
    return hashlib.sha256(json.dumps(told, ensure_ascii=False).encode()).hexdigest()[:16]


@cache
def examples() -> tuple[tuple[str, dict[str, Any]], ...]:
    """The curated examples: texts with their wire answers, slots not said filled with null."""
    loaded = yaml.safe_load(prompts.load("examples", PROMPT_VERSION))
    return tuple((example["text"], filled(example)) for example in loaded)


def extract(text: str, catalogue: Catalogue, settings: LlmSettings) -> Draft:
    """Ask the LLM, hold its answer against the text, and settle what it means.

    Raises:
        ExtractionError: no usable answer within ``settings.timeout_s``, for whatever reason; never shows the API key.
    """
    return within(settings, lambda given_up: settle(_read(text, catalogue, settings, given_up)))


def _read(text: str, catalogue: Catalogue, settings: LlmSettings, given_up: Event) -> Read:
    """The first answer of two that the text bears, or the second with its problems."""
    from langchain_core.messages import AIMessage, HumanMessage
    from langsmith import tracing_context

    conversation: list[BaseMessage] = [HumanMessage(_request(text, catalogue))]
    # an operator's words go to the endpoint they named and nowhere else
    with http_client(given_up) as client, tracing_context(enabled=False):
        chain = _chain(settings, client)
        answer = _answer(chain, conversation)
        try:
            read = read_answer(parse_answer(answer), text, catalogue)
            if not read.problems:
                return read
            failure = refusal(read.problems)
        except ExtractionError as unread:
            failure = unread
        conversation += [AIMessage(answer[:MAX_QUOTED]), HumanMessage(_complaint(failure))]
        return read_answer(parse_answer(_answer(chain, conversation)), text, catalogue)


def _request(text: str, catalogue: Catalogue) -> str:
    """Whatever comes from outside is a JSON string, so that it cannot close its fence."""
    names = {
        name: getattr(catalogue, name) for name in ("windows", "tenants", "models", "gpu_kinds", "nodes")
    }
    return json.dumps({"text": text, **names}, ensure_ascii=False)


def _complaint(failure: ExtractionError) -> str:
    wrong = [{"at": problem.pointer or "/", "problem": problem.words} for problem in failure.problems]
    return json.dumps({"wrong": wrong, "wanted": "the whole answer again, put right"}, ensure_ascii=False)


def _chain(settings: LlmSettings, client: Any) -> "Runnable[dict[str, Any], Any]":
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
            {"request": json.dumps({"text": said}, ensure_ascii=False), "answer": _compact(answer)}
            for said, answer in examples()
        ],
        example_prompt=ChatPromptTemplate.from_messages([("human", "{request}"), ("ai", "{answer}")]),
    )
    system = SystemMessage(prompts.load("translate", PROMPT_VERSION))
    prompt = ChatPromptTemplate.from_messages([system, shots, MessagesPlaceholder("conversation")])
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
    return prompt | model.with_structured_output(
        wire_schema(), method="json_schema", strict=True, include_raw=True
    )


def _compact(answer: dict[str, Any]) -> str:
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
