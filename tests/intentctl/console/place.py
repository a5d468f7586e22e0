"""A console over a service, on real ports, and people who look at it."""

import re
import threading
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Self

import httpx
from playwright.sync_api import Browser, BrowserContext, Page, expect

from intentctl.client import Client
from intentctl.commands import follow
from intentctl.console.app import create_app
from intentctl.console.server import WebServer
from selector.models import Plan
from service import api
from service.documents.access import KeyRequest, Role
from service.documents.operations import OperationDocument
from service.documents.plans import PlanRequest
from tests.service.scripted import DEPLOYMENT, ScriptedService

KEYS = DEPLOYMENT.replace("auth: none", "auth: {control_per_minute: 1000000}") + "\ntenants: [{name: gold}]\n"
WISH = "keep P99 TTFT < 2s at peak, as cheap as possible"
TOKEN = re.compile(r'name="token" value="([^"]+)"')


class ConsoleServer:
    """A console in a thread of its own. Use as a context manager."""

    def __init__(
        self, service: str, hosts: tuple[str, ...] = ("localhost", "127.0.0.1"), *, is_local: bool = True
    ) -> None:
        app = create_app(lambda key: Client(service, key, 10), list(hosts), is_local=is_local)
        self.app = app
        self._server = WebServer(app, self._announce, log_level="error")
        self._server.config.port = 0
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._server.run, name="console")
        self.url = ""

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(30)
        return self

    def __exit__(self, *_: object) -> None:
        self._server.should_exit = True
        self._thread.join(15)
        assert not self._thread.is_alive()

    def _announce(self) -> None:
        port = self._server.servers[0].sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        self._ready.set()


class Place:
    """A service with a console before it, and keys for whoever comes."""

    def __init__(self, service: ScriptedService, console: ConsoleServer) -> None:
        self.service, self.console = service, console
        key = (service.deployment_file.parent / "admin.key").read_text().strip()
        self.admin = Client(service.url, key)
        self._keys: dict[tuple[Role, str], str] = {}

    @property
    def url(self) -> str:
        """Of the console."""
        return self.console.url

    def key(self, role: Role, name: str = "") -> str:
        """The key of somebody; made once."""
        named = (role, name or role.value)
        if named not in self._keys:
            self._keys[named] = self.admin(api.keys.create_key, KeyRequest(name=named[1], role=role)).key
        return self._keys[named]

    def plan(self, text: str = WISH) -> Plan:
        """What is planned for a wish."""
        return self.admin(api.plans.make_plan, PlanRequest(text=text)).plans[0]

    def switch(self, target: str) -> OperationDocument:
        """To a topology, and to its end."""
        plan = self.admin(api.plans.make_plan, PlanRequest(target=target)).plans[0]
        return [*follow(self.admin, self.admin(api.plans.apply, plan.id).id, timeout_s=30)][-1]

    def revoke(self, name: str) -> None:
        """The key of somebody."""
        self.admin(api.keys.revoke_key, next(one for one in self.admin(api.keys.keys).keys if one.name == name).prefix)

    def person(self, browser: Browser, role: Role, name: str = "", **context: object) -> Page:
        """Somebody at a browser of their own, signed in."""
        page = watched(browser.new_context(**context))
        page.goto(f"{self.url}/login")
        page.fill("#key", self.key(role, name))
        page.click("button.primary")
        page.wait_for_selector("#strip")
        return page

    def http(self, role: Role, name: str = "") -> "Signed":
        """Somebody without a browser, signed in."""
        return Signed(self.url, self.key(role, name))


def console_over(stack: ExitStack, folder: Path, text: str = KEYS, **scripted: object) -> Place:
    """A service and a console before it, until the stack ends."""
    service = stack.enter_context(ScriptedService(folder, text, **scripted))
    return Place(service, stack.enter_context(ConsoleServer(service.url)))


class Signed:
    """A client with a session, that sends forms as a browser does."""

    def __init__(self, url: str, key: str) -> None:
        self.client = httpx.Client(base_url=url, timeout=30, limits=httpx.Limits(max_keepalive_connections=0))
        answer = self.client.post("/login", data={"key": key}, headers={"Origin": url})
        assert answer.status_code == 303, answer.text
        self.token = TOKEN.search(self.get("/settings").text)[1]
        self._origin = url

    def get(self, path: str) -> httpx.Response:
        """A page."""
        return self.client.get(path)

    def post(self, path: str, said: Mapping[str, str] | None = None, **headers: str) -> httpx.Response:
        """A form, sent from a page."""
        return self.client.post(
            path, data={"token": self.token, **(said or {})}, headers={"Origin": self._origin, **headers}
        )


def watched(context: BrowserContext) -> Page:
    """A page that fails its test when a script of it fails, or something is forbidden by its policy."""
    page = context.new_page()
    page.set_default_timeout(45_000)
    page.faults = []
    page.on("pageerror", lambda error: page.faults.append(str(error)))
    page.on(
        "console",
        lambda message: page.faults.append(message.text) if "Content Security Policy" in message.text else None,
    )
    return page


OWNED = "#tenant-owned, main script, main style, main iframe, main img, base, main meta, main form[action*=evil]"
STEERING = frozenset("\u202e\u202a\u2066\u2067\u2068\x00\x1b\x07\u200f")
"""Characters that turn what is read around, or a terminal."""


def refuse_harm(page: Page) -> None:
    """Nothing of what others wrote became a part of the page, and nothing of it is unreadable."""
    assert page.evaluate("window.owned") is None
    assert page.locator(OWNED).count() == 0
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 1
    shown = page.locator("main").inner_text()
    assert not set(shown) & STEERING, shown


def say(page: Page, text: str) -> None:
    """Say something at the foot of a page, and see what comes of it."""
    page.fill("#words", text)
    with page.expect_navigation():
        page.press("#words", "Enter")


def has(page: Page, selector: str, text: str | re.Pattern[str]) -> None:
    """Wait until some element says this."""
    expect(page.locator(selector).filter(has_text=text).first).to_be_visible(timeout=45_000)
