"""Drains: devices that a person empties, what still runs there, and until when it may.

A drain is devices that are out with a reason of its form, so that it outlives the service.
"""

import asyncio
import re
from collections.abc import Collection, Mapping
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from runtime.capabilities import Batching, Capabilities
from runtime.models import Topology
from runtime.replicas.engine import PATIENCE_S
from runtime.replicas.replica import Replica
from selector.models import Infeasible, Plan
from service import documents as docs
from service.control.relocation import RelocationPlanner, without
from service.deployment.file import Deployment
from service.documents.errors import RefusedError
from service.planning.lifecycle import another_switch, clock
from service.promises.watch import Watch, measured
from service.serving.devices import Devices
from service.serving.serving import Serving

_SPAN = re.compile(r"(\d{1,6}(?:\.\d{1,6})?)\s*([smhd])")
_UNITS_S = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_REASON = re.compile(r"drained by .+? as (\S+)(?:, by (\d{4}-\S+?))?(?:: (.*))?", re.DOTALL)
LEAD_S = 2.0
"""Before its time, when others begin to go on with what is left: it is to be empty by then."""


def deadline(text: str, deployment: Deployment, now: datetime) -> datetime:
    """The moment that ``10m``, ``18:00`` (the coming one) or an ISO time means.

    Raises:
        RefusedError: it is none, or over.
    """
    if span := _SPAN.fullmatch(text):
        return now + timedelta(seconds=float(span[1]) * _UNITS_S[span[2]])
    is_clock = re.fullmatch(r"\d\d?:\d\d", text) is not None
    today = now.astimezone(ZoneInfo(deployment.timezone))
    at = clock(f"{today:%Y-%m-%d}T{text.zfill(5)}" if is_clock else text, deployment, "by")
    at += timedelta(days=is_clock and at <= now)
    if at <= now:
        raise RefusedError(docs.Code.INVALID_REQUEST, f"by: {at:%Y-%m-%d %H:%M} is over; write a time to come, as 10m")
    return at


class Drains:
    """The drains of a deployment, and how its models get away from them."""

    def __init__(
        self,
        deployment: Deployment,
        devices: Devices,
        servings: Mapping[str, Serving],
        planners: Mapping[str, RelocationPlanner],
        watches: Mapping[str, Watch],
    ) -> None:
        self._deployment = deployment
        self._devices = devices
        self._servings = servings
        self._planners = planners
        self._watches = watches
        self._begun = dict[str, docs.DrainDocument]()
        """As they were answered; those of an earlier process are known by their reasons alone."""

    def read(self, what: str) -> tuple[str, frozenset[int]]:
        """The name of a node, a device or a replica, and its devices.

        Raises:
            RefusedError: there is none of that name.
        """
        cluster = self._deployment.cluster
        names = {f"node:{node.name}": frozenset(gpu.index for gpu in node.gpus) for node in cluster.nodes}
        names |= {f"gpu-{gpu.index}": frozenset({gpu.index}) for gpu in cluster.gpus}
        for model, serving in self._servings.items():
            for place, replica in enumerate(serving.engine.topology.replicas, start=1):
                names[f"{model}/{place}"] = frozenset(replica.devices)
                what = f"{model}/{place}" if what == str(replica) else what
        for name in (what, f"node:{what}", f"gpu-{what}"):
            if name in names:
                return name, names[name]
        message = f"what: there is no {what!r}; there are {', '.join(names)}"
        raise RefusedError(docs.Code.NOT_FOUND, message, [docs.Detail("/what", message)])

    def running(self, devices: Collection[int]) -> list[Serving]:
        """Those of which something runs on the devices.

        Raises:
            RefusedError: a model that may use them is being switched.
        """
        for serving in self._servings.values():
            if serving.operation and any(gpu.index in devices for gpu in serving.model.cluster.gpus):
                raise another_switch(serving.operation.id)
        return [serving for serving in self._servings.values() if not serving.devices.isdisjoint(devices)]

    async def away(self, serving: Serving, engine: Capabilities) -> tuple[Topology, Batching | None]:
        """Where a model goes from devices that are out: what keeps most of what is promised.

        Raises:
            RefusedError: nothing can serve without them.
        """
        name = serving.model.name
        seen = self._watches[name].seconds(self._deployment.rules.lookback_s, serving.router.waits_s)
        leave = self._planners[name].away
        found = await asyncio.to_thread(leave, serving.engine.topology, engine, measured(seen))
        if isinstance(found, Infeasible):
            message = f"nothing could serve {name} then: {'; '.join(found.reasons) or 'no device is left'}"
            raise RefusedError(docs.Code.INFEASIBLE, message, [docs.Detail("/what", message)], infeasible=found)
        return found

    def foreseen(self, plan: Plan, devices: Collection[int]) -> tuple[float, list[str]]:
        """How long a plan away takes until they are empty, and what it misses meanwhile and from then on."""
        serving = self._servings[plan.model]
        ends = [move.before for move in serving.engine.changes(plan.target, plan.batching) if move.after is None]
        lasts_s = [left_s(each) for each in _on(serving, devices) if each.engine.topology in ends]
        takes_s = (plan.switch.prepare_s if plan.switch else 0.0) + max(lasts_s, default=0.0)
        staying = without(serving.engine.topology, devices) or plan.target
        meanwhile = self._planners[plan.model].broken(plan, staying, serving.engine.capabilities)
        known = [each.message for each in plan.to_acknowledge]
        missed = [f"{message}, until it is undrained" for message in known]
        return takes_s, missed + [f"{each}, for about {takes_s:.2g} s" for each in meanwhile if each not in known]

    async def began(self, drain: docs.DrainDocument, devices: Collection[int], until: datetime | None) -> None:
        """Have new requests avoid what runs there; what is left when time is over goes on in other replicas."""
        self._begun[drain.what] = drain
        self.avoid(devices, is_avoided=True)
        wait_s = max(0.0, (until - datetime.now(UTC)).total_seconds() - LEAD_S) if until else PATIENCE_S
        for serving in self._under_way(drain.operations):
            serving.engine.be_patient(wait_s)
        asyncio.get_running_loop().call_later(wait_s, self._hurry, drain.operations)

    def _hurry(self, operations: Collection[str]) -> None:
        for serving in self._under_way(operations):
            serving.engine.be_patient(0.0)

    def _under_way(self, operations: Collection[str]) -> list[Serving]:
        """Those that operations switch now."""
        return [each for each in self._servings.values() if each.operation and each.operation.id in operations]

    def avoid(self, devices: Collection[int], *, is_avoided: bool) -> None:
        """Have new requests avoid what runs on devices, or not."""
        for replica in (each for serving in self._servings.values() for each in _on(serving, devices)):
            replica.is_avoided = is_avoided

    def held(self, what: str) -> docs.DrainDocument:
        """The drain of this name.

        Raises:
            RefusedError: there is none.
        """
        drains = {drain.what: drain for drain in self.listed()}
        for name in (what, f"node:{what}", f"gpu-{what}"):
            if name in drains:
                return drains[name]
        raise RefusedError(docs.Code.NOT_FOUND, f"{what} is not drained; {', '.join(drains) or 'nothing'} is")

    def listed(self) -> list[docs.DrainDocument]:
        """All drains, with what is left there."""
        found = dict[str, docs.DrainDocument]()
        for device, out in sorted(self._devices.all.items()):
            if match := _REASON.fullmatch(out.why):
                what, by, why = match.groups()
                drain = found.get(what) or self._begun.get(what, docs.DrainDocument(what=what))
                fields = {"who": out.by, "since_s": out.since_s, "by": by, "why": why or ""}
                found[what] = drain.model_copy(update={"devices": (*drain.devices, device), **fields})
        return [drain.model_copy(update=self._standing(drain.devices)) for drain in found.values()]

    def _standing(self, devices: Collection[int]) -> dict[str, object]:
        """What is left on devices."""
        used = [serving for serving in self._servings.values() if not serving.devices.isdisjoint(devices)]
        state = "leaving" if any(serving.operation for serving in used) else "used" if used else "empty"
        return {
            "state": state,
            "requests": sum(len(each.requests) for serving in used for each in _on(serving, devices)),
        }


def _on(serving: Serving, devices: Collection[int]) -> list[Replica]:
    """Replicas of a model that use some of the devices, those that leave, too."""
    every = (*serving.engine.replicas, *serving.engine.leaving)
    return [each for each in every if not {*devices}.isdisjoint(each.engine.topology.devices)]


def left_s(replica: Replica) -> float:
    """How long the longest answer may go on there, at the present speed."""
    tokens = [
        each.request.sampling.max_tokens - len(each.request.past) - each.tokens for each in replica.requests.values()
    ]
    return replica.speed.step_of(replica.work.running) * replica.measured.decoding * max(tokens, default=0)
