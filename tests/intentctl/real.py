"""Services over the built-in engine, for tests of what stands on its tokens.

``TorchService`` runs in a thread of the test: drivers and workers are processes, and nothing imports torch once more.
Commands that start a service of their own are given the file that ``write_real`` makes.
"""

from contextlib import AsyncExitStack
from pathlib import Path
from typing import Self

import pytest
import yaml

from intent.models import LlmSettings
from selector.profiles import fit_cpu
from service.control.composition import Composition, compose
from service.deployment.settings import Settings
from tests.service.scripted import SAMPLES, Inline, ScriptedService

EXAMPLES = Path(__file__).parents[2] / "examples"
START_S = 200
"""The most that a start takes on a busy machine."""


def real_text(example: str = "local-cpu.yaml", more: str = "") -> str:
    """An example's deployment without what costs and is not looked at: its CPU is not measured, no driver is spare."""
    text = (EXAMPLES / example).read_text().replace("path: counting", f"path: {EXAMPLES}/counting")
    return f"{text}\nprofiles: {{CPU: cpu.yaml}}\ntorch: {{spare: false}}\n{more}"


def write_real(folder: Path, more: str = "") -> Path:
    """A deployment file of it."""
    write_profile(folder)
    file = folder / "deployment.yaml"
    file.write_text(real_text(more=more))
    return file


def write_profile(folder: Path) -> None:
    """That of the CPU, plausible."""
    (folder / "cpu.yaml").write_text(yaml.safe_dump(fit_cpu(SAMPLES).to_mapping()))


class TorchService(ScriptedService):
    """A deployment of ``real_text`` in a thread of its own. Use as a context manager."""

    def __init__(self, folder: Path, text: str) -> None:
        write_profile(folder)
        super().__init__(folder, text)

    def __enter__(self) -> Self:
        self._thread.start()
        self.url = self._ready.result(timeout=START_S)
        return self

    async def _compose(self, stack: AsyncExitStack, llm: LlmSettings | None) -> Composition:
        stack.enter_context(pytest.MonkeyPatch.context()).setattr(
            "service.control.composition.WorkerProcess", lambda *_, **__: Inline()
        )
        self.parts = await stack.enter_async_context(compose(self._deployment, Settings(data_dir=self._folder, port=0)))
        return self.parts
