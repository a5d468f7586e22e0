"""One request of a browser: who makes it, what they read in, and what is answered."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast
from urllib.parse import parse_qs, urlsplit

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from intentctl.client import Client
from intentctl.console import facts, view
from intentctl.console.sessions import Session, Sessions
from intentctl.console.view import Viewer
from intentctl.console.words import language_of
from service import api
from service.documents.access import MeDocument
from service.documents.errors import ServiceError
from service.documents.problems import Code, Problem

COOKIE = "intentctl_console"
MOST_BYTES = 100_000
"""Of a form."""
APART_S = 5.0
"""Clocks that are further apart are told of."""


@dataclass(slots=True)
class Visit:
    """A request by somebody who is signed in."""

    request: Request
    session: Session
    notice: Problem | None = None
    """What went wrong with what they did just now."""
    clock_ahead_s: float = 0.0

    @property
    def reader(self) -> Viewer:
        """How they like to read."""
        return reader_of(self.request, self.session.me.timezone)

    def given(self, name: str) -> str:
        """What stands in the path or after it; empty where nothing does."""
        return cast("str", self.request.path_params.get(name) or self.request.query_params.get(name, ""))

    async def page(self, template: str, status: int = 200, **more: object) -> Response:
        """A page; or the part of it that changes, where a page asks for that."""
        if is_part(self.request):
            return self.part(f"parts/{template}", status, **more)
        return await self.whole(template, status, **more)

    async def whole(self, template: str, status: int = 200, **more: object) -> Response:
        """A template, with what stands on every page."""
        stands = await facts.now(self.session.upstream)
        try:
            coming = await facts.ahead(self.session.upstream)
        except ServiceError:
            coming = None
        return self.part(template, status, stands=stands, coming=coming, **more)

    def part(self, template: str, status: int = 200, **more: object) -> Response:
        """A template with facts."""
        session = self.session
        about = {
            "me": session.me,
            "may": session.may,
            "token": session.token,
            "notice": self.notice,
            "asked_s": time.time(),
            "clock_ahead_s": self.clock_ahead_s if abs(self.clock_ahead_s) > APART_S else 0.0,
        }
        return HTMLResponse(view.page(template, self.reader, **about, **more), status)


def reader_of(request: Request, timezone: str = "UTC") -> Viewer:
    """How somebody likes to read, by what they chose before."""
    path = request.url.path
    return Viewer(
        language=language_of(request.cookies.get("language"), request.headers.get("accept-language", "")),
        theme=theme if (theme := request.cookies.get("theme", "")) in {"dark", "light"} else "",
        timezone=timezone,
        path=f"{path}?{request.url.query}" if request.url.query else path,
    )


async def visit(request: Request) -> Visit:
    """Whose request this is.

    Raises:
        HTTPException: 401, nobody is signed in.
        ServiceError: the key opens nothing any more, or the service does not answer.
    """
    session = signed_in(request, is_click=not is_part(request)) or await _unlocked(request)
    if session is None:
        raise HTTPException(401)
    session.me, clock_ahead_s = await session.upstream.recent(("me",), 30, _me)
    return Visit(request, session, clock_ahead_s=clock_ahead_s)


def signed_in(request: Request, *, is_click: bool) -> Session | None:
    """Who is signed in with the browser."""
    sessions = cast("Sessions", request.app.state.sessions)
    return sessions.of(request.cookies.get(COOKIE, ""), is_click=is_click)


def is_part(request: Request) -> bool:
    """Whether a page asks for this by itself, without a click."""
    return request.url.path.startswith(("/parts/", "/live"))


def _me(service: Client) -> tuple[MeDocument, float]:
    """Who asks, and how far the service's clock is ahead of this one."""
    me = service(api.keys.me)
    return me, me.now_s - time.time()


async def _unlocked(request: Request) -> Session | None:
    """The session of everybody, where the service asks for no keys."""
    state = request.app.state
    if state.unlocked is not None:
        return cast("Session", state.unlocked)
    if state.asks_for_keys:
        return None
    upstream = cast("Sessions", state.sessions).upstream(None)
    try:
        me, _ = await upstream.recent(("me",), 30, _me)
    except ServiceError as error:
        if error.code is Code.UNAUTHENTICATED:
            state.asks_for_keys = True  # not tried again: each try stands in the service's audit
            return None
        raise
    if not state.is_local:
        detail = "the service asks for no keys, and this console can be reached from elsewhere: give it keys, or --host 127.0.0.1"
        raise ServiceError(Code.FORBIDDEN, detail)
    state.unlocked = Session(me, upstream, 0.0, 0.0)
    return cast("Session", state.unlocked)


async def form_of(request: Request) -> Mapping[str, Sequence[str]]:
    """What a form says.

    Raises:
        HTTPException: 413, it is too long; 400, it is no form.
    """
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > MOST_BYTES:
            raise HTTPException(413)
    try:
        return parse_qs(body.decode("utf-8"), keep_blank_values=True, max_num_fields=100)
    except ValueError:
        raise HTTPException(400) from None


def refuse_foreign(request: Request) -> None:
    """Refuse what a page of another site sends.

    Raises:
        HTTPException: 403, it is.
    """
    site = request.headers.get("sec-fetch-site", "same-origin")
    origin = request.headers.get("origin")
    is_ours = origin is None or urlsplit(origin).netloc == request.headers.get("host")
    if site not in {"same-origin", "none"} or not is_ours:
        raise HTTPException(403)


def see(path: str, *, goes_on: bool = False) -> Response:
    """Go to another page; ``goes_on``: send the form there, too."""
    return RedirectResponse(path, 307 if goes_on else 303)


def cookie(response: Response, name: str, value: str, *, is_secret: bool, is_secure: bool) -> None:
    """Give the browser something to send along."""
    response.set_cookie(
        name,
        value,
        max_age=None if is_secret else 31_536_000,
        httponly=is_secret,
        samesite="lax",
        secure=is_secure,
    )
