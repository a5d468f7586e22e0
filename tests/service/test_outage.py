"""The database fails under a service that serves and is asked to switch: clear answers, nothing half done, no stream notices."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import httpx
import pytest
from sqlalchemy import event

from service.store import Store
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
