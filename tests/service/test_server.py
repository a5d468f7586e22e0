import asyncio
import json
import os
import signal
import socket
from contextlib import closing
from pathlib import Path

import pytest

from runtime.models import Phase
from service.documents.errors import StartError
from service.server import STOPPED, bind
from service.store import database as databases
from service.store import lease as leases
from service.store import store as stores
from service.store.lease import Lease
from service.store.store import Store
from tests.runtime.scripted import Script
from tests.service.asking import apply, plan_for
from tests.service.raw import Answered, answer, asked, connect, request
from tests.service.real import real_service
from tests.service.scripted import DEPLOYMENT, ScriptedService

pytestmark = pytest.mark.slow


def children(pid: int) -> list[int]:
    """Processes a process started that still run."""
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_port_zero_lets_the_system_choose():
    with bind("127.0.0.1", 0) as one, bind("127.0.0.1", 0) as other:
        assert one.getsockname()[1] != other.getsockname()[1]


async def test_tokens_do_not_wait_for_the_clients_acknowledgement():
    options = asyncio.get_running_loop().create_future()

    def accepted(reader, writer):
        connection = writer.get_extra_info("socket")
        options.set_result(connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        writer.close()

    with bind("127.0.0.1", 0) as listener:
        async with await asyncio.start_server(accepted, sock=listener):
            _, writer = await asyncio.open_connection(*listener.getsockname())
            assert await options
            writer.close()


def test_a_port_in_use_is_named_with_what_to_do():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(StartError, match=rf"cannot listen on 127\.0\.0\.1:{port}: .*--port"):
            bind("127.0.0.1", port)


def test_an_address_that_is_not_this_machines_is_named():
    with pytest.raises(StartError, match=r"203\.0\.113\.1"):
        bind("203.0.113.1", 0)


def stream_of(url: str, max_tokens: int) -> socket.socket:
    """A connection whose stream has begun."""
    body = {"model": "counting", "prompt": "count by 7 from 23:", "stream": True, "ignore_eos": True}
    raw = json.dumps(body | {"max_tokens": max_tokens}).encode()
    connection = connect(url)
    connection.sendall(request("/openai/v1/completions", "Connection: close", body=raw))
    assert connection.recv(15) == b"HTTP/1.1 200 OK"
    return connection


def rest_of(connection: socket.socket) -> bytes:
    with connection, connection.makefile("rb") as lines:
        return lines.read()


def until_stopping(url: str) -> Answered:
    while (found := asked(url, request("/readyz", method="GET"))).status == 200:
        pass
    return found


def test_a_service_that_is_told_to_stop_lets_its_streams_end_and_takes_no_others(tmp_path):
    with real_service(tmp_path, "auth: none") as (running, url):
        drivers = children(running.pid)
        with stream_of(url, max_tokens=300) as stream:
            running.send_signal(signal.SIGTERM)

            assert until_stopping(url).document["code"] == "stopping"
            refused = asked(url, request("/openai/v1/completions", body=b"{}"))
            assert (refused.status, refused.document["error"]["code"]) == (503, "stopping")
            got = rest_of(stream)
        assert got.count(b'data: {"id"') == 300
        assert b"data: [DONE]" in got[-40:]
        assert running.wait(timeout=120) == 0
        said = (tmp_path / "log").read_text()
        told = [line.removeprefix("INFO intentctl: ") for line in said.splitlines() if line.startswith("INFO")]
        assert told == [
            f"loading libraries to serve counting, as {tmp_path}/deployment.yaml says",
            "starting the engine of counting on PP2",
            f"ready at {url}; the ops console: intentctl console --server {url}",
            "stopped; nothing is left running",
        ]
        assert "`auth: none`" in said
        assert said.count("\n") == 7 - (len(os.sched_getaffinity(0)) >= 4)
        assert "1 requests and 0 switches may end within 25 s; ask again to end now" in said
    assert drivers
    assert not [pid for pid in drivers if Path(f"/proc/{pid}").exists()]


@pytest.mark.exhaustive  # the test after this one has all of it but the processes
def test_a_process_that_is_told_twice_ends_its_streams_its_engine_and_itself(tmp_path):
    with real_service(tmp_path, "auth: none") as (running, url):
        drivers = children(running.pid)
        with stream_of(url, max_tokens=16_000) as stream:
            running.send_signal(signal.SIGINT)
            until_stopping(url)
            running.send_signal(signal.SIGTERM)
            assert STOPPED.encode() in rest_of(stream)
        assert running.wait(timeout=120) == 0
        assert "Traceback" not in (tmp_path / "log").read_text()
    assert drivers
    assert not [pid for pid in drivers if Path(f"/proc/{pid}").exists()]


def test_a_service_that_lost_its_database_lets_its_streams_end_and_takes_no_others(tmp_path, monkeypatch):
    monkeypatch.setattr(leases, "LOOK_S", 0.01)
    monkeypatch.setattr(stores, "BEAT_S", 0.1)
    where = {"database": f"sqlite:///{tmp_path}/both.sqlite"}
    script = Script(silent_while=Phase.WARMING)
    with ScriptedService(tmp_path / "a", script=script, owner="a:1", **where) as first, first.client() as http:
        operation = apply(http, plan_for(http))
        first.reached("ready")
        with asked_of_one_that_holds(first) as connection:
            engine = databases.connect(tmp_path, where["database"])
            wanted = Lease("b:2", has_lock=True)
            assert wanted.take(engine) == ""
            engine.dispose()

            assert until_stopping(first.url).document["code"] == "stopping"
            assert "lost its database" in until_stopping(first.url).document["detail"]
            first.do(first.engine.resume)
            assert answer(connection).document["choices"][0]["text"] == "abcab"
        first.ended()
        assert first.engine.calls[-1] == "abort cancelled"
    with ScriptedService(tmp_path / "b", owner="c:3", **where) as second, second.client() as http:
        assert second.parts.store.lease.fence == 3
        assert http.get(f"/v1/operations/{operation}").json()["phase"] == "aborted"


def asked_of_one_that_holds(service: ScriptedService) -> socket.socket:
    """A connection whose question the engine has, and does not answer."""
    service.do(service.engine.hold)
    connection = connect(service.url)
    body = b'{"model": "counting", "prompt": "abc", "max_tokens": 5}'
    connection.sendall(request("/openai/v1/completions", body=body))
    service.until(lambda: bool(service.engine.requests))
    return connection


def test_a_service_that_is_told_twice_ends_what_is_asked_of_it_and_itself(tmp_path):
    with ScriptedService(tmp_path) as service:
        with asked_of_one_that_holds(service) as connection:
            service.stop()
            assert until_stopping(service.url).document["code"] == "stopping"
            service.stop()
            assert answer(connection).document["error"]["message"] == STOPPED
        service.ended()


def test_streams_that_do_not_end_in_time_are_ended_by_name(tmp_path):
    with (
        ScriptedService(tmp_path, DEPLOYMENT + "clients: {stop_timeout_s: 0.2}\n") as service,
        asked_of_one_that_holds(service) as connection,
    ):
        service.stop()
        assert answer(connection).document["error"]["message"] == STOPPED


def applied(service: ScriptedService) -> str:
    """The id of a switch that the engine does not answer to."""
    made = asked(service.url, request("/v1/plans", body=b'{"text": "run it with tp=2"}')).document["plans"][0]
    operation = asked(service.url, request(f"/v1/plans/{made['id']}:apply")).document
    service.until(lambda: "ready" in service.engine.calls)
    return operation["id"]


def test_a_switch_under_way_may_end_first(tmp_path):
    script = Script(silent_while=Phase.WARMING)
    with ScriptedService(tmp_path, script=script) as service:
        operation = applied(service)
        service.stop()
        assert until_stopping(service.url).status == 503
        assert "result" not in asked(service.url, request(f"/v1/operations/{operation}", method="GET")).document
        service.do(service.engine.answer)
        service.ended()
        assert str(service.engine.topology) != str(service.parts.deployment.model().start)


def test_a_switch_that_does_not_end_in_time_is_given_up(tmp_path):
    script = Script(silent_while=Phase.WARMING)
    with ScriptedService(tmp_path, DEPLOYMENT + "clients: {stop_timeout_s: 0.2}\n", script=script) as service:
        operation = applied(service)
        service.stop()
        service.ended()
        assert "abort cancelled" in service.engine.calls
    with closing(Store.open(tmp_path)) as store:
        found = store.operation(operation)
    assert found.error.code == "switch_aborted"
