"""Plans to a topology that is named: exactly that, checked, or refused by name."""

from collections.abc import Iterator

import httpx
import pytest

from tests.rows import rows
from tests.service.scripted import DEPLOYMENT, served

pytestmark = pytest.mark.slow

UNEVEN = "CPU[0]:0-6@fp32 > CPU[1]:6-8@fp32"


@pytest.fixture(scope="module")
def http(tmp_path_factory) -> Iterator[httpx.Client]:
    limited = DEPLOYMENT.replace("allowed_tp: [1, 2, 4]", "max_gpus: 3, allowed_tp: [1, 2]")
    with served(tmp_path_factory.mktemp("service"), limited) as (_, client):
        yield client


def planned(http: httpx.Client, target: str, **said: object) -> httpx.Response:
    return http.post("/v1/plans", json={"target": target, **said})


@rows(
    ("target", "text"),
    [
        ("CPU[0]:0-6 > CPU[1]:6-8", UNEVEN),
        (UNEVEN, UNEVEN),
        ("tp2", "CPU[0,1]:0-8@fp32"),
        ("1x1", "CPU[0]:0-8@fp32"),
        ("CPU[3]", "CPU[3]:0-8@fp32"),
    ],
)
def test_a_plan_is_made_to_exactly_the_topology_that_is_named(http, target, text):
    answer = planned(http, target)
    assert answer.status_code == 201, answer.text
    plan = answer.json()["plan"]
    assert plan["target"]["text"] == text
    assert plan["now"]["text"] == "CPU[0]:0-4@fp32 > CPU[1]:4-8@fp32"
    assert plan["changes"]
    assert plan["switch"]["stop_s"] > 0
    assert plan["prediction"]["throughput_tok_s"] > 0
    assert plan["now_prediction"]["throughput_tok_s"] > 0
    assert plan["margins"] == plan["to_acknowledge"] == []
    assert "named, not searched for" in plan["reasons"][0]
    assert plan["digest"]
    assert http.get(f"/v1/plans/{plan['id']}").json() == plan


def test_it_can_be_simulated(http):
    plan = planned(http, "tp2").json()["plan"]
    assert http.get(f"/v1/plans/{plan['id']}/simulation").status_code == 200


def test_its_intent_is_kept_with_the_words_and_has_no_goals_to_plan_for(http):
    answer = planned(http, "tp2").json()
    plan = answer["plan"]
    kept = http.get(f"/v1/intents/{plan['intent_id']}").json()
    assert kept["text"] == "run it as CPU[0,1]:0-8@fp32"
    assert (kept["intent"]["goals"], plan["intent_version"]) == ([], 1)
    assert answer["intent"]["readback"] == "Run counting as CPU[0,1]:0-8@fp32."
    again = http.post("/v1/plans", json={"intent_id": plan["intent_id"]})
    assert (again.status_code, again.json()["code"]) == (422, "out_of_scope")


@rows(
    ("target", "said"),
    [
        ("", "cannot read stage"),
        ("CPU[0]:0-6 > ", "cannot read stage ''"),
        ("fast", "cannot read stage 'fast'"),
        ("A100x2", "no A100 in the inventory"),
        ("CPU[9]", "9"),
        ("CPU[0,0]", "used twice"),
        ("CPU[0]:0-6 > CPU[1]:5-8", "should start at 6"),
        ("CPU[0]:0-8 > CPU[1]:8-2", "should start at 8 and not be empty"),
        ("CPU[0]:0-4", "holds 4 layers"),
        ("CPU[0]:0-99999999999999999999999", "layers"),
        ("tp0", "not possible"),
        ("tp99999999999", "are needed"),
        ("1x99999999999", "cannot read stage"),
        ("pp99999999999", "not possible"),
        ("CPU[0]@nonsense", "nonsense"),
        ("CPU[0]:0-8@fp32,0-99999999999999999999=fp32", "are none of its own"),
    ],
)
def test_what_is_no_topology_here_is_refused_with_its_place(http, target, said):
    answer = planned(http, target)
    problem = answer.json()
    assert (answer.status_code, problem["code"]) == (422, "invalid_request"), problem
    assert said in problem["detail"]
    assert [(one["pointer"], one["code"]) for one in problem["errors"]] == [("/target", "no_topology")]


@rows(
    ("target", "said"),
    [
        ("tp4", "needs 4 devices; the limit is 3"),
        ("CPU[0]:0-2 > CPU[1]:2-4 > CPU[2]:4-8", "the limits allow PP 1, 2, 4"),
        ("CPU[0]@bf16", "the limits allow precision fp32"),
    ],
)
def test_what_the_deployment_does_not_allow_is_refused_by_name(http, target, said):
    answer = planned(http, target)
    assert (answer.status_code, answer.json()["code"]) == (422, "infeasible")
    assert said in answer.json()["detail"]


def test_what_the_engine_does_not_run_is_refused_by_name(tmp_path):
    text = DEPLOYMENT.replace("allowed_precisions: [fp32]", "allowed_precisions: [fp32, bf16]")
    with served(tmp_path, text) as (_, http):
        problem = planned(http, "CPU[0]@bf16").json()
    assert (problem["code"], "the engine runs precision fp32" in problem["detail"]) == ("infeasible", True)


def test_what_memory_does_not_hold_is_refused_by_name(tmp_path):
    text = DEPLOYMENT.replace("concurrency: 8", "concurrency: 800")
    with served(tmp_path, text) as (_, http):
        problem = planned(http, "1x1").json()
    assert (problem["code"], "of the 800 requests in flight" in problem["detail"]) == ("infeasible", True)


@rows("beside", [{"text": "go faster"}, {"intent_id": "intent-0123456789ab"}])
def test_a_target_stands_instead_of_a_wish(http, beside):
    answer = planned(http, "tp2", **beside)
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_request")
    assert "one of text, intent, intent_id and target" in answer.json()["detail"]


def test_the_window_that_is_named_says_which_load_is_planned_for(http):
    assert planned(http, "tp2", window="peak").json()["plan"]["window"] == "peak"
    assert planned(http, "tp2", window="never").json()["code"] == "invalid_request"
