"""The service as people start it: in a process of its own, with the built-in engine."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import yaml

from selector.profiles import fit_cpu
from tests.service.scripted import SAMPLES

EXAMPLE = Path(__file__).parents[2] / "examples" / "local-cpu.yaml"
WITHOUT_SPARE = "torch: {spare: false}\n"
"""A spare imports torch once more than what is tested."""


@contextmanager
def real_service(folder: Path, more: str = "", **settings: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A process and its address; it is killed at the end. Its CPU is not measured, and what it says is in ``log``."""
    text = EXAMPLE.read_text().replace("path: counting", f"path: {EXAMPLE.parent / 'counting'}")
    (folder / "cpu.yaml").write_text(yaml.safe_dump(fit_cpu(SAMPLES).to_mapping()))
    said = f"{text}\nprofiles: {{CPU: cpu.yaml}}\n{WITHOUT_SPARE}{more}\n"
    (folder / "deployment.yaml").write_text(said)
    command = [sys.executable, "-m", "intentctl", "serve", "--port", "0", "--data-dir", str(folder)]
    command += ["--deployment", str(folder / "deployment.yaml")]
    with (
        (folder / "log").open("w") as log,
        subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=log, text=True, env={**os.environ, **settings}
        ) as running,
    ):
        try:
            assert running.stdout is not None
            yield running, running.stdout.readline().strip()
        finally:
            running.kill()
