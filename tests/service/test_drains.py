"""Drains: a node, a device or a replica is emptied while streams go on, and stays out until it is undrained."""

from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime

import httpx
import pytest

from runtime.models import Phase
from service.control.drains import deadline
from service.documents.errors import RefusedError
from service.documents.problems import Code
from tests.rows import rows
from tests.runtime.scripted import Script
from tests.service.scripted import DEPLOYMENT, KEYS, QUICK, ScriptedService, read, served

pytestmark = pytest.mark.slow

START = 'start: "CPU[0,1]@fp32 | CPU[2,3]@fp32"'
SET = DEPLOYMENT.replace("start: pp2", START)
NODES = SET.replace(
    "    - {name: local, link: {kind: shared-memory, bandwidth_gb_s: 5, latency_us: 30},\n"
    "      gpus: [{kind: CPU, count: 4, memory_gb: 1}]}\n",
    "".join(
        f"    - {{name: {name}, link: {{kind: shared-memory, bandwidth_gb_s: 5, latency_us: 30}},\n"
        "      gpus: [{kind: CPU, count: 2, memory_gb: 1}]}\n"
        for name in "ab"
    ),
)
SPARE = NODES.replace(
    "models:",
    "    - {name: c, link: {kind: shared-memory, bandwidth_gb_s: 5, latency_us: 30},\n"
    "      gpus: [{kind: CPU, count: 2, memory_gb: 1}]}\nmodels:",
)
"""The same with a node that is free."""
PROMPT = "abc"
TOKENS = 200
SAID = {"model": "counting", "prompt": PROMPT, "max_tokens": TOKENS, "temperature": 0, "ignore_eos": True}


def drained(http: httpx.Client, what: str, **more: object) -> dict:
    answer = http.post("/v1/drains", json={"what": what, **more})
    assert answer.status_code == 202, answer.text
    return answer.json()


def listed(http: httpx.Client) -> list[tuple[str, list[int], str]]:
    return [(each["what"], each["devices"], each["state"]) for each in http.get("/v1/drains").json()["drains"]]


def refused(http: httpx.Client, **body: object) -> tuple[int, str]:
    """The status and the words of a drain that is refused; nothing was touched by it."""
    before = http.get("/v1/devices").json(), http.get("/v1/operations").json()
    answer = http.post("/v1/drains", json=body)
    assert (http.get("/v1/devices").json(), http.get("/v1/operations").json()) == before
    return answer.status_code, answer.json()["detail"]


@contextmanager
def streams(service: ScriptedService, count: int = 6):
    """Open answers, half of them on each replica, of which a few tokens came."""
    engines = [replica.engine for replica in service.serving.engine.replicas]
    for engine in engines:
        service.do(engine.hold)
    with ThreadPoolExecutor(count) as pool, service.client() as http:
        answers = [pool.submit(http.post, "/openai/v1/completions", json=SAID) for _ in range(count)]
        for engine in engines:
            service.call(engine.until(lambda engine=engine: len(engine.heard) == count // 2))
        for engine in engines * 4:
            service.do(engine.turn)
        try:
            yield engines, answers
        finally:
            for engine in engines:
                service.do(engine.resume)


def whole(answers: list[Future[httpx.Response]]) -> bool:
    """Whether each says all that it was to say, once."""
    texts = [answer.result().json()["choices"][0]["text"] for answer in answers]
    return texts == [(PROMPT * TOKENS)[:TOKENS]] * len(texts)


def test_a_node_is_drained_under_streams_which_all_end_there_and_none_is_lost(tmp_path):
    with served(tmp_path, NODES) as (service, http), streams(service) as (engines, answers):
        drain = drained(http, "b", why="fans", by="2h")
        assert (drain["what"], drain["devices"], drain["who"], drain["why"]) == ("node:b", [2, 3], "anybody", "fans")
        assert drain["state"] == "leaving"
        assert drain["requests"] == 3
        assert drain["estimate_s"] > 0
        assert http.get("/v1/topology").json()["out"].keys() == {"2", "3"}
        service.do(engines[0].resume)
        while len(http.get("/v1/topology").json()["topology"]["devices"]) == 4:
            """Until it has cut."""
        assert http.post("/openai/v1/completions", json=SAID).status_code == 200
        assert len(engines[1].heard) == 3
        service.do(engines[1].resume)
        assert whole(answers)
        service.settle()
        assert listed(http) == [("node:b", [2, 3], "empty")]
        assert service.parts.servings["counting"].engine.topology.devices == (0, 1)
        assert http.get("/v1/topology").json()["tokens"] == {"accepted": 7 * TOKENS, "lost": 0, "duplicates": 0}
    with served(tmp_path, NODES) as (service, http):
        (drain,) = http.get("/v1/drains").json()["drains"]
        assert (drain["what"], drain["state"], drain["why"]) == ("node:b", "empty", "fans")
        assert drain["by"]
        assert http.post("/v1/drains/b:undo").json() == {"drains": []}
        assert http.get("/v1/topology").json()["out"] == {}


def test_what_is_left_goes_on_in_the_others_when_time_is_over(tmp_path):
    with served(tmp_path, SET) as (service, http), streams(service) as (engines, answers):
        service.do(engines[0].resume)
        drain = drained(http, "counting/2", by="0.1s")
        assert (drain["what"], drain["devices"]) == ("counting/2", [2, 3])
        assert whole(answers)  # what had them was held, and never ended one
        service.settle()
        assert listed(http) == [("counting/2", [2, 3], "empty")]
        assert http.get("/v1/topology").json()["tokens"]["lost"] == 0


def test_what_runs_alone_switches_away_and_stays_away(tmp_path):
    with served(tmp_path) as (service, http):
        drain = drained(http, "0")
        service.settle()
        assert (drain["what"], listed(http)) == ("gpu-0", [("gpu-0", [0], "empty")])
        assert 0 not in service.serving.engine.topology.devices
        (operation,) = http.get("/v1/operations").json()["operations"]
        assert drain["operations"] == [operation["id"]]
        assert operation["words"].startswith("drain gpu-0: run it as ")
        runs = service.serving.engine.topology
        assert http.post("/v1/drains/gpu-0:undo").status_code == 200
        assert (service.serving.engine.topology, listed(http)) == (runs, [])


def test_what_nothing_runs_on_is_empty_at_once(tmp_path):
    with served(tmp_path) as (service, http):
        assert drained(http, "gpu-3")["state"] == "empty"
        assert service.engine.calls == []


@rows(
    ("body", "status", "why"),
    [
        ({"what": "c"}, 404, "there is no 'c'; there are node:local, gpu-0"),
        ({"what": "local"}, 422, "nothing could serve counting then"),
        ({"what": "0", "by": "2020-01-05T18:00"}, 422, "2020-01-05 18:00 is over"),
        ({"what": "0", "by": "soon"}, 422, "no moment"),
    ],
)
def test_what_cannot_be_drained_is_refused_by_name_and_nothing_is_touched(shared, body, status, why):
    with shared.client() as http:
        found, told = refused(http, **body)
    assert found == status
    assert why in told


def test_a_switch_under_way_a_promised_freeze_and_the_right_stand_against_a_drain(tmp_path):
    with served(tmp_path, script=Script(silent_while=Phase.WARMING)) as (service, http):
        plan = http.post("/v1/plans", json={"target": "tp2"}).json()["plans"][0]["id"]
        operation = http.post(f"/v1/plans/{plan}:apply").json()["id"]
        assert refused(http, what="0") == (
            409,
            f"operation {operation} is switching; wait for its end, then make a new plan",
        )
        service.do(service.engine.answer)
        service.settle()
        said = http.post("/v1/intents", json={"text": "no reconfiguration"}).json()
        assert http.post(f"/v1/intents/{said['id']}:activate").status_code == 201
        status, why = refused(http, what="0")
        assert (status, "intentctl drain gpu-0 --override" in why) == (409, True)
        assert drained(http, "0", acknowledge=["reconfiguration_limited"])["what"] == "gpu-0"
        service.settle()


def test_who_may_approve_may_drain(tmp_path):
    with ScriptedService(tmp_path, KEYS) as service, service.person("operator") as http:
        assert http.post("/v1/drains", json={"what": "3"}).status_code == 403
        assert http.get("/v1/drains").json() == {"drains": []}
        with service.person("approver", "ada") as other:
            assert drained(other, "3")["who"] == "ada"


def test_a_promise_that_breaks_is_told(tmp_path):
    with served(tmp_path, SET + QUICK) as (service, http):
        said = http.post("/v1/intents", json={"text": "keep the GPU count at 4"}).json()
        assert http.post(f"/v1/intents/{said['id']}:activate").status_code == 201
        drain = drained(http, "counting/1")
        assert any(said["id"] in each and "until it is undrained" in each for each in drain["misses"]), drain
        service.settle()


def test_what_is_missed_only_meanwhile_is_told_with_how_long(tmp_path):
    with served(tmp_path, SPARE + QUICK) as (service, http):
        said = http.post("/v1/intents", json={"text": "keep the GPU count at 4"}).json()
        assert http.post(f"/v1/intents/{said['id']}:activate").status_code == 201
        drain = drained(http, "b")
        assert [said["id"] in each and each.endswith(" s") for each in drain["misses"]] == [True], drain
        service.settle()
        assert len(service.serving.engine.topology.devices) == 4
        assert listed(http) == [("node:b", [2, 3], "empty")]


def test_undrained_before_its_cut_a_switch_is_cancelled_and_what_ran_goes_on(tmp_path):
    with served(tmp_path, script=Script(silent_while=Phase.WARMING)) as (service, http):
        (operation,) = drained(http, "0")["operations"]
        service.reached("ready")
        runs = service.serving.engine.topology
        assert http.post("/v1/drains/0:undo").json() == {"drains": []}
        service.do(service.engine.answer)
        service.settle()
        assert http.get(f"/v1/operations/{operation}").json()["error"]["reason"] == "cancelled"
        assert service.serving.engine.topology == runs
        assert [replica.is_avoided for replica in service.serving.engine.replicas] == [False]
        answer = http.post("/v1/drains/0:undo")
        assert (answer.status_code, answer.json()["detail"]) == (404, "0 is not drained; nothing is")


def test_a_drain_whose_switch_is_refused_leaves_everything_as_it_was(tmp_path, monkeypatch):
    with served(tmp_path, SET) as (service, http):

        async def refuse(*_: object) -> None:
            raise RefusedError(Code.STALE_PLAN, "somebody switched just now")

        monkeypatch.setattr(service.serving, "apply", refuse)
        assert refused(http, what="counting/1") == (409, "somebody switched just now")
        assert [replica.is_avoided for replica in service.serving.engine.replicas] == [False, False]


@rows(
    ("text", "found"),
    [
        ("10m", "2026-01-05T17:10:00+00:00"),
        ("1.5h", "2026-01-05T18:30:00+00:00"),
        ("18:30", "2026-01-05T17:30:00+00:00"),
        ("9:00", "2026-01-06T08:00:00+00:00"),
        ("2026-01-05T19:00", "2026-01-05T18:00:00+00:00"),
    ],
)
def test_times_are_spans_coming_clock_times_or_moments(tmp_path, text, found):
    deployment = read(tmp_path, DEPLOYMENT + "timezone: Europe/Berlin\n")
    now = datetime(2026, 1, 5, 17, tzinfo=UTC)
    assert deadline(text, deployment, now).astimezone(UTC).isoformat() == found


def test_the_controller_is_not_bound_by_a_drain(tmp_path):
    """What a person names is left alone; where a drain leads to is nobody's wish."""
    with served(tmp_path, SET) as (service, http):
        drained(http, "gpu-3")
        service.settle()
        (plan,) = http.get("/v1/plans").json()["plans"]
        assert plan["kind"] == "promise"
        service.tick()
        assert http.get("/v1/controller").json()["overrides"] == []


@rows("stream", [True, False])
def test_an_answer_tells_whoever_may_look_which_replica_gives_it_and_why(routed, stream):
    body = SAID | {"max_tokens": 3, "stream": stream}
    with routed.person("admin", f"ada{stream}") as http, routed.person("tenant", f"gold{stream}", "gold") as tenant:
        for client, asked in ((http, "1"), (http, "0"), (tenant, "1")):
            answer = client.post("/openai/v1/completions", json=body, headers={"X-Intentctl-Why": asked})
            assert answer.status_code == 200
            route = answer.headers.get("X-Intentctl-Route", "")
            assert ("CPU[0,1]:0-8@fp32 " in route and "CPU[2,3]:0-8@fp32 " in route) == (
                client is http and asked == "1"
            )


@pytest.fixture(scope="module")
def routed(tmp_path_factory):
    with ScriptedService(tmp_path_factory.mktemp("routed"), KEYS.replace("start: pp2", START)) as service:
        yield service


def test_a_tenant_is_kept_from_a_replica_by_what_is_promised_whatever_plan_is_under_way(tmp_path):
    text = NODES.replace("auth: none", "auth: none\ntenants: [{name: gold}, {name: free}]")
    with served(tmp_path, text, script=Script(silent_while=Phase.WARMING)) as (service, http):
        kept = http.post("/v1/intents", json={"text": "gold on node a"}).json()
        assert http.post(f"/v1/intents/{kept['id']}:activate").status_code == 201
        service.do(service.serving.heed)

        def able(tenant: str) -> list[tuple[int, ...]]:
            replicas = service.serving.engine.replicas
            return [each.engine.topology.devices for each in replicas if each.share.may_serve(tenant)]

        assert (able("gold"), able("free")) == ([(0, 1)], [(0, 1), (2, 3)])
        plan = http.post("/v1/plans", json={"target": "CPU[0,1]@fp32 | CPU[2]@fp32"}).json()["plans"][0]["id"]
        answer = http.post(f"/v1/plans/{plan}:apply", json={"acknowledge": ["breaks_promise"]})
        assert answer.status_code == 202, answer.text
        other = service.serving.engine.replicas[1].engine
        service.call(other.until(lambda: other.calls[-1:] == ["ready"]))
        assert (able("gold"), able("free")) == ([(0, 1)], [(0, 1), (2, 3)])
        service.do(other.answer)
        service.settle()
        assert (able("gold"), able("free")) == ([(0, 1)], [(0, 1), (2,)])
        plan = service.serving._plans[-1]
        barred = [replace(part, not_for=("gold",) if 2 in part.topology.devices else ()) for part in plan.replicas]
        service.serving._plans = (replace(plan, replicas=tuple(barred)),)
        service.do(service.serving.heed)
        drained(http, "a")
        service.settle()
        assert (able("gold"), able("free")) == ([(2,)], [(2,)]), "nobody else is there: the promise is missed, and told"
