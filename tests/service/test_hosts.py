"""What the file says of this machine is held against it before an engine starts, with one host too."""

from unittest.mock import Mock

import pytest

from runtime.errors import EngineStartError
from runtime.process import facts
from service.hosts import open_hosts
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
