from dataclasses import dataclass, field

import pytest

from benchmarks.engines import Subject
from benchmarks.load import Recording
from intentctl.arguments import EngineName
from runtime.models import Topology
from runtime.tokenizer import Tokenizer
from tests.runtime.scripted import ScriptedEngine

PROMPT = (10, 11, 12, 13)


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
