"""The hosts of a deployment.

Agents are reached, and what each has is held against the file, before any engine starts.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from runtime.errors import EngineStartError
from runtime.process.facts import gather, wrong_devices
from runtime.process.supervised import begin, supervised
from service.deployment.file import Deployment
from service.deployment.settings import visible_gpus
from service.serving.devices import Devices
from service.store.lease import Lease

if TYPE_CHECKING:
    from runtime.hosts.cluster import Expected, Hosts

log = logging.getLogger(__name__)

SOON_DAYS = 30
"""Before a certificate's end, as long as `intentctl hosts init` makes it anew."""
LOOK_S = 3600.0
"""Between two looks at the certificates' ends."""


@asynccontextmanager
async def open_hosts(deployment: Deployment, devices: Devices, lease: Lease | None) -> "AsyncIterator[Hosts | None]":
    """The hosts of a deployment until the end; None where all devices are this machine's.

    Devices of a lost one are out. Agents start processes for the owner of ``lease``, and for nobody else meanwhile.

    Raises:
        EngineStartError: a host has something else than the file or this machine says, by name.
    """
    if not deployment.agents:
        await refuse_other_devices(deployment)
        yield None
        return
    from runtime.hosts.cluster import Hosts
    from runtime.hosts.messages import NOBODY, Claim

    claim = Claim(lease.database, lease.fence, lease.holder) if lease else NOBODY
    hosts = Hosts(replace(expected(deployment), claim=claim), deployment.certificates / "service.pem")

    def back(device: int) -> None:
        if devices.why(device).startswith("host "):  # one may be broken, too
            devices.back(device)

    hosts.on_out = devices.out
    hosts.on_back = back
    try:
        await hosts.open()
        watch = partial(_watch, hosts.certificate_ends, deployment.certificates)
        begin("certificates", supervised("certificates", watch), hosts.background)
        yield hosts
    finally:
        await hosts.close()


def own_ends(folder: Path) -> dict[str, float]:
    """When the certificates of the service's own file end; see ``Hosts.certificate_ends``. Blocks.

    Raises:
        EngineStartError: they cannot be read.
    """
    try:
        from runtime.hosts.certificates import ends

        return ends(folder / "service.pem")
    except (ImportError, OSError, ValueError) as error:
        raise EngineStartError(f"the end of {folder / 'service.pem'} is not known: {error}") from error


def endings(ends: Mapping[str, float]) -> tuple[str, ...]:
    """Which certificates end soon, in how many days, and what to do."""
    days = {name: (end_s - time.time()) / 86400 for name, end_s in sorted(ends.items())}
    return tuple(
        f"the certificate {name} {f'ends in {left:.0f} days' if left > 0 else 'has ended'} "
        f"({datetime.fromtimestamp(ends[name], UTC):%Y-%m-%d}): run `intentctl hosts init`, copy the new files to their "
        "hosts, start their agents again"
        for name, left in days.items()
        if left < SOON_DAYS
    )


async def _watch(ends: dict[str, float], folder: Path) -> None:
    """Know the certificates' ends; those that are near are in the log each day."""
    known = set[str]()
    while True:
        try:
            ends |= await asyncio.to_thread(own_ends, folder)
        except EngineStartError as error:
            log.warning("%s", error)
        new = {*endings(ends)} - known
        known |= new
        for line in new:
            log.warning("%s", line)
        await asyncio.sleep(LOOK_S)


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
