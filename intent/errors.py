"""Errors of the intent package. Bad words never raise: they are outcomes. These are for callers.

IntentError
    DocumentError    a JSON document that is not an intent; names the place
    ExtractionError  an LLM that gave no usable answer; the rules answer instead
"""


class IntentError(Exception):
    """Root of the tree; every message says what was wrong and where."""


class DocumentError(IntentError):
    """A JSON document that is not an intent."""

    def __init__(self, pointer: str, problem: str) -> None:
        super().__init__(f"{pointer or '/'}: {problem}")
        self.pointer = pointer
        self.problem = problem


class ExtractionError(IntentError):
    """An LLM that gave no usable answer."""
