"""One question to an endpoint: two tries, one deadline."""

import hashlib
import json
import queue
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Event
from typing import TYPE_CHECKING, Any, Protocol, TypeVar
from urllib.parse import urlsplit

from intent.errors import AnswerProblem, ExtractionError, Failure
from intent.llm.quotes import parse_answer, unusable
from intent.models import Catalogue, LlmSettings

if TYPE_CHECKING:
    from langchain_core.messages import BaseMessage
    from langchain_core.runnables import Runnable

T = TypeVar("T")

MAX_ANSWER_BYTES = 1 << 20
"""A dozen goals take a few thousand; an answer that does not end is left here."""
MAX_WORDS = 300
"""Characters of a reason."""
SHORTEST_SECRET = 8
"""Shorter keys are placeholders, and words like any other."""

_STATUS = {
    401: Failure.UNAUTHORISED,
    403: Failure.UNAUTHORISED,
    404: Failure.NOT_FOUND,
    408: Failure.TIMEOUT,
    429: Failure.RATE_LIMITED,
}


def within(settings: LlmSettings, ask: Callable[[threading.Event], T]) -> T:
    """Run ``ask`` until the deadline; a thread, because a client's timeout counts per read and per try.

    ``ask`` gets an event that is set when nobody waits for it any more.

    Raises:
        ExtractionError: it failed, or the deadline has passed.
    """
    answers: queue.SimpleQueue[tuple[T | None, Exception | None]] = queue.SimpleQueue()
    given_up = threading.Event()

    def work() -> None:
        try:
            answers.put((ask(given_up), None))
        except Exception as error:  # noqa: BLE001 - the edge to a client whose errors have no common root
            answers.put((None, error))

    threading.Thread(target=work, name="intent-llm", daemon=True).start()
    try:
        answer, error = answers.get(timeout=settings.timeout_s)
    except queue.Empty:
        words = f"no answer from {_shown(settings)} within {settings.timeout_s:g} s"
        raise ExtractionError(Failure.TIMEOUT, words) from None
    finally:
        given_up.set()
    if error is not None:
        raise classified(error, settings) from error
    return answer  # type: ignore[return-value] # there is an answer where there is no error


@contextmanager
def http_client(given_up: threading.Event) -> Iterator[Any]:
    """An HTTP client for one question: no redirects, no compressed answers.

    An answer without end is cut off; a client that was given up stops.
    """
    import openai

    def send(request: Any) -> None:
        _go_on(given_up)
        request.headers["accept-encoding"] = "identity"

    def receive(response: Any) -> None:
        _read(response, given_up)

    client = openai.DefaultHttpxClient(follow_redirects=False, event_hooks={"request": [send], "response": [receive]})
    with client:
        yield client


def _go_on(given_up: threading.Event) -> None:
    if given_up.is_set():
        raise ExtractionError(Failure.TIMEOUT, "nobody waits for this answer any more")


def _read(response: Any, given_up: threading.Event) -> None:
    """Read the body piece by piece, as long as it is wanted and small, and leave it to be read again."""
    encoding = response.headers.get("content-encoding", "identity")
    if encoding != "identity":
        words = f"the endpoint compresses its answers ({encoding[:40]}), though asked not to"
        raise ExtractionError(Failure.COMPRESSED, words)
    body = bytearray()
    for piece in response.iter_raw():
        _go_on(given_up)
        body += piece
        if len(body) > MAX_ANSWER_BYTES:
            words = f"the answer is longer than {MAX_ANSWER_BYTES:,} bytes"
            raise ExtractionError(Failure.TOO_LARGE, words)
    if response.status_code == 200:
        _check_completion(bytes(body))
    response.stream = type(response)(response.status_code, content=bytes(body)).stream
    response.is_stream_consumed = response.is_closed = False


def _check_completion(body: bytes) -> None:
    """Refuse what only a status says is an answer: a proxy's page, an error, half a document."""
    try:
        content = json.loads(body)["choices"][0]["message"].get("content")
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        shown = body[: 4 * MAX_WORDS].decode(errors="replace") or "an empty body"
        raise ExtractionError(Failure.NOT_A_COMPLETION, f"this is no chat completion: {shown}") from None
    if not isinstance(content, str | None):
        words = f"the message holds {type(content).__name__}, not text"
        raise ExtractionError(Failure.NOT_A_COMPLETION, words)


def classified(error: Exception, settings: LlmSettings) -> ExtractionError:
    """The named failure of whatever a client raised; the API key is blanked out."""
    causes = list(_causes(error))
    named = next((cause for cause in causes if isinstance(cause, ExtractionError)), None)
    if named is not None:
        return ExtractionError(named.failure, _sayable(named.words, settings), named.problems)
    messages = dict.fromkeys(str(cause) for cause in (error, causes[-1]))
    words = f"{_shown(settings)} failed: {'; '.join(filter(None, messages))}"
    return ExtractionError(_failure(error), _sayable(words, settings))


def _sayable(words: str, settings: LlmSettings) -> str:
    """Words without the API key, which is blanked before anything is cut."""
    for secret in (settings.api_key, settings.api_key.strip()):
        if len(secret) >= SHORTEST_SECRET:
            words = words.replace(secret, "***")
    return " ".join(words.split())[:MAX_WORDS]


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    seen: list[BaseException] = []
    while error is not None and error not in seen:
        seen.append(error)
        yield error
        error = error.__cause__ or error.__context__


def _failure(error: Exception) -> Failure:
    import openai

    by_kind = (
        (openai.LengthFinishReasonError, Failure.CUT_OFF),
        (openai.ContentFilterFinishReasonError, Failure.FILTERED),
        (openai.APITimeoutError, Failure.TIMEOUT),
        (openai.APIResponseValidationError, Failure.NOT_A_COMPLETION),
        (openai.APIConnectionError, Failure.UNREACHABLE),
    )
    for kind, failure in by_kind:
        if isinstance(error, kind):
            return failure
    if isinstance(error, openai.APIStatusError):
        return _status_failure(error.status_code)
    # newer clients raise a class of their own for a refusal
    return Failure.REFUSED if "Refusal" in type(error).__name__ else Failure.NOT_A_COMPLETION


def _status_failure(status: int) -> Failure:
    if status in _STATUS:
        return _STATUS[status]
    if status >= 500:
        return Failure.SERVER_ERROR
    return Failure.REDIRECTED if 300 <= status < 400 else Failure.REQUEST_REJECTED


def _shown(settings: LlmSettings) -> str:
    """The endpoint without what a URL can hide: user, password, query."""
    url = urlsplit(settings.base_url)
    host = url.netloc.rpartition("@")[2]
    return f"{url.scheme}://{host}{url.path}" if host else settings.base_url


MAX_ANSWER_TOKENS = 3_000
"""Enough for a dozen goals; a model that runs on is cut here."""
MAX_QUOTED = 4_000
"""Characters of a bad answer that are shown to the model again."""

Answer = Mapping[str, Any]
T_co = TypeVar("T_co", covariant=True)


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
        content = json.dumps([self.instructions, self.examples, self.schema], ensure_ascii=False)
        return hashlib.sha256(content.encode()).hexdigest()[:16]


class CheckedAnswer(Protocol[T_co]):
    """An answer held against the text."""

    @property
    def problems(self) -> Sequence[AnswerProblem]:
        """What the model has to put right."""

    def settled(self) -> T_co:
        """What it comes to.

        Raises:
            ExtractionError: nothing.
        """


def ask(request: Answer, prompt: Prompt, settings: LlmSettings, read: Callable[[Answer], CheckedAnswer[T]]) -> T:
    """What the first answer of two that the text bears comes to, or the second with what is open in it.

    Raises:
        ExtractionError: no usable answer within ``settings.timeout_s``, for whatever reason; never shows the API key.
    """
    return within(settings, lambda given_up: _ask(request, prompt, settings, read, given_up).settled())


def _ask(
    request: Answer,
    prompt: Prompt,
    settings: LlmSettings,
    read: Callable[[Answer], CheckedAnswer[T]],
    given_up: Event,
) -> CheckedAnswer[T]:
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
        examples=[{"request": _compact(request), "answer": _compact(answer)} for request, answer in prompt.examples],
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
    return messages | model.with_structured_output(prompt.schema, method="json_schema", strict=True, include_raw=True)


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
