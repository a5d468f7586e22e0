"""Plans and simulations in a process of their own, and threads of their own for what waits: nobody keeps others waiting."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from anyio import to_thread

from runtime.errors import TopologyError
from runtime.models import Cluster
from runtime.notation import parse_topology
from service.app import THREADS, Threads
from service.documents.errors import RefusedError
from service.documents.problems import Code
from service.planning import lifecycle
from service.serving import worker_process
from service.serving.worker_process import WorkerProcess
from tests.rows import rows
from tests.service.scripted import ScriptedService, read

pytestmark = pytest.mark.slow

WISH = "keep P99 TTFT < 2 s"


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    with ScriptedService(tmp_path_factory.mktemp("apart"), apart=WorkerProcess) as running:
        yield running


@pytest.fixture(scope="module")
def plans():
    with closing(WorkerProcess()) as process:
        yield process


def test_work_is_done_by_one_other_process_after_streams_and_without_an_engine(plans):
    pids = {plans.do(os.getpid) for _ in range(2)}
    assert len(pids) == 1
    assert os.getpid() not in pids
    assert plans.do(os.nice, 0) == os.nice(0) + worker_process.NICENESS
    plans.do(exec, "import selector.planning, selector.prediction, service.planning.verification")
    assert plans.do(eval, "'torch' in __import__('sys').modules") is False


def test_what_goes_wrong_there_is_raised_here(plans, tmp_path):
    deployment = read(tmp_path)
    with pytest.raises(RefusedError) as here:
        lifecycle.clock("soon", deployment)
    with pytest.raises(RefusedError) as there:
        plans.do(lifecycle.clock, "soon", deployment)
    assert there.value.problem == here.value.problem
    with pytest.raises(TopologyError):
        plans.do(parse_topology, "?", Cluster(()), 8, "fp32")
    with pytest.raises(RuntimeError, match="int: ValueError: invalid literal"):
        plans.do(int, "x")
    assert plans.do(int, "1") == 1


def test_two_pieces_of_work_are_done_beside_each_other_where_that_is_allowed():
    with closing(WorkerProcess(at_once=2)) as two, ThreadPoolExecutor() as threads:
        two.do(exec, "import threading; threading.go_on = threading.Event()")
        waits = threads.submit(two.do, eval, "__import__('threading').go_on.wait(30)")
        threads.submit(two.do, exec, "import threading; threading.go_on.set()")
        assert waits.result() is True


def test_what_is_named_is_done_once(plans):
    first = plans.do(uuid.uuid4, once="a")
    assert plans.do(uuid.uuid4, once="a") == first
    assert len({first, plans.do(uuid.uuid4, once="b"), plans.do(uuid.uuid4), plans.do(uuid.uuid4)}) == 4


def test_a_process_that_was_lost_between_two_pieces_of_work_is_not_noticed(plans):
    pid, lost = plans.do(os.getpid), plans._process
    os.kill(pid, signal.SIGKILL)
    until(lambda: lost.is_lost)
    assert plans.do(os.getpid) != pid


def test_a_process_that_is_lost_at_work_is_said_and_the_next_does_its_work(plans, caplog):
    with pytest.raises(RefusedError, match="translates was lost; ask for less") as caught:
        plans.do(os._exit, 3)
    assert caught.value.code is Code.OVERLOADED
    assert "the process that does _exit was lost" in caplog.text
    assert plans.do(int, "1") == 1


def test_work_that_takes_too_long_is_ended():
    with closing(WorkerProcess(patience_s=0.2)) as hurried:
        with pytest.raises(RefusedError, match=r"took over 0\.2 s"):
            hurried.do(time.sleep, 600)
        hurried._patience_s = 30
        assert hurried.do(int, "1") == 1


def test_work_waits_for_others_and_not_for_ever():
    with closing(WorkerProcess(patience_s=0.01)) as busy:
        busy._places.acquire()
        with pytest.raises(RefusedError, match="other plans take long") as caught:
            busy.do(int, "1")
        assert caught.value.code is Code.OVERLOADED


def test_one_piece_of_work_at_a_time_is_done_for_a_caller(plans):
    order = list[str]()

    def second() -> None:
        with plans.turn("ada"):
            order.append("second")

    waiting = threading.Thread(target=second)
    with plans.turn("ada"):
        waiting.start()
        until(lambda: plans._turns["ada"][1] == 2)
        with plans.turn("bob"):
            order.append("bob")
    waiting.join()
    assert order == ["bob", "second"]
    assert plans._turns == {}


def test_too_much_that_waits_for_a_caller_is_refused(plans, monkeypatch):
    monkeypatch.setattr(worker_process, "IN_LINE", 1)
    with plans.turn("ada"):
        with pytest.raises(RefusedError, match="wait already") as caught, plans.turn("ada"):
            pass
        with plans.turn("bob"):
            pass
    assert caught.value.code is Code.RATE_LIMITED


def test_a_closed_one_ends_its_process_and_what_it_does():
    refusals = list[RefusedError]()

    def work() -> None:
        try:
            closing_one.do(time.sleep, 600)
        except RefusedError as error:
            refusals.append(error)

    closing_one = WorkerProcess()
    pid = closing_one.do(os.getpid)
    at_work = threading.Thread(target=work)
    at_work.start()
    until(lambda: closing_one._process._asked)
    closing_one.close()
    at_work.join()
    assert [one.code for one in refusals] == [Code.STOPPING]
    assert is_gone(pid)


def test_the_process_ends_when_the_service_is_killed():
    script = (
        "import os; from service.serving.worker_process import WorkerProcess; "
        "print(WorkerProcess().do(os.getpid), flush=True); os._exit(9)"
    )
    told = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    pid = int(told.stdout)
    until(lambda: is_gone(pid))


def until(is_so) -> None:
    deadline_s = time.monotonic() + 30
    while not is_so():
        assert time.monotonic() < deadline_s
        time.sleep(0.01)


def is_gone(pid: int) -> bool:
    """Nobody may be there to take note of the end of an orphan."""
    status = Path(f"/proc/{pid}/stat")
    return not status.exists() or status.read_text().rpartition(")")[2].split()[0] == "Z"


def test_whatever_plans_plans_there_and_looks_are_taken_once(service, monkeypatch):
    done, read_there = list[str](), list[str]()

    def note(process, names):
        work_there = process._done

        def noting(work, arguments):
            names.append(work.__name__)
            return work_there(work, arguments)

        monkeypatch.setattr(process, "_done", noting)

    note(service.parts.planning, done)
    note(service.parts.reading, read_there)
    with service.client() as http:
        plan = http.post("/v1/plans", json={"text": WISH}).json()["plans"][0]["id"]
        for _ in range(2):
            assert http.get(f"/v1/plans/{plan}/frontiers").status_code == 200
        assert done == ["plan", "frontiers"]
        assert read_there == ["translate"]
        http.post("/v1/plans", json={"target": "tp2"})
        assert done[2:] == ["planned"]
        assert http.post("/v1/agenda:preview", json={"text": WISH}).status_code == 200
        assert "planned_within" in done[3:]


@contextmanager
def without_threads(service: ScriptedService, taken: Threads | None = None) -> Iterator[None]:
    """While all of those threads are taken; without them: those that everything else shares."""

    async def take():
        limiter = to_thread.current_default_thread_limiter()
        if taken is not None:
            with pytest.raises(RuntimeError):
                await taken(none)()
            limiter = taken._limiters.get()
        borrowers = [object() for _ in range(int(limiter.available_tokens))]
        for one in borrowers:
            limiter.acquire_on_behalf_of_nowait(one)
        return limiter, borrowers

    async def give_back():
        for one in borrowers:
            limiter.release_on_behalf_of(one)

    limiter, borrowers = service.call(take())
    try:
        yield
    finally:
        service.call(give_back())


def none() -> None:
    raise RuntimeError


ASKED = {
    None: [
        ("GET", "/healthz", 200),
        ("GET", "/readyz", 200),
        ("GET", "/metrics", 200),
        ("POST", "/v1/operations/op-1:cancel", 404),
        ("POST", "/v1/intents:translate", 200),
        ("POST", "/v1/plans", 201),
        ("GET", "/v1/plans/plan-1/simulation", 404),
        ("GET", "/v1/agenda", 200),
        ("POST", "/v1/intents/intent-1:activate", 404),
        ("POST", "/v1/operations/op-1:undo", 404),
    ],
    THREADS["asking"]: [
        ("POST", "/v1/operations/op-1:cancel", 404),
        ("GET", "/v1/models", 200),
        ("GET", "/v1/plans/plan-1/simulation", 404),
    ],
    THREADS["planning"]: [("POST", "/v1/operations/op-1:cancel", 404), ("POST", "/v1/intents:translate", 200)],
}


@rows("taken", list(ASKED))
def test_what_keeps_threads_busy_keeps_the_others_not_waiting(service, taken):
    with service.client() as http, without_threads(service, taken):
        for method, path, status in ASKED[taken]:
            body = {"text": WISH} if path in {"/v1/intents:translate", "/v1/plans"} else None
            assert (path, http.request(method, path, json=body).status_code) == (path, status)


async def test_more_than_can_wait_is_refused():
    go_on, threads = threading.Event(), Threads("few", 1)
    wait = threads(go_on.wait)
    first, second = asyncio.create_task(wait()), asyncio.create_task(wait())
    while not (limiter := threads._limiters.get(None)) or not limiter.statistics().tasks_waiting:  # noqa: ASYNC110
        await asyncio.sleep(0)
    with pytest.raises(RefusedError, match="2 requests that take long are under way") as caught:
        await wait()
    assert caught.value.code is Code.OVERLOADED
    go_on.set()
    assert await asyncio.gather(first, second) == [True, True]
