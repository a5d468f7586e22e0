"""API keys: a prefix to find each by, and a secret of which only a hash is kept.

Pure but for randomness.
"""

import hashlib
import hmac
import math
import re
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from service.documents.access import RIGHTS, Right, Role

PREFIX_CHARACTERS = 8
_KEY = re.compile(r"ictl_(?P<prefix>[a-z0-9]{8})_(?P<secret>[A-Za-z0-9_-]{43})")
_ALPHABET = "abcdefghijklmnopqrstuvwxyz0123456789"


class KeyFault(StrEnum):
    """Why a key opens nothing."""

    MISSING = "no key"
    UNKNOWN = "unknown key"
    REVOKED = "revoked key"
    EXPIRED = "expired key"


@dataclass(frozen=True, slots=True)
class Key:
    """A key as it is kept; the secret is not among it."""

    prefix: str
    digest: str
    """SHA-256 of the whole key, in hex. The secret has 256 random bits: a slow hash would protect nothing more."""
    name: str
    """Of the key; no two that open something have the same."""
    person: str
    """Whose it is: who acts, in the audit and where two people are needed."""
    role: Role
    tenant: str | None
    """Whose requests it makes; of the role ``tenant`` alone."""
    created_s: float
    created_by: str
    expires_s: float | None = None
    revoked_s: float | None = None

    def wrong(self, now_s: float) -> KeyFault | None:
        """Why it opens nothing now; None: it does."""
        if self.revoked_s is not None:
            return KeyFault.REVOKED
        return KeyFault.EXPIRED if self.expires_s is not None and now_s >= self.expires_s else None


def new_secret() -> tuple[str, str]:
    """A whole key, to be shown once, and its prefix."""
    prefix = "".join(secrets.choice(_ALPHABET) for _ in range(PREFIX_CHARACTERS))
    return f"ictl_{prefix}_{secrets.token_urlsafe(32)}", prefix


def digest_of(whole: str) -> str:
    """What is kept of a key."""
    return hashlib.sha256(whole.encode()).hexdigest()


_NOBODY = digest_of("")


class Keyring:
    """The keys that are kept, for looking up what a client sent."""

    def __init__(self, keys: Iterable[Key] = ()) -> None:
        self._by_prefix = dict[str, Key]()
        self.put(keys)

    def put(self, keys: Iterable[Key]) -> None:
        """Hold these keys, too, in place of what was known of them."""
        self._by_prefix = {**self._by_prefix, **{key.prefix: key for key in keys}}

    def opens(self, prefix: str, now_s: float) -> bool:
        """Whether the key with a prefix opens something now."""
        key = self._by_prefix.get(prefix)
        return key is not None and key.wrong(now_s) is None

    def could_approve(self, person: str, since_s: float, now_s: float) -> bool:
        """Whether a person had at every moment since then a key that may approve, and has one now."""
        until_s = since_s
        for key in sorted(self._by_prefix.values(), key=lambda candidate: candidate.created_s):
            if key.person == person and Right.APPROVE in RIGHTS[key.role] and key.created_s <= until_s:
                ends_s = (moment_s for moment_s in (key.expires_s, key.revoked_s) if moment_s is not None)
                until_s = max(until_s, min(ends_s, default=math.inf))
        return until_s > now_s

    def find(self, whole: str, now_s: float) -> Key | KeyFault:
        """The key that a client sent, or why it is none.

        Takes as long for a wrong secret as for an unknown prefix.
        """
        found = _KEY.fullmatch(whole)
        key = self._by_prefix.get(found["prefix"]) if found else None
        digest = key.digest if key else _NOBODY
        if not hmac.compare_digest(digest_of(whole), digest) or key is None:
            return KeyFault.UNKNOWN
        return key.wrong(now_s) or key


def redacted(text: str) -> str:
    """A text without the secrets of keys in it."""
    return _KEY.sub(lambda found: f"ictl_{found['prefix']}_…", text)
