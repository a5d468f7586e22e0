"""`intentctl hosts init` and `intentctl agent`: certificates are made once, and bad input gets one clear line."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography.x509.oid import ExtendedKeyUsageOID

from tests.rows import rows
from tests.service.scripted import write_deployment
from tests.service.test_hosts import ends_in


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
    assert document["written"] == [str(folder / name) for name in ("authority.pem", "service.pem", "local.pem")]
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


@pytest.fixture
def listening(cluster, run, monkeypatch) -> Iterator[Path]:
    """A deployment of one host, whose agent listens on loopback."""
    (cluster.parent / "counting" / "tokenizer.json").write_text("{}")
    run("hosts", "init", "--deployment", cluster)
    certificate = cluster.with_suffix(".hosts") / "local.pem"
    command = [sys.executable, "-m", "intentctl", "agent", str(certificate), "--listen", "127.0.0.1:0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as agent:
        try:
            assert agent.stdout is not None
            cluster.write_text(cluster.read_text().replace("10.0.0.2:7443", agent.stdout.readline().strip()))
            yield cluster
        finally:
            agent.terminate()


@pytest.mark.slow
def test_a_doctor_looks_at_each_host(run, listening):
    code, out, _ = run("doctor", "--hosts", "--deployment", listening, "-o", "json")
    check, certificates = json.loads(out)["checks"]
    assert (code, check["name"], check["state"]) == (0, "local", "ok")
    for what in (" from 127.0.0.1, intentctl ", "cores, round trip ", " MB/s"):
        assert what in check["detail"]
    assert certificates == {"name": "certificates", "state": "ok", "detail": "none ends soon"}
    ends_in(listening.with_suffix(".hosts"), "service", ExtendedKeyUsageOID.CLIENT_AUTH, 5)
    code, out, _ = run("doctor", "--hosts", "--deployment", listening, "-o", "json")
    check, certificates = json.loads(out)["checks"]
    assert (code, check["state"], certificates["state"]) == (0, "ok", "note")
    assert "the certificate service.pem ends in 5 days" in certificates["detail"]
    (listening.with_suffix(".hosts") / "service.pem").unlink()
    code, out, err = run("doctor", "--hosts", "--deployment", listening, "-o", "json")
    assert code == 1
    assert "service.pem is no file of `intentctl hosts init`" in out
    assert "not ready: local" in err


def test_a_doctor_names_a_host_that_does_not_answer(run, cluster):
    cluster.write_text(cluster.read_text().replace("10.0.0.2:7443", "127.0.0.1:1"))
    run("hosts", "init", "--deployment", cluster)
    code, out, _ = run("doctor", "--hosts", "--deployment", cluster, "-o", "json")
    assert code == 1
    assert "127.0.0.1:1: " in out
    assert "refused" in out.lower() or "connect call failed" in out.lower()
    assert "--deployment" in run("doctor", "--hosts")[2]
