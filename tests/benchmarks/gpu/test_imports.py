"""What the campaign imports is there on a bare machine: in an interpreter of its own that has nothing else."""

import subprocess
import sys
from pathlib import Path

import pytest

import benchmarks.gpu

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]
LATER = (
    "runtime.torch_engine.driver.loop",
    "runtime.torch_engine.worker.chunked_attention",
    "runtime.kv.chunks",
)
"""Imported by processes that parts start, or within functions."""


def modules() -> list[str]:
    folder = Path(benchmarks.gpu.__file__).parent
    paths = (path.relative_to(ROOT).with_suffix("") for path in sorted(folder.rglob("*.py")))
    names = [".".join(path.parts).removesuffix(".__init__") for path in paths]
    return [name for name in names if ".vllm_" not in name and ".faked." not in name]  # they run where vLLM is


def run(code: str, bare: dict[str, str]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code]
    return subprocess.run(command, cwd=ROOT, env=bare, capture_output=True, text=True, check=False)


def test_every_module_of_the_campaign_can_be_imported_on_a_bare_machine(bare):
    found = modules()
    assert {"benchmarks.gpu.__main__", "benchmarks.gpu.parts.profile", "benchmarks.gpu.random_driver"} <= {*found}
    done = run(f"import importlib; [importlib.import_module(name) for name in {[*found, *LATER]!r}]", bare)
    assert done.returncode == 0, done.stderr


def test_the_environment_of_these_tests_is_as_bare_as_it_says(bare):
    names = ("pydantic", "jsonschema", "rapidfuzz", "pytest_timeout", "sqlalchemy")
    code = f"import pytest, yaml\nfrom importlib.util import find_spec\nprint(*map(find_spec, {names}))"
    done = run(code, bare)
    assert (done.stdout.split(), done.stderr) == (["None"] * 5, "")
