"""Secrets of keys are nowhere that others may read: log, metrics, audit, problems, database, list of processes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from tests.service.real import real_service


def asked(url: str, secrets: list[str]) -> list[str]:
    """What is answered to requests with keys that are right, wrong, and where they do not belong."""
    said = []
    with httpx.Client(base_url=url, timeout=60, trust_env=False) as http:
        for key in secrets:
            wrong = key[:-1] + ("A" if key[-1] != "A" else "B")
            for method, path, headers in (
                ("GET", "/v1/models", {"Authorization": f"Bearer {key}"}),
                ("POST", "/v1/plans", {"Authorization": f"Bearer {key}"}),
                ("GET", "/v1/models", {"Authorization": f"Bearer {wrong}"}),
                ("GET", "/v1/models", {"Authorization": key}),
                ("GET", "/v1/keys", {"X-Api-Key": key}),
                ("GET", f"/v1/models?key={key}", {}),
                ("GET", f"/v1/plans/{key}", {"Authorization": f"Bearer {key}"}),
                ("POST", "/openai/v1/completions", {"Authorization": f"Bearer {wrong}"}),
            ):
                answer = http.request(method, path, headers=headers)
                if path != f"/v1/plans/{key}":  # what was asked for is said back to whoever asked
                    said.append(f"{answer.headers} {answer.text}")
    return said


def processes() -> list[str]:
    """The command lines of all processes."""
    found = []
    for place in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found.append(place.read_text(errors="replace"))
        except OSError:  # it has ended
            continue
    return found


@pytest.mark.slow
@pytest.mark.parametrize("form", [pytest.param("text", marks=pytest.mark.exhaustive), "json"])
def test_no_secret_is_anywhere(tmp_path, form):
    settings = {"INTENTCTL_LOG_FORMAT": form, "INTENTCTL_LOG_LEVEL": "debug"}
    with real_service(tmp_path, **settings) as (_, url):
        admin_key = (tmp_path / "admin.key").read_text().strip()
        with httpx.Client(
            base_url=url, timeout=60, trust_env=False, headers={"Authorization": f"Bearer {admin_key}"}
        ) as admin:
            made = [admin.post("/v1/keys", json={"name": name, "role": "viewer"}).json() for name in "xy"]
            admin.post(f"/v1/keys/{made[1]['prefix']}:revoke")
            keys = [admin_key, *(one["key"] for one in made)]
            found = asked(url, keys)
            found += [admin.get(path).text for path in ("/v1/keys", "/v1/audit?limit=500", "/metrics")]
        command = [sys.executable, "-m", "intentctl", "get", "--watch", "--server", url]
        environment = {**os.environ, "INTENTCTL_KEY": keys[1], "INTENTCTL_SERVER": url}
        with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as watching:
            found += processes()
            watching.kill()
    found.append((tmp_path / "log").read_text())
    assert "the key of an administrator is in" in found[-1]
    if form == "json":
        assert all(json.loads(line) for line in found[-1].splitlines())
    found += [file.read_bytes().decode("latin-1") for file in tmp_path.glob("intentctl.sqlite*")]
    for key in keys:
        secret = key.split("_", 2)[2]
        assert not [text[:200] for text in found if secret in text]
