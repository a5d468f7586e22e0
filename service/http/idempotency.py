"""``Idempotency-Key``: which requests are the same, and which are refused. Pure."""

import hashlib
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from service.documents.errors import RefusedError
from service.documents.problems import Code, Detail

HEADER = "Idempotency-Key"
REPLAYED = "Idempotency-Replayed"
KEPT_S = 86_400.0
"""How long an answer is kept, and a key is taken."""
PATTERN = "^[!-~]([ -~]{0,253}[!-~])?$"
MOST_CHARACTERS = 255

PARAMETER = {
    "name": HEADER,
    "in": "header",
    "required": False,
    "description": "The client's own name for this request: sent again with it, the request is not acted on twice, "
    f"and the first answer comes again with `{REPLAYED}: true`. It is kept for 24 hours.",
    "schema": {"type": "string", "minLength": 1, "maxLength": MOST_CHARACTERS, "pattern": PATTERN},
}
"""The header in the OpenAPI document."""
REFUSALS = (
    Code.INVALID_REQUEST,
    Code.IDEMPOTENCY_KEY_REUSED,
    Code.IDEMPOTENCY_KEY_IN_USE,
    Code.OUTCOME_UNKNOWN,
    Code.STORE,
)
"""Problems that a request may have because of the header."""


@dataclass(frozen=True, slots=True)
class KeyedRequest:
    """A request that has a key."""

    owner: str
    """Whose: the prefix of the caller's API key, or their name where there are none."""
    key: str
    digest: str
    """Of all that makes it another request."""


@dataclass(frozen=True, slots=True)
class StoredResponse:
    """What is kept of an answer."""

    status: int
    content_type: str | None
    location: str | None
    body: bytes

    @property
    def frees(self) -> bool:
        """Whether it says that nothing was done and the same request may succeed later: 503."""
        return self.status == 503


def key_of(sent: Sequence[str]) -> str:
    """The key that a request has; ``sent`` is each header of that name.

    Raises:
        RefusedError: there are several, or it has another form.
    """
    if len(sent) == 1 and re.fullmatch(PATTERN, sent[0]):
        return sent[0]
    found = f"{len(sent)} of them" if len(sent) > 1 else f"{len(sent[0])} characters"
    raise _invalid(f"{HEADER} has to be one header of 1 to {MOST_CHARACTERS} printable ASCII characters, not {found}")


def refuse_secret() -> None:
    """Refuse a key where the answer holds a secret.

    Raises:
        RefusedError: always.
    """
    raise _invalid(
        f"{HEADER} is not taken here: the answer holds a secret, and no secret is kept; leave it out, "
        "and revoke the key that was made if its answer is lost"
    )


def digest_of(*parts: bytes) -> str:
    """What tells requests apart: SHA-256 of their parts, each with its length before it."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8) + part)
    return digest.hexdigest()


class UnderWay:
    """The requests with a key that are being answered here: one for each key of a caller."""

    def __init__(self) -> None:
        self._digests: dict[tuple[str, str], str] = {}

    @contextmanager
    def claim(self, request: KeyedRequest) -> Iterator[None]:
        """Hold a key while a request with it is answered; called in the event loop.

        Raises:
            RefusedError: it is held.
        """
        place = request.owner, request.key
        if (held := self._digests.get(place)) is not None:
            raise in_use(request) if held == request.digest else reused(request)
        self._digests[place] = request.digest
        try:
            yield
        finally:
            del self._digests[place]


def reused(request: KeyedRequest) -> RefusedError:
    """The refusal of another request with the same key."""
    return RefusedError(
        Code.IDEMPOTENCY_KEY_REUSED,
        f"{HEADER} {request.key!r} was sent before with another method, path, query or body; "
        "nothing was done: send a new key with a new request",
    )


def in_use(request: KeyedRequest) -> RefusedError:
    """The refusal of a request whose first is still under way."""
    message = f"a request with {HEADER} {request.key!r} is under way; send it again to have its answer"
    return RefusedError(Code.IDEMPOTENCY_KEY_IN_USE, message)


def outcome_unknown(request: KeyedRequest) -> RefusedError:
    """The refusal of a request whose first ended without an answer that was kept."""
    message = (
        f"a request with {HEADER} {request.key!r} began and has no answer here: the service ended meanwhile or had a fault, "
        "or another service took it; look whether it was done (intentctl get, intentctl audit list), and if not, send it "
        "with a new key"
    )
    return RefusedError(Code.OUTCOME_UNKNOWN, message)


def _invalid(message: str) -> RefusedError:
    detail = Detail(f"/header/{HEADER.lower()}", message, "idempotency_key")
    return RefusedError(Code.INVALID_REQUEST, message, [detail])
