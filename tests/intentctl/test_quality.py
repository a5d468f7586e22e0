"""``intentctl profile --quality`` as a person types it, and the file that a deployment finds."""

import hashlib
import json
import shutil
from pathlib import Path

import pytest
import yaml

from intent.tables import mapping
from runtime.errors import CheckpointError
from runtime.footprint import recipe
from runtime.models import ModelSpec
from selector.quality import QualityCurve
from service.deployment.file import load
from service.deployment.profiles import quality_of
from tests.intentctl.real import write_real

pytestmark = pytest.mark.slow

FOLDER = Path(__file__).parents[2] / "examples" / "counting"
SPEC = ModelSpec.from_config(json.loads((FOLDER / "config.json").read_text()), "counting")
LOST = {"loss": 0.0123, "error": 0.001, "agreement": 0.987, "divergence": 0.004}
CURVE = {
    "order": [3, 1, 0, 2, 7, 6, 5, 4],
    "scores": {str(layer): {"lts": 0.9, "lrs": 0.8, "mds": 0.7} for layer in range(8)},
    "prefixes": {"1": LOST, "8": {**LOST, "loss": 0.05}},
    "singles": {str(layer): LOST for layer in range(8)},
}
FOUND = {"layers": 8, "recipe": recipe(SPEC), "tokens": 640, "perplexity": 2.5, "formats": {"int8": CURVE}}


@pytest.fixture
def read_texts(monkeypatch, tmp_path):
    """The texts that were measured; the measuring itself is the engine's and tested there."""
    texts = []

    def measure(checkpoint: Path, text: str) -> dict[str, object]:
        if not (checkpoint / "model.safetensors").exists():
            raise CheckpointError(f"no quality was measured: {checkpoint}: has no model.safetensors")
        texts.append(text)
        return FOUND

    monkeypatch.setattr("intentctl.quality.measure", measure)
    monkeypatch.setenv("INTENTCTL_DATA_DIR", str(tmp_path / "data"))
    return texts


def test_what_was_measured_is_found_by_a_deployment_of_the_checkpoint(run, read_texts, tmp_path):
    code, out, err = run("profile", "--quality", FOLDER)
    assert (code, err.count("\n")) == (0, 1)
    for words in ("int8, 8 of 8", "loses 5.00% ± 0.10%; 98.7% of the likeliest tokens stay", "3, 1, 0, 2, 7, 6, 5, 4"):
        assert words in out
    assert read_texts == [mapping("intentctl", "held")["text"]]
    curve = quality_of(load(write_real(tmp_path)).model(), tmp_path / "data")
    assert curve is not None
    assert curve.loss_of(dict.fromkeys(range(8), "int8"), {}) == (0.05, "measured")
    assert [file.name for file in (tmp_path / "data" / "profiles").iterdir()] == ["quality-counting.yaml"]


def test_a_model_of_a_deployment_and_a_text_are_named(run, read_texts, tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("naïve", encoding="utf-8")
    out = tmp_path / "quality.yaml"
    options = ["--text", text, "--out", out, "--deployment", write_real(tmp_path), "-o", "json"]
    code, printed, _ = run("profile", "--quality", "counting", *options)
    document = json.loads(printed)
    assert (code, document["file"], read_texts) == (0, str(out), ["naïve"])
    assert document["text"] == {"source": str(text), "sha256": hashlib.sha256("naïve".encode()).hexdigest()}
    written = yaml.safe_load(out.read_text(encoding="utf-8"))
    assert {**written, "file": str(out)} == document
    assert QualityCurve.from_mapping(written).formats["int8"].singles[5] == LOST["loss"]
    assert not (tmp_path / "data").exists()


def test_what_cannot_be_measured_is_refused_by_name_and_leaves_no_file(run, read_texts, tmp_path):
    shutil.copytree(FOLDER, tmp_path / "half", ignore=shutil.ignore_patterns("*.safetensors"))
    (tmp_path / "bytes.txt").write_bytes(b"\xff\xfe")
    out = tmp_path / "quality.yaml"
    for arguments, message in (
        (["--quality", tmp_path / "half"], "half: has no model.safetensors"),
        (["--quality", "nothing"], "there is no model 'nothing' here; there are counting"),
        (["--quality", FOLDER, "--text", tmp_path / "none.txt"], "none.txt cannot be read: No such file or directory"),
        (
            ["--quality", FOLDER, "--text", tmp_path / "bytes.txt"],
            "bytes.txt cannot be read: 'utf-8' codec can't decode",
        ),
        ([FOLDER], "a MODEL and a --text are for --quality"),
    ):
        code, _, err = run("profile", *arguments, "--out", out)
        assert code in {1, 2}
        assert message in " ".join(err.split())
        assert not out.exists()
    out.write_text("mine")
    code, _, err = run("profile", "--quality", FOLDER, "--out", out)
    assert (code, out.read_text()) == (1, "mine")
    assert "exists; name another file, or remove it first" in err
    (tmp_path / "data").write_text("no folder")
    code, _, err = run("profile", "--quality", FOLDER)
    assert code == 1
    assert "cannot be written" in err
