import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from benchmarks.engines import Subject
from benchmarks.load import Recording
from intentctl.arguments import EngineName
from runtime.models import Topology
from runtime.tokenizer import Tokenizer
from tests.conftest import left_out
from tests.runtime.scripted import ScriptedEngine

PROMPT = (10, 11, 12, 13)
MORE_THAN_BENCHMARKS = {"test_command_lines.py", "test_figures.py", "test_imports.py"}
"""Files that guard the product too, or benchmarks as a whole; all others are left to `make exhaustive`."""


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """What is left out is not imported either."""
    is_ours = collection_path.name.startswith("test_") and collection_path.name not in MORE_THAN_BENCHMARKS
    return True if is_ours and "exhaustive" in left_out(config) else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents and item.path.name not in MORE_THAN_BENCHMARKS:
            item.add_marker(pytest.mark.slow)
            item.add_marker(pytest.mark.exhaustive)


@pytest.fixture
def measured(tmp_path: Path) -> Callable[..., tuple[dict[str, Any], str]]:
    """What a benchmark that runs to its end writes, and what it prints."""

    def measured(module: str, *arguments: str | Path) -> tuple[dict[str, Any], str]:
        file = tmp_path / f"{module}.json"
        command = [sys.executable, "-m", f"benchmarks.{module}", *arguments, "--json", file]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=200)
        assert done.returncode == 0, done.stderr
        return json.loads(file.read_text()), done.stdout

    return measured


@pytest.fixture(scope="session")
def subject() -> Subject:
    return Subject.example(EngineName.TORCH)


@pytest.fixture(scope="session")
def tokenizer(subject: Subject) -> Tokenizer:
    return Tokenizer.load(subject.checkpoint)


@dataclass
class Engines:
    """Starts scripted engines, which repeat the prompt, and keeps them for the test to look at."""

    started: list[ScriptedEngine] = field(default_factory=list)

    async def __call__(self, topology: Topology) -> ScriptedEngine:
        self.started.append(ScriptedEngine(topology, max_running=16, max_tokens=10_000_000))
        return self.started[-1]


@pytest.fixture
def engines() -> Engines:
    return Engines()


@pytest.fixture
def make():
    """Makes a recording with the same prompt each time; the scripted engine prefills it in one step."""
    return lambda number, max_tokens: Recording(PROMPT, max_tokens)
