"""No process of ours imports from the working directory, whatever lies there."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import pytest

from runtime.kv.carrier import messages as carrier_messages
from runtime.process.launcher import LocalLauncher, Program
from runtime.process.messages import Greeting
from runtime.torch_engine import messages as torch_messages
from runtime.vllm_engine import messages as vllm_messages
from service.serving.worker_process import WorkerProcess

pytestmark = pytest.mark.slow

NAMES = ("torch", "numpy", "msgspec", "json", "logging", "runtime", "service", "intent", "yaml", "multiprocessing")
PROGRAMS = {
    "driver": Program("runtime.torch_engine.driver.loop", torch_messages.FromDriver),
    "spare": Program("runtime.torch_engine.driver.spare", torch_messages.FromDriver),
    "vLLM": Program("runtime.vllm_engine.driver.boot", vllm_messages.FromDriver, has_folder=True),
    "carrier": Program("runtime.kv.carrier.transfer_side", carrier_messages.FromCarrier),
}


@pytest.fixture
def ran(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], Collection[str]]:
    """Work in a folder of modules that have the names of others; which of them were imported."""
    marks = tmp_path / "ran"
    folder = tmp_path / "hostile"
    for place in (marks, folder):
        place.mkdir()
    for name in NAMES:
        (folder / f"{name}.py").write_text(f"open({str(marks / name)!r}, 'w').close()\n")
    monkeypatch.chdir(folder)
    return lambda: {mark.name for mark in marks.iterdir()}


@pytest.mark.parametrize("name", PROGRAMS)
async def test_a_process_that_an_engine_starts_imports_nothing_of_it(name, ran, real_start):
    told = asyncio.get_running_loop().create_future()

    def hear(message: Any) -> None:
        if isinstance(message, Greeting) and not told.done():
            told.set_result(Path(f"/proc/{process.pid}/environ").read_bytes())

    process = LocalLauncher().start(PROGRAMS[name], hear, told.set_result)
    inherited = await asyncio.wait_for(told, 60)
    process.end()
    await process.close()
    assert ran() == set()
    assert b"PYTHONSAFEPATH=1" in inherited, "what it starts is as safe"


def test_the_command_imports_nothing_of_it(ran):
    file = Path(__file__).parents[1] / "examples" / "local-cpu.yaml"
    command = [sys.executable, "-m", "intentctl", "parse", "keep p95 TTFT under 300 ms", "--deployment", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ("300 ms" in done.stdout, ran()) == (True, set()), done.stderr


def test_the_process_that_plans_imports_nothing_of_it(ran):
    apart = WorkerProcess()
    try:
        assert apart.do(os.getcwd).endswith("hostile")
    finally:
        apart.close()
    assert ran() == set()
