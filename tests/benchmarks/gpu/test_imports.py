"""What the campaign imports is there on a bare machine: in an interpreter of its own that has nothing else."""

import subprocess
import sys
from pathlib import Path

import benchmarks.gpu

ROOT = Path(__file__).parents[3]
LATER = ("runtime.torch_engine.driver", "runtime.torch_engine.chunked_attention", "runtime.kv.chunks")
"""Imported by processes that parts start, or within functions."""


def modules() -> list[str]:
    folder = Path(benchmarks.gpu.__file__).parent
    paths = (path.relative_to(ROOT).with_suffix("") for path in sorted(folder.rglob("*.py")))
    return [".".join(path.parts).removesuffix(".__init__") for path in paths]


def test_every_module_of_the_campaign_can_be_imported_on_a_bare_machine(bare: dict[str, str]) -> None:
    found = modules()
    assert {"benchmarks.gpu.__main__", "benchmarks.gpu.parts.profile", "benchmarks.gpu.random_driver"} <= {
        *found
    }
    code = f"import importlib; [importlib.import_module(name) for name in {[*found, *LATER]!r}]"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=bare, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_the_environment_of_these_tests_is_as_bare_as_it_says(bare: dict[str, str]) -> None:
    code = "import pytest, torch, yaml\ntry:\n import {name}\nexcept ModuleNotFoundError:\n print('none')"
    for name in ("pydantic", "jsonschema", "rapidfuzz", "pytest_asyncio", "sqlalchemy"):
        done = subprocess.run(
            [sys.executable, "-c", code.format(name=name).replace("torch, ", "")],
            cwd=ROOT,
            env=bare,
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout == "none\n", name
