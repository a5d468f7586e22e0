"""Sessions and keys that end while a browser is there, and the address that the audit has of it."""

import contextlib
import http.server
import threading
import time

import httpx
import pytest

from intentctl.client import Client
from service import api
from service.documents.access import Role
from service.documents.errors import ServiceError
from tests.intentctl.console.place import KEYS
from tests.rows import rows

pytestmark = pytest.mark.slow


def hear_the_end(lines) -> None:
    """Return when what a page hears ends."""
    with contextlib.suppress(httpx.HTTPError):
        for _ in lines:
            pass


@rows("how", ["revoked", "expired"])
def test_a_page_of_a_key_that_ends_hears_nothing_more_and_says_so(shared_place, how):
    keys = shared_place.service.parts.access.keys
    whole, key = keys.create(f"ada-{how}", Role.APPROVER, None, "test", time.time() + 2)
    shared_place._keys[Role.APPROVER, f"ada-{how}"] = whole
    person = shared_place.http(Role.APPROVER, f"ada-{how}")
    with person.client.stream("GET", "/live") as live:
        lines = live.iter_lines()
        assert next(lines).startswith("retry")
        if how == "revoked":
            keys.revoke(key.prefix)
        hear_the_end(lines)
    assert person.get("/live").status_code == 401
    answer = person.post("/control", {"paused": "yes"})
    words = "this key was revoked" if how == "revoked" else "this key has expired"
    assert answer.status_code == 401 or words in answer.text
    page = person.get("/settings")
    assert page.status_code == 401
    assert "Sign in" in page.text


def test_signing_in_again_ends_the_session_before_and_what_it_hears(shared_place):
    person = shared_place.http(Role.OPERATOR)
    old = httpx.Cookies(person.client.cookies)
    with person.client.stream("GET", "/live") as live:
        lines = live.iter_lines()
        next(lines)
        again = person.client.post(
            "/login", data={"key": shared_place.key(Role.OPERATOR)}, headers={"Origin": shared_place.url}
        )
        assert again.status_code == 303
        hear_the_end(lines)
    assert person.get("/settings").status_code == 200
    with httpx.Client(base_url=shared_place.url, cookies=old) as before:
        assert before.get("/settings").status_code == 401


def test_the_audit_has_the_address_of_the_browser_where_the_console_is_named(new_place):
    place = new_place(KEYS + "proxies: [127.0.0.1]\n")
    person = place.http(Role.OPERATOR, "oscar")
    with httpx.Client(
        transport=httpx.HTTPTransport(local_address="127.0.0.9"),
        base_url=place.url,
        cookies=person.client.cookies,
    ) as elsewhere:
        said = {"token": person.token, "text": "keep P99 TTFT < 2s at peak"}
        forged = {"Origin": place.url, "X-Forwarded-For": "6.6.6.6"}
        assert elsewhere.post("/say", data=said, headers=forged).status_code == 307
    entries = place.service.parts.access.audit.page(act="intent.create")
    assert (entries[0].who, entries[0].origin) == ("oscar", "127.0.0.9")


def test_a_key_does_not_follow_an_answer_to_another_server():
    sent = list[str]()

    class Leads(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            sent.append(f"{self.path} {self.headers['Authorization']}")
            self.send_response(302)
            self.send_header("Location", f"http://localhost:{self.server.server_port}/elsewhere")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Leads) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            with pytest.raises(ServiceError, match="302 Found"):
                Client(f"http://127.0.0.1:{server.server_port}", "ictl_secret")(api.keys.me)
        finally:
            server.shutdown()
            thread.join()
    assert sent == ["/v1/me Bearer ictl_secret"]
