"""vLLM loads no other weights under the same name: a target, a spare and a restart are refused; what serves goes on."""

import os
import shutil
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from runtime.engine import EngineState, Finish, SamplingParams
from runtime.errors import EngineLostError, Reason, SwitchError
from runtime.vllm_engine.engine import VllmEngine
from tests.runtime.scripted import reaches, train
from tests.runtime.vllm_engine.streams import CHECKPOINT, CLUSTER, SETTINGS, hearing, prompts, topology

pytestmark = [pytest.mark.vllm, pytest.mark.slow]

CHANGED = r"the checkpoint at .* changed at .* \(model\.safetensors\); restart the service"
FEW = SamplingParams(max_tokens=20)


async def test_other_weights_under_the_same_name_are_not_loaded(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(CHECKPOINT, tmp_path / "counting"))
    weights, away = folder / "model.safetensors", folder / "away"
    shutil.copy2(weights, away)
    engine = await VllmEngine.start(folder, topology("1x1"), CLUSTER, replace(SETTINGS, num_standby=0))
    try:
        async with hearing(engine) as streams:
            await streams.submit("a", prompts()["r2"], SamplingParams(max_tokens=300))
            await streams.have(3, "a")
            train(weights)
            shadow = await engine.prepare(topology("tp2"))
            with pytest.raises(SwitchError, match=CHANGED) as failed:
                await shadow.ready()
            assert failed.value.reason is Reason.LOAD_FAILED
            await shadow.abort(failed.value.reason)
            await streams.ended("a")
            assert streams.said["a"][-1].finish is Finish.LENGTH
            await streams.submit("b", prompts()["r3"], FEW)
            await streams.ended("b")
            os.kill(engine.active.pid, signal.SIGKILL)
            await reaches(engine, EngineState.FAILED)
            with pytest.raises(EngineLostError, match=f"could not be started again: {CHANGED}"):
                await streams.submit("c", prompts()["r3"], FEW)
            away.rename(weights)
            await reaches(engine, EngineState.SERVING)
            await streams.submit("d", prompts()["r3"], FEW)
            await streams.ended("d")
            assert streams.tokens("d") == streams.tokens("b")
    finally:
        await engine.close()
