"""What comes in: whole and within limits, or refused in the form of its path, and nothing new once the service stops."""

import asyncio
import json
import time

import openai
import pytest
from openai import AsyncOpenAI, DefaultAsyncHttpxClient

from service.http.intake import ARRIVED
from tests.rows import rows
from tests.service.open_door import behind_open_door
from tests.service.raw import Answered, asked, connect, request, turned_away
from tests.service.scripted import DEPLOYMENT, KEYS, ScriptedService

pytestmark = pytest.mark.slow

LIMITS = "clients: {max_body_mb: 0.02, body_timeout_s: 0.2}\n"
INFERENCE, CONTROL = "/openai/v1/completions", "/v1/intents:translate"


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    with ScriptedService(tmp_path_factory.mktemp("intake"), DEPLOYMENT + LIMITS) as running:
        yield running


def said(got: Answered) -> tuple[str, str]:
    """Message and code, from either form."""
    document = got.document
    if got.headers["content-type"] == "application/problem+json":
        assert document["status"] == got.status
        return document["detail"], document["code"]
    assert set(document["error"]) == {"message", "type", "param", "code"}
    return document["error"]["message"], document["error"]["code"]


@rows(("path", "media_type"), [(INFERENCE, "application/json"), (CONTROL, "application/problem+json")])
def test_a_body_that_says_it_is_too_long_is_refused_before_it_is_sent(service, path, media_type):
    before = turned_away(service.url, "too_large")
    got = asked(service.url, request(path, "Content-Length: 64000000"))
    assert turned_away(service.url, "too_large") == before + 1
    assert got.status == 413
    assert got.headers["content-type"] == media_type
    assert said(got)[1] == "too_large"
    assert "64000000 bytes or more, over the 20000" in said(got)[0]
    assert "clients.max_body_mb" in said(got)[0]


@rows("path", [INFERENCE, CONTROL])
def test_a_body_without_end_is_refused_at_the_limit(service, path):
    chunk = b"1000\r\n" + b"x" * 4096 + b"\r\n"
    got = asked(service.url, request(path, "Transfer-Encoding: chunked"), *[chunk] * 6)
    assert got.status == 413
    assert said(got)[1] == "too_large"


@rows("path", [INFERENCE, CONTROL])
def test_a_body_that_does_not_come_is_refused_after_a_while(service, path):
    got = asked(service.url, request(path, "Content-Length: 100"), b'{"model":')
    assert got.status == 408
    assert said(got)[0] == "9 bytes of the body came in 0.2 s and no end; send it faster"


def test_a_client_that_leaves_in_the_middle_of_its_body_leaves_nothing(service, caplog):
    with connect(service.url) as connection:
        connection.sendall(request(INFERENCE, "Content-Length: 100") + b"{")
    service.call(service.server.intake.quiet())
    assert caplog.text == ""


@rows("path", [INFERENCE, CONTROL, "/readyz"])
def test_many_headers_are_refused(service, path):
    headers = [f"X-{number}: y" for number in range(101)]
    got = asked(service.url, request(path, *headers, method="GET"))
    assert got.status == 431
    assert "send at most 100" in said(got)[0]


async def test_the_stock_client_learns_that_its_prompt_is_too_long(service):
    http = DefaultAsyncHttpxClient(trust_env=False)
    async with AsyncOpenAI(
        base_url=f"{service.url}/openai/v1", api_key="none", http_client=http, max_retries=0
    ) as client:
        for size in (25_000, 64_000_000):
            with pytest.raises(openai.APIStatusError) as caught:
                await client.completions.create(model="counting", prompt="a" * size)
            assert caught.value.status_code == 413
            assert caught.value.body["code"] == "too_large"


def test_what_is_read_whole_reaches_the_app(service):
    body = json.dumps({"model": "counting", "prompt": "abc", "max_tokens": 3}).encode()
    half = len(body) // 2
    sized = request(INFERENCE, "Connection: close", body=body)
    chunked = request(INFERENCE, "Connection: close", "Transfer-Encoding: chunked")
    chunked += b"%x\r\n%s\r\n%x\r\n%s\r\n0\r\n\r\n" % (half, body[:half], len(body) - half, body[half:])
    for raw in (sized, chunked):
        got = asked(service.url, raw[:-9], raw[-9:])
        assert got.document["choices"][0]["text"] == "abc"


def test_a_service_that_stops_answers_those_that_look_and_nobody_else(tmp_path):
    with ScriptedService(tmp_path) as service:
        service.do(service.server.intake.stop, 25)  # it takes no requests, and does not end before it has answered
        for path in (INFERENCE, CONTROL, "/v1/plans/x:apply"):
            got = asked(service.url, request(path, body=b"{}"))
            assert (got.status, said(got)[1]) == (503, "stopping")
            assert 0 < int(got.headers["retry-after"]) <= 25
        got = asked(service.url, request("/readyz", method="GET"))
        assert (got.status, said(got)[1]) == (503, "stopping")
        assert asked(service.url, request("/healthz", method="GET")).status == 200
        got = asked(service.url, request("/v1/topology", "Connection: close", method="GET"))
        assert got.document["model"] == "counting"


def test_more_requests_at_once_than_a_key_may_have_are_refused(tmp_path):
    limits = "clients: {max_requests_per_key: 1}\n"
    with ScriptedService(tmp_path, KEYS + limits) as service:
        asking = [f"Authorization: Bearer {service.new_key('viewer', name)}" for name in ("ada", "bob")]
        with connect(service.url) as listening:
            listening.sendall(request("/v1/events", asking[0], method="GET"))
            assert listening.recv(12) == b"HTTP/1.1 200"
            ask = [request("/v1/models", one, "Connection: close", method="GET") for one in asking]
            refused, other = (asked(service.url, one) for one in ask)
        until_over(service)
        assert asked(service.url, ask[0]).status == 200
    assert (refused.status, said(refused)[1], refused.headers["retry-after"]) == (429, "rate_limited", "1")
    assert "1 requests are under way with the key 'ada' (clients.max_requests_per_key)" in said(refused)[0]
    assert other.status == 200


def until_over(service: ScriptedService) -> None:
    """Return when no request is under way."""

    async def over():
        while service.server.intake._by_key.total():  # noqa: ASYNC110
            await asyncio.sleep(0.01)

    service.call(over())


async def test_a_request_arrives_with_its_first_byte():
    moments = []

    async def app(scope, receive, send):
        moments.append(scope["state"][ARRIVED])

    async def body():
        moments.append(time.monotonic())
        return {"type": "http.request", "body": b"{}", "more_body": False}

    scope = {"type": "http", "method": "POST", "path": INFERENCE, "headers": [(b"content-length", b"2")]}
    await behind_open_door(app)(scope, body, None)
    received_s, arrived_s = moments
    assert arrived_s < received_s
