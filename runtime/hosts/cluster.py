"""All hosts of a cluster as one service has them: this one, and those that an agent speaks for."""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from runtime.errors import EngineStartError, TopologyError
from runtime.hosts.messages import NOBODY, Claim
from runtime.hosts.placement import AgentPlacement
from runtime.hosts.remote import RemoteHost
from runtime.hosts.tls import words
from runtime.models import Cluster
from runtime.process.facts import HostFacts, differences, gather, wrong_devices
from runtime.process.launcher import Launcher, LocalLauncher
from runtime.process.supervised import begin, cancel, contained, supervised

log = logging.getLogger(__name__)

RETRY_S = 2.0
"""Between two tries to reach a host that is lost; what comes back is another incarnation."""


@dataclass(frozen=True, slots=True)
class Expected:
    """What the service expects of its hosts."""

    cluster: Cluster
    agents: Mapping[str, tuple[str, int] | None]
    """Host to its agent's address and port, None where Ray starts it; the one that is not in it is this machine."""
    checkpoints: tuple[str, ...]
    """Folders that every host has."""
    needs_vllm: bool
    visible: str
    """What processes of this machine may use of its GPUs, as in ``CUDA_VISIBLE_DEVICES``; empty: all."""
    ray: str = ""
    """The address of its head."""
    claim: Claim = NOBODY
    """As whom it has them."""


class Hosts:
    """Knows the devices of each host, starts processes there, and notices what is lost."""

    def __init__(self, expected: Expected, certificate: Path) -> None:
        self.on_out: Callable[[int, str], None] = lambda *_: None
        """Called for each device of a host that is lost, with why, before any engine hears of it."""
        self.on_back: Callable[[int], None] = lambda _: None
        """Called for each device of a host that is reached."""
        self.certificate_ends = dict[str, float]()
        """Unix seconds by the files' names: the service's, the authority's, and those that agents showed last."""
        self._expected = expected
        self._certificate = certificate
        self._placement = AgentPlacement(expected.agents, expected.ray)
        self._nodes = {node.name: node for node in expected.cluster.nodes}
        self._here = {
            name: LocalLauncher(name, node.gpus[0].index, expected.visible)
            for name, node in self._nodes.items()
            if name not in expected.agents
        }
        self._reached: dict[str, RemoteHost] = {}
        self.lost: dict[str, str] = {}
        """Why, of each host that is lost."""
        self._ours: HostFacts
        self.background = set[asyncio.Task[None]]()
        """Ends when hosts are let go."""

    async def open(self) -> None:
        """Reach every host and hold what it has against the deployment.

        One that cannot be reached counts as lost.

        Raises:
            EngineStartError: a host differs, this one too.
        """
        self._ours = await asyncio.to_thread(gather, self._expected.checkpoints, self._expected.visible)
        for name in self._here:
            if what := wrong_devices(self._nodes[name].gpus, self._ours):
                raise EngineStartError(f"host {name} (this machine): {what}")
        tries = await asyncio.gather(*map(self._reach, self._expected.agents), return_exceptions=True)
        for name, failed in zip(self._expected.agents, tries, strict=True):
            if isinstance(failed, OSError):
                self._miss(name, words(failed))
            elif failed is not None:
                raise failed
            elif name in self._reached:  # else it was lost while others were waited for
                self._welcome(name)
        for name in self._expected.agents:
            task = f"search for host {name}"
            begin(task, supervised(task, partial(self._search, name)), self.background)

    async def close(self) -> None:
        """Let go of every host. Idempotent."""
        await cancel(self.background)
        for remote in self._reached.values():
            remote.close()

    def host_of(self, devices: Collection[int]) -> str:
        """See ``Launchers``."""
        names = [name for name, node in self._nodes.items() if any(gpu.index in devices for gpu in node.gpus)]
        if len(names) != 1:
            raise TopologyError(
                f"devices {', '.join(map(str, devices))} are on the hosts {' and '.join(names)}: a topology runs on one"
            )
        return names[0]

    def address(self, host: str, seen_by: str) -> str:
        """See ``Launchers``."""
        for name in (host, seen_by):
            self.on(name)  # or it is lost
        if remote := self._reached.get(host):
            return remote.address_there
        return self._reached[seen_by].address_here if seen_by in self._reached else ""

    def on(self, host: str) -> Launcher:
        """See ``Launchers``."""
        launcher = self._here.get(host) or self._reached.get(host)
        if launcher is None:
            raise ConnectionError(f"host {host} is lost: {self.lost.get(host, 'it was let go')}")
        return launcher

    async def _reach(self, name: str) -> None:
        node = self._nodes[name]
        expected = self._expected
        address = await self._placement.address(name)
        remote = RemoteHost(name, node.gpus[0].index, self._note_lost)
        with contextlib.ExitStack() as refused:
            refused.callback(remote.close)
            await remote.open(address, self._certificate, expected.checkpoints, expected.claim)
            if what := wrong_devices(node.gpus, remote.facts) or differences(
                remote.facts, self._ours, needs_vllm=expected.needs_vllm
            ):
                raise EngineStartError(f"host {name}: {what}")
            if remote.lost is not None:
                raise ConnectionError(remote.lost)
            self._reached[name] = remote
            self.certificate_ends[f"{name}.pem"] = remote.certificate_end_s
            refused.pop_all()

    def _note_lost(self, remote: RemoteHost, why: str) -> None:
        if self._reached.get(remote.host) is remote:
            del self._reached[remote.host]
            self._miss(remote.host, why)

    def _welcome(self, name: str) -> None:
        for gpu in self._nodes[name].gpus:
            with contained("devices of hosts"):
                self.on_back(gpu.index)

    def _miss(self, name: str, why: str) -> None:
        log.warning("host %s counts as lost: %s", name, why)
        self.lost[name] = why
        for gpu in self._nodes[name].gpus:
            with contained("devices of hosts"):  # what runs there has to hear of it all the same
                self.on_out(gpu.index, f"host {name} is lost: {why}")

    async def _search(self, name: str) -> None:
        """Reach a host again whenever it is lost."""
        while True:
            await asyncio.sleep(RETRY_S)
            if name not in self.lost:
                continue
            try:
                await self._reach(name)
            except (OSError, EngineStartError) as error:
                if (why := words(error)) != self.lost[name]:
                    log.warning("host %s is still lost: %s", name, why)
                    self.lost[name] = why
            else:
                del self.lost[name]
                log.warning("host %s is back", name)
                self._welcome(name)
