"""Clients that do not do their part, on raw sockets: each is told or left, and costs the others nothing."""

import socket
import time
from collections.abc import Callable
from contextlib import suppress
from types import SimpleNamespace

import pytest

from service.deployment.policy import ClientLimits
from service.http import connection
from service.http.connection import Connection
from service.http.intake import ARRIVED
from tests.service.raw import answer, asked, connect, count_of, request, turned_away
from tests.service.scripted import DEPLOYMENT, ScriptedService

pytestmark = pytest.mark.slow

LIMITS = "clients: {head_timeout_s: 0.2, unread_timeout_s: 2}\n"
STREAM = b'{"model": "counting", "prompt": "abc", "max_tokens": 12000, "stream": true}'


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    with ScriptedService(tmp_path_factory.mktemp("connection"), DEPLOYMENT + LIMITS) as running:
        yield running


def test_headers_without_end_are_answered_after_a_while(service):
    before = turned_away(service.url, "slow_head")
    got = asked(service.url, b"GET /healthz HTTP/1.1\r\nHost: here\r\n")
    assert (got.status, got.document["status"]) == (408, 408)
    assert got.document["detail"] == "no end of the headers in 0.2 s; send them faster"
    assert turned_away(service.url, "slow_head") == before + 1


def test_a_client_that_drips_its_headers_gains_no_time(service):
    with connect(service.url) as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\n")
        connection.settimeout(0.02)
        while True:
            try:
                assert connection.recv(12) == b"HTTP/1.1 408"
                return
            except TimeoutError:
                connection.sendall(b"X: y\r\n")


def test_a_client_that_says_nothing_is_left_without_a_word_and_one_that_was_served_is_held_to_the_same(
    service,
):
    with connect(service.url) as silent, connect(service.url) as used:
        used.sendall(request("/openai/v1/models", method="GET"))
        assert answer(used).status == 200
        used.sendall(b"GET")
        assert silent.recv(1) == b""
        assert answer(used).status == 408


def test_a_flood_of_headers_is_refused(service):
    got = asked(service.url, b"GET / HTTP/1.1\r\nX: " + b"y" * 20_000)
    assert got.status == 431
    assert "16384 bytes" in got.document["detail"]


def test_what_is_not_http_is_told_so(service):
    got = asked(service.url, b"\x16\x03\x01 hello\r\n\r\n")
    assert (got.status, got.document["code"]) == (400, "invalid_request")


def test_a_body_that_stops_being_http_is_told_so_in_the_form_of_its_path(service, caplog):
    got = asked(service.url, request("/openai/v1/completions", "Transfer-Encoding: chunked"), b"zz\r\n")
    assert got.status == 400
    assert got.document["error"]["code"] == "head"
    assert "Traceback" not in caplog.text


def test_a_request_arrives_with_the_first_byte_of_its_headers(service, monkeypatch):
    arrivals_s, app = [], service.server.intake._app

    async def noting(scope, receive, send):
        arrivals_s.append(scope["state"][ARRIVED])
        await app(scope, receive, send)

    models = request("/openai/v1/models", method="GET")
    with connect(service.url) as connection:
        connection.sendall(models[:1])
        assert asked(service.url, request("/healthz", "Connection: close", method="GET")).status == 200
        monkeypatch.setattr(service.server.intake, "_app", noting)
        between_s = [time.monotonic()]
        connection.sendall(models[1:])
        assert answer(connection).status == 200
        between_s.append(time.monotonic())
        connection.sendall(models)
        assert answer(connection).status == 200
    assert arrivals_s[0] < between_s[0] < between_s[1] < arrivals_s[1]


def test_more_connections_than_allowed_are_refused(tmp_path):
    with (
        ScriptedService(tmp_path, DEPLOYMENT + "clients: {max_connections: 2}\n") as service,
        connect(service.url) as first,
        connect(service.url) as second,
    ):
        for taken in (first, second):
            taken.sendall(request("/openai/v1/models", method="GET"))
            assert answer(taken).status == 200
        with connect(service.url, source="127.0.0.2") as third:
            got = answer(third)
        first.sendall(request("/openai/v1/models", method="GET"))
        assert answer(first).status == 200
    assert (got.status, got.document["code"], got.headers["retry-after"]) == (503, "overloaded", "1")


def test_more_connections_from_one_address_than_allowed_are_refused(tmp_path, monkeypatch):
    limits = "clients: {max_connections: 3, max_connections_per_address: 1}\n"
    with ScriptedService(tmp_path, DEPLOYMENT + limits) as service, connect(service.url) as first:
        first.sendall(request("/openai/v1/models", method="GET"))
        assert answer(first).status == 200
        with connect(service.url) as second, connect(service.url, source="127.0.0.2") as elsewhere:
            got = answer(second)
            elsewhere.sendall(request("/openai/v1/models", method="GET"))
            assert answer(elsewhere).status == 200
        monkeypatch.setattr(connection, "MAX_REFUSED", 0)
        with connect(service.url) as third, suppress(ConnectionResetError):
            assert third.recv(1) == b""
        first.sendall(request("/metrics", method="GET"))
        assert 'intentctl_turned_away_total{reason="per_address"} 2.0' in answer(first).body.decode()
    assert (got.status, got.document["code"], got.headers["retry-after"]) == (429, "rate_limited", "1")
    assert "1 connections are open from 127.0.0.1 (clients.max_connections_per_address)" in got.document["detail"]


CANCELLED = 'intentctl_requests_total{finish="cancelled",model_name="counting",tenant=""}'


def test_a_client_that_does_not_read_is_left_and_its_stream_cancelled(service, caplog):
    before = turned_away(service.url, "unread"), count_of(service.url, CANCELLED)
    with connect(service.url, receive_bytes=4096) as connection:
        connection.sendall(request("/openai/v1/completions", body=STREAM))
        service.call(no_stream(service))
    assert (turned_away(service.url, "unread"), count_of(service.url, CANCELLED)) == (
        before[0] + 1,
        before[1] + 1,
    )
    assert "took nothing of its answer to POST /openai/v1/completions for 2 s" in caplog.text


async def no_stream(service: ScriptedService) -> None:
    """Return when no request is under way; there was one."""
    intake, (serving,) = service.server.intake, service.parts.servings.values()
    await service.engine.until(lambda: bool(service.engine.requests) or serving.router.num_streams > 0)
    await intake.quiet()
    assert serving.router.num_streams == 0


def test_a_client_that_reads_again_is_waited_for_anew():
    waiting = list[str]()

    class Timer:
        def __init__(self, _: float, left: Callable[[], None]) -> None:
            waiting.append(left.__name__)

        def cancel(self) -> None:
            waiting.pop()

    slow = Connection.__new__(Connection)
    slow.flow = SimpleNamespace(pause_writing=lambda: None, resume_writing=lambda: None)
    slow._unread_timer, slow._limits = None, ClientLimits()
    slow.loop = SimpleNamespace(call_later=Timer)
    for _ in range(2):
        slow.pause_writing()
        assert waiting == ["_unread"]
        slow.resume_writing()
        assert waiting == []


def test_a_client_that_reads_slowly_gets_all_of_it(service):
    before = turned_away(service.url, "unread")
    with connect(service.url, receive_bytes=4096) as connection:
        connection.sendall(request("/openai/v1/completions", "Connection: close", body=STREAM))
        assert answer(connection).body.count(b"data: {") == 12_000
    assert turned_away(service.url, "unread") == before


def test_the_system_watches_for_peers_that_are_gone(service):
    with connect(service.url) as connection:
        connection.sendall(request("/openai/v1/models", method="GET"))
        assert answer(connection).status == 200
        options = service.do(options_of_one, service)
    assert options == (1, 7000)


def options_of_one(service: ScriptedService) -> tuple[int, int]:
    one = next(iter(service.server.server_state.connections))
    opened = one.transport.get_extra_info("socket")
    return (
        opened.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE),
        opened.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT),
    )
