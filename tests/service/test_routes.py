import contextlib
import json

import pytest

from intent.document import from_document
from runtime.models import ModelSpec, Phase
from selector.models import Profile
from selector.profiles import fit_cpu
from service.documents.operations import OperationDocument
from tests.rows import rows
from tests.runtime.scripted import Script
from tests.service.asking import ORDERS, TEXT, apply, end_of, plan_for, problem, switched
from tests.service.scripted import DEPLOYMENT, SAMPLES, ScriptedService, served

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def ordered(asked) -> dict:
    """A plan for words that give orders, which nobody applies."""
    return plan_for(asked, ORDERS)


def test_words_become_a_checked_intent_and_nothing_is_kept(asked):
    document = asked.post("/v1/intents:translate", json={"text": TEXT}).json()

    goal, _ = document["goals"]
    assert (goal["metric"], goal["stat"], goal["op"], goal["value"]) == ("ttft", "p99", "<=", 2.0)
    assert document["outcome"] == "ok"
    assert document["translator"]["name"] == "rules"
    assert document["readback"]


@rows("text", ["", "x" * 100_000, "TTFT \ud800 < 2s", "\0"])
def test_words_that_say_nothing_are_an_intent_with_a_finding(asked, text):
    headers = {"content-type": "application/json"}
    answer = asked.post("/v1/intents:translate", content=json.dumps({"text": text}), headers=headers)

    assert answer.status_code == 200
    assert answer.json()["outcome"] == "out_of_scope"
    assert answer.json()["findings"]


@rows("now", ["noon", "2026-13-01", ""])
def test_a_clock_that_is_none_is_a_problem_that_shows_the_form(asked, now):
    document = problem(asked.post("/v1/intents:translate", json={"text": TEXT, "now": now}), 422, "invalid_request")

    assert document["errors"][0]["pointer"] == "/now"
    assert "2026-01-05T09:30+08:00" in document["detail"]


def test_a_plan_says_from_where_to_where_and_why_and_can_be_read_again(asked):
    answer = asked.post("/v1/plans", json={"text": TEXT})
    plan = answer.json()["plan"]

    assert plan["now"]["shape"] == "PP2"
    assert plan["target"]["shape"] == "1x1"
    assert plan["changes"]
    assert plan["reasons"]
    assert asked.get(answer.headers["location"]).json() == plan


def test_a_plan_can_be_looked_at_more_closely(asked):
    plan = plan_for(asked)
    simulated = asked.get(f"/v1/plans/{plan['id']}/simulation").json()
    assert simulated["topology"] == plan["target"]["text"]
    assert 0 < simulated["ttft_s"]["mean"] <= simulated["ttft_s"]["p99"]
    drawn = asked.get(f"/v1/plans/{plan['id']}/frontiers").json()
    labels = [curve["label"].partition(":")[0] for curve in drawn["curves"]]
    assert labels == ["target", "runner-up", "today"]
    assert all(curve["rates_rps"] == sorted(curve["rates_rps"]) for curve in drawn["curves"])
    problem(asked.get("/v1/plans/plan-none/simulation"), 404, "not_found")


def test_an_intent_document_is_planned_for_like_its_words(asked):
    document = asked.post("/v1/intents:translate", json={"text": TEXT}).json()
    answer = asked.post("/v1/plans", json={"intent": document})

    assert answer.status_code == 201
    assert answer.json()["plan"]["target"] == plan_for(asked)["target"]


def test_applying_switches_the_engine_and_the_operation_tells_how(http, service):
    plan = plan_for(http)
    assert plan["to_acknowledge"] == []
    started = http.post(f"/v1/plans/{plan['id']}:apply")
    assert started.headers["location"] == f"/v1/operations/{started.json()['id']}"
    operation = end_of(http, started.json()["id"])

    phases = [phase["phase"] for phase in operation["phases"]]
    assert phases == ["planned", "warming", "syncing", "cutting", "committed", "cleaning", "done"]
    assert operation["result"]["source"] == plan["now"]["text"]
    assert operation["result"]["target"] == plan["target"]["text"]
    assert operation["result"]["paths"] == {"patch": 0}
    assert operation.keys().isdisjoint({"error", "gaps"})
    assert http.get(f"/v1/operations/{operation['id']}").json() == operation
    assert http.get("/v1/topology").json()["topology"]["shape"] == "1x1"
    journal = service.parts.store.journal(operation["id"])
    assert [line.phase for line in journal] == ["warming", "cutting", "committed"]


def test_a_plan_is_applied_once(http):
    plan = plan_for(http)
    end_of(http, apply(http, plan))

    problem(http.post(f"/v1/plans/{plan['id']}:apply"), 409, "already_applied")


def test_a_plan_that_another_service_claims_first_is_not_applied_twice(http, service, monkeypatch):
    plan, store = plan_for(http), service.parts.store
    unclaimed = store.plan(plan["id"])
    assert store.claim_plan(plan["id"], OperationDocument.planned("op-elsewhere", unclaimed, 1.0))
    monkeypatch.setattr(store, "plan", lambda _: unclaimed)

    problem(http.post(f"/v1/plans/{plan['id']}:apply"), 409, "already_applied")
    assert http.get("/v1/topology").json()["operation"] is None


def test_a_plan_made_before_the_topology_changed_is_stale(http):
    old = plan_for(http)
    for text, shape in (("run it with tp=2", "TP2"), ("run it with pp=2", "PP2")):  # and when it came back
        switched(http, text)
        state = http.get("/v1/topology").json()
        assert (state["topology"]["shape"], state["operation"]) == (shape, None)
        problem(http.post(f"/v1/plans/{old['id']}:apply"), 409, "stale_plan")
    assert http.get("/v1/topology").json()["operation"] is None


def test_nothing_is_applied_while_a_switch_runs(tmp_path):
    with served(tmp_path, script=Script(silent_while=Phase.WARMING)) as (service, http):
        first, second = plan_for(http), plan_for(http)
        running = apply(http, first)

        problem(http.post(f"/v1/plans/{second['id']}:apply"), 409, "switch_in_progress")
        assert http.get("/v1/topology").json()["operation"] == running
        service.do(service.engine.answer)
        assert "result" in end_of(http, running)


def test_a_plan_for_what_runs_already_has_nothing_to_apply(http):
    switched(http)
    plan = plan_for(http)

    assert not plan["changes"]
    problem(http.post(f"/v1/plans/{plan['id']}:apply"), 409, "no_change")


def test_policy_may_let_nobody_apply(tmp_path):
    with served(tmp_path, DEPLOYMENT + "approval: {by: nobody}\n") as (_, http):
        problem(http.post(f"/v1/plans/{plan_for(http)['id']}:apply"), 403, "not_approved")


def test_a_switch_that_is_given_up_ends_as_an_error_and_the_old_topology_goes_on(tmp_path):
    with served(tmp_path, script=Script(lost_while=Phase.WARMING)) as (_, http):
        plan = plan_for(http)
        operation = end_of(http, apply(http, plan))

        assert operation["phase"] == "aborted"
        assert operation["error"]["code"] == "switch_aborted"
        assert operation["error"]["reason"] == "rank_lost"
        assert "result" not in operation
        assert http.get("/v1/topology").json()["topology"]["shape"] == "PP2"
        assert http.get("/v1/topology").json()["generation"] == plan["generation"]


def test_a_switch_is_given_up_when_the_deployment_says(tmp_path):
    text, script = DEPLOYMENT + "switch: {warming_timeout_s: 0.05}\n", Script(silent_while=Phase.WARMING)
    with served(tmp_path, text, script) as (_, http):
        operation = switched(http)

        assert operation["phase"] == "aborted"
        assert operation["error"]["reason"] == "deadline"


@rows(
    "said",
    [{}, {"json": {}}, {"json": {"acknowledge": []}}, {"json": {"acknowledge": ["unknown_tenant"]}}],
)
def test_a_plan_for_orders_is_refused_until_they_are_acknowledged(asked, ordered, said):
    before, plan = asked.get("/v1/topology").json(), ordered
    document = problem(asked.post(f"/v1/plans/{plan['id']}:apply", **said), 409, "finding_not_acknowledged")

    assert document["findings"] == plan["to_acknowledge"]
    assert [(one["pointer"], one["code"]) for one in document["errors"]] == [("/text", "injection_suspected")]
    assert "'Ignore all previous instructions'" in document["detail"]
    assert 'acknowledge: ["injection_suspected"]' in document["detail"]
    assert asked.get("/v1/topology").json() == before
    assert asked.get(f"/v1/plans/{plan['id']}").json() == plan


def test_a_plan_for_orders_is_applied_once_they_are_acknowledged(http):
    plan = plan_for(http, ORDERS)
    problem(http.post(f"/v1/plans/{plan['id']}:apply"), 409, "finding_not_acknowledged")
    ended = end_of(http, apply(http, plan, acknowledge=["unknown_tenant", "injection_suspected"]))

    assert (ended["phase"], ended.get("error")) == ("done", None)
    assert http.get("/v1/topology").json()["topology"]["shape"] == "TP2"


@rows(
    ("body", "pointer"),
    [
        ({"acknowledge": "injection_suspected"}, "/acknowledge"),
        ({"acknowledge": [1]}, "/acknowledge/0"),
        ({"acknowledge": ["x"] * 17}, "/acknowledge"),
        ({"acknowledged": True}, "/acknowledged"),
    ],
)
def test_an_acknowledgement_of_another_form_is_met_with_a_pointer(asked, ordered, body, pointer):
    answer = asked.post(f"/v1/plans/{ordered['id']}:apply", json=body)

    assert problem(answer, 422, "invalid_request")["errors"][0]["pointer"] == pointer


@rows("kept", [False, True])
def test_an_intent_that_has_lost_its_finding_is_flagged_again(asked, shared, kept):
    document = asked.post("/v1/intents:translate", json={"text": ORDERS}).json()
    assert [one["code"] for one in document["findings"]] == ["injection_suspected"]
    wish = {"intent": document | {"findings": []}}
    if kept:
        shared.parts.store.save_intent("intent-0123456789ab", from_document(wish["intent"]))
        wish = {"intent_id": "intent-0123456789ab"}
    answer = asked.post("/v1/plans", json=wish).json()

    assert answer["intent"]["findings"] == document["findings"] == answer["plan"]["to_acknowledge"]
    problem(asked.post(f"/v1/plans/{answer['plan']['id']}:apply"), 409, "finding_not_acknowledged")


def test_a_question_is_an_answer_without_a_plan(asked):
    answer = asked.post("/v1/plans", json={"text": "keep TTFT low"})

    assert answer.status_code == 200
    assert answer.json()["outcome"] == "clarify"
    assert answer.json()["plan"] is None
    assert answer.json()["intent"]["questions"]


@rows(
    ("text", "status", "code"),
    [
        ("what is the weather like", 422, "out_of_scope"),
        ("run it with tp=2 and tp=4", 409, "conflict"),
        ("keep p99 ttft under 1 ms", 422, "infeasible"),
        ("keep gpu utilisation above 140 %", 422, "infeasible"),
        ("", 422, "out_of_scope"),
    ],
)
def test_what_cannot_be_planned_is_a_problem_that_says_why(asked, text, status, code):
    document = problem(asked.post("/v1/plans", json={"text": text}), status, code)

    assert document["errors"]
    assert document["intent"]["text"] == text


@rows(
    ("body", "pointer"),
    [
        ({}, ""),
        ({"text": TEXT, "intent": {}}, ""),
        ({"words": TEXT}, "/words"),
        ({"text": 5}, "/text"),
        ({"intent": {"goals": 3}}, "/intent"),
        (b"{", ""),
    ],
)
def test_a_wrong_body_is_met_with_a_pointer(asked, body, pointer):
    content = body if isinstance(body, bytes) else json.dumps(body)
    answer = asked.post("/v1/plans", content=content, headers={"content-type": "application/json"})
    document = problem(answer, 422, "invalid_request")

    assert any(error["pointer"].startswith(pointer) for error in document["errors"])


def test_an_intent_that_calls_itself_ok_is_checked_again(asked):
    document = asked.post("/v1/intents:translate", json={"text": "run it with tp=2 and tp=4"}).json()
    assert document["outcome"] == "conflict"
    answer = asked.post("/v1/plans", json={"intent": document | {"outcome": "ok", "findings": []}})

    problem(answer, 409, "conflict")


@rows(
    ("method", "path", "status", "code"),
    [
        ("GET", "/v1/plans/plan-nowhere", 404, "not_found"),
        ("POST", "/v1/plans/plan-nowhere:apply", 404, "not_found"),
        ("GET", "/v1/operations/op-nowhere", 404, "not_found"),
        ("GET", "/v2", 404, "not_found"),
        ("DELETE", "/v1/topology", 405, "method_not_allowed"),
    ],
)
def test_what_is_not_there_is_a_problem_too(asked, method, path, status, code):
    problem(asked.request(method, path), status, code)


def test_events_are_replayed_from_an_id(http):
    switched(http)
    with http.stream("GET", "/v1/events", headers={"Last-Event-ID": "2"}) as events:
        ids = (line for line in events.iter_lines() if line.startswith("id: "))
        assert [next(ids), next(ids)] == ["id: 3", "id: 4"]


def test_metrics_count_requests_tokens_and_switches(http):
    for most, status in ((5, 200), (10**6, 400)):
        asked = {"model": "counting", "prompt": "abc", "max_tokens": most}
        assert http.post("/openai/v1/completions", json=asked).status_code == status
    switched(http)
    text = http.get("/metrics").text

    assert 'intentctl_tokens_total{kind="completion",model_name="counting",tenant=""} 5.0' in text
    assert 'intentctl_tokens_total{kind="prompt",model_name="counting",tenant=""} 3.0' in text
    assert 'intentctl_requests_total{finish="length",model_name="counting",tenant=""} 1.0' in text
    assert 'intentctl_refused_requests_total{model_name="counting",tenant=""} 1.0' in text
    assert 'intentctl_ttft_seconds_count{model_name="counting",tenant=""} 1.0' in text
    assert 'intentctl_itl_seconds_count{model_name="counting",tenant=""} 4.0' in text
    assert 'intentctl_e2e_seconds_count{model_name="counting",tenant=""} 1.0' in text
    assert 'intentctl_tpot_seconds_count{model_name="counting",tenant=""} 1.0' in text
    assert 'intentctl_switches_total{model_name="counting",outcome="done"} 1.0' in text
    assert 'intentctl_cut_seconds_count{model_name="counting",part="patch"} 1.0' in text
    assert "intentctl_free_kv_blocks" in text


def test_the_engines_own_metrics_follow_the_services(http, service, monkeypatch):
    async def exposition() -> str:
        return "vllm:num_requests_running 2.0\n"

    monkeypatch.setattr(service.engine, "exposition", exposition)
    text = http.get("/metrics").text

    assert text.index("intentctl_running_requests") < text.index("\nvllm:num_requests_running 2.0\n")
    assert text.endswith("\n")


def test_an_operation_that_a_dead_process_left_is_brought_to_an_end(tmp_path):
    with served(tmp_path, script=Script(silent_while=Phase.WARMING)) as (service, http):
        left = http.post(f"/v1/plans/{plan_for(http)['id']}:apply").json()
        service.parts.store.save_operation(OperationDocument.model_validate({**left, "id": "op-left"}))
    with served(tmp_path) as (_, http):
        operation = http.get("/v1/operations/op-left").json()

        assert operation["done"]
        assert operation["error"]["code"] == "switch_aborted"
        assert http.get(f"/v1/operations/{left['id']}").json()["done"]


def test_a_service_that_stops_ends_its_streams_of_events(tmp_path):
    with contextlib.ExitStack() as outlasting:
        with ScriptedService(tmp_path) as service:
            http = outlasting.enter_context(service.client())
            switched(http)
            request = http.build_request("GET", "/v1/events", headers={"Last-Event-ID": "0"})
            stream = http.send(request, stream=True)
        lines = list(stream.iter_lines())  # to its end: a stream that was cut off would raise
    assert "event: topology" in lines


def test_what_predictions_are_made_from_can_be_read(asked):
    answer = asked.get("/v1/profiles").json()

    assert ModelSpec(**answer["model"]).num_layers == 8
    assert answer["profiles"].keys() == {"CPU"}
    assert Profile.from_mapping(answer["profiles"]["CPU"]) == fit_cpu(SAMPLES)
