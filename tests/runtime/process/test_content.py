"""What is served is known by its content: other files or other code under the same name are refused, and named."""

import asyncio
import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from runtime.errors import CheckpointError
from runtime.process import content
from runtime.process.content import CODE, PinnedCheckpoint, code_digest, other_code
from tests.rows import rows

PAGE = 4096
TENSORS = 600


def safetensors(path: Path, values: Callable[[int], bytes]) -> None:
    """A file with tensors of a page, each of what ``values`` says."""
    places = {f"t{number}": {"data_offsets": [number * PAGE, (number + 1) * PAGE]} for number in range(TENSORS)}
    header = json.dumps({"__metadata__": {"format": "pt"}, **places}).encode()
    parts = [len(header).to_bytes(8, "little"), header, *(values(number) * PAGE for number in range(TENSORS))]
    path.write_bytes(b"".join(parts))


def checkpoint_in(folder: Path) -> Path:
    """A checkpoint of one large file of weights and others."""
    made = folder / "model"
    made.mkdir(parents=True)
    (made / "config.json").write_text("{}")
    (made / "tokenizer.json").write_text("x" * (2 << 20))
    safetensors(made / "model.safetensors", lambda _: b"\0")
    return made


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return checkpoint_in(tmp_path)


def write_over(folder: Path) -> None:
    """In place: the file is the same, its content is not."""
    with (folder / "model.safetensors").open("r+b") as file:
        file.seek(1 << 20)
        file.write(b"x" * (1 << 20))


def move_over(folder: Path) -> None:
    """A trained model of the same shape."""
    safetensors(folder / "new.safetensors", lambda _: b"\1")
    (folder / "new.safetensors").rename(folder / "model.safetensors")


def train_some(folder: Path) -> None:
    """Every third tensor, as adapters do."""
    safetensors(folder / "new.safetensors", lambda number: bytes([number % 3 == 0]))
    (folder / "new.safetensors").rename(folder / "model.safetensors")


def point_elsewhere(folder: Path) -> None:
    """The folder was a link, and is one to another revision."""
    other = folder.rename(folder.with_name("revision"))
    move_over(other)
    folder.symlink_to(other)


def change_a_late_letter(folder: Path) -> None:
    """Small files are read to their end, whatever their size."""
    with (folder / "tokenizer.json").open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.write(b"y")


def add_an_index(folder: Path) -> None:
    """It says which files are read."""
    (folder / "model.safetensors.index.json").write_text('{"weight_map": {}}')


def keep_its_time(folder: Path) -> None:
    """As ``rsync -t`` does: inode, size and time of the last change are what they were."""
    before = (folder / "model.safetensors").stat()
    write_over(folder)
    os.utime(folder / "model.safetensors", ns=(before.st_atime_ns, before.st_mtime_ns))


CHANGES = {
    write_over: "model.safetensors",
    move_over: "model.safetensors",
    train_some: "model.safetensors",
    point_elsewhere: "model.safetensors",
    keep_its_time: "model.safetensors",
    change_a_late_letter: "tokenizer.json",
    add_an_index: "model.safetensors.index.json",
    lambda folder: (folder / "config.json").unlink(): "config.json",
    shutil.rmtree: "config.json, model.safetensors, tokenizer.json",
}


@rows(("change", "named"), CHANGES.items(), ids=lambda one: getattr(one, "__name__", ""))
def test_other_content_under_the_same_name_is_refused_by_name(tmp_path, change, named):
    made = checkpoint_in(tmp_path / change.__name__.strip("<>"))
    pinned = PinnedCheckpoint.of(made)
    change(made)
    said = rf"the checkpoint at {made} changed( at \d{{4}}-\d\d-\d\d \d\d:\d\d)? \({named}\); restart the service"
    for _ in range(2):
        with pytest.raises(CheckpointError, match=said):
            pinned.verified()


def test_the_same_content_is_the_same_wherever_it_lies(folder, monkeypatch):
    pinned = PinnedCheckpoint.of(folder)
    away = folder.rename(folder.with_name("away"))
    shutil.copytree(away, folder)  # as on another host: no inode and no time is the same
    (folder / "README.md").write_text("words")
    (folder / ".lock").write_text("")
    again = pinned.verified()
    assert again.files != pinned.files
    assert again.digests == pinned.digests
    monkeypatch.setattr(content, "_mark", None)  # what is untouched since is not read again
    assert again.verified() == again


async def test_a_change_under_what_serves_is_logged_once(folder, caplog):
    looking = asyncio.create_task(content.warn_of_change(PinnedCheckpoint.of(folder), every_s=0.0))
    write_over(folder)
    await asyncio.wait_for(looking, 60)
    (record,) = caplog.records
    assert re.search(
        r"changed at .* \(model\.safetensors\); .*; until then what was loaded serves", record.getMessage()
    )


def test_what_cannot_be_read_is_named(folder):
    pinned = PinnedCheckpoint.of(folder)
    (folder / "config.json").unlink()
    os.mkfifo(folder / "config.json")  # who opened it would wait
    with pytest.raises(CheckpointError, match=r"config\.json"):
        pinned.verified()
    (folder / "config.json").unlink()
    (folder / "config.json").symlink_to("config.json")
    with pytest.raises(CheckpointError, match=r"config\.json"):
        pinned.verified()


HEADERS = {
    "none": b"",
    "no length": b"\xff" * 8,
    "no JSON": (9).to_bytes(8, "little") + b"{" * 9,
    "no mapping": (2).to_bytes(8, "little") + b"[]",
    "no offsets": (8).to_bytes(8, "little") + b'{"a": 1}',
    "odd offsets": (40).to_bytes(8, "little") + b'{"a":{"data_offsets":[-9e99,1e308]}}    ',
    "far offsets": (40).to_bytes(8, "little") + b'{"a":{"data_offsets":[-9999999,99999]}} ',
}


@rows("head", HEADERS.values(), ids=list(HEADERS))
def test_a_large_file_that_is_no_safetensors_has_a_digest_all_the_same(tmp_path, head):
    found = set[str]()
    for end in (b"\0", b"\1"):
        (tmp_path / "model.safetensors").write_bytes(head + bytes(3 << 20) + end * PAGE)
        found.add(PinnedCheckpoint.of(tmp_path).digests["model.safetensors"])
    assert len(found) == 2
    assert PinnedCheckpoint.of(tmp_path / "none").digests == {}


def test_a_version_tells_apart_what_has_other_code(tmp_path):
    for name, other in (("a.py", "b.py"), ("one", "two")):
        folders = [tmp_path / name / side for side in "ab"]
        for folder, said in zip(folders, (name, other), strict=True):
            (folder / "deep").mkdir(parents=True)
            (folder / "deep" / (said if said.endswith(".py") else "c.py")).write_text(said)
        assert code_digest(folders[0]) != code_digest(folders[1])
    assert CODE["intentctl"].endswith(f"+{code_digest(Path(content.__file__).parents[1])}")


def test_other_code_is_named_and_what_only_one_side_has_is_not():
    assert other_code(CODE) == ""
    assert other_code({"intentctl": CODE["intentctl"], "vllm": "9"}) == (
        "" if "vllm" not in CODE else other_code({"vllm": "9"})
    )
    assert other_code({}) == ""
    told = other_code({**CODE, "torch": "9.9"})
    assert f"torch 9.9, not {CODE['torch']}" in told
    assert "restart the service" in told
