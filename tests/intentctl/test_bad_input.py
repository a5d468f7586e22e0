"""Bad input: one message, the documented exit code, nothing half done."""

import shutil
import socket
import sys
from pathlib import Path

import pytest

from tests.intentctl.real import write_profile
from tests.rows import rows
from tests.service.scripted import DEPLOYMENT, write_deployment

pytestmark = pytest.mark.slow

TEXT = "keep P99 TTFT < 2s at peak"
REPOSITORY = Path(__file__).parents[2]


@rows(
    ("text", "code", "said"),
    [
        ("flurb the wibble", 5, "names no goal"),
        ("keep p99 foo under 2 s", 4, "foo"),
        ("keep gpu utilisation above 140 %", 5, "over 100 %"),
        ("run it with tp=2 and tp=4", 5, "cannot both hold"),
        ("run it with tp=3", 5, ""),
        ("use 9 GPUs", 5, "inventory has 4"),
        ("   ", 5, "no text"),
        ("x" * 3000, 5, "2,000"),
    ],
)
def test_words_that_cannot_be_met_change_nothing(run, place, shared, text, code, said):
    before = shared.engine.topology
    found, _, err = run("parse", text, *place)
    assert found == code
    assert said in err
    assert shared.engine.topology == before


@rows(
    ("old", "new", "said"),
    [
        ("latency_us", "latencyus", "did you mean 'latency_us'"),
        ("start: pp2", "start: H100x4", "no H100 in the inventory"),
        ("path: counting", "path: nowhere", "does not exist"),
    ],
)
@rows("command", [("parse", TEXT), ("plan", TEXT), ("serve", "--port", "0")])
def test_a_deployment_file_that_cannot_be_is_one_message(run, tmp_path, monkeypatch, command, old, new, said):
    monkeypatch.setitem(sys.modules, "service.server", None)  # it imports torch, for which nobody waits to hear this
    file = write_deployment(tmp_path, DEPLOYMENT.replace(old, new))
    code, out, err = run(*command, "--deployment", file)
    assert (code, out) == (1, "")
    assert f"{file}:" in err
    assert said in err


@pytest.fixture
def refused(run, tmp_path):
    """What is said by a service that does not start."""

    def refused(deployment: Path, port: object = 0, data: Path = tmp_path / "data") -> str:
        code, out, err = run("serve", "--deployment", deployment, "--port", port, "--data-dir", data)
        assert (code, out) == (1, "")
        return err

    return refused


def test_a_port_in_use_is_one_message_before_anything_starts(refused, deployment, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        err = refused(deployment[1], port)
    assert f"cannot listen on 127.0.0.1:{port}" in err
    assert "--port" in err
    assert not (tmp_path / "data").exists()


def test_a_shape_without_weights_is_planned_for_but_not_served(refused, tmp_path):
    assert "not served" in refused(REPOSITORY / "examples" / "a100-l40s.yaml")
    assert not (tmp_path / "data").exists()


def test_a_checkpoint_of_another_kind_or_without_a_tokenizer_is_one_message(refused, tmp_path):
    file = write_deployment(tmp_path)
    assert "tokenizer.json" in refused(file)
    config = tmp_path / "counting" / "config.json"
    config.write_text(config.read_text().replace("Qwen3ForCausalLM", "MambaForCausalLM"))
    assert "MambaForCausalLM is not supported" in refused(file)


def test_a_truncated_checkpoint_and_no_write_access_to_the_store_are_one_message(refused, tmp_path):
    file = write_deployment(tmp_path, DEPLOYMENT + "profiles: {CPU: cpu.yaml}\ntorch: {spare: false}\n")
    write_profile(tmp_path)
    shutil.rmtree(tmp_path / "counting")
    shutil.copytree(REPOSITORY / "examples" / "counting", tmp_path / "counting")
    (tmp_path / "file").write_text("")
    err = refused(file, data=tmp_path / "file" / "data")
    assert "cannot be written" in err
    assert "--data-dir" in err
    weights = tmp_path / "counting" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:100_000])
    assert "model.safetensors" in refused(file)
