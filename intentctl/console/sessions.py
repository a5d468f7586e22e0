"""Who is signed in: a random cookie for each browser.

The key behind it is in memory alone.
"""

import hashlib
import hmac
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from intentctl.client import Client
from intentctl.console.upstream import Upstream
from service.documents.access import MeDocument

IDLE_S = 12 * 3600.0
"""Without a click; what pages ask for by themselves is none."""
LASTS_S = 24 * 3600.0
"""From signing in."""
MOST = 1000
"""Browsers that are signed in at once; the one that was away the longest is signed out for another."""


@dataclass(slots=True)
class Session:
    """A browser that somebody signed in with."""

    me: MeDocument
    upstream: Upstream
    began_s: float
    seen_s: float
    """The last click."""
    token: str = field(default_factory=lambda: secrets.token_urlsafe(24))
    """What its forms send along: another site does not know it."""

    def may(self, right: str) -> bool:
        """Whether the role has a right."""
        return right in self.me.rights

    def has_token(self, text: str) -> bool:
        """Whether a form came from a page of this session."""
        return hmac.compare_digest(text.encode("utf-8", "surrogatepass"), self.token.encode())


class Sessions:
    """All browsers that are signed in."""

    def __init__(self, client: Callable[[str | None], Client], clock: Callable[[], float] = time.monotonic) -> None:
        """``client`` is the service as seen with a key."""
        self._client = client
        self._clock = clock
        self._sessions: dict[str, Session] = {}
        self._upstreams: dict[str, Upstream] = {}

    def upstream(self, key: str | None) -> Upstream:
        """The service by a key: one for all browsers with the same."""
        name = _hashed(key or "")
        if name not in self._upstreams:
            self._upstreams[name] = Upstream(self._client(key))
        return self._upstreams[name]

    def open(self, me: MeDocument, upstream: Upstream) -> str:
        """Sign a browser in; its cookie."""
        cookie = secrets.token_urlsafe(32)
        now_s = self._clock()
        self._sessions[_hashed(cookie)] = Session(me, upstream, now_s, now_s)
        self.forget_old()
        return cookie

    def of(self, cookie: str, *, is_click: bool = True) -> Session | None:
        """Who is signed in with a cookie; None: nobody, or too long ago."""
        session = self._sessions.get(_hashed(cookie))
        if session is None or self._is_over(session):
            return None
        if is_click:
            session.seen_s = self._clock()
        return session

    def _is_over(self, session: Session) -> bool:
        now_s = self._clock()
        return now_s - session.seen_s > IDLE_S or now_s - session.began_s > LASTS_S

    def close(self, cookie: str) -> None:
        """Sign a browser out."""
        self._sessions.pop(_hashed(cookie), None)
        self.forget_old()

    def forget_old(self) -> None:
        """Forget who was away for too long, and the keys that nobody is signed in with."""
        kept = sorted(self._sessions.items(), key=lambda session: session[1].seen_s)[-MOST:]
        self._sessions = {name: session for name, session in kept if not self._is_over(session)}
        used = {id(session.upstream) for session in self._sessions.values()}
        self._upstreams = {name: upstream for name, upstream in self._upstreams.items() if id(upstream) in used}

    def end(self) -> None:
        """Tell nobody anything any more."""
        for upstream in self._upstreams.values():
            upstream.end()


def _hashed(secret: str) -> str:
    """Neither cookies nor keys are kept as they are where they are looked up."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()
