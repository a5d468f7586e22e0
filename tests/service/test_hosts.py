"""What the file says of hosts is held against them before an engine starts; certificates that end soon are told."""

import asyncio
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from unittest.mock import Mock

import pytest
from cryptography.x509 import ObjectIdentifier
from cryptography.x509.oid import ExtendedKeyUsageOID

from runtime.errors import EngineStartError
from runtime.hosts import certificates
from runtime.notation import parse_topology
from runtime.process import facts
from service.deployment import engines
from service.planning import targets
from service.planning.lifecycle import Situation
from service.serving import hosts
from service.serving.hosts import endings, open_hosts, own_ends
from tests.runtime.hosts.test_agent import There
from tests.service.scripted import DEPLOYMENT, read

GPUS = DEPLOYMENT.replace("kind: CPU", "kind: L40S").replace("fp32", "bf16").replace("start: pp2", "")


async def test_gpus_that_this_machine_does_not_have_are_refused_by_name(tmp_path, monkeypatch):
    monkeypatch.setattr(facts, "_gpus", lambda: ((), {}))
    with pytest.raises(EngineStartError, match=r"not as .*deployment.yaml says: .* 4 GPUs, and it has none"):
        async with open_hosts(read(tmp_path, GPUS), Mock(), None):
            pass
    gpus = tuple(facts.GpuFacts(str(number), "NVIDIA L40S", 48 << 30) for number in range(4))
    monkeypatch.setattr(facts, "_gpus", lambda: (gpus, {}))
    async with open_hosts(read(tmp_path, GPUS), Mock(), None) as opened:
        assert opened is None
    slots = read(tmp_path, DEPLOYMENT)  # as many as the file says
    async with open_hosts(slots, Mock(), None) as opened:
        assert opened is None


def on_two_hosts(address: str) -> str:
    """A deployment whose second host's agent listens there."""
    node = "    - {name: b, link: {kind: pcie, bandwidth_gb_s: 25, latency_us: 10}, "
    node += f"gpus: [{{kind: CPU, count: 2, memory_gb: 1}}]}}\nhosts: {{b: {{agent: '{address}'}}}}\nengine: torch\n"
    return DEPLOYMENT.replace("models:", f"{node}models:", 1)


SOON = (
    r"the certificate {} ends in 5 days \(20\d\d-\d\d-\d\d\): run `intentctl hosts init`, copy the new files to their hosts, "
    "start their agents again"
)


def ends_in(folder: Path, name: str, usage: ObjectIdentifier, days: int) -> None:
    """Write a file of a deployment anew, whose certificate ends in so many days."""
    issuer = certificates._read(folder / certificates.AUTHORITY)
    made = datetime.now(UTC) - certificates.LIFE + timedelta(days=days)
    certificates.issue(folder / f"{name}.pem", name, usage, issuer, made)


@pytest.mark.slow
async def test_certificates_that_end_soon_are_told_in_the_log_once_and_not_at_each_look(tmp_path, monkeypatch, caplog):
    folder = tmp_path / "deployment.hosts"
    certificates.write(folder, ("b",))
    ends_in(folder, "b", ExtendedKeyUsageOID.SERVER_AUTH, 5)
    ends_in(folder, "service", ExtendedKeyUsageOID.CLIENT_AUTH, 5)
    there = There(folder)
    deployment = read(tmp_path, on_two_hosts("{}:{}".format(*there.address)))
    (tmp_path / "counting" / "tokenizer.json").write_text("{}")
    looks = list[Path]()

    def look(where: Path) -> dict[str, float]:
        looks.append(where)
        return own_ends(where)

    monkeypatch.setattr(hosts, "own_ends", look)
    monkeypatch.setattr(hosts, "LOOK_S", 0.0)
    async with asyncio.timeout(20), open_hosts(deployment, Mock(), None) as opened:
        while len(looks) < 3:  # noqa: ASYNC110 - a thread looks
            await asyncio.sleep(0)
        known = opened.certificate_ends
    await there.close()
    assert known.keys() == {"authority.pem", "service.pem", "b.pem"}
    for name, line in zip(("b.pem", "service.pem"), endings(known), strict=True):
        assert re.fullmatch(SOON.format(name), line)
        assert caplog.messages.count(line) == 1
    assert endings({"b.pem": 0.0})[0].startswith("the certificate b.pem has ended (1970-01-01): run")


def test_a_file_whose_end_cannot_be_read_is_named(tmp_path):
    with pytest.raises(EngineStartError, match=r"the end of .*service\.pem is not known: .*No such file"):
        own_ends(tmp_path)


def test_another_host_is_reached_by_a_switch_or_by_starting_there(tmp_path):
    on_cpus = on_two_hosts("b:7443")
    text = on_cpus.replace("kind: CPU", "kind: L40S").replace("start: pp2", "")
    deployment = read(tmp_path, text)
    model = deployment.model()
    here, there = (parse_topology(f"L40S[{device}]", model.cluster, 8, "fp32") for device in (0, 4))
    engine = engines.capabilities(model)
    for now in (here, there, None):
        problem = model.problem("always", deployment.limits, now, engine)
        assert [gpu.index for gpu in problem.cluster.gpus] == [0, 1, 2, 3, 4, 5]
    assert model.reach(here) != model.reach(there), "with GPUs it starts there, and stops here"
    place = targets.ModelContext(deployment, model, Situation(there, 1, engine), {})
    assert targets.target_blocker(here, place, "always") == ""
    assert targets.target_blocker(parse_topology("L40S[5]", model.cluster, 8, "fp32"), place, "always") == ""
    cpus = read(tmp_path, on_cpus)
    assert cpus.model().reach(here) == cpus.model().reach(there), "on CPUs it switches"
    place = targets.ModelContext(
        cpus, cpus.model(), Situation(parse_topology("CPU[4]", cpus.cluster, 8, "fp32"), 1, engine), {}
    )
    assert targets.target_blocker(parse_topology("CPU[0]", cpus.cluster, 8, "fp32"), place, "always") == ""
    vllm = read(tmp_path, text.replace("torch", "vllm")).model()
    assert len(vllm.problem("always", deployment.limits, there, engine).cluster.gpus) == 6
