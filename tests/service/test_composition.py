from pathlib import Path

from intentctl.arguments import SWITCH_TIMEOUT_S
from runtime.machine import SwitchSettings
from runtime.torch_engine.models import EngineSettings
from runtime.vllm_engine.models import VllmSettings
from service import engines
from tests.rows import rows
from tests.service.scripted import DEPLOYMENT, read

STARTS = {
    "torch": "runtime.torch_engine.engine.TorchEngine.start",
    "vllm": "runtime.vllm_engine.engine.VllmEngine.start",
}


def test_the_command_line_waits_longer_than_the_service_lets_a_switch_take():
    settings = SwitchSettings()
    longest_s = settings.warming_timeout_s + settings.syncing_timeout_s + settings.cleaning_timeout_s
    assert longest_s + 2 * settings.cut_timeout_s < SWITCH_TIMEOUT_S


@rows("named", STARTS)
async def test_the_engine_that_the_deployment_names_is_started(tmp_path, monkeypatch, named):
    deployment = read(tmp_path, DEPLOYMENT + f"engine: {named}\n{named}: {{standby: 3}}\n")
    started = []

    for name, place in STARTS.items():

        async def start(checkpoint: Path, topology, cluster, *settings, name=name, launchers=None):
            started.append((name, checkpoint, topology.shape, cluster, *settings))

        monkeypatch.setattr(place, start)
    await engines.start(deployment.model(), engines.first(deployment.model()))

    told = {
        "torch": EngineSettings(num_standby=3, spare=True),
        "vllm": VllmSettings({"served_model_name": "counting"}, num_standby=3),
    }
    assert started == [(named, tmp_path / "counting", "PP2", deployment.cluster, told[named])]
