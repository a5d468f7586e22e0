"""What an earlier process left.

Operations that it did not end, and the topology that its last switch led to.
"""

import asyncio
import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from runtime.capabilities import Batching, Capabilities
from runtime.errors import RuntimeFault, TopologyError
from runtime.models import CutoverReport, Phase, Progress, Reason, Topology
from runtime.notation import parse_topology
from runtime.process.liveness import Pauses
from runtime.replicas.engine import ReplicaSet
from runtime.torch_engine.models import capabilities as of_torch
from selector.models import Infeasible, Plan
from service.deployment import engines
from service.deployment.engine_settings import start_blocker
from service.deployment.file import Deployment
from service.deployment.models import ServedModel, refuse_impossible
from service.deployment.settings import NEWS
from service.documents.operations import OperationDocument
from service.documents.problems import Code
from service.serving.devices import Devices
from service.serving.events import EventBus
from service.store.clock import wall_s
from service.store.store import Store

if TYPE_CHECKING:
    from runtime.process.launcher import Launchers

log = logging.getLogger(__name__)

LEFT = {
    Phase.PLANNED: "before this switch began",
    Phase.WARMING: "while this switch loaded its target or copied KV",
    Phase.CUTTING: "at the cut of this switch; its commit was not written, so that it counts as not made",
    Phase.COMMITTED: "after the commit of this switch, and every stream with it; its figures are lost",
}
"""The last phase in a switch's journal to when the service ended, or could write no more."""


@dataclass(frozen=True, slots=True)
class Beginning:
    """What a model starts in."""

    topology: Topology
    origin: str
    """Why, in words."""
    batching: Batching | None = None
    """How far it fills its steps; None: as far as the file says."""


def close_unfinished(store: Store, events: EventBus) -> None:
    """End the operations of a process that stopped in the middle, as their journals say, and report them.

    Raises:
        StoreError: the store cannot be used.
    """
    for operation in store.unfinished_operations():
        ended = _closed(operation, store)
        store.save_operation(ended)
        events.publish("operation", ended)
        log.warning("operation %s was left %s and is closed as %s", operation.id, operation.phase, ended.phase)


def begin(
    store: Store,
    deployment: Deployment,
    model: ServedModel,
    out: Collection[int] = (),
    best: Callable[[Capabilities], Plan | Infeasible] | None = None,
) -> Beginning:
    """The topology that the last switch of a model committed.

    Else, or if the deployment bars it, that of the file.

    Where that needs devices that are out it is the ``best`` without them. Blocks.

    Raises:
        StoreError: the store cannot be used.
    """
    beginning = _begin(store, deployment, model)
    if best is None or not {*out} & {*beginning.topology.devices}:
        return beginning
    found = best(replace(_known(model), out=frozenset(out)))
    why = f"{beginning.topology} needs a device that is out"
    if isinstance(found, Infeasible):
        log.warning("%s: %s, and nothing else can serve; it starts there all the same", model.name, why)
        return beginning
    return Beginning(found.target, f"the best topology on the devices that are left; {why}", found.batching)


def _known(model: ServedModel) -> Capabilities:
    return engines.capabilities(model) or of_torch(
        model.spec, engines.base(model), model.cluster.kinds, model.engine.torch
    )


def _begin(store: Store, deployment: Deployment, model: ServedModel) -> Beginning:
    last = store.committed(model.name)
    if last is None:
        return Beginning(engines.first(model), "the start of the deployment file; no switch has committed yet")
    try:
        topology = _allowed(last.topology, deployment, model)
    except TopologyError as error:
        why = f"{last.topology}, which generation {last.generation} committed, can no longer serve: {error}"
        log.warning("%s: the start of the deployment file serves: %s", model.name, why)
        return Beginning(engines.first(model), f"the start of the deployment file; {why}")
    origin = f"generation {last.generation}, the last that a switch committed before the restart"
    return Beginning(topology, origin, last.batching and last.batching.within(_known(model).batching))


async def start_without_the_broken(
    model: ServedModel,
    devices: Devices,
    beginning: Callable[[Collection[int]], Beginning],
    launchers: "Launchers | None" = None,
) -> tuple[ReplicaSet, Beginning]:
    """Start the model's engine; a device that is to blame for two failed starts is left out.

    One that goes out meanwhile, as those of a lost host do, is left out like one that was out before.

    ``beginning`` says where it starts without devices. It may take long and runs in a thread: the event loop owes heartbeats.

    Raises:
        RuntimeFault: it does not start.
    """
    pauses = Pauses()
    suspects = dict[int, str]()
    while True:
        out = {*devices.all, *suspects}
        try:
            engine, began = await start(model, devices, await asyncio.to_thread(beginning, out), launchers)
        except RuntimeFault as error:
            if gone := devices.all.keys() - out:
                log.warning("%s: %s; it starts without devices %s, which went out", model.name, error, sorted(gone))
                continue
            device = error.device
            left = {gpu.index for gpu in model.cluster.gpus} - devices.all.keys() - suspects.keys()
            if device is None or device in suspects or not left - {device}:
                raise
            log.warning("%s: %s", model.name, error)
            if pauses.is_to_blame(error):
                suspects[device] = str(error)
        else:
            for device, why in suspects.items():
                devices.out(device, why)
            return engine, began


async def start(
    model: ServedModel, devices: Devices, beginning: Beginning, launchers: "Launchers | None" = None
) -> tuple[ReplicaSet, Beginning]:
    """The model's engine; if what an earlier switch committed does not come up, as the file says.

    Raises:
        RuntimeFault: it does not start as the file says, or a device went out meanwhile.
    """
    first = engines.first(model)
    out = {*devices.all}
    NEWS.info("starting the engine of %s on %s", model.name, beginning.topology.shape)
    try:
        return await engines.start(model, beginning.topology, launchers, beginning.batching), beginning
    except RuntimeFault as error:
        if beginning.topology == first or error.device is not None or devices.all.keys() - out:
            raise
        why = f"{beginning.topology}, which ran before the restart, does not come up: {error}"
    log.warning("%s: the start of the deployment file serves: %s", model.name, why)
    instead = Beginning(first, f"the start of the deployment file; {why}")
    return await engines.start(model, first, launchers), instead


def _allowed(text: str, deployment: Deployment, model: ServedModel) -> Topology:
    """A topology that ran, if it may run again.

    Raises:
        TopologyError: devices, limits, the engine or its settings are others now.
    """
    from selector.space import load_free_blocker, weights_of  # here, for most starts need not wait for numpy

    topology = parse_topology(text, model.cluster, model.spec.num_layers, model.precision)
    refuse_impossible(topology, model.spec, model.cluster, model.engine.block_tokens)
    problem = model.problem("always", deployment.limits, None, engines.capabilities(model))
    if why := load_free_blocker(topology, problem, weights_of(topology)):
        raise TopologyError(why)
    if wrong := start_blocker(model.engine, topology, model=model.spec, cluster=model.cluster):
        raise TopologyError(wrong[1])
    return topology


def _closed(operation: OperationDocument, store: Store) -> OperationDocument:
    """An operation at its end, by its journal."""
    for line in store.journal(operation.id):
        operation = operation.advanced(Progress(operation.id, Phase(line.phase), line.at_s))
    words = f"the service ended {LEFT[operation.phase]}"
    plan = store.plan(operation.plan_id) if operation.phase is Phase.COMMITTED else None
    made = store.generations_of(operation.id)
    is_whole = plan is not None and (not made or made[-1] == plan.target.text)
    last = Phase.DONE if is_whole else Phase.ABORTED
    ended = operation.advanced(Progress(operation.id, last, wall_s()))
    if plan is None or not is_whole:
        words += f"; of its changes {len(made)} were made, and {made[-1]} runs" if made else ""
        return ended.failed(Code.SWITCH_ABORTED, words)
    report = CutoverReport(
        operation.id,
        source=plan.now.text if plan.now else "",
        target=plan.target.text,
        phase=Phase.DONE,
        reason=Reason.ENGINE_LOST,
        detail=words,
    )
    return ended.finished(report)
