import shutil
from pathlib import Path

import pytest

from intentctl.arguments import SWITCH_TIMEOUT_S
from runtime.errors import CheckpointError
from runtime.machine import SwitchSettings
from runtime.torch_engine.models import EngineSettings
from runtime.vllm_engine.models import VllmSettings
from selector.profiles import fit_cpu
from service.control.composition import compose
from service.deployment import engines
from service.deployment.settings import Settings
from service.serving.restart import Beginning
from tests.rows import rows
from tests.runtime.scripted import ScriptedEngine
from tests.service.scripted import DEPLOYMENT, SAMPLES, read

COUNTING = Path(__file__).parents[2] / "examples" / "counting"
STARTS = {
    "torch": "runtime.torch_engine.engine.TorchEngine.start",
    "vllm": "runtime.vllm_engine.engine.VllmEngine.start",
}


def test_the_command_line_waits_longer_than_the_service_lets_a_switch_take():
    settings = SwitchSettings()
    longest_s = settings.warming_timeout_s + settings.syncing_timeout_s + settings.cleaning_timeout_s
    assert longest_s + 2 * settings.cut_timeout_s < SWITCH_TIMEOUT_S


async def test_an_engine_that_loads_other_files_than_the_tokenizer_is_of_does_not_serve(tmp_path, monkeypatch):
    """The engine pins them itself, when it starts: they may have changed by then."""
    deployment = read(tmp_path, DEPLOYMENT)
    folder = deployment.model().to_serve()
    shutil.copytree(COUNTING, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("config.json"))

    async def start(model, *_):
        (folder / "model.safetensors").write_bytes(b"others")
        return ScriptedEngine(engines.first(model)), Beginning(engines.first(model), "a test")

    monkeypatch.setattr("service.control.composition.start_without_the_broken", start)
    monkeypatch.setattr("service.control.composition.load_profiles", lambda *_: {"CPU": fit_cpu(SAMPLES)})
    with pytest.raises(CheckpointError, match=r"changed at .* \(model\.safetensors\)"):
        async with compose(deployment, Settings(data_dir=tmp_path / "data")):
            pytest.fail("it serves")


@rows("named", STARTS)
async def test_the_engine_that_the_deployment_names_is_started(tmp_path, monkeypatch, named):
    deployment = read(tmp_path, DEPLOYMENT + f"engine: {named}\n{named}: {{standby: 3}}\n")
    started = []

    for name, place in STARTS.items():

        async def start(checkpoint: Path, topology, cluster, *settings, name=name, launchers=None, batching=None):
            started.append((name, checkpoint, topology.shape, cluster, *settings))
            return ScriptedEngine(topology)

        monkeypatch.setattr(place, start)
    await engines.start(deployment.model(), engines.first(deployment.model()))

    told = {
        "torch": EngineSettings(num_standby=3, spare=True),
        "vllm": VllmSettings({"served_model_name": "counting"}, num_standby=3),
    }
    assert started == [(named, tmp_path / "counting", "PP2", deployment.cluster, told[named])]
