"""What runs, and on what."""

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from service import documents as docs
from service.api.operation import READING, get, post
from service.api.plans import APPLYING
from service.documents.access import Right
from service.documents.errors import RefusedError
from service.documents.problems import Code

if TYPE_CHECKING:
    from selector.models import Plan
    from service.api.context import Context
    from service.serving.serving import Serving


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


DRAINING = (*APPLYING, *READING, Code.RECONFIGURATION_LIMITED, Code.INFEASIBLE, Code.OVERLOADED)


@get("/v1/drains", Right.LOOK)
def drains(here: "Context") -> docs.DrainsDocument:
    """What is being emptied, or is empty and stays out."""
    return docs.DrainsDocument(drains=tuple(here.service.parts.promises.drains.listed()))


@post("/v1/drains", Right.APPROVE, *DRAINING, threads="planning", status=202, location=lambda _: "/v1/drains")
def drain(here: "Context", body: docs.DrainRequest) -> docs.DrainDocument:
    """Empty a node, a device or a replica.

    What runs there switches away, ends there, or goes on in other replicas. New requests avoid it at once, and no plan and no
    restart uses it until it is undrained. Nothing is cut. It is refused, and nothing changed, where nothing could serve without
    it, a switch is under way or a promise forbids one now.
    """
    from service.api.plans import apply
    from service.control.drains import deadline

    service = here.service
    known = service.parts.promises.drains
    until = deadline(body.by, here.deployment, here.clock(None)) if body.by else None
    what, devices = known.read(body.what)
    plans = [_away(here, serving, devices, what, body) for serving in known.running(devices)]
    foreseen = [known.foreseen(plan, devices) for plan in plans]
    seen = [*body.acknowledge, *(finding.code for plan in plans for finding in plan.to_acknowledge)]
    drain = docs.DrainDocument(
        what=what,
        operations=tuple(apply(here, plan.id, docs.ApplyRequest(acknowledge=seen)).id for plan in plans),
        misses=tuple(each for _, misses in foreseen for each in misses),
        estimate_s=max((seconds for seconds, _ in foreseen), default=0.0),
    )
    service.in_loop(known.began(drain, devices, until))
    by = f", by {until.isoformat(timespec='seconds')}" if until else ""
    for device in devices:
        reason = f"drained by {service.caller.name} as {what}{by}{body.why and f': {body.why}'}"
        service.parts.devices.change(device, reason, service.caller)
    return known.held(what)


def _away(here: "Context", serving: "Serving", devices: frozenset[int], what: str, body: docs.DrainRequest) -> "Plan":
    """The plan of a model away from devices, which its caller may apply.

    Raises:
        RefusedError: nothing could serve, or a switch is forbidden.
    """
    from service.access.consent import consent_now
    from service.api.planning import make_for

    service = here.service
    code = Code.RECONFIGURATION_LIMITED
    if (barred := serving.barred()) and code.value not in body.acknowledge:
        how = f"wait, retire that intent, or override it: intentctl drain {what} --override"
        raise RefusedError(code, f"{what} is not drained: {barred}; {how}")
    place = here.placed(serving.model)
    known = serving.situation().capabilities or serving.engine.capabilities
    engine = replace(known, out=known.out | devices)
    place = replace(place, situation=replace(place.situation, capabilities=engine))
    target, batching = service.in_loop(service.parts.promises.drains.away(serving, engine))
    plan = make_for(here, target, f"drain {what}: run it as {target}", place, docs.When(), batching, "promise").plans[0]
    consent_now(plan, here.deployment.approval, [finding.code for finding in plan.to_acknowledge], service.acts)
    return plan


@post("/v1/drains/{what:path}:undo", Right.APPROVE, *READING, Code.NOT_FOUND)
def undrain(here: "Context", what: str) -> docs.DrainsDocument:
    """Let what was drained be used again; a switch away that has not cut is cancelled.

    Nothing moves back by itself. Answers with the drains that are left.
    """
    from service.api.operations import cancel

    service = here.service
    known = service.parts.promises.drains
    drain = known.held(what)
    for device in drain.devices:
        service.parts.devices.change(device, None, service.caller)
    for operation in drain.operations:
        with suppress(RefusedError):  # it has cut, or ended
            cancel(here, operation)
    known.avoid(drain.devices, is_avoided=False)
    return drains(here)


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
