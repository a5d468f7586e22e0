"""A real Prometheus scrapes a service with a key, and answers every query of the dashboard and the alerts."""

import math
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import yaml

from tests.rows import rows
from tests.service.asking import switched, until
from tests.service.dashboard import WHOLE, Target, targets
from tests.service.prometheus import DEPLOY, MISSING, PrometheusServer, installed, write_config
from tests.service.scripted import KEYS, ScriptedService

pytestmark = pytest.mark.slow

ALERTS = {
    rule["alert"]: rule["expr"] for rule in yaml.safe_load((DEPLOY / "alerts.yml").read_text())["groups"][0]["rules"]
}
NOTHING_THERE = {
    "vLLM: KV cache in use": "the scripted engine is no vLLM",
    "vLLM: preemptions": "the scripted engine is no vLLM",
    "vLLM: time in the queue": "the scripted engine is no vLLM",
}
"""Panels without a series, and why."""
NO_NUMBER = {"Prefix cache hit rate": "the scripted engine looks nothing up: 0 of 0"}


@pytest.fixture(scope="module")
def service(tmp_path_factory) -> Iterator[ScriptedService]:
    with ScriptedService(tmp_path_factory.mktemp("service"), KEYS.replace(": 3}", ": 60}")) as running:
        yield running


@pytest.fixture(scope="module")
def admin(service) -> Iterator[httpx.Client]:
    with service.client(service.admin_key) as found:
        yield found


@pytest.fixture(scope="module")
def prometheus(service, admin, tmp_path_factory) -> Iterator[PrometheusServer]:
    """One that has seen requests of nobody and of a tenant, refusals and a switch begin and end."""
    if (program := installed()) is None:
        pytest.skip(MISSING)
    folder = tmp_path_factory.mktemp("prometheus")
    key_file = folder / "key"
    key_file.write_text(service.new_key("metrics") + "\n")  # as the command line writes it
    config = write_config(folder, service.url.removeprefix("http://"), key_file)
    with PrometheusServer(program, folder, config) as server:
        busy(service, admin, server)
        yield server


def busy(service: ScriptedService, admin: httpx.Client, server: PrometheusServer) -> None:
    """Count everything up while Prometheus looks: a rate takes two looks at a series."""
    with service.person("tenant", tenant="gold") as gold:
        ask(admin, gold)
        server.wait_for("sum(intentctl_requests_total)", 2)
        ask(admin, gold)
        intent = admin.post("/v1/intents", json={"text": "keep P99 TTFT < 60s"}).json()["id"]
        assert admin.post(f"/v1/intents/{intent}:activate", json={}).status_code == 201
        httpx.get(f"{service.url}/v1/models", trust_env=False)
        assert switched(admin, target="tp2")["phase"] == "done"
        server.wait_for("sum(intentctl_requests_total)", 4)
        server.wait_for('intentctl_switches_total{outcome="done"}', 1)
        ask(admin, gold)
        service.ticked(lambda: admin.get("/v1/report").json()["attainment"], "what was counted of the goal")
        server.wait_for("count(intentctl_goal_budget_left)", 1)


def ask(*clients: httpx.Client) -> None:
    """A request of each that is served, and one that never could be."""
    for one in clients:
        for most, status in ((5, 200), (10**6, 400)):
            body = {"model": "counting", "prompt": "abc", "max_tokens": most}
            assert one.post("/openai/v1/completions", json=body).status_code == status


def test_the_service_is_scraped_with_the_key_of_a_viewer(prometheus):
    (target,) = prometheus.get("targets")["activeTargets"]
    assert (target["health"], target["labels"]["job"]) == ("up", "intentctl")


@rows("target", targets(), ids=lambda target: target.title)
def test_a_query_of_the_dashboard_has_an_answer(prometheus, target: Target):
    values = prometheus.values(target.filled_in)
    assert bool(values) is (target.title not in NOTHING_THERE), target.filled_in
    if values and target.title not in NO_NUMBER:
        assert any(map(math.isfinite, values)), target.filled_in


def test_latencies_are_shown_for_each_tenant(prometheus):
    (query, *_) = [target.filled_in for target in targets() if target.title == "Time to first token"]
    series = prometheus.get("query", query=query)["result"]
    assert {one["metric"]["tenant"] for one in series} == {"gold", "nobody's"}


@rows(("name", "found"), [("model_name", ["counting"]), ("tenant", ["gold"])])
def test_the_variables_of_the_dashboard_have_values(prometheus, name, found):
    (query,) = [one["query"]["query"] for one in WHOLE["templating"]["list"] if one["name"] == name]
    selector = Target(name, query.removeprefix("label_values(").removesuffix(f", {name})")).filled_in
    assert prometheus.get(f"label/{name}/values", **{"match[]": selector}) == found


@rows("alert", ALERTS)
def test_the_query_of_an_alert_can_be_asked_and_is_quiet(prometheus, alert):
    assert prometheus.values(ALERTS[alert]) == []


def test_prometheus_finds_nothing_wrong_with_the_rules(prometheus):
    def looked_at() -> dict[str, str] | None:
        rules = prometheus.get("rules")["groups"][0]["rules"]
        told = {rule["name"]: rule["health"] for rule in rules}
        return None if "unknown" in told.values() else told

    assert until(looked_at, "each rule was looked at") == dict.fromkeys(ALERTS, "ok")


# --- promtool ---


def promtool(*arguments: object) -> str:
    if (program := installed("promtool")) is None:
        pytest.skip(MISSING)
    done = subprocess.run([program, *map(str, arguments)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_promtool_accepts_the_configuration(tmp_path):
    (tmp_path / "key").write_text("a key")
    assert "SUCCESS" in promtool("check", "config", write_config(tmp_path, "service:8642", tmp_path / "key"))


def test_alerts_come_when_they_should_and_not_before(tmp_path):
    """The cases stand in tests/data/alerts.yml."""
    shutil.copy(DEPLOY / "alerts.yml", tmp_path / "rules.yml")
    cases = Path(__file__).parents[1] / "data/alerts.yml"
    shutil.copy(cases, tmp_path)
    tests = yaml.safe_load(cases.read_text())["tests"]
    assert {case["alertname"] for test in tests for case in test["alert_rule_test"]} == set(ALERTS)
    assert "SUCCESS" in promtool("test", "rules", tmp_path / "alerts.yml")
