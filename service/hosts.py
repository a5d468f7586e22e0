"""The hosts of a deployment.

Agents are reached, and what each has is held against the file, before any engine starts.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from runtime.errors import EngineStartError
from runtime.process.facts import gather, wrong_devices
from service.deployment import Deployment
from service.devices import Devices
from service.settings import visible_gpus

if TYPE_CHECKING:
    from runtime.hosts.cluster import Expected, Hosts


@asynccontextmanager
async def open_hosts(deployment: Deployment, devices: Devices) -> "AsyncIterator[Hosts | None]":
    """The hosts of a deployment until the end; None where all devices are this machine's.

    Devices of a lost one are out.

    Raises:
        EngineStartError: a host has something else than the file or this machine says, by name.
    """
    if not deployment.agents:
        await refuse_other_devices(deployment)
        yield None
        return
    from runtime.hosts.cluster import Hosts

    hosts = Hosts(expected(deployment), deployment.certificates / "service.pem")

    def back(device: int) -> None:
        if devices.why(device).startswith("host "):  # one may be broken, too
            devices.back(device)

    hosts.on_out = devices.out
    hosts.on_back = back
    try:
        await hosts.open()
        yield hosts
    finally:
        await hosts.close()


def expected(deployment: Deployment) -> "Expected":
    """What a service of this deployment expects of its hosts.

    Raises:
        RefusedError: a model cannot be served.
    """
    from runtime.hosts.cluster import Expected

    folders = tuple(str(model.to_serve().resolve()) for model in deployment.models)
    needs_vllm = any(model.engine.name == "vllm" for model in deployment.models)
    return Expected(deployment.cluster, deployment.agents, folders, needs_vllm, visible_gpus(), deployment.ray)


async def refuse_other_devices(deployment: Deployment) -> None:
    """Refuse GPUs in the file that this machine does not have.

    Raises:
        EngineStartError: naming the device.
    """
    inventory = deployment.cluster.gpus
    if all(gpu.kind.upper() == "CPU" for gpu in inventory):
        return
    facts = await asyncio.to_thread(gather, (), visible_gpus())
    if what := wrong_devices(inventory, facts):
        raise EngineStartError(f"this machine is not as {deployment.file} says: {what}")
