"""A service that is away, slow, of another version; a key that is revoked; clocks apart; a browser without scripts."""

import http.server
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace

import httpx
import pytest
from playwright.sync_api import expect

from intentctl.console import visit
from runtime.models import Phase
from service.access.rights import Role
from service.documents.lists import PageRequest
from service.documents.plans import PlanRequest
from tests.intentctl.console.place import ConsoleServer, has, watched
from tests.runtime.scripted import Script

pytestmark = pytest.mark.slow


@contextmanager
def answering(status: int, body: bytes) -> Iterator[str]:
    """Something that answers, and is no service."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_service_that_is_not_there_is_named_with_what_to_do():
    with ConsoleServer("http://127.0.0.1:9") as console:
        answer = httpx.get(console.url)
        assert answer.status_code == 503
        assert "no service answers at http://127.0.0.1:9" in answer.text
        assert "intentctl doctor" in answer.text
        login = httpx.post(f"{console.url}/login", data={"key": "k"})
        assert "no service answers" in login.text


@pytest.mark.parametrize(
    ("status", "body"), [(200, b"<html>"), (200, b"{}"), (404, b"{}"), (500, b""), (200, b"\xff\xfe")]
)
def test_a_service_of_another_version_is_said_to_be_one(status, body):
    with answering(status, body) as url, ConsoleServer(url) as console:
        answer = httpx.get(console.url)
        assert answer.status_code == 500
        assert "not as an intentctl service of this version" in answer.text


def test_a_page_goes_on_when_its_service_comes_back(place, browser):
    page = place.person(browser, Role.OPERATOR)
    expect(page.locator("#strip")).to_contain_text("PP2")
    for _ in range(2):
        place.service.stop()
    place.service.ended()
    has(page, "#lost:not([hidden])", re.compile("does not answer"))
    assert not page.faults


def test_a_key_that_is_revoked_in_the_middle_ends_the_session(place):
    person = place.http(Role.OPERATOR, "eve")
    key = next(one for one in place.admin.keys().keys if one.name == "eve")
    place.admin.revoke_key(key.prefix)
    answer = person.post("/say", {"text": "keep P99 TTFT < 2s at peak"})
    assert answer.status_code == 401
    assert "this key was revoked" in answer.text
    assert "Sign in" in person.get("/talk").text
    assert not place.admin.intents(PageRequest()).intents


def test_a_page_left_open_says_that_its_key_was_revoked(place, browser):
    page = place.person(browser, Role.OPERATOR, "eve")
    key = next(one for one in place.admin.keys().keys if one.name == "eve")
    place.admin.revoke_key(key.prefix)
    page.evaluate("changed(['look'])")
    has(page, "#lost:not([hidden])", "signed out")
    assert page.locator("button:enabled").count() == 0


def test_a_switch_that_never_ends_can_be_cancelled(new_place, browser):
    place = new_place(script=Script(silent_while=Phase.WARMING))
    operation = place.admin.apply(place.admin.plan(PlanRequest(target="tp2")).plans[0].id)
    page = place.person(browser, Role.OPERATOR)
    page.goto(f"{place.url}/operations/{operation.id}")
    has(page, ".phases .present", "warming")
    page.reload()
    has(page, ".phases .present", "warming")
    page.locator("main form[action$=cancel] button").click()
    place.service.call(_answer(place))
    has(page, ".chip", "cancelled")


async def _answer(place) -> None:
    place.service.engine.answer()


def test_clocks_that_are_apart_are_told_of(place, monkeypatch):
    person = place.http(Role.VIEWER)
    assert "apart" not in person.get("/report").text
    monkeypatch.setattr(visit, "time", SimpleNamespace(time=lambda: time.time() - 42))
    for session in place.console.app.state.sessions._sessions.values():
        session.upstream.forget()
    assert re.search(r"clock is 4[12] s apart", person.get("/report").text)


def test_a_browser_without_scripts_is_told_of_the_command_line(shared_place, browser):
    page = watched(browser.new_context(java_script_enabled=False))
    page.goto(f"{shared_place.url}/login")
    assert "intentctl get" in page.locator("body").inner_text()
    page.fill("#key", shared_place.key(Role.VIEWER))
    page.click("button.primary")
    assert "use the command line" in page.locator("body").inner_text()
    has(page, "#strip", "counting")


@pytest.mark.parametrize(
    "path",
    [
        "/plans/plan-none",
        "/operations/op-none",
        "/intents/intent-none",
        "/nothing",
        "/parts/plans/x",
        "/plans/%00",
        "/plans/x%2Fy",
    ],
)
def test_what_is_not_there_is_said_to_be_none(shared_place, path):
    answer = shared_place.http(Role.VIEWER).get(path)
    assert answer.status_code == 404
    assert "Traceback" not in answer.text


@pytest.mark.parametrize(
    "path",
    [
        "/agenda?hours=x",
        "/agenda?hours=-1",
        "/agenda?hours=1e99",
        "/report?hours=nan",
        "/audit?before=0",
        "/audit?before=9e9",
        "/history?kind=x",
        "/history?kind=intents&after=x",
        "/talk?after=%00",
        "/explain?topic=%3Cscript%3E",
    ],
)
def test_addresses_typed_wrongly_give_a_page(shared_place, path):
    answer = shared_place.http(Role.ADMIN).get(path)
    assert answer.status_code in {200, 422}
    assert "<html" in answer.text
    assert "Traceback" not in answer.text


def test_a_form_that_is_too_long_or_none_is_refused(shared_place):
    person = shared_place.http(Role.ADMIN)
    assert person.post("/say", {"text": "x" * 200_000}).status_code == 413
    assert person.client.post(
        "/say", content=b"\xff\xfe=\xff", headers={"Origin": shared_place.url}
    ).status_code in {400, 403}
