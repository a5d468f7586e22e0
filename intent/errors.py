"""Errors of the intent package. Bad words never raise: they are outcomes. These are for callers.

IntentError
    DocumentError    a JSON document that is not an intent; names the place
    ExtractionError  an LLM that gave no usable answer, and which ``Failure`` it was; the rules answer instead
"""

from dataclasses import dataclass
from enum import StrEnum


class IntentError(Exception):
    """Root of the tree; every message says what was wrong and where."""


class DocumentError(IntentError):
    """A JSON document that is not an intent."""

    def __init__(self, pointer: str, problem: str) -> None:
        super().__init__(f"{pointer or '/'}: {problem}")
        self.pointer = pointer
        self.problem = problem


class Failure(StrEnum):
    """Why an LLM gave no usable answer."""

    TIMEOUT = "llm_timeout"
    UNREACHABLE = "llm_unreachable"
    UNAUTHORISED = "llm_unauthorised"
    NOT_FOUND = "llm_not_found"
    RATE_LIMITED = "llm_rate_limited"
    REQUEST_REJECTED = "llm_request_rejected"
    SERVER_ERROR = "llm_server_error"
    REDIRECTED = "llm_redirected"
    TOO_LARGE = "llm_too_large"
    COMPRESSED = "llm_compressed"
    NOT_A_COMPLETION = "llm_not_a_completion"
    REFUSED = "llm_refused"
    FILTERED = "llm_filtered"
    CUT_OFF = "llm_cut_off"
    EMPTY = "llm_empty"
    NOT_JSON = "llm_not_json"
    NOT_IN_SCHEMA = "llm_not_in_schema"
    NOT_IN_TEXT = "llm_not_in_text"


@dataclass(frozen=True, slots=True)
class AnswerProblem:
    """One thing that is wrong with an answer; ``pointer`` is a JSON Pointer into it."""

    pointer: str
    words: str

    def __str__(self) -> str:
        return f"{self.pointer or '/'}: {self.words}"


class ExtractionError(IntentError):
    """An LLM that gave no usable answer; the message starts with the failure's name."""

    def __init__(self, failure: Failure, words: str, problems: tuple[AnswerProblem, ...] = ()) -> None:
        super().__init__(f"{failure}: {words}")
        self.failure = failure
        self.words = words
        self.problems = problems
        """Of an answer that a second try may put right."""
