"""Who owns a database: one service at a time, and one that lost it writes nothing."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path

import httpx
import pytest

from service.documents.errors import StartError
from service.store import lease as leases
from service.store import store as stores
from service.store.database import connect, prepare
from service.store.lease import LAPSED, Lease, LeaseLostError
from service.store.store import Store
from tests.rows import rows
from tests.service.asking import TEXT, switched, until
from tests.service.examples import intent, operation, plan
from tests.service.real import real_service


@pytest.fixture
def named(tmp_path, database, monkeypatch) -> Iterator[Callable[[str], Store | str]]:
    """Wants the database for a service of that name: its store, or who owns it; nobody beats by itself."""
    monkeypatch.setattr(stores, "BEAT_S", 3600.0)
    with ExitStack() as stack:

        def want(name: str, looks: int = 1) -> Store | str:
            engine = connect(tmp_path, database)
            stack.callback(engine.dispose)
            lease = Lease(name)
            for _ in range(looks):
                if not (owner := lease.take(engine)):
                    prepare(engine)
                    return stack.enter_context(closing(Store(engine, lease)))
            return owner

        yield want


def beat(store: Store) -> None:
    with store.transaction() as session:
        store.lease.beat(session)


def test_a_second_service_is_told_who_owns_the_database(named):
    first = named("a:1")
    assert named("b:2", looks=LAPSED) == "a:1"
    first.save_plan(intent(), plan())
    assert first.lease.fence == 1


def test_an_owner_that_beats_no_more_is_followed_and_writes_nothing(named):
    first = named("a:1")
    told = []
    first.lease.on_loss.append(lambda: told.append(first.lease.lost_to))
    first.save_plan(intent(), plan())
    second = named("b:2", looks=LAPSED + 1)

    for write in (
        lambda: first.save_operation(operation()),
        lambda: first.claim_plan("plan-1", operation()),
        lambda: first.append_journal("op-1", "cutting", ""),
        lambda: beat(first),
    ):
        with pytest.raises(LeaseLostError, match="b:2 owns the database now"):
            write()
    assert told == ["b:2"]
    assert first.plan("plan-1") == plan()
    assert (second.operation("op-1"), second.plan("plan-1").applied_by, second.journal("op-1")) == (None, None, [])
    assert second.claim_plan("plan-1", operation())


def test_an_owner_that_lapsed_goes_on_where_nobody_came(named):
    first = named("a:1")
    assert named("b:2", looks=LAPSED) == "a:1"
    beat(first)
    assert named("b:2", looks=LAPSED) == "a:1"
    first.save_plan(intent(), plan())


def test_an_owner_that_ends_is_followed_at_once(named):
    named("a:1").close()
    assert named("b:2").lease.fence == 2


def test_whoever_has_the_lock_on_the_file_follows_the_dead_at_once(named, tmp_path, database):
    named("a:1")
    engine = connect(tmp_path, database)
    assert Lease("a:1", has_lock=True).take(engine) == ""
    engine.dispose()


def test_nobody_becomes_the_owner_while_a_write_of_the_present_one_is_under_way(named, tmp_path, database):
    first = named("a:1")
    engine = connect(tmp_path, database)
    wanted = Lease("b:2")
    for _ in range(LAPSED):
        wanted.take(engine)
    taking = threading.Thread(target=wanted.take, args=(engine,))
    with first.transaction() as session:
        first.save_plan(intent(), plan())
        first.lease.check(session)
        taking.start()
        taking.join(0.2)
        assert taking.is_alive()
    taking.join()
    engine.dispose()
    assert wanted.fence == 2
    assert first.plan("plan-1") == plan()


async def test_a_service_that_stands_by_starts_when_the_owner_is_gone_and_others_do_not(
    named, tmp_path, database, monkeypatch
):
    monkeypatch.setattr(leases, "LOOK_S", 0.001)
    first = named("a:1")
    engine = connect(tmp_path, database)
    looked = 0
    take = Lease.take

    def looking(lease: Lease, engine: object) -> str:
        nonlocal looked
        looked += 1
        if looked % 5 == 0:
            beat(first)
        if looked == 60:
            first.close()
        return take(lease, engine)

    monkeypatch.setattr(Lease, "take", looking)
    with pytest.raises(StartError, match=r"a:1 owns this database; stop it, or .*serve --wait"):
        await Lease.taken(engine, "b:2", wait=False)
    assert (await Lease.taken(engine, "b:2", wait=True)).fence == 2
    assert looked == 60
    engine.dispose()


@rows(
    "seen",
    [[(1, 0)] * LAPSED, [(1, number // 3) for number in range(100)], [(number // 3, 0) for number in range(100)]],
)
def test_what_moves_has_not_lapsed(seen):
    lease = Lease("b:2")
    assert not any(lease._has_lapsed(*each) for each in seen)


# --- two processes ---


@pytest.mark.slow
@pytest.mark.exhaustive
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_a_service_that_stands_by_serves_what_was_promised_once_the_owner_is_gone(tmp_path, postgres, how):
    url = postgres.new_database()
    for name in "ab":
        (tmp_path / name).mkdir()
    with ExitStack() as stack, ThreadPoolExecutor(1) as beside:
        both = {"INTENTCTL_DATABASE_URL": url, "INTENTCTL_LOG_LEVEL": "warning"}
        first, first_url = stack.enter_context(real_service(tmp_path / "a", "auth: none", **both))
        with httpx.Client(base_url=first_url, timeout=120) as http:
            assert switched(http, target="tp2")["phase"] == "done"
            intent_id = http.post("/v1/intents", json={"text": TEXT}).json()["id"]
            assert http.post(f"/v1/intents/{intent_id}:activate", json={}).status_code == 201
            assert http.post("/v1/controller", json={"mode": "recommend", "paused": True}).status_code == 200
            stood = http.get("/v1/controller").json()["paused"]
        refused = subprocess.run(
            [sys.executable, "-m", "intentctl", "serve", "--port", "0", "--data-dir", str(tmp_path / "c")],
            env={**os.environ, **both}, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert refused.returncode != 0
        assert "owns this database; stop it, or stand by for it with `serve --wait`" in refused.stderr
        standing_by = beside.submit(
            stack.enter_context, real_service(tmp_path / "b", "auth: none", **both, INTENTCTL_WAIT="true")
        )
        until(lambda: "standing by" in log_of(tmp_path / "b"), "b stands by")
        first.send_signal(how)
        _, second_url = standing_by.result()
        with httpx.Client(base_url=second_url, timeout=120) as http:
            assert http.get("/v1/topology").json()["topology"]["shape"] == "TP2"
            assert [promise["intent_id"] for promise in http.get("/v1/promises").json()["promises"]] == [intent_id]
            assert http.get("/v1/controller").json()["paused"] == stood
            if how is signal.SIGSTOP:
                first.send_signal(signal.SIGCONT)
                assert first.wait(timeout=60) == 1
                assert "owns the database now: this service writes and switches no more" in log_of(tmp_path / "a")
            assert switched(http, target="pp2")["phase"] == "done"
            assert http.get("/v1/audit/verdict").json()["is_whole"]


def log_of(folder: Path) -> str:
    return (folder / "log").read_text() if (folder / "log").exists() else ""
