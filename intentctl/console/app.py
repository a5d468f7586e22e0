"""The console as a web application.

Its routes, who may see them, and what is said where something goes wrong.
"""

import logging
from collections.abc import Callable
from importlib import resources
from typing import cast

from pydantic import ValidationError
from starlette.applications import Starlette
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from intentctl.client import Client
from intentctl.console import acts, live, pages, view
from intentctl.console.sessions import Sessions
from intentctl.console.upstream import ADDRESS
from intentctl.console.visit import COOKIE, cookie, form_of, is_part, reader_of, refuse_foreign, see
from service import api
from service.documents.errors import ServiceError
from service.documents.problems import Code, Problem

log = logging.getLogger(__name__)

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
PAGES = (
    ("/", pages.overview),
    ("/talk", pages.talk),
    ("/intents/{id}", pages.intent),
    ("/plans", pages.plans),
    ("/plans/{id}", pages.plan),
    ("/operations/{id}", pages.operation),
    ("/agenda", pages.agenda),
    ("/history", pages.history),
    ("/report", pages.report),
    ("/audit", pages.audit),
    ("/settings", pages.settings),
    ("/explain", pages.explain),
    ("/live", live.live),
    ("/parts/strip", pages.strip_part),
    ("/parts/overview", pages.overview),
    ("/parts/intents/{id}", pages.intent),
    ("/parts/plans/{id}", pages.plan),
    ("/parts/band/{id}", pages.band_part),
    ("/parts/operations/{id}", pages.operation),
)
ACTS = (
    ("/say", acts.say),
    ("/intents/{id}/amend", acts.amend),
    ("/intents/{id}/plan", acts.plan),
    ("/intents/{id}/retire", acts.retire),
    ("/plans/{id}/ask", acts.ask),
    ("/plans/{id}/apply", acts.apply),
    ("/plans/{id}/approve", acts.approve),
    ("/plans/{id}/reject", acts.reject),
    ("/operations/{id}/cancel", acts.cancel),
    ("/operations/{id}/undo", acts.undo),
    ("/drain", acts.drain),
    ("/undrain", acts.undrain),
    ("/control", acts.control),
    ("/preferences", acts.prefer),
)


def create_app(client: Callable[[str | None], Client], hosts: list[str], *, is_local: bool) -> Starlette:
    """The console of a service.

    Args:
        client: the service as seen with a key, or with none.
        hosts: names by which browsers may call this console; ``*``: any.
        is_local: whether it can be reached from this machine alone.
    """
    routes = [Route(path, endpoint, methods=["GET"]) for path, endpoint in PAGES]
    routes += [Route(path, endpoint, methods=["POST"]) for path, endpoint in ACTS]
    routes += [
        Route("/login", login_page, methods=["GET"]),
        Route("/login", login, methods=["POST"]),
        Route("/logout", logout, methods=["POST"]),
        Route("/healthz", health, methods=["GET"]),
    ]
    static = StaticFiles(directory=str(resources.files("intentctl.console").joinpath("static")))
    app = Starlette(
        routes=[*routes, Mount("/static", static)],
        middleware=[
            Middleware(Guarded),
            Middleware(TrustedHostMiddleware, allowed_hosts=hosts, www_redirect=False),
        ],
        exception_handlers={
            ServiceError: _refused,
            ValidationError: _misspelt,
            HTTPException: _no_page,
            Exception: _broken,
        },
    )
    app.state.sessions = Sessions(client)
    app.state.proxies = []
    app.state.is_local = is_local
    app.state.unlocked = None
    app.state.asks_for_keys = False
    return app


class Guarded:
    """Adds the headers that limit what a page may do, and notes the browser's address."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        ADDRESS.set((scope.get("client") or ("",))[0])

        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                if not scope["path"].startswith("/static/"):
                    headers.setdefault("Cache-Control", "no-store")
            await send(message)

        await self._app(scope, receive, sent)


async def login_page(request: Request) -> Response:
    """Ask for a key."""
    return _login(request, None)


async def login(request: Request) -> Response:
    """Sign somebody in with the key that they show."""
    refuse_foreign(request)
    form = acts.FormData(await form_of(request))
    sessions = cast("Sessions", request.app.state.sessions)
    key = form.one("key").strip()
    upstream = sessions.upstream(key)
    try:
        if not key or not key.isascii() or not key.isprintable() or " " in key:
            raise ServiceError(Code.UNAUTHENTICATED, "this is no key")  # noqa: TRY301 - told as the service's own
        me = await upstream.ask(lambda client: client(api.keys.me))
    except ServiceError as error:
        sessions.forget_old()
        return _login(request, error.problem)
    response = see(_local(form.one("to")))
    new = sessions.open(me, upstream)
    sessions.close(request.cookies.get(COOKIE, ""))
    cookie(response, COOKIE, new, is_secret=True, is_secure=request.url.scheme == "https")
    return response


async def logout(request: Request) -> Response:
    """Sign out."""
    refuse_foreign(request)
    cast("Sessions", request.app.state.sessions).close(request.cookies.get(COOKIE, ""))
    response = see("/login")
    response.delete_cookie(COOKIE)
    return response


async def health(_: Request) -> Response:
    """That the console answers, whatever the service does."""
    return JSONResponse({"status": "ok"})


def _local(path: str) -> str:
    """A path of this console; anything else is its first page."""
    is_path = path.startswith("/") and not path.startswith(("//", "/\\")) and path.isprintable()
    return path if is_path else "/"


def _login(request: Request, problem: Problem | None) -> Response:
    to = _local(request.query_params.get("to", "/"))
    status = 200 if problem is None else problem.status
    return HTMLResponse(view.page("login.html", reader_of(request), problem=problem, to=to), status)


async def _refused(request: Request, error: Exception) -> Response:
    """The service says no, is away, or is of another version."""
    assert isinstance(error, ServiceError)
    problem = error.problem
    if problem.code is Code.UNAUTHENTICATED:
        cast("Sessions", request.app.state.sessions).close(request.cookies.get(COOKIE, ""))
        request.app.state.unlocked = None
        if not is_part(request):
            return _login(request, problem)
    return _told(request, problem.status, problem)


async def _misspelt(request: Request, error: Exception) -> Response:
    """Something in the address is of no form that the service takes."""
    assert isinstance(error, ValidationError)
    return _told(request, 422, ServiceError(Code.INVALID_REQUEST, error.errors()[0]["msg"]).problem)


async def _no_page(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == 401:
        if is_part(request) or request.method != "GET":
            return _told(request, 401, None)
        path = f"{request.url.path}?{request.url.query}".rstrip("?")
        return HTMLResponse(view.page("login.html", reader_of(request), problem=None, to=_local(path)), 401)
    return _told(request, error.status_code, None)


async def _broken(request: Request, error: Exception) -> Response:
    log.error("%s %s", request.method, request.url.path, exc_info=error)
    return _told(request, 500, None)


def _told(request: Request, status: int, problem: Problem | None) -> Response:
    template = "parts/problem.html" if is_part(request) else "problem.html"
    return HTMLResponse(view.page(template, reader_of(request), status=status, problem=problem), status)
