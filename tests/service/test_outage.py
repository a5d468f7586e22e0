"""The database fails or hangs under a service that serves and switches: clear answers, nothing half done, no stream notices."""

import asyncio
import json
import os
import signal
import sqlite3
import threading
import time
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from sqlalchemy import event

from runtime.models import Phase
from service.documents.errors import StoreError
from service.serving.restart import begin
from service.store import database as databases
from service.store.store import Store
from tests.runtime.scripted import Script
from tests.service.postgres import PostgresServer
from tests.service.real import real_service
from tests.service.scripted import ScriptedService

pytestmark = pytest.mark.slow

CHAT = {"model": "counting", "messages": [{"role": "user", "content": "count"}], "max_tokens": 300}


@contextmanager
def full(store: Store) -> Iterator[None]:
    """No writing for any connection: small rows would find room in pages that are there."""
    engine = store._engine

    def shut(connection, _) -> None:
        connection.execute("PRAGMA query_only=1")

    event.listen(engine, "connect", shut)
    engine.dispose()
    try:
        yield
    finally:
        event.remove(engine, "connect", shut)
        engine.dispose()


@contextmanager
def gone(postgres) -> Iterator[None]:
    postgres.stop()
    try:
        yield
    finally:
        postgres.start()


@pytest.fixture(
    params=["a disk that takes nothing", pytest.param("a server that is gone", marks=pytest.mark.exhaustive)]
)
def failing(request, tmp_path) -> Iterator[tuple[ScriptedService, object]]:
    """A service, and what makes its database fail."""
    if request.param == "a disk that takes nothing":
        with ScriptedService(tmp_path) as service:
            yield service, lambda: full(service.parts.store)
        return
    postgres = request.getfixturevalue("postgres")
    with ScriptedService(tmp_path, database=postgres.new_database()) as service:
        yield service, lambda: gone(postgres)


def refused(answer: httpx.Response) -> None:
    assert (answer.status_code, answer.json()["code"]) == (503, "store"), answer.text
    assert "the store cannot be used" in answer.json()["detail"]


def test_a_database_that_fails_stops_no_stream_and_leaves_nothing_half_done(failing):
    service, outage = failing
    with (
        httpx.Client(base_url=service.url, timeout=120, trust_env=False) as http,
        ThreadPoolExecutor() as pool,
    ):
        alone = http.post("/openai/v1/chat/completions", json=CHAT).json()["choices"]
        plan = http.post("/v1/plans", json={"text": "run it with tp=2"}).json()["plan"]["id"]
        service.do(service.engine.hold)
        begun = pool.submit(http.post, "/openai/v1/chat/completions", json=CHAT)
        service.until(lambda: bool(service.engine.requests))
        with outage():
            for _ in range(2):  # a second time, with connections that are known to be broken
                refused(http.post(f"/v1/plans/{plan}:apply"))
                refused(http.post("/v1/plans", json={"text": "run it with pp=4"}))
            service.do(service.engine.resume)
            assert begun.result().json()["choices"] == alone
            assert http.post("/openai/v1/chat/completions", json=CHAT).json()["choices"] == alone
            assert http.get("/readyz").status_code == 200
            assert http.get("/v1/topology").json()["operation"] is None
            assert service.engine.calls == []
        applied = http.post(f"/v1/plans/{plan}:apply")
        assert applied.status_code == 202, applied.text
        service.settle()
        assert http.get(f"/v1/operations/{applied.json()['id']}").json()["phase"] == "done"
        assert http.get("/v1/audit/verdict").json()["is_whole"] is True
        counts = service.serving.router.counts
        assert (counts.lost, counts.duplicates) == (0, 0)


class Hanging:
    """Commits of a service's database that return when they are let go; they are made before or then."""

    def __init__(self, service: ScriptedService, *, is_made: bool = True) -> None:
        databases.LATE_S = 2.0
        dialect = service.parts.store._engine.dialect
        self.let_go = threading.Event()
        self._commit = dialect.do_commit.args[0]
        self._is_made = is_made
        self._returned = threading.Event()
        service.parts.store.calls.on_return.append(self._returned.set)
        dialect.do_commit = type(dialect.do_commit)(dialect.do_commit.func, self._committed)

    def _committed(self, connection: sqlite3.Connection) -> None:
        is_written = connection.in_transaction
        if self._is_made or not is_written:
            self._commit(connection)
        if is_written:
            self.let_go.wait()
            self._commit(connection)

    def over(self) -> None:
        """Let them return, and wait until they have."""
        databases.LATE_S = 60.0
        self.let_go.set()
        assert self._returned.wait(120)


@pytest.fixture(autouse=True)
def hurried(monkeypatch) -> None:
    """``Hanging`` says how long calls are waited for."""
    monkeypatch.setattr(databases, "LATE_S", 60.0)
    monkeypatch.setattr("service.serving.serving.AGAIN_S", 0.05)


async def all_written(service: ScriptedService) -> None:
    """Return when the store has taken what it did not take."""
    await asyncio.gather(*service.serving._owed)


def stalled(answer: httpx.Response) -> None:
    refused(answer)
    assert "not answer" in answer.json()["detail"]


@pytest.mark.parametrize("is_made", [True, False])
def test_a_database_that_hangs_stops_no_stream_and_nothing_is_half_done(tmp_path, is_made):
    with ScriptedService(tmp_path) as service, service.client() as http, ThreadPoolExecutor() as pool:
        alone = http.post("/openai/v1/chat/completions", json=CHAT).json()["choices"]
        plan, other = (
            http.post("/v1/plans", json={"text": f"run it with {to}"}).json()["plan"]["id"] for to in ("tp=2", "pp=4")
        )
        service.do(service.engine.hold)
        begun = pool.submit(http.post, "/openai/v1/chat/completions", json=CHAT)
        service.until(lambda: bool(service.engine.requests))
        hanging = Hanging(service, is_made=is_made)
        stalled(http.post(f"/v1/plans/{plan}:apply"))
        stalled(http.post(f"/v1/plans/{other}:apply"))
        stalled(http.get("/v1/plans"))
        assert (http.get("/readyz").status_code, http.get("/readyz").json()["store"]) == (200, "stalled")
        service.do(service.engine.resume)
        assert begun.result().json()["choices"] == alone
        assert http.post("/openai/v1/chat/completions", json=CHAT).json()["choices"] == alone
        hanging.over()

        assert http.get("/readyz").json()["store"] == "serving"
        service.call(all_written(service))
        (operation,) = http.get("/v1/operations").json()["operations"]
        assert (operation["plan_id"], operation["done"], operation["error"]["code"]) == (plan, True, "switch_aborted")
        assert service.engine.calls == [], "nothing was switched by what nobody knew to be applied"
        assert http.post(f"/v1/plans/{plan}:apply").json()["code"] == "already_applied"
        assert http.post(f"/v1/plans/{other}:apply").status_code == 202
        service.settle()
        assert http.get("/v1/audit/verdict").json()["is_whole"] is True


def test_a_switch_whose_journal_hangs_can_be_cancelled(tmp_path):
    with ScriptedService(tmp_path, script=Script(silent_while=Phase.WARMING)) as service, service.client() as http:
        plan, other = (
            http.post("/v1/plans", json={"text": f"run it with {to}"}).json()["plan"]["id"] for to in ("tp=2", "pp=4")
        )
        switch = http.post(f"/v1/plans/{plan}:apply").json()["id"]
        service.reached("ready")
        hanging = Hanging(service)
        with ThreadPoolExecutor() as pool:
            applied = pool.submit(http.post, f"/v1/plans/{other}:apply")
            answer = http.post(f"/v1/operations/{switch}:cancel")
            assert applied.result().status_code in {409, 503}
        assert (answer.status_code, answer.json()["code"]) == (503, "store")
        assert f"{switch} is being given up" in answer.json()["detail"]
        service.do(service.engine.answer)
        service.settle()
        assert service.engine.calls[-1] == "abort cancelled"
        hanging.over()
        service.call(all_written(service))
        operation = http.get(f"/v1/operations/{switch}").json()
        assert (operation["phase"], operation["error"]["reason"]) == ("aborted", "cancelled")


@pytest.mark.parametrize("is_made", [True, False])
def test_a_switch_whose_commit_hangs_is_known_to_a_restart_once_it_can_be_written(tmp_path, is_made):
    with ScriptedService(tmp_path, script=Script(silent_while=Phase.SYNCING)) as service, service.client() as http:
        plan = http.post("/v1/plans", json={"text": "run it with tp=2"}).json()["plan"]["id"]
        switch = http.post(f"/v1/plans/{plan}:apply").json()["id"]
        service.reached("lag")
        store = service.parts.store
        commit = store.commit
        held: list[Hanging] = []

        def hang(*arguments):
            held or held.append(Hanging(service, is_made=is_made))
            return commit(*arguments)

        store.commit = hang
        service.do(service.engine.answer)
        service.settle()
        assert http.get("/v1/topology").json()["topology"]["shape"] == "TP2"
        held[0].over()
        service.call(all_written(service))
        operation = http.get(f"/v1/operations/{switch}").json()
        assert (operation["phase"], operation["result"]["phase"]) == ("done", "done")
        assert begin(store, service.parts.deployment, service.parts.deployment.model()).topology.shape == "TP2"


def test_what_a_person_said_counts_though_the_store_does_not_say_it_again(tmp_path, monkeypatch):
    def fails(*_: object) -> None:
        raise StoreError("it stalls")

    with ScriptedService(tmp_path) as service, httpx.Client(base_url=service.url) as http:
        monkeypatch.setattr("service.store.book.Book.control", fails)
        assert http.post("/v1/controller", json={"paused": True}).status_code == 200
        assert http.get("/v1/controller").json()["paused"] is False
        monkeypatch.undo()
        service.tick()
        assert http.get("/v1/controller").json()["paused"] is True


def test_a_service_stops_while_its_database_hangs(tmp_path):
    service = ScriptedService(tmp_path)
    with service, service.client() as http:
        hanging = Hanging(service)
        stalled(http.post("/v1/plans", json={"text": "run it with tp=2"}))
    hanging.let_go.set()


# --- the same with a real engine and a real server: the bar of a database that hangs for two minutes ---

HANG_S = 120.0
NUM_STREAMS = 32
NUM_WRITERS = 4


class Bar:
    """Clients of a service whose database hangs: what they were answered, and when."""

    def __init__(self, url: str, alone: str) -> None:
        self.url = url
        self.alone = alone
        self.begun_s = time.monotonic()
        self.is_over = False
        self.arrived_s: list[list[float]] = [[] for _ in range(NUM_STREAMS)]
        self.num_streams = 0
        self.writes: dict[str, list[tuple[float, float, int, str]]] = {}
        """Idempotency-Key to when it was sent, how long it took, its status, and the id or code."""
        self.looks: list[tuple[float, int, str]] = []

    @property
    def now_s(self) -> float:
        return time.monotonic() - self.begun_s

    async def stream(self, client: httpx.AsyncClient, number: int) -> None:
        """Ask again and again, and see the same text each time."""
        while not self.is_over:
            text = ""
            async for piece in pieces(client):
                self.arrived_s[number].append(self.now_s)
                text += piece
            assert text == self.alone
            self.num_streams += 1

    async def write(self, client: httpx.AsyncClient, key: str) -> None:
        sent_s = self.now_s
        headers = {"Idempotency-Key": key}
        answer = await client.post("/v1/intents", json={"text": "keep P99 TTFT < 2s at peak"}, headers=headers)
        body = answer.json()
        what = body["id"] if answer.status_code == 201 else body["code"]
        self.writes.setdefault(key, []).append((sent_s, self.now_s - sent_s, answer.status_code, what))

    async def keep_writing(self, client: httpx.AsyncClient, number: int) -> None:
        turn = 0
        while not self.is_over:
            turn += 1
            await self.write(client, f"{number}-{turn}")
            await asyncio.sleep(0.5)

    async def look(self, client: httpx.AsyncClient) -> None:
        while not self.is_over:
            answer = await client.get("/readyz")
            document = answer.json()
            state = document["models"][0]["state"] if answer.status_code == 200 else document["code"]
            self.looks.append((self.now_s, answer.status_code, f"{state}, {document.get('store')}"))
            await asyncio.sleep(0.2)


async def pieces(client: httpx.AsyncClient) -> AsyncIterator[str]:
    asked = {"prompt": "count by 3 from 11:", "max_tokens": 300, "ignore_eos": True, "temperature": 0}
    body = {"model": "counting", "stream": True, **asked}
    async with client.stream("POST", "/openai/v1/completions", json=body) as answer:
        assert answer.status_code == 200
        async for line in answer.aiter_lines():
            if line.startswith("data: {"):
                document = json.loads(line[6:])
                assert "error" not in document, document
                yield document["choices"][0]["text"] if document["choices"] else ""


async def everything(client: httpx.AsyncClient) -> AsyncIterator[dict]:
    """All intents, page by page."""
    after: str | None = ""
    while after is not None:
        page = (await client.get("/v1/intents", params={"after": after} if after else {})).json()
        for intent in page["intents"]:
            yield intent
        after = page["next"]


def driver_of(pid: int) -> int:
    """The driver of a service's engine."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return next(int(each) for each in children if "driver" in Path(f"/proc/{each}/cmdline").read_text())


@pytest.mark.exhaustive
@pytest.mark.timeout(900)
async def test_a_server_that_hangs_for_two_minutes_stops_nothing_but_what_needs_it(tmp_path, postgres):
    with real_service(tmp_path, "auth: none", INTENTCTL_DATABASE_URL=postgres.new_database()) as (running, url):
        limits = httpx.Limits(max_connections=None)
        async with httpx.AsyncClient(base_url=url, timeout=200, trust_env=False, limits=limits) as client:
            alone = "".join([piece async for piece in pieces(client)])
            bar = Bar(url, alone)
            async with asyncio.TaskGroup() as clients:
                for number in range(NUM_STREAMS):
                    clients.create_task(bar.stream(client, number))
                for number in range(NUM_WRITERS):
                    clients.create_task(bar.keep_writing(client, number))
                clients.create_task(bar.look(client))
                try:
                    hung_s, killed_s, well_s = await hang(bar, postgres, driver_of(running.pid))
                finally:
                    bar.is_over = True
            for key, tries in list(bar.writes.items()):
                if tries[-1][2] != 201:
                    await bar.write(client, key)
            intents = {intent["id"] async for intent in everything(client)}
            assert (await client.get("/v1/audit/verdict")).json()["is_whole"] is True
            postgres.signal(signal.SIGSTOP)
            try:
                running.send_signal(signal.SIGTERM)
                assert await asyncio.to_thread(running.wait, 60) == 0
            finally:
                postgres.signal(signal.SIGCONT)
    check(bar, intents, hung_s=hung_s, killed_s=killed_s, well_s=well_s)
    assert (tmp_path / "log").read_text().count("the store stalls: ") >= 1


async def hang(bar: Bar, postgres: PostgresServer, driver: int) -> tuple[float, float, float]:
    """When commits hang, when the driver is killed meanwhile, and when all is well."""
    await asyncio.sleep(15)
    await asyncio.to_thread(postgres.stop_commits)
    hung_s = bar.now_s
    await asyncio.sleep(HANG_S / 3)
    os.kill(driver, signal.SIGKILL)
    killed_s = bar.now_s
    await asyncio.sleep(HANG_S / 6)
    postgres.signal(signal.SIGSTOP)
    await asyncio.sleep(HANG_S / 2)
    postgres.signal(signal.SIGCONT)
    await asyncio.to_thread(postgres.stop_commits, is_so=False)
    well_s = bar.now_s
    await asyncio.sleep(15)
    return hung_s, killed_s, well_s


def check(bar: Bar, intents: set[str], *, hung_s: float, killed_s: float, well_s: float) -> None:
    again_s = [min(at_s for at_s in arrived if at_s > killed_s) - killed_s for arrived in bar.arrived_s]
    writes = [each for tries in bar.writes.values() for each in tries]
    refused_s = [took_s for sent_s, took_s, status, _ in writes if status == 503]
    healthy_s = next(at_s for at_s, _, state in bar.looks if at_s > well_s and state == "serving, serving") - well_s
    written_s = (
        min(sent_s + took_s for sent_s, took_s, status, _ in writes if status == 201 and sent_s > hung_s + 10) - well_s
    )
    kinds = {what: sum(each[3] == what for each in writes) for what in ("store", "outcome_unknown")}
    print(  # noqa: T201 - the figures, with -s
        f"{bar.num_streams} streams whole; after the kill the first token came after {max(again_s):.1f} s at most; "
        f"{len(refused_s)} writes refused, after {max(refused_s):.1f} s at most; healthy after {healthy_s:.1f} s, "
        f"writes after {written_s:.1f} s; {kinds}; {len(intents)} intents kept"
    )
    told = {what for *_, status, what in writes if status == 201}
    unknown = {key for key, tries in bar.writes.items() if tries[-1][3] == "outcome_unknown"}
    assert {each[2] for each in writes} <= {201, 503, 409}
    assert {state for at_s, _, state in bar.looks if hung_s + 12 < at_s < well_s} <= {
        "serving, stalled",
        "engine_lost, None",
    }
    assert told <= intents
    assert len(intents) <= len(told) + len(unknown), "nothing was done twice"
    assert {tries[-1][2] for tries in bar.writes.values()} <= {201, 409}
    assert max(refused_s) < 10
    assert max(again_s) < 5
    assert healthy_s < 5
