"""What runs, and on what."""

from typing import TYPE_CHECKING

from service import documents as docs
from service.api.operation import READING, get, post
from service.documents.access import Right
from service.documents.errors import RefusedError
from service.documents.problems import Code

if TYPE_CHECKING:
    from service.api.context import Context


@get("/v1/models", Right.LOOK)
def models(here: "Context") -> docs.ModelsDocument:
    """What runs of each model, on what, and whether it is being changed."""
    return docs.ModelsDocument(models=tuple(serving.state for serving in here.service.parts.servings.values()))


@get("/v1/devices", Right.LOOK)
def devices(here: "Context") -> docs.DevicesDocument:
    """All devices: whose each is, whether something runs on it, whether it is out, and why."""
    parts = here.service.parts
    known = parts.devices.all
    owners = {gpu.index: model.name for model in here.deployment.models for gpu in model.cluster.gpus}
    used = {index for serving in parts.servings.values() for index in serving.engine.topology.devices}
    return docs.DevicesDocument(
        devices=tuple(
            docs.DeviceDocument(
                device=gpu.index,
                kind=gpu.kind,
                node=node.name,
                model=owners.get(gpu.index),
                used=gpu.index in used,
                out=known[gpu.index].why if gpu.index in known else None,
                out_by=known[gpu.index].by if gpu.index in known else None,
                out_since_s=known[gpu.index].since_s if gpu.index in known else None,
            )
            for node in here.deployment.cluster.nodes
            for gpu in node.gpus
        )
    )


@post("/v1/devices/{device}:out", Right.APPROVE, *READING, Code.NOT_FOUND)
def take_out(here: "Context", device: int, body: docs.OutRequest | None = None) -> docs.DeviceDocument:
    """Let no plan and no restart use a device from now on, over restarts of the service, too.

    What runs on it stays.
    """
    return _changed(here, device, (body and body.why) or f"taken out by {here.service.caller.name}")


@post("/v1/devices/{device}:in", Right.APPROVE, *READING, Code.NOT_FOUND)
def take_in(here: "Context", device: int) -> docs.DeviceDocument:
    """Let a device be used again. Nothing moves there until a plan asks for it."""
    return _changed(here, device, None)


def _changed(here: "Context", device: int, why: str | None) -> docs.DeviceDocument:
    if device not in [gpu.index for gpu in here.deployment.cluster.gpus]:
        raise RefusedError(Code.NOT_FOUND, f"no device {device}; see `intentctl devices`")
    here.service.parts.devices.change(device, why, here.service.caller)
    return next(listed for listed in devices(here).devices if listed.device == device)


@get("/v1/models/{model:path}/topology", Right.LOOK, Code.NOT_FOUND)
def topology_of(here: "Context", model: str) -> docs.StateDocument:
    """What runs of one model, on what, and whether it is being changed."""
    return here.service.serving(model).state


@get("/v1/models/{model:path}/profiles", Right.LOOK, Code.NOT_FOUND)
def profiles_of(here: "Context", model: str) -> docs.ProfilesDocument:
    """A model's sizes and the profile of each of its device kinds, as plans take them."""
    return _profiles(here, model)


@get("/v1/topology", Right.LOOK, Code.INVALID_REQUEST)
def topology(here: "Context") -> docs.StateDocument:
    """What runs of the only model; where several are served, each has a path of its own."""
    return here.service.serving(None).state


@get("/v1/profiles", Right.LOOK, Code.INVALID_REQUEST)
def profiles(here: "Context") -> docs.ProfilesDocument:
    """What predictions of the only model are made from.

    Where several are served, each has a path of its own.
    """
    return _profiles(here, None)


def _profiles(here: "Context", model: str | None) -> docs.ProfilesDocument:
    served = here.deployment.model(model)
    return docs.ProfilesDocument(model=served.spec, profiles=dict(here.profiles(served)))
