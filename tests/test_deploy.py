"""What `docker compose` starts, as far as it can be told without Docker: the files agree with each other and the service."""

import re
import tomllib
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from itertools import chain, combinations
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import typer
import yaml

from intentctl.cli import app
from service.deployment.settings import Settings
from tests.rows import rows
from tests.service.dashboard import DASHBOARD, METRIC, exposed, panels, targets

ROOT = Path(__file__).parents[1]
COMPOSE = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES: Mapping[str, Mapping[str, Any]] = COMPOSE["services"]
PINNED = re.compile(r"[\w./-]+:v?\d+\.\d+(\.\d+)?(-\w+)*")
SECRET = re.compile(r"password|secret|key|token|credential", re.IGNORECASE)


def of_each_service(key: str) -> Iterator[tuple[str, Any]]:
    return ((name, value) for name, told in SERVICES.items() for value in told.get(key, ()))


def environment() -> Iterator[tuple[str, str, str]]:
    return ((name, *pair) for name, told in SERVICES.items() for pair in told.get("environment", {}).items())


def mounts() -> dict[tuple[str, str], str]:
    """Service and path inside to what lies there: a path of the repository, or a volume's name."""
    split = ((name, *value.split(":")) for name, value in of_each_service("volumes"))
    return {(name, inside): outside for name, outside, inside, *_ in split}


# --- docker-compose.yml ---


@rows("name", SERVICES)
def test_each_service_says_how_it_is_and_comes_back(name):
    told = SERVICES[name]
    assert told["healthcheck"]["test"][0] == "CMD"
    assert told["restart"] == "unless-stopped"
    for other, how in told.get("depends_on", {}).items():
        assert other in SERVICES
        assert how == {"condition": "service_healthy"}


def test_everything_that_was_asked_for_is_there_and_nothing_is_published_beyond_this_machine():
    assert set(SERVICES) == {"service", "console", "postgres", "prometheus", "grafana"}
    published = [value for _, value in of_each_service("ports")]
    assert published
    assert [value for value in published if not re.fullmatch(r"127\.0\.0\.1:\d+:\d+", value)] == []
    assert all("network_mode" not in told for told in SERVICES.values())


def test_only_the_service_reaches_the_database():
    assert {name for name, network in of_each_service("networks") if network == "store"} == {
        "service",
        "postgres",
    }
    assert COMPOSE["networks"]["store"] == {"internal": True}


def test_every_secret_comes_from_a_file_that_git_and_images_leave_out():
    used = {value for _, value in of_each_service("secrets")}
    assert used == set(COMPOSE["secrets"])
    assert COMPOSE["secrets"] == {name: {"file": f"./secrets/{name}"} for name in used}
    assert "secrets/" in (ROOT / ".gitignore").read_text().splitlines()
    left_out = (ROOT / ".dockerignore").read_text().splitlines()
    assert {"secrets", ".git", ".venv"} <= set(left_out)


def test_no_password_stands_in_the_file():
    for name, key, value in environment():
        assert urlsplit(str(value)).password is None, key
        if SECRET.search(key):
            folder, _, secret = value.rpartition("/")
            assert key.endswith("_FILE"), f"{name}: {key} holds a secret"
            assert folder == "/run/secrets"
            assert secret in SERVICES[name]["secrets"]
    assert "${" not in (ROOT / "docker-compose.yml").read_text()  # nothing has a default, nor comes from .env


def test_what_is_mounted_exists():
    for outside in mounts().values():
        if outside.startswith("./"):
            assert (ROOT / outside).exists(), outside
        else:
            assert outside in COMPOSE["volumes"], outside
    assert set(COMPOSE["volumes"]) <= set(mounts().values())


def test_images_are_pinned():
    dockerfile = (ROOT / "Dockerfile").read_text()
    images = [told["image"] for told in SERVICES.values()] + re.findall(r"^FROM (\S+)", dockerfile, re.MULTILINE)
    assert [image for image in images if not PINNED.fullmatch(image)] == []
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert {SERVICES[name]["image"] for name in ("service", "console")} == {f"intentctl:{version}"}


def test_a_change_of_sources_installs_no_dependency_anew():
    steps = re.findall(r"^(?:RUN|COPY)(?:.*\\\n)*.*", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    sources = steps.index("COPY . .")
    installs = {place: step for place, step in enumerate(steps) if "pip install" in step}
    assert [place > sources for place in installs] == ["--no-deps" in step for step in installs.values()]
    assert all("--mount=type=cache,target=/root/.cache/pip" in step for step in installs.values())


def test_what_is_tried_is_a_project_of_its_own_that_goes_away():
    script = (ROOT / "deploy/try.sh").read_text()
    assert COMPOSE["name"] == "intentctl"
    assert "--project-name intentctl-try" in script
    assert "down --volumes" in script
    told = yaml.safe_load(re.findall(r"<<END\n(.*?)END\n", script, re.DOTALL)[0])
    assert {name: one["file"] for name, one in told["secrets"].items()} == {
        name: f"$folder/{name}" for name in COMPOSE["secrets"]
    }


def test_the_service_knows_the_settings_that_it_is_given():
    given = {key for _, key, _ in environment() if key.startswith("INTENTCTL_")}
    assert given == {"INTENTCTL_DATABASE_URL", "INTENTCTL_DATABASE_PASSWORD_FILE"}
    assert {key.removeprefix("INTENTCTL_").lower() for key in given} <= set(Settings.model_fields)


def test_the_command_line_knows_what_the_console_is_started_with():
    name, *options = SERVICES["console"]["command"]
    known = chain.from_iterable(one.opts for one in typer.main.get_command(app).commands[name].params)
    given = [option for option in options if option.startswith("--")]
    assert set(given) == {"--server", "--host", "--port", "--public-host"}
    assert set(given) <= set(known)


# --- what the parts are told of each other ---


def test_prometheus_finds_its_rules_its_key_and_the_service():
    config = yaml.safe_load((ROOT / "deploy/prometheus.yml").read_text())
    (job,) = config["scrape_configs"]
    assert job["job_name"] == "intentctl"  # what exported OpenSLO documents ask for
    assert job["authorization"] == {"type": "Bearer", "credentials_file": "/run/secrets/prometheus_key"}
    assert "prometheus_key" in SERVICES["prometheus"]["secrets"]
    assert job["static_configs"] == [{"targets": ["service:8642"]}]
    mounted = mounts()
    assert mounted["prometheus", "/etc/prometheus/prometheus.yml"] == "./deploy/prometheus.yml"
    for rules in config["rule_files"]:
        assert mounted["prometheus", f"/etc/prometheus/{rules}"] == f"./deploy/{rules}"


def test_grafana_finds_its_dashboard_and_prometheus():
    provisioning = ROOT / "deploy/grafana/provisioning"
    (provider,) = yaml.safe_load((provisioning / "dashboards/intentctl.yaml").read_text())["providers"]
    (source,) = yaml.safe_load((provisioning / "datasources/prometheus.yaml").read_text())["datasources"]
    where = mounts()["grafana", provider["options"]["path"]]
    assert (ROOT / where).samefile(DASHBOARD.parent)
    assert mounts()["grafana", "/etc/grafana/provisioning"] == "./deploy/grafana/provisioning"
    assert source["url"] == "http://prometheus:9090"
    interval = yaml.safe_load((ROOT / "deploy/prometheus.yml").read_text())["global"]["scrape_interval"]
    assert source["jsonData"]["timeInterval"] == interval


# --- the dashboard ---

QUEUED = "vllm:request_queue_time_seconds"


def test_panels_have_ids_and_places_of_their_own():
    ids = [panel["id"] for panel in panels(rows=True)]
    assert len(ids) == len(set(ids)) > 20
    for one, other in combinations((panel["gridPos"] for panel in panels(rows=True)), 2):
        beside = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        below = one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
        assert beside or below, (one, other)
    assert all(panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24 for panel in panels(rows=True))


@rows("panel", panels(), ids=lambda panel: panel["title"])
def test_a_panel_says_what_it_shows_in_which_unit_and_what_to_do(panel):
    assert panel["fieldConfig"]["defaults"]["unit"]
    assert len(panel["description"]) > 60
    assert panel["targets"]
    references = [target["refId"] for target in panel["targets"]]
    assert len(references) == len(set(references))
    assert all(target["expr"] and target["legendFormat"] for target in panel["targets"])


def test_every_metric_of_dashboard_and_alerts_is_one_that_the_service_exposes():
    rules = yaml.safe_load((ROOT / "deploy/alerts.yml").read_text())["groups"][0]["rules"]
    asked = [target.query for target in targets()] + [rule["expr"] for rule in rules]
    names = {name for query in asked for name in METRIC.findall(query)}
    ours = {name for name in names if name.startswith("intentctl_")}
    assert len(ours) > 15
    assert ours <= exposed()
    assert names - ours == {"vllm:kv_cache_usage_perc", "vllm:num_preemptions_total", f"{QUEUED}_bucket"}


@pytest.mark.vllm
def test_vllms_own_metrics_are_those_of_the_vllm_that_is_installed():
    spec = find_spec("vllm")
    assert spec is not None
    source = Path(str(spec.origin)).parent.joinpath("v1/metrics/loggers.py").read_text()
    for name in ("vllm:kv_cache_usage_perc", "vllm:num_preemptions", QUEUED):
        assert f'"{name}"' in source
