"""A service that is killed leaves no process, no memory and no file of its vLLM engines."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from runtime.process.launcher import SHARED_MEMORY, group_pids

pytestmark = [pytest.mark.vllm, pytest.mark.slow]

SERVICE = """
import asyncio, json, sys
from pathlib import Path
from runtime.models import Cluster, Gpu, Link, Node
from runtime.notation import parse_topology
from runtime.vllm_engine.engine import VllmEngine
from runtime.vllm_engine.launch import surroundings
from runtime.vllm_engine.models import VllmSettings
from runtime.vllm_engine.instance import Spare
from runtime.engine import GenerationRequest, SamplingParams
from runtime.process.launcher import LocalLauncher

gpus = tuple(Gpu(n, "cpu", 3 << 30) for n in range(4))
cluster = Cluster((Node("local", gpus, Link("shared-memory", 5e9, 1e-5)),))

async def serve():
    checkpoint = Path(sys.argv[1])
    settings = VllmSettings(kv_cache_bytes=192 << 20, spare=False)
    # one spare waits, another still imports
    spares = [Spare(LocalLauncher(), surroundings(cluster, settings), settings) for _ in range(2)]
    spares[0].begin()
    while not spares[0].is_ready:
        await asyncio.sleep(0.01)
    engine = await VllmEngine.start(checkpoint, parse_topology("tp2", cluster, 8, "fp32"), cluster, settings)
    shadow = await engine.prepare(parse_topology("1x1", cluster, 8, "fp32"))
    await shadow.ready()
    await engine.submit(GenerationRequest("r", (1, 2, 3), SamplingParams(10_000), 0))
    await shadow.lag()
    both = engine.active, shadow._target
    spares[1].begin()
    processes = [*both, *(one._process for one in spares)]
    print(json.dumps({
        "groups": [one.pid for one in processes],
        "memory": [path for one in both for path in one.started.shared_memory],
        "folders": [str(one.process.folder) for one in processes],
    }), flush=True)
    await asyncio.Event().wait()

asyncio.run(serve())
"""
CHECKPOINT = Path(__file__).parents[4] / "examples" / "counting"


def test_a_service_that_is_killed_in_a_switch_leaves_nothing(tmp_path):
    script = tmp_path / "service.py"
    script.write_text(SERVICE)
    with subprocess.Popen([sys.executable, str(script), str(CHECKPOINT)], stdout=subprocess.PIPE) as service:
        assert service.stdout is not None
        told = json.loads(service.stdout.readline())
        assert told["memory"]
        assert all(group_pids(group) for group in told["groups"])
        service.send_signal(signal.SIGKILL)
    for group in told["groups"]:
        while group_pids(group):
            os.sched_yield()
    left = {entry.path for entry in os.scandir(SHARED_MEMORY)}
    assert left.isdisjoint(told["memory"])
    assert not any(Path(folder).exists() for folder in told["folders"])
