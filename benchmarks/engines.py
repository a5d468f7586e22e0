"""The engines that can be measured, each on the local example that comes with it."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from intentctl.arguments import EngineName
from intentctl.local import EXAMPLES
from runtime.engine import Engine
from runtime.models import ModelSpec, Topology
from runtime.notation import parse_topology
from service.deployment import Deployment, load

OwnPath = Literal["patch", "follow"]

OWN_PATHS: dict[EngineName, tuple[OwnPath, ...]] = {
    EngineName.TORCH: ("patch",),
    EngineName.VLLM: ("patch", "follow"),
}
"""How each engine brings requests over by itself."""


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

    async def start(self, topology: Topology, path: OwnPath, max_model_tokens: int) -> Engine:
        """An engine for requests of up to ``max_model_tokens`` that switches by ``path`` where it has a choice.

        Raises:
            RuntimeFault: it does not start.
        """
        place = self.checkpoint, topology, self.deployment.cluster
        if self.deployment.engine == "torch":
            from runtime.torch_engine.engine import TorchEngine

            return await TorchEngine.start(*place)
        from runtime.vllm_engine.engine import VllmEngine

        # without prefix caching: a replay back to an engine that still has the prefix would be no replay
        options = {"max_model_len": max_model_tokens, "enable_prefix_caching": False}
        settings = self.deployment.vllm
        return await VllmEngine.start(
            *place, replace(settings, path=path, options={**settings.options, **options})
        )
