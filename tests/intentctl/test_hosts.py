"""`intentctl hosts init` and `intentctl agent`: certificates are made once, and bad input gets one clear line."""

import json
from pathlib import Path

import pytest

from tests.rows import rows
from tests.service.scripted import write_deployment


@pytest.fixture
def cluster(tmp_path) -> Path:
    file = write_deployment(tmp_path)
    file.write_text(file.read_text() + "\nhosts: {local: {agent: '10.0.0.2:7443'}}\n")
    return file


def test_certificates_are_made_once(run, cluster):
    code, out, _ = run("hosts", "init", "--deployment", cluster, "-o", "json")
    document = json.loads(out)
    folder = cluster.with_suffix(".hosts")
    assert code == 0
    assert document["written"] == [
        str(folder / name) for name in ("authority.pem", "service.pem", "local.pem")
    ]
    assert document["files"] == {"local": str(folder / "local.pem")}
    code, out, _ = run("hosts", "init", "--deployment", cluster)
    assert "nothing" in out
    assert "copy" in out


def test_a_broken_authority_is_named(run, cluster):
    folder = cluster.with_suffix(".hosts")
    folder.mkdir()
    (folder / "authority.pem").write_text("nothing")
    code, _, err = run("hosts", "init", "--deployment", cluster)
    assert code == 1
    assert "authority.pem cannot be read" in err


def test_a_deployment_without_hosts_says_what_to_write(run, tmp_path):
    code, _, err = run("hosts", "init", "--deployment", write_deployment(tmp_path))
    assert code == 1
    assert "names no hosts; write `hosts: {b: {agent:" in err


@rows(
    "arguments, said",
    [
        (("none.pem",), "the agent cannot start: none.pem is no file of `intentctl hosts init`"),
        (("none.pem", "--listen", "7443"), "'7443' is no address; write HOST:PORT"),
        (("none.pem", "--listen", "b:99999"), "is no address"),
    ],
)
def test_an_agent_that_cannot_start_says_why(run, arguments, said):
    code, _, err = run("agent", *arguments)
    assert code != 0
    assert said in " ".join(err.split())
