"""Bad input: one message, the documented exit code, nothing half done."""

import shutil
import socket
from pathlib import Path

import pytest

from tests.service.scripted import DEPLOYMENT, write_deployment

TEXT = "keep P99 TTFT < 2s at peak"
REPOSITORY = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.parametrize(
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
@pytest.mark.parametrize("where", ["service", "deployment"])
def test_words_that_cannot_be_met_change_nothing(run, shared, where, text, code, said):
    place = ("--server", shared.url) if where == "service" else ("--deployment", shared.deployment_file)
    before = shared.engine.topology
    found, _, err = run("parse", text, *place)

    assert found == code
    assert said in err
    assert shared.engine.topology == before


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("latency_us", "latencyus", "did you mean 'latency_us'"),
        ("start: pp2", "start: H100x4", "no H100 in the inventory"),
        ("path: counting", "path: nowhere", "does not exist"),
    ],
)
@pytest.mark.parametrize("command", [("parse", TEXT), ("plan", TEXT), ("serve", "--port", "0")])
def test_a_deployment_file_that_cannot_be_is_one_message(run, tmp_path, command, old, new, said):
    file = write_deployment(tmp_path, DEPLOYMENT.replace(old, new))
    code, out, err = run(*command, "--deployment", file)

    assert (code, out) == (1, "")
    assert f"{file}:" in err
    assert said in err


def test_an_unsupported_checkpoint_is_one_message(run, tmp_path):
    file = write_deployment(tmp_path)
    config = tmp_path / "counting" / "config.json"
    config.write_text(config.read_text().replace("Qwen3ForCausalLM", "MambaForCausalLM"))
    code, _, err = run("serve", "--port", "0", "--deployment", file)

    assert code == 1
    assert "MambaForCausalLM is not supported" in err


def test_a_port_in_use_is_one_message_before_anything_starts(run, deployment, tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        code, out, err = run("serve", *deployment, "--port", port, "--data-dir", tmp_path / "data")

    assert (code, out) == (1, "")
    assert f"cannot listen on 127.0.0.1:{port}" in err
    assert "--port" in err
    assert not (tmp_path / "data").exists()


def counting_deployment(folder: Path) -> Path:
    """The test deployment with the repository's own checkpoint, to damage."""
    file = write_deployment(folder)
    shutil.rmtree(folder / "counting")
    shutil.copytree(REPOSITORY / "examples" / "counting", folder / "counting")
    return file


def test_no_write_access_to_the_store_is_one_message(run, tmp_path):
    (tmp_path / "file").write_text("")
    file = counting_deployment(tmp_path)
    code, out, err = run(
        "serve", "--deployment", file, "--port", "0", "--data-dir", tmp_path / "file" / "data"
    )

    assert (code, out) == (1, "")
    assert "cannot be written" in err
    assert "--data-dir" in err


def test_a_checkpoint_without_a_tokenizer_is_one_message(run, deployment, tmp_path):
    code, _, err = run("serve", *deployment, "--port", "0", "--data-dir", tmp_path / "data")

    assert code == 1
    assert "tokenizer.json" in err


def test_a_shape_without_weights_is_planned_for_but_not_served(run, tmp_path):
    file = REPOSITORY / "examples" / "a100-l40s.yaml"
    code, _, err = run("serve", "--deployment", file, "--port", "0", "--data-dir", tmp_path / "data")

    assert code == 1
    assert "not served" in err
    assert not (tmp_path / "data").exists()


@pytest.mark.slow
def test_a_truncated_checkpoint_is_one_message(run, tmp_path):
    file = counting_deployment(tmp_path)
    weights = tmp_path / "counting" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:100_000])
    code, out, err = run("serve", "--deployment", file, "--port", "0", "--data-dir", tmp_path / "data")

    assert (code, out) == (1, "")
    assert "model.safetensors" in err
