"""The engine that a deployment names: what it can run, and how it is started."""

from dataclasses import replace

from runtime.capabilities import Capabilities
from runtime.engine import Engine
from runtime.models import Topology, uniform
from runtime.torch_engine.models import capabilities as of_torch
from runtime.vllm_engine.launch import capabilities as of_vllm
from service.deployment import Deployment


def capabilities(deployment: Deployment) -> Capabilities | None:
    """What the engine that the file names can run, as it would be started; None where it names none."""
    model, engine = deployment.model, deployment.engine
    match engine.named:
        case "vllm":
            return of_vllm(deployment.cluster, model.spec, engine.vllm)
        case "torch":
            return of_torch(model.spec, model.precision, engine.torch)
    return None


async def start(deployment: Deployment) -> Engine:
    """The deployment's engine in its start topology, the built-in one unless said; one device when it names no topology."""
    place = deployment.to_serve(), deployment.model.start or smallest(deployment), deployment.cluster
    engine = deployment.engine
    if engine.name == "vllm":
        from runtime.vllm_engine.engine import VllmEngine

        named = {"served_model_name": deployment.model.spec.name, **engine.vllm.options}
        return await VllmEngine.start(*place, replace(engine.vllm, options=named))
    from runtime.torch_engine.engine import TorchEngine

    return await TorchEngine.start(*place, engine.torch)


def smallest(deployment: Deployment) -> Topology:
    """The model on the first device, in the precision its checkpoint has."""
    cluster = deployment.cluster
    return uniform(
        cluster, cluster.kinds[0], 1, 1, deployment.model.spec.num_layers, deployment.model.precision
    )
