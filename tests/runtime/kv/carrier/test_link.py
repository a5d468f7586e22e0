"""Two hosts that are namespaces: KV crosses the link between them, whatever UCX likes better."""

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.namespaces import ROOT, SPACES
from runtime.hosts import certificates
from runtime.kv.carrier.carrier import Carrier
from runtime.kv.carrier.one_sided import devices_toward
from runtime.kv.store import KvStore
from runtime.process.launcher import LocalLauncher
from tests.runtime.hosts.machines import Machine, machine, namespaces
from tests.runtime.kv.carrier.test_carrier import RUNS, SHAPE, TP2_TO_PP2, filled

__all__ = ["namespaces"]
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("namespaces")]


def received_bytes(device: str) -> int:
    return int(Path(f"/sys/class/net/{device}/statistics/rx_bytes").read_text())


def far(host: Machine) -> subprocess.Popen[str]:
    script = f"cd {ROOT}; exec {sys.executable} -m tests.runtime.kv.carrier.far {host.near}"
    command = ["nsenter", "-t", str(host.init), *SPACES, "sh", "-c", script]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def test_of_several_networks_the_one_that_leads_to_the_peer_is_taken():
    assert devices_toward("127.0.0.1").split(",")[0] == "lo"
    assert devices_toward("no address") == ""


async def test_kv_crosses_the_link_between_two_hosts(tmp_path, monkeypatch):
    monkeypatch.delenv("UCX_TLS", raising=False)
    certificates.write(tmp_path, ("a",))
    with machine("a", tmp_path / "a.pem", tmp_path) as there:
        with far(there) as source:
            assert source.stdout is not None
            address, digest = source.stdout.readline().split()
            stores = {device: KvStore(SHAPE) for device in (2, 3)}
            handles = {device: store.handle for device, store in stores.items()}
            target = await Carrier.start(LocalLauncher("b"), SHAPE, TP2_TO_PP2, handles, there.address)
            met = await target.meet(bytes.fromhex(address))
            before = received_bytes(there.ours)
            fetched = await target.fetch(RUNS)
            assert received_bytes(there.ours) - before >= fetched.num_bytes
            assert met.lane == f"tcp/{there.ours}"
            assert (await target.digest(RUNS)).hex() == digest
            assert stores[3].cache[0, 3, 1, 0].equal(filled(SHAPE, 1).cache[0, 3, 1, 0])
            target.close()
            await target.process.close()
            source.communicate(timeout=20)
        assert source.returncode == 0
