"""The engines that can be measured, on the counting checkpoint and the cluster of the local example."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from intentctl.local import EXAMPLE
from runtime.engine import Engine
from runtime.models import Cluster, ModelSpec, Topology
from runtime.notation import parse_topology
from service.deployment import load

EngineName = Literal["torch", "vllm"]
SwitchPath = Literal["patch", "follow"]

OWN_PATHS: dict[EngineName, tuple[SwitchPath, ...]] = {"torch": ("patch",), "vllm": ("patch", "follow")}
"""How each engine brings requests over by itself."""


@dataclass(frozen=True, slots=True)
class Subject:
    """What is measured."""

    engine: EngineName
    checkpoint: Path
    cluster: Cluster
    spec: ModelSpec
    precision: str
    """What holds where a topology's text says none."""

    @classmethod
    def example(cls, engine: EngineName) -> "Subject":
        """The local example with one engine or the other."""
        deployment = load(EXAMPLE)
        model = deployment.model
        return cls(engine, deployment.checkpoint(), deployment.cluster, model.spec, model.precision)

    def topology(self, text: str) -> Topology:
        """A topology of this model on this cluster.

        Raises:
            TopologyError: it cannot be read, bound or be.
        """
        topology = parse_topology(text, self.cluster, self.spec.num_layers, self.precision)
        topology.check(self.cluster, self.spec)
        return topology

    async def start(self, topology: Topology, path: SwitchPath, max_model_tokens: int) -> Engine:
        """An engine for requests of up to ``max_model_tokens`` that switches by ``path`` where it has a choice.

        Raises:
            RuntimeFault: it does not start.
        """
        if self.engine == "torch":
            from runtime.torch_engine.engine import TorchEngine

            return await TorchEngine.start(self.checkpoint, topology, self.cluster)
        from runtime.vllm_engine.engine import VllmEngine

        from runtime.vllm_engine.models import VllmSettings

        # without prefix caching: a replay back to an engine that still has the prefix would be no replay
        options = {"max_model_len": max_model_tokens, "enable_prefix_caching": False}
        settings = VllmSettings(options=options, path=path)
        return await VllmEngine.start(self.checkpoint, topology, self.cluster, settings)
