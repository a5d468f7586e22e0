"""Several models in one deployment: whose devices are whose, which plan is for whom, and that none disturbs another."""

import concurrent.futures
import re

import pytest

from runtime.capabilities import Limits
from runtime.errors import TopologyError
from runtime.models import Phase
from selector.profiles import fit_cpu
from service import api
from service.api.context import Offline
from service.deployment import engines
from service.documents.errors import RefusedError
from service.documents.plans import PlanRequest, When
from service.planning import lifecycle
from tests.rows import rows
from tests.runtime.scripted import Script
from tests.service.asking import end_of
from tests.service.scripted import DEPLOYMENT, SAMPLES, ScriptedService, read, refused

pytestmark = pytest.mark.slow

COUNTING = "  - {name: counting, path: counting, aliases: [counter], precision: fp32, start: pp2}\n"
OTHER = "name: other, path: counting, precision: fp32"


def two(first: str = "", second: str = "", rest: str = "") -> str:
    """A deployment of two models, each told something more."""
    models = COUNTING.replace("}\n", f"{first}}}\n") + f"  - {{{OTHER}{second}}}\n"
    return DEPLOYMENT.replace(COUNTING, models) + rest


TWO = two(", devices: {kind: CPU, count: 2}")


@rows(
    ("first", "second", "shares"),
    [
        (", devices: {kind: CPU, count: 2}", "", [(0, 1), (2, 3)]),
        (", devices: [1, 3]", "", [(1, 3), (0, 2)]),
        ("", ", devices: [0]", [(1, 2, 3), (0,)]),
        (", devices: [{kind: CPU, count: 2}]", ", devices: [0, {kind: CPU, count: 1}]", [(1, 2), (0, 3)]),
    ],
)
def test_every_model_has_devices_of_its_own(tmp_path, first, second, shares):
    models = read(tmp_path, two(first, second)).models
    assert [tuple(gpu.index for gpu in model.cluster.gpus) for model in models] == shares


@rows(
    ("first", "second", "rest", "words"),
    [
        (", devices: [0, 1]", ", devices: [1, 2]", "", r":10: models\[1\].devices\[0\]: device 1 is counting's already"),
        (", devices: [0, 1]", ", devices: [7]", "", r"models\[1\].devices\[0\]: there is no device 7; the cluster has 0 to 3"),
        (", devices: {kind: CPU, count: 3}", ", devices: {kind: CPU, count: 2}", "",
         "other asks for 2 CPU, and 1 of its 4 are free"),
        ("", ", devices: {kind: A100, count: 1}", "", "other asks for 1 A100, and there is none; the cluster has CPU"),
        ("", "", "", r":10: models\[1\]: no device is left for other; give every model its `devices`"),
        ("", ", aliases: [counter]", "", r"models\[1\].aliases\[0\]: 'counter' means the model 'counting' already"),
        (", devices: [0]", "", "", r"models\[0\].start: .*2 free CPU|models\[0\].start"),
        (", devices: [0, 1]", ", engine: vllm, torch: {standby: 1}", "", r":10: models\[1\].torch: the engine is vllm"),
        (", devices: [0, 1]", "", "vllm: {standby: 1}\n", r"vllm: the engine is torch"),
        (", devices: [0, 1]", ", torch: {standby: -1}", "", r":10: models\[1\].torch.standby"),
    ],
)  # fmt: skip
def test_devices_and_names_that_do_not_go_together_are_refused_with_their_place(tmp_path, first, second, rest, words):
    assert re.search(words, refused(tmp_path, two(first, second, rest)))


def test_a_model_twice_is_refused(tmp_path):
    said = refused(tmp_path, two(", devices: [0, 1]").replace("name: other", "name: counting"))
    assert "models[1].name: 'counting' means the model 'counting' already" in said


def test_what_a_model_says_of_engine_and_load_goes_before_what_holds_for_all(tmp_path):
    second = (
        ", torch: {standby: 3}, workload: {always: {rate_rps: 9, input_tokens: 1, output_tokens: 1, concurrency: 1}}"
    )
    rest = "torch: {standby: 2}\nswitch: {cut_timeout_s: 5}\n"
    one, other = read(tmp_path, two(", devices: [0, 1]", second, rest)).models

    assert (one.engine.torch.num_standby, other.engine.torch.num_standby) == (2, 3)
    assert (one.engine.switch.cut_timeout_s, other.engine.switch.cut_timeout_s) == (5, 5)
    assert (one.workload_in("peak").rate_rps, other.workload_in("peak").rate_rps) == (0.8, 9)


def test_settings_for_all_reach_the_model_whose_engine_they_are_for(tmp_path):
    one, other = read(tmp_path, two(", devices: [0, 1]", ", engine: vllm", "vllm: {standby: 2}\n")).models
    assert (one.engine.name, other.engine.name, other.engine.vllm.num_standby) == ("torch", "vllm", 2)


def test_a_model_is_named_where_there_are_several(tmp_path):
    deployment = read(tmp_path, TWO)
    assert deployment.model("other").name == "other"
    with pytest.raises(RefusedError, match="several models are served here: counting, other"):
        deployment.model()
    with pytest.raises(RefusedError, match="there is no model 'third' here; there are counting, other"):
        deployment.model("third")


# --- plans ---


@pytest.fixture
def operator(tmp_path, monkeypatch):
    found = Offline(read(tmp_path, TWO))
    monkeypatch.setattr(found.context, "profiles", lambda _: {"CPU": fit_cpu(SAMPLES)})
    return found


@rows(
    ("text", "shapes"),
    [
        ("run it with tp=2", {"counting": "TP2", "other": "TP2"}),
        ("run the model other with tp=2", {"other": "TP2"}),
        ("run other with tp=2; run counting with tp=1 pp=1", {"counting": "1x1", "other": "TP2"}),
    ],
)
def test_each_model_that_goals_are_about_gets_a_plan_on_its_own_devices(operator, text, shapes):
    plans = operator(api.plans.make_plan, PlanRequest(text=text)).plans
    assert {plan.model: plan.target.shape for plan in plans} == shapes
    own = {"counting": {0, 1}, "other": {2, 3}}
    assert all(set(plan.target.devices) <= own[plan.model] for plan in plans)


def test_a_plan_for_one_model_alone_can_be_asked_for(operator):
    (plan,) = operator(api.plans.make_plan, PlanRequest(text="run it with tp=2", model="other")).plans
    assert (plan.model, operator(api.plans.plan, plan.id)) == ("other", plan)


def test_what_one_of_several_models_cannot_hold_is_refused_with_its_name_and_nothing_is_kept(operator):
    with pytest.raises(RefusedError, match=r"^(counting|other): "):
        operator(api.plans.make_plan, PlanRequest(text="keep P99 TTFT < 1 ms"))
    assert operator.context._plans == {}


def test_goals_of_other_models_are_neither_weighed_nor_left_out(tmp_path):
    deployment = read(tmp_path, TWO)
    now = lifecycle.clock("2026-01-05T11:00", deployment)
    intent = lifecycle.translate("run other with tp=2; run counting with tp=1 pp=1", deployment, None, now)
    model = deployment.model("other")
    plan = lifecycle.plan(intent, deployment, model, lifecycle.Situation(None, 0), {"CPU": fit_cpu(SAMPLES)}, When())
    assert plan.left_out == ()
    assert [margin.goal for margin in plan.margins if margin.goal[:2] in {"tp", "pp"}] == ["tp == 2"]


@rows(
    ("engine", "is_spanned"),
    [("", True), ("engine: torch\n", False), ("engine: vllm\n", False)],
)
def test_a_topology_reaches_over_two_nodes_where_no_engine_is_named_alone(tmp_path, engine, is_spanned):
    network = "  network: {kind: network, bandwidth_gb_s: 1, latency_us: 9}\nmodels:"
    other = "\n    - {name: two, link: {kind: pcie, bandwidth_gb_s: 5, latency_us: 30}, gpus: [{kind: CPU, memory_gb: 1}]}\n"
    text = DEPLOYMENT.replace("\nmodels:", other + network) + engine
    model = read(tmp_path, text).model()
    problem = model.problem("always", Limits(), model.start, engines.capabilities(model))
    assert (problem.cluster.network is not None, problem.cluster.between is None) == (is_spanned, is_spanned)
    assert problem.precision == "fp32"
    if not is_spanned:
        with pytest.raises(TopologyError, match="only for sizing, in a file that names a network and no engine"):
            problem.cluster.link_between(0, 4)


# --- served ---


@pytest.fixture
def service(tmp_path):
    with ScriptedService(tmp_path, TWO.replace(OTHER, f"{OTHER}, start: pp2")) as running:
        yield running


def test_each_model_is_seen_asked_and_measured_by_its_name(http):
    assert [one["model"] for one in http.get("/v1/models").json()["models"]] == ["counting", "other"]
    assert http.get("/v1/models/other/topology").json()["topology"]["devices"] == [2, 3]
    assert http.get("/v1/models/other/profiles").json()["model"]["name"] == "other"
    refused = http.get("/v1/topology")
    assert (refused.status_code, refused.json()["code"]) == (422, "invalid_request")
    assert http.get("/v1/models/third/topology").status_code == 404
    assert [one["id"] for one in http.get("/openai/v1/models").json()["data"]] == ["counting", "other"]

    asked = {"model": "other", "prompt": "abc", "max_tokens": 5}
    assert http.post("/openai/v1/completions", json=asked).status_code == 200
    assert "'counting' and 'other' are" in http.post("/openai/v1/completions", json={**asked, "model": "x"}).text
    text = http.get("/metrics").text
    assert 'intentctl_requests_total{finish="length",model_name="other",tenant=""} 1.0' in text
    assert 'intentctl_requests_total{finish="length",model_name="counting",tenant=""} 0.0' in text
    assert text.count("# TYPE intentctl_requests_total counter") == 1


def test_two_models_switch_at_the_same_time_each_under_its_own_generation(http, service):
    plans = http.post("/v1/plans", json={"text": "run it with tp=2"}).json()["plans"]
    started = [http.post(f"/v1/plans/{plan['id']}:apply").json() for plan in plans]
    for operation in started:
        assert end_of(http, operation["id"])["result"]["phase"] == "done"
    assert [operation["model"] for operation in started] == ["counting", "other"]
    assert {name: engine.topology.shape for name, engine in service.engines.items()} == {
        "counting": "TP2",
        "other": "TP2",
    }
    generations = [one["generation"] for one in http.get("/v1/models").json()["models"]]
    assert len(set(generations)) == 2


def test_a_switch_that_hangs_does_not_hold_up_the_other_model(http, service):
    service.engines["counting"].script = Script(silent_while=Phase.WARMING)
    plans = http.post("/v1/plans", json={"text": "run it with tp=2"}).json()["plans"]
    first, second = (http.post(f"/v1/plans/{plan['id']}:apply").json() for plan in plans)
    assert end_of(http, second["id"])["result"]["phase"] == "done"
    assert not http.get(f"/v1/operations/{first['id']}").json()["done"]
    service.engines["counting"].answer()


def test_a_lost_engine_ends_the_streams_of_its_model_alone(http, service):
    service.engines["counting"].hold()
    asked = {"model": "counting", "prompt": "abc", "max_tokens": 5}
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(http.post, "/openai/v1/completions", json=asked)
        while not service.serving.router.num_streams:
            pass
        service.engines["counting"].lose("rank 1 was lost")
        assert waiting.result().status_code == 503
    assert http.post("/openai/v1/completions", json={**asked, "model": "other"}).status_code == 200
