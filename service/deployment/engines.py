"""The engine of a model: what it can run, and how it is started."""

import asyncio
from collections.abc import Iterable
from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING

from runtime.capabilities import Batching, Capabilities
from runtime.engine import Engine
from runtime.footprint import weight_bytes
from runtime.models import FULL, Topology, uniform
from runtime.torch_engine.models import capabilities as of_torch
from runtime.torch_engine.models import default_blocks
from runtime.vllm_engine.launch import capabilities as of_vllm
from runtime.vllm_engine.launch import sized
from service.deployment.models import ServedModel
from service.deployment.settings import visible_gpus

if TYPE_CHECKING:
    from runtime.process.launcher import Launchers
    from runtime.replicas.engine import ReplicaSet


def capabilities(model: ServedModel) -> Capabilities | None:
    """What the engine that the file names can run, as it would be started; None where it names none."""
    match model.engine.named:
        case "vllm":
            smallest = min(model.cluster.gpus, key=lambda gpu: gpu.memory_bytes).kind
            start = model.start or uniform(model.cluster, smallest, 1, 1, model.spec.num_layers, model.precision)
            # where it will start is not known without
            weights = max(weight_bytes(start, model.spec).values()) if model.start else 0
            return of_vllm(model.cluster, model.spec, sized(model.engine.vllm, model.cluster, start, weights))
        case "torch":
            settings = model.engine.torch
            blocks = settings.num_blocks or default_blocks(model.spec, model.cluster, first(model), settings.block_size)
            return of_torch(model.spec, base(model), model.cluster.kinds, replace(settings, num_blocks=blocks or None))
    return None


def base(model: ServedModel) -> str:
    """The format in which the built-in engine keeps a model's activations and KV."""
    kv = first(model).stages[0].precision.kv
    return kv if kv in FULL else "bf16"


def load(models: Iterable[ServedModel]) -> None:
    """Import the engines of models, torch too: for seconds the event loop does nothing else.

    So it is done before agents of hosts expect heartbeats.
    """
    for model in models:
        import_module(f"runtime.{model.engine.name}_engine.engine")


async def start(
    model: ServedModel, topology: Topology, launchers: "Launchers | None" = None, batching: Batching | None = None
) -> "ReplicaSet":
    """The model's engine in a topology, the built-in one unless said: one for each replica.

    It fills steps as far as ``batching`` says, or the file.

    ``launchers`` of all hosts, where there are several.
    """

    from runtime.replicas.engine import ReplicaSet  # here: it takes numpy, and who parses need not wait for that

    async def alone(replica: Topology, filled: Batching | None) -> Engine:
        return await _started(model, replica, launchers, filled)

    begun = [alone(replica, batching and batching.of(place)) for place, replica in enumerate(topology.replicas)]
    tries = await asyncio.gather(*begun, return_exceptions=True)
    up = [tried for tried in tries if not isinstance(tried, BaseException)]
    if failed := [tried for tried in tries if isinstance(tried, BaseException)]:
        await asyncio.gather(*(engine.close() for engine in up))
        raise failed[0]
    return ReplicaSet(up, alone, lambda now, then: model.reach(now) == model.reach(then))


async def _started(
    model: ServedModel, topology: Topology, launchers: "Launchers | None", batching: Batching | None
) -> Engine:
    """The engine of one replica."""
    folder = model.to_serve().resolve() if launchers else model.to_serve()
    if model.engine.name == "vllm":
        from runtime.vllm_engine.engine import VllmEngine

        named = {"served_model_name": model.name, **model.engine.vllm.options}
        return await VllmEngine.start(
            folder,
            topology,
            model.cluster,
            replace(model.engine.vllm, options=named, visible=visible_gpus()),
            launchers=launchers,
            batching=batching,
        )
    from runtime.torch_engine.engine import TorchEngine

    return await TorchEngine.start(
        folder, topology, model.cluster, model.engine.torch, launchers=launchers, batching=batching
    )


def first(model: ServedModel) -> Topology:
    """The topology that the file starts the model in.

    Unless it says one, its first device in its checkpoint's precision.
    """
    return model.start or uniform(model.cluster, model.cluster.kinds[0], 1, 1, model.spec.num_layers, model.precision)
