"""API keys: a prefix to find each by, and a secret of which only a hash is kept. Pure but for randomness."""

import hashlib
import hmac
import re
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from service.access.rights import Role

PREFIX_CHARACTERS, SECRET_CHARACTERS = 8, 43
_KEY = re.compile(r"ictl_(?P<prefix>[a-z0-9]{8})_(?P<secret>[A-Za-z0-9_-]{43})")
_ALPHABET = "abcdefghijklmnopqrstuvwxyz0123456789"


class Wrong(StrEnum):
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
    """Who has it, in the audit and in metrics."""
    role: Role
    tenant: str | None
    """Whose requests it makes; of the role ``tenant`` alone."""
    created_s: float
    created_by: str
    expires_s: float | None = None
    revoked_s: float | None = None

    def wrong(self, now_s: float) -> Wrong | None:
        """Why it opens nothing now; None: it does."""
        if self.revoked_s is not None:
            return Wrong.REVOKED
        if self.expires_s is not None and now_s >= self.expires_s:
            return Wrong.EXPIRED
        return None


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
        self.become(keys)

    def become(self, keys: Iterable[Key]) -> None:
        """Hold these keys and no others."""
        self._by_prefix = {key.prefix: key for key in keys}

    def find(self, whole: str, now_s: float) -> Key | Wrong:
        """The key that a client sent, or why it is none. Takes as long for a wrong secret as for an unknown prefix."""
        found = _KEY.fullmatch(whole)
        key = self._by_prefix.get(found["prefix"]) if found else None
        digest = key.digest if key else _NOBODY
        if not hmac.compare_digest(digest_of(whole), digest) or key is None:
            return Wrong.UNKNOWN
        return key.wrong(now_s) or key


def redacted(text: str) -> str:
    """A text without the secrets of keys in it."""
    return _KEY.sub(lambda found: f"ictl_{found['prefix']}_…", text)
