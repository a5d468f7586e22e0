"""A look at every host of a deployment: can it be reached, what has it, what differs, how near is it."""

import asyncio
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from runtime.errors import RuntimeFault
from runtime.hosts import messages
from runtime.hosts.cluster import Expected
from runtime.hosts.placement import AgentPlacement
from runtime.hosts.remote import RemoteHost
from runtime.hosts.tls import words
from runtime.process.facts import HostFacts, differences, gather, wrong_devices

ROUND_TRIPS = 11
PROBE_BYTES = 32 << 20


@dataclass(frozen=True, slots=True)
class Seen:
    """What a look at one host found."""

    host: str
    wrong: str
    """Empty: it can be used."""
    detail: str
    certificate_end_s: float = 0.0
    """Of the one that its agent showed, Unix seconds; 0: none was seen."""


async def look(expected: Expected, certificate: Path) -> list[Seen]:
    """Every host in turn, this one first; nothing is started there."""
    ours = await asyncio.to_thread(gather, expected.checkpoints, expected.visible)
    nodes = {node.name: node.gpus for node in expected.cluster.nodes}
    here = [name for name in nodes if name not in expected.agents]
    seen = [Seen(name, wrong_devices(nodes[name], ours), f"this machine, {_told(ours)}") for name in here]
    placement = AgentPlacement(expected.agents, expected.ray)
    for name in expected.agents:
        remote = RemoteHost(name, 0, lambda *_: None)
        where = "its agent"
        try:
            address = await placement.address(name)
            where = f"{address[0]}:{address[1]}"
            await remote.open(address, certificate, expected.checkpoints)
            facts = remote.facts
            wrong = wrong_devices(nodes[name], facts) or differences(facts, ours, needs_vllm=expected.needs_vllm)
            detail = f"{where} from {remote.address_here}, {_told(facts)}, {await _near(remote)}"
            seen.append(Seen(name, wrong, detail, remote.certificate_end_s))
        except (OSError, RuntimeFault) as error:
            seen.append(Seen(name, f"{where}: {words(error)}", ""))
        finally:
            remote.close()
    return seen


def _told(facts: HostFacts) -> str:
    gpus = ", ".join(gpu.name for gpu in facts.gpus) or "no GPU"
    versions = ", ".join(f"{name} {number}" for name, number in facts.versions.items())
    return f"{versions}, {gpus}, {facts.cores} cores"


async def _near(remote: RemoteHost) -> str:
    """The median round trip, and how fast bytes go there."""
    trips_s = list[float]()
    for _ in range(ROUND_TRIPS):
        began_s = time.perf_counter()
        await remote.ask(messages.Probe(b""))
        trips_s.append(time.perf_counter() - began_s)
    began_s = time.perf_counter()
    await remote.ask(messages.Probe(bytes(PROBE_BYTES)))
    rate = PROBE_BYTES / (time.perf_counter() - began_s)
    return f"round trip {median(trips_s) * 1000:.1f} ms, {rate / 1e6:.0f} MB/s"
