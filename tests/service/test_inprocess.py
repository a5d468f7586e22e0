"""What an operator is told about several models at once."""

import pytest

from tests.service.scripted import TWO_MODELS, ScriptedService

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    with ScriptedService(tmp_path_factory.mktemp("service"), TWO_MODELS) as service, service.client() as client:
        yield client


def test_a_model_whose_goals_cannot_be_held_does_not_hide_the_plans_of_others(client):
    answer = client.post("/v1/plans", json={"text": "keep P99 TTFT < 2s"})

    assert answer.status_code == 201
    found = answer.json()
    assert [plan["model"] for plan in found["plans"]] == ["counting"]
    (refused,) = found["refused"]
    assert refused["model"] == "busy"
    assert refused["message"].startswith("busy: p99 TTFT <= 2 s")
    assert refused["infeasible"]["reasons"]
    assert client.get(f"/v1/plans/{found['plan']['id']}").json() == found["plan"]


def test_where_no_model_has_a_plan_each_has_its_reasons(client):
    answer = client.post("/v1/plans", json={"text": "keep P99 TTFT < 20 ms and P99 TPOT < 1 ms"})

    assert answer.status_code == 422
    problem = answer.json()
    assert problem["code"] == "infeasible"
    assert [one["model"] for one in problem["refused"]] == ["counting", "busy"]
    for one in problem["refused"]:
        assert one["message"] in problem["detail"]
        assert one["infeasible"]["reasons"]
    told = [reason for one in problem["refused"] for reason in one["infeasible"]["reasons"]]
    assert [error["message"] for error in problem["errors"]] == told
