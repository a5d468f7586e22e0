"""The engines that can be measured, each on the local example that comes with it."""

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from intentctl.arguments import EngineName
from intentctl.local import EXAMPLES
from runtime.engine import Engine
from runtime.errors import EngineStartError
from runtime.models import Cluster, ModelSpec, Topology
from runtime.notation import parse_topology
from runtime.torch_engine.models import EngineSettings

if TYPE_CHECKING:
    from runtime.process.launcher import Launchers
    from runtime.torch_engine.engine import TorchEngine
    from runtime.vllm_engine.models import VllmSettings
    from service.deployment.file import Deployment

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


def torch_engine_of(path: OwnPath) -> "type[TorchEngine]":
    """The built-in engine that switches by a path."""
    from benchmarks.gather_scatter import GatherScatterEngine
    from benchmarks.stop_and_copy import StopAndCopyEngine
    from runtime.torch_engine.engine import TorchEngine

    naive = {"stop-and-copy": StopAndCopyEngine, "gather-scatter": GatherScatterEngine}
    return naive.get(path, TorchEngine)


@dataclass(frozen=True, slots=True)
class Subject:
    """What is measured: a model on a cluster."""

    checkpoint: Path
    """The folder of the model."""
    spec: ModelSpec
    """The model's shape."""
    cluster: Cluster
    precision: str
    vllm: "VllmSettings | None" = None
    """Of stock vLLM; None for the built-in engine."""
    torch_engine: "Callable[[OwnPath], type[TorchEngine]]" = torch_engine_of
    block_tokens: int = 32
    """Of a KV block of the built-in engine."""
    launchers: "Launchers | None" = None
    """Of several hosts; None: of this one."""

    @classmethod
    def of(cls, deployment: "Deployment") -> "Subject":
        """What a deployment serves."""
        model = deployment.model()
        engine = model.engine
        vllm = engine.vllm if engine.name == "vllm" else None
        return cls(model.to_serve(), model.spec, model.cluster, model.precision, vllm)

    @classmethod
    def example(cls, engine: EngineName) -> "Subject":
        """The counting checkpoint with one engine or the other."""
        from service.deployment.file import load

        return cls.of(load(EXAMPLES[engine]))

    def with_checkpoint(self, folder: Path) -> "Subject":
        """Another model on the same cluster."""
        from runtime.torch_engine.worker.checkpoint import Checkpoint

        return replace(self, checkpoint=folder, spec=Checkpoint(folder).spec)

    def topology(self, text: str) -> Topology:
        """A topology of this model on this cluster.

        Raises:
            TopologyError: it cannot be read, bound or be.
        """
        topology = parse_topology(text, self.cluster, self.spec.num_layers, self.precision)
        topology.check(self.cluster, self.spec)
        return topology

    async def start(self, topology: Topology, path: OwnPath, demand: Demand) -> Engine:
        """An engine with room for a demand that switches by ``path`` where it has a choice.

        Raises:
            RuntimeFault: it does not start.
        """
        if self.vllm is None:
            return await self._start_torch(topology, path, demand)
        from runtime.vllm_engine.engine import VllmEngine

        # without prefix caching: a replay back to an engine that still has the prefix would be no replay
        options = {"max_model_len": demand.tokens, "enable_prefix_caching": False}
        return await VllmEngine.start(
            self.checkpoint,
            topology,
            self.cluster,
            replace(
                self.vllm,
                path="follow" if path == "follow" else "patch",
                options={**self.vllm.options, **options},
            ),
        )

    async def _start_torch(self, topology: Topology, path: OwnPath, demand: Demand) -> Engine:
        from runtime.torch_engine.models import is_on_gpus

        if path == "gather-scatter" and is_on_gpus(topology):
            raise EngineStartError("gather-scatter gathers in memory of the driver, which has no GPU")
        engine, cluster = self.torch_engine(path), roomy(self.cluster)
        return await engine.start(self.checkpoint, topology, cluster, self.settings(demand), self.launchers)

    def settings(self, demand: Demand) -> EngineSettings:
        """Of the built-in engine, with room for a demand."""
        least = EngineSettings()
        return EngineSettings(
            block_size=self.block_tokens,
            num_blocks=demand.streams * (demand.tokens // self.block_tokens + 2) + 1,
            max_running=demand.streams,
            closing_batch_tokens=max(least.closing_batch_tokens, demand.streams),
            max_batch_tokens=max(least.max_batch_tokens, 2 * demand.streams),
            prefix_caching=False,  # as in vLLM above
            num_standby=demand.standby,
        )


def roomy(cluster: Cluster) -> Cluster:
    """The cluster with all of this machine's memory on each CPU slot: many streams need more than the example has."""
    memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    nodes = tuple(
        replace(
            node,
            gpus=tuple(replace(gpu, memory_bytes=memory_bytes) if gpu.kind == "CPU" else gpu for gpu in node.gpus),
        )
        for node in cluster.nodes
    )
    return replace(cluster, nodes=nodes)
