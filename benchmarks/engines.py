"""The engines that can be measured, each on the local example that comes with it."""

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from intentctl.arguments import EngineName
from intentctl.local import EXAMPLES
from runtime.engine import Engine
from runtime.errors import EngineStartError
from runtime.models import Cluster, ModelSpec, Topology
from runtime.notation import parse_topology
from service.deployment import Deployment, load

OwnPath = Literal["patch", "follow", "stop-and-copy", "gather-scatter"]

OWN_PATHS: dict[EngineName, tuple[OwnPath, ...]] = {
    EngineName.TORCH: ("patch", "stop-and-copy", "gather-scatter"),
    EngineName.VLLM: ("patch", "follow"),
}
"""How each engine brings requests over by itself; the last two are baselines inside the torch engine."""


@dataclass(frozen=True, slots=True)
class Demand:
    """What an engine must have room for."""

    streams: int
    """At once."""
    tokens: int
    """Of the longest, prompt and output."""
    standby: int = 1
    """Topologies kept warm for the way back."""


@dataclass(frozen=True, slots=True)
class Subject:
    """What is measured."""

    deployment: Deployment

    @classmethod
    def example(cls, engine: EngineName) -> "Subject":
        """The counting checkpoint with one engine or the other."""
        return cls(load(EXAMPLES[engine]))

    @property
    def checkpoint(self) -> Path:
        """The folder of the model."""
        return self.deployment.checkpoint()

    @property
    def spec(self) -> ModelSpec:
        """The model's shape."""
        return self.deployment.model.spec

    def topology(self, text: str) -> Topology:
        """A topology of this model on this cluster.

        Raises:
            TopologyError: it cannot be read, bound or be.
        """
        cluster, precision = self.deployment.cluster, self.deployment.model.precision
        topology = parse_topology(text, cluster, self.spec.num_layers, precision)
        topology.check(cluster, self.spec)
        return topology

    async def start(self, topology: Topology, path: OwnPath, demand: Demand) -> Engine:
        """An engine with room for a demand that switches by ``path`` where it has a choice.

        Raises:
            RuntimeFault: it does not start.
        """
        if self.deployment.engine == "torch":
            return await self._start_torch(topology, path, demand)
        from runtime.vllm_engine.engine import VllmEngine

        # without prefix caching: a replay back to an engine that still has the prefix would be no replay
        options = {"max_model_len": demand.tokens, "enable_prefix_caching": False}
        settings = self.deployment.vllm
        return await VllmEngine.start(
            self.checkpoint,
            topology,
            self.deployment.cluster,
            replace(
                settings,
                path="follow" if path == "follow" else "patch",
                options={**settings.options, **options},
            ),
        )

    async def _start_torch(self, topology: Topology, path: OwnPath, demand: Demand) -> Engine:
        from benchmarks.gather_scatter import GatherScatterEngine
        from benchmarks.stop_and_copy import StopAndCopyEngine
        from runtime.torch_engine.engine import TorchEngine
        from runtime.torch_engine.models import EngineSettings
        from runtime.torch_engine.places import is_on_gpus

        if path == "gather-scatter" and is_on_gpus(topology):
            raise EngineStartError("gather-scatter gathers in memory of the driver, which has no GPU")
        least = EngineSettings()
        settings = EngineSettings(
            num_blocks=demand.streams * (demand.tokens // least.block_size + 2) + 1,
            max_running=demand.streams,
            closing_batch_tokens=max(least.closing_batch_tokens, demand.streams),
            max_batch_tokens=max(least.max_batch_tokens, 2 * demand.streams),
            prefix_caching=False,  # as in vLLM above
            num_standby=demand.standby,
        )
        naive = {"stop-and-copy": StopAndCopyEngine, "gather-scatter": GatherScatterEngine}
        engine = naive.get(path, TorchEngine)
        return await engine.start(self.checkpoint, topology, roomy(self.deployment.cluster), settings)


def roomy(cluster: Cluster) -> Cluster:
    """The cluster with all of this machine's memory on each CPU slot: many streams need more than the example has."""
    memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    nodes = tuple(
        replace(
            node,
            gpus=tuple(
                replace(gpu, memory_bytes=memory_bytes) if gpu.kind == "CPU" else gpu for gpu in node.gpus
            ),
        )
        for node in cluster.nodes
    )
    return replace(cluster, nodes=nodes)
