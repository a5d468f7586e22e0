"""What the file says of this machine is held against it before an engine starts, with one host too."""

from unittest.mock import Mock

import pytest

from runtime.errors import EngineStartError
from runtime.notation import parse_topology
from runtime.process import facts
from service import engines, targets
from service.hosts import open_hosts
from service.usecases import Situation
from tests.service.scripted import DEPLOYMENT, read

GPUS = DEPLOYMENT.replace("kind: CPU", "kind: L40S").replace("fp32", "bf16").replace("start: pp2", "")


async def test_gpus_that_this_machine_does_not_have_are_refused_by_name(tmp_path, monkeypatch):
    monkeypatch.setattr(facts, "_gpus", lambda: ((), {}))
    with pytest.raises(EngineStartError, match=r"not as .*deployment.yaml says: .* 4 GPUs, and it has none"):
        async with open_hosts(read(tmp_path, GPUS), Mock()):
            pass
    gpus = tuple(facts.GpuFacts(str(number), "NVIDIA L40S", 48 << 30) for number in range(4))
    monkeypatch.setattr(facts, "_gpus", lambda: (gpus, {}))
    async with open_hosts(read(tmp_path, GPUS), Mock()) as hosts:
        assert hosts is None
    async with open_hosts(read(tmp_path, DEPLOYMENT), Mock()) as hosts:  # slots are as many as the file says
        assert hosts is None


def test_with_gpus_the_built_in_engine_is_planned_for_on_its_host_and_else_on_all(tmp_path):
    node = "    - {name: b, link: {kind: pcie, bandwidth_gb_s: 25, latency_us: 10}, "
    node += "gpus: [{kind: CPU, count: 2, memory_gb: 1}]}\nhosts: {b: {agent: 'b:7443'}}\nengine: torch\n"
    on_cpus = DEPLOYMENT.replace("models:", f"{node}models:", 1)
    text = on_cpus.replace("kind: CPU", "kind: L40S").replace("start: pp2", "")
    deployment = read(tmp_path, text)
    model = deployment.model()
    here, there = (parse_topology(f"L40S[{device}]", model.cluster, 8, "fp32") for device in (0, 4))
    engine = engines.capabilities(model)
    for now, devices in ((here, [0, 1, 2, 3]), (there, [4, 5]), (None, [0, 1, 2, 3, 4, 5])):
        problem = model.problem("always", deployment.limits, now, engine)
        assert [gpu.index for gpu in problem.cluster.gpus] == devices
    place = targets.ModelContext(deployment, model, Situation(there, 1, engine), {})
    said = "the built-in engine moves requests between hosts on CPUs only, and counting runs on GPUs of b"
    assert said in targets.target_blocker(here, place, "always")
    assert targets.target_blocker(parse_topology("L40S[5]", model.cluster, 8, "fp32"), place, "always") == ""
    cpus = read(tmp_path, on_cpus)
    place = targets.ModelContext(
        cpus, cpus.model(), Situation(parse_topology("CPU[4]", cpus.cluster, 8, "fp32"), 1, engine), {}
    )
    assert targets.target_blocker(parse_topology("CPU[0]", cpus.cluster, 8, "fp32"), place, "always") == ""
    vllm = read(tmp_path, text.replace("torch", "vllm")).model()
    assert len(vllm.problem("always", deployment.limits, there, engine).cluster.gpus) == 6
