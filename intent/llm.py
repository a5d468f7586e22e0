"""The translator with an LLM: one question to an OpenAI-compatible endpoint, one strict answer, one deadline.

The LLM has no tools and decides nothing: ``intent.evidence`` holds its answer against the text. langchain is imported
inside, because it takes longer to load than the rules take to answer.
"""

import json
import queue
import threading
from collections.abc import Callable
from typing import Any

import yaml

import prompts
from intent.draft import Draft
from intent.errors import ExtractionError
from intent.evidence import interpret
from intent.models import Catalogue, LlmSettings
from intent.wire import parse_answer, wire_schema

PROMPT_VERSION = "v1"
MAX_ANSWER_TOKENS = 1_500
"""Enough for a dozen goals; a model that runs on is cut here."""
_NULLABLE = ("stat", "comparison", "number", "unit", "window", "tenant", "model")


def extract(text: str, catalogue: Catalogue, settings: LlmSettings) -> Draft:
    """Ask the LLM and hold its answer against the text.

    Raises:
        ExtractionError: no usable answer within ``settings.timeout_s``, for whatever reason; never shows the API key.
    """
    content = _within(settings, lambda: _ask(_messages(text, catalogue), settings))
    return interpret(parse_answer(content), text, catalogue)


def examples() -> list[tuple[str, dict[str, Any]]]:
    """The curated examples: texts with their wire answers, fields not said filled with null."""
    found = []
    for example in yaml.safe_load(prompts.load("examples", PROMPT_VERSION)):
        goals = [{**dict.fromkeys(_NULLABLE), **goal} for goal in example["goals"]]
        ordered = [{key: goal[key] for key in ("evidence", "subject", *_NULLABLE)} for goal in goals]
        found.append((example["text"], {"goals": ordered, "unplaced": example.get("unplaced", [])}))
    return found


def _messages(text: str, catalogue: Catalogue) -> list[tuple[str, str]]:
    """System prompt, examples, and the text; whatever comes from outside is a JSON string, so that it cannot close its fence."""
    messages = [("system", prompts.load("translate", PROMPT_VERSION))]
    for said, answer in examples():
        messages += [("human", _request(said, None)), ("ai", json.dumps(answer, ensure_ascii=False))]
    return [*messages, ("human", _request(text, catalogue))]


def _request(text: str, catalogue: Catalogue | None) -> str:
    names = (
        {"windows": catalogue.windows, "tenants": catalogue.tenants, "models": catalogue.models}
        if catalogue
        else {}
    )
    return json.dumps({"text": text, **names}, ensure_ascii=False)


def _ask(messages: list[tuple[str, str]], settings: LlmSettings) -> str:
    """The raw content of the answer; what langchain makes of it is not looked at, it repairs what was cut off."""
    from langchain_core.messages import AIMessage
    from langchain_openai import ChatOpenAI
    from langsmith import tracing_context
    from pydantic import SecretStr

    model = ChatOpenAI(
        base_url=settings.base_url,
        model=settings.model,
        api_key=SecretStr(settings.api_key),
        temperature=0,
        max_completion_tokens=MAX_ANSWER_TOKENS,
        timeout=settings.timeout_s,
        max_retries=1,
    ).with_structured_output(wire_schema(), method="json_schema", strict=True, include_raw=True)
    with tracing_context(enabled=False):  # an operator's words go to the endpoint they named and nowhere else
        result = model.invoke(messages)
    raw = result["raw"] if isinstance(result, dict) else result
    if not isinstance(raw, AIMessage):
        raise ExtractionError("the endpoint gave no chat message")
    return _content(
        raw.content, raw.additional_kwargs.get("refusal"), raw.response_metadata.get("finish_reason")
    )


def _content(content: object, refusal: str | None, finish_reason: str | None) -> str:
    if refusal:
        raise ExtractionError(f"the model refused: {refusal[:200]}")
    if finish_reason not in {"stop", None}:
        raise ExtractionError(f"the model stopped early ({finish_reason})")
    if not isinstance(content, str) or not content.strip():
        raise ExtractionError("the model's answer is empty")
    return content


def _within(settings: LlmSettings, ask: Callable[[], str]) -> str:
    """Run ``ask`` until the deadline; a thread, because a client's timeout counts per read and per try."""
    answers: queue.SimpleQueue[str | Exception] = queue.SimpleQueue()

    def work() -> None:
        try:
            answers.put(ask())
        except Exception as error:  # noqa: BLE001 - the edge to a client whose errors have no common root
            answers.put(error)

    threading.Thread(target=work, name="intent-llm", daemon=True).start()
    try:
        answer = answers.get(timeout=settings.timeout_s)
    except queue.Empty:
        raise ExtractionError(f"no answer from {settings.base_url} within {settings.timeout_s:g} s") from None
    if isinstance(answer, ExtractionError):
        raise answer
    if isinstance(answer, Exception):
        raise ExtractionError(_described(answer, settings)) from answer
    return answer


def _described(error: Exception, settings: LlmSettings) -> str:
    detail = " ".join(str(error).split()).replace(settings.api_key or "\0", "***")
    return f"{settings.base_url} failed with {type(error).__name__}: {detail[:200]}"
