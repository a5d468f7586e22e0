"""How a client is turned away before there is a request for the app: why, for it and for the metrics."""

import json
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from typing import Literal

from service.documents.forms import Json
from service.documents.problems import Code, Problem

Message = MutableMapping[str, object]
"""Of ASGI, as are the next three."""
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]

Crowded = Literal["connections", "per_address", "per_key", "rate"]
TurnedAway = Literal[Crowded, "head", "slow_head", "too_large", "slow_body", "stopping", "unread", "key"]
"""Why a client was not served, or no more: too many of them, headers that cannot be read, and so on."""

INFERENCE = "/openai/v1"
CODES = {
    401: Code.UNAUTHENTICATED,
    403: Code.FORBIDDEN,
    404: Code.NOT_FOUND,
    405: Code.METHOD_NOT_ALLOWED,
    413: Code.TOO_LARGE,
    429: Code.RATE_LIMITED,
    503: Code.OVERLOADED,
}
"""Of problems, by status."""
KINDS = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error", 503: "server_error"}
"""OpenAI's word for an error, by status."""
INVALID_KEY = "invalid_api_key"
"""OpenAI's code for a key that opens nothing."""
OPENAI_CODES = {401: INVALID_KEY, 429: "rate_limit_exceeded"}
"""OpenAI's codes by status, where it has one."""


@dataclass(eq=False, slots=True)
class Refusal(Exception):  # noqa: N818 - it is an answer
    """Why a request is not taken, for its client and for the metrics."""

    reason: TurnedAway
    status: int
    message: str
    retry_after_s: int | None = None

    def answer(self, path: str) -> tuple[Headers, bytes]:
        """Headers and body, in the form that the errors of a path have."""
        if path.startswith(INFERENCE):
            kind = KINDS.get(self.status, "invalid_request_error")
            code = OPENAI_CODES.get(self.status, self.reason)
            media_type = "application/json"
            document = error_document(self.message, kind, code=code)
        else:
            found = CODES.get(self.status, Code.INVALID_REQUEST)
            problem = Problem.of(Code.STOPPING if self.reason == "stopping" else found, self.message)
            media_type = "application/problem+json"
            document = problem.model_copy(update={"status": self.status}).model_dump(mode="json")
        body = json.dumps(document).encode()
        headers = [("content-type", media_type), ("content-length", str(len(body))), ("connection", "close")]
        if self.status == 401:
            headers.append(("www-authenticate", "Bearer"))
        if self.retry_after_s is not None:
            headers.append(("retry-after", str(self.retry_after_s)))
        return [(name.encode(), value.encode()) for name, value in headers], body


def error_document(message: str, kind: str, param: str | None = None, code: str | None = None) -> Json:
    """An error as OpenAI clients expect it."""
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}
