"""A service that is away, slow, of another version; a key that is revoked; clocks apart; a browser without scripts."""

import http.server
import re
import threading
import time
from types import SimpleNamespace

import httpx
import pytest

from intentctl.console import visit
from service import api
from service.documents.access import Role
from service.documents.state import PageRequest
from tests.intentctl.console.place import ConsoleServer

pytestmark = pytest.mark.slow


class Other(http.server.BaseHTTPRequestHandler):
    """Something that answers as its server is told, and is no service."""

    def do_GET(self) -> None:
        status, body = self.server.said
        self.send_response(status)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


def test_a_service_that_is_not_there_is_named_with_what_to_do():
    with ConsoleServer("http://127.0.0.1:9") as console:
        answer = httpx.get(console.url)
        assert answer.status_code == 503
        assert "no service answers at http://127.0.0.1:9" in answer.text
        assert "intentctl doctor" in answer.text
        login = httpx.post(f"{console.url}/login", data={"key": "k"})
        assert "no service answers" in login.text


def test_a_service_of_another_version_is_said_to_be_one():
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Other) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        for said in ((200, b"<html>"), (200, b"{}"), (404, b"{}"), (500, b""), (200, b"\xff\xfe")):
            server.said = said
            with ConsoleServer(f"http://127.0.0.1:{server.server_port}") as console:
                answer = httpx.get(console.url)
            assert answer.status_code == 500, said
            assert "not as an intentctl service of this version" in answer.text
        server.shutdown()
        thread.join()


def test_a_key_that_is_revoked_in_the_middle_ends_the_session(shared_place):
    person = shared_place.http(Role.OPERATOR, "eve")
    shared_place.revoke("eve")
    before = shared_place.admin(api.intents.intents, PageRequest()).intents
    answer = person.post("/say", {"text": "keep P99 TTFT < 2s at peak"})
    assert answer.status_code == 401
    assert "this key was revoked" in answer.text
    assert "Sign in" in person.get("/talk").text
    assert shared_place.admin(api.intents.intents, PageRequest()).intents == before


def test_clocks_that_are_apart_are_told_of(shared_place, monkeypatch):
    person = shared_place.http(Role.VIEWER)
    assert "apart" not in person.get("/report").text
    monkeypatch.setattr(visit, "time", SimpleNamespace(time=lambda: time.time() - 42))
    for session in shared_place.console.app.state.sessions._sessions.values():
        session.upstream.forget()
    assert re.search(r"clock is 4[12] s apart", person.get("/report").text)


NONE = ("/plans/plan-none", "/operations/op-none", "/intents/intent-none", "/nothing", "/parts/plans/x")
WRONG = """
/agenda?hours=x /agenda?hours=-1 /agenda?hours=1e99 /report?hours=nan /audit?before=0 /audit?before=9e9
/history?kind=x /history?kind=intents&after=x /talk?after=%00 /explain?topic=%3Cscript%3E
"""


def test_what_is_not_there_is_said_to_be_none_and_addresses_typed_wrongly_give_a_page(shared_place):
    person = shared_place.http(Role.ADMIN)
    for path in (*NONE, "/plans/%00", "/plans/x%2Fy", *WRONG.split()):
        answer = person.get(path)
        assert answer.status_code in ({200, 422} if path in WRONG else {404}), path
        assert "Traceback" not in answer.text
        assert "<html" in answer.text or path not in WRONG, path


def test_a_form_that_is_too_long_or_none_is_refused(shared_place):
    person = shared_place.http(Role.ADMIN)
    assert person.post("/say", {"text": "x" * 200_000}).status_code == 413
    assert person.client.post("/say", content=b"\xff\xfe=\xff", headers={"Origin": shared_place.url}).status_code in {
        400,
        403,
    }
