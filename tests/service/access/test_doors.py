"""Who is let in by what else comes with a request: names and origins without keys, addresses that proxies tell."""

import pytest

from service.access.gate import OpenGate
from service.access.refusals import Refusal
from tests.rows import rows
from tests.service.asking import problem
from tests.service.scripted import KEYS, ScriptedService, read, refused

pytestmark = pytest.mark.slow

HOST = "127.0.0.1:8642"


def admitted(**headers: str) -> str:
    """Who is let in where no keys are asked for, or why nobody is."""
    named = [(name.replace("_", "-").encode(), value.encode("latin-1")) for name, value in headers.items()]
    try:
        caller = OpenGate().admit({"path": "/v1/keys", "headers": named, "client": ("127.0.0.1", 1)})
    except Refusal as refusal:
        return f"{refusal.status}: {refusal.message}"
    return caller.name


@rows(
    "headers",
    [
        {"host": HOST},
        {"host": "localhost"},
        {"host": "[::1]:80"},
        {},
        {"host": HOST, "origin": f"http://{HOST}", "sec_fetch_site": "same-origin"},
        {"host": HOST, "sec_fetch_site": "none"},
    ],
)
def test_without_keys_programs_of_this_machine_are_let_in(headers):
    assert admitted(**headers) == "anybody"


@rows(
    ("headers", "said"),
    [
        ({"host": "evil.example:8642"}, "is called 'evil.example:8642'"),
        ({"host": "127.0.0.1.evil.example"}, "is called"),
        ({"host": "localhost.evil.example"}, "is called"),
        ({"host": "10.0.0.1"}, "is called"),
        ({"host": "[::"}, "is called"),
        ({"host": "ü"}, "is called"),
        ({"host": HOST, "origin": "https://evil.example"}, "a page of 'https://evil.example' sent this"),
        ({"host": HOST, "origin": "null"}, "a page of 'null' sent this"),
        ({"host": HOST, "origin": "http://127.0.0.1:8643"}, "a page of"),
        ({"host": HOST, "sec_fetch_site": "cross-site"}, "a page of 'cross-site' sent this"),
        ({"host": HOST, "sec_fetch_site": "same-site"}, "a page of"),
    ],
)
def test_without_keys_pages_of_the_web_are_not_let_in(headers, said):
    why = admitted(**headers)
    assert (why[:5], said in why) == ("403: ", True), why


def test_a_page_that_names_this_machine_its_own_makes_no_key(asked):
    for headers in (
        {"Host": "evil.example"},
        {"Origin": "http://evil.example"},
        {"Sec-Fetch-Site": "cross-site"},
    ):
        answer = asked.post("/v1/keys", json={"name": "x", "role": "admin"}, headers=headers)
        problem(answer, 403, "forbidden")
        assert asked.get("/healthz", headers=headers).status_code == 200
    assert asked.get("/v1/keys").json()["keys"] == []


@pytest.fixture(scope="module")
def behind(tmp_path_factory):
    """A service that believes a proxy on this machine."""
    with ScriptedService(tmp_path_factory.mktemp("behind"), KEYS + "proxies: [127.0.0.1, 10.1.0.0/16]\n") as service:
        yield service


def origin_of(service: ScriptedService, forwarded: str) -> str:
    """The address in the audit of something that was done with a header."""
    with service.client(service.admin_key, **{"X-Forwarded-For": forwarded}) as admin:
        admin.post("/v1/intents", json={"text": "as cheap as possible"})
        return str(admin.get("/v1/audit").json()["entries"][0]["origin"])


@rows(
    ("forwarded", "origin"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("192.0.2.7, 10.1.2.3", "192.0.2.7"),
        ("6.6.6.6, 192.0.2.7", "192.0.2.7"),
        ("2001:db8::7", "2001:db8::7"),
    ],
)
def test_a_proxy_that_the_file_names_tells_who_asks(behind, forwarded, origin):
    assert origin_of(behind, forwarded) == origin


def test_nobody_else_does(keyed):
    assert origin_of(keyed, "192.0.2.7") == "127.0.0.1"


@rows(
    ("text", "said"),
    [
        ("proxies: 10.0.0.7", "proxies: '10.0.0.7' is not of type 'array'"),
        (
            "proxies: [10.0.0.7, gateway]",
            "proxies[1]: 'gateway' is no address and no network; write 10.0.0.7 or",
        ),
        ("proxies: [10.0.0.0/40]", "proxies[0]: '10.0.0.0/40' is no address"),
        ("proxies: [7]", "proxies[0]: 7 is not of type 'string'"),
    ],
)
def test_a_list_of_proxies_that_is_none_is_named(tmp_path, text, said):
    assert said in refused(tmp_path, f"{KEYS}{text}\n")


def test_a_proxy_is_a_network_and_two_people_need_keys(tmp_path):
    assert read(tmp_path, KEYS + "proxies: [10.0.0.7, 10.1.2.3/16]\n").proxies == (
        "10.0.0.7/32",
        "10.1.0.0/16",
    )
    text = KEYS.replace("auth: {control_per_minute: 1000000, inference_per_minute: 3}", "auth: none")
    assert "no person is told from another" in refused(tmp_path, text + "approval: {by: another}\n")
