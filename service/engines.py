"""The engine of a model: what it can run, and how it is started."""

from dataclasses import replace

from runtime.capabilities import Capabilities
from runtime.engine import Engine
from runtime.models import Topology, uniform
from runtime.torch_engine.models import capabilities as of_torch
from runtime.vllm_engine.launch import capabilities as of_vllm
from service.models import ServedModel
from service.settings import visible_gpus


def capabilities(model: ServedModel) -> Capabilities | None:
    """What the engine that the file names can run, as it would be started; None where it names none."""
    match model.engine.named:
        case "vllm":
            return of_vllm(model.cluster, model.spec, model.engine.vllm)
        case "torch":
            return of_torch(model.spec, model.precision, model.engine.torch)
    return None


async def start(model: ServedModel, topology: Topology) -> Engine:
    """The model's engine in a topology, the built-in one unless said."""
    place = model.to_serve(), topology, model.cluster
    if model.engine.name == "vllm":
        from runtime.vllm_engine.engine import VllmEngine

        named = {"served_model_name": model.name, **model.engine.vllm.options}
        return await VllmEngine.start(
            *place, replace(model.engine.vllm, options=named, visible=visible_gpus())
        )
    from runtime.torch_engine.engine import TorchEngine

    return await TorchEngine.start(*place, model.engine.torch)


def first(model: ServedModel) -> Topology:
    """The topology that the file starts the model in; unless it says one, its first device in its checkpoint's precision."""
    return model.start or uniform(
        model.cluster, model.cluster.kinds[0], 1, 1, model.spec.num_layers, model.precision
    )
