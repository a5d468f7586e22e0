"""A set of replicas as one engine: it chooses who serves a request, and joins what all say.

To router, coordinator and service it is an engine (``runtime.engine``). A request of a replica that is lost ends as lost, and
whoever submits it again gets another replica.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import replace

from runtime.capabilities import Batching, Capabilities
from runtime.engine import (
    Comeback,
    Engine,
    EngineState,
    EngineStats,
    Finish,
    GenerationRequest,
    Moved,
    Output,
    Shadow,
    Token,
)
from runtime.errors import EngineLostError, Reason, RequestError, RuntimeFault, SwitchError
from runtime.models import Topology
from runtime.process.driver import SamePlace
from runtime.process.supervised import begin, cancel, supervised
from runtime.replicas.choice import Bounds, Forecast, choose
from runtime.replicas.prefixes import BLOCK, Prefixes, keys_of
from runtime.replicas.replica import NO_SHARE, InFlight, Policy, Replica
from runtime.replicas.shadows import Starting, Stopping, Switching
from runtime.replicas.steps import CanSwitch, Change, always, transition

log = logging.getLogger(__name__)

StartEngine = Callable[[Topology, Batching | None], Awaitable[Engine]]
PATIENCE_S = 60.0
"""How long requests of a replica that stops may go on there, until others take them."""
TOLD = 3
"""Other replicas that an answer names, the next best."""
USUAL_TOKENS = 128.0
"""Of an answer, until some have ended."""
RECENT = 0.02
"""Weight of the last answer's length in the mean."""
PROBED = 256
"""After so many requests that passed over an idle replica it has the next, within bounds: what is known of it is old."""


class ReplicaSet:
    """The engines of one model, each a replica."""

    def __init__(self, engines: Sequence[Engine], start: StartEngine, can_switch: CanSwitch = always) -> None:
        """``engines`` serve already; ``start`` brings up another one."""
        self._can_switch = can_switch
        self.patience_s = PATIENCE_S
        self._start = start
        self._policy = Policy()
        self._comeback: Comeback = SamePlace()
        self._outputs: asyncio.Queue[list[Output] | EngineLostError | None] = asyncio.Queue()
        self._requests: dict[str, InFlight] = {}
        self._prefixes = Prefixes[Replica]()
        self._usual_tokens = USUAL_TOKENS
        self._pumps = dict[Replica, asyncio.Task[None]]()
        self._background = set[asyncio.Task[None]]()
        self._hurry = asyncio.Event()
        self.replicas: list[Replica] = []
        """Those that serve, or are started anew; in the order of the topology."""
        for engine in engines:
            self.add(engine)

    # --- the protocol ---

    @property
    def topology(self) -> Topology:
        """What it runs now."""
        if len(self.replicas) == 1:
            return self.replicas[0].engine.topology
        return Topology.of_replicas(replica.engine.topology for replica in self.replicas)

    @property
    def capabilities(self) -> Capabilities:
        """What each replica can run, and how all fill their steps."""
        known = [replica.engine.capabilities for replica in self.replicas]
        if len(known) == 1:
            return known[0]
        running = Batching.of_replicas([each.running or each.batching for each in known])
        standby = frozenset().union(*(each.standby for each in known))
        return replace(known[0], running=running, standby=standby)

    @property
    def state(self) -> EngineState:
        """The best of any replica: what is lost of a set is less capacity."""
        states = {replica.engine.state for replica in self.replicas}
        return next(state for state in EngineState if state in states)

    @property
    def comeback(self) -> Comeback:
        """Who decides where a lost replica starts again."""
        return self._comeback

    @comeback.setter
    def comeback(self, comeback: Comeback) -> None:
        self._comeback = comeback
        for replica in self.replicas:
            replica.engine.comeback = comeback

    async def submit(self, request: GenerationRequest) -> None:
        """Queue a request with the replica that is predicted to end it first; see the protocol."""
        tried = list[Replica]()
        while True:
            chosen = self._chosen(request, tried)
            replica = chosen.replica
            assert replica is not None, "it was chosen"
            if len(self.replicas) > 1 and not replica.serves:  # others wait behind it, who may go elsewhere
                raise EngineLostError(f"{replica.name} is {replica.engine.state}; try again in some seconds")
            self._requests[request.request_id] = chosen
            replica.take(chosen)
            try:
                await replica.engine.submit(request)
            except RuntimeFault:
                if self._requests.get(request.request_id) is not chosen or chosen.replica is None:
                    return  # it was given away or cancelled meanwhile: whoever was told submits it again
                self._forget(chosen)
                tried.append(replica)
                if not any(each.serves for each in self._open(request.tenant, tried)):
                    raise
            else:
                return

    async def cancel(self, request_id: str) -> None:
        """End a request early; see the protocol."""
        if (entry := self._requests.get(request_id)) is None:
            return
        self._forget(entry)
        if entry.replica is not None:
            await entry.replica.engine.cancel(request_id)

    async def outputs(self) -> AsyncIterator[list[Output]]:
        """Batches of all replicas as they come; see the protocol."""
        while (batch := await self._outputs.get()) is not None:
            if isinstance(batch, EngineLostError):
                raise batch
            yield batch

    async def prepare(self, target: Topology, batching: Batching | None = None) -> Shadow:
        """Begin the one change that leads to a target; see the protocol."""
        return await self._prepare(target, batching, ends_first=False)

    async def succeed_by(self, target: Topology, batching: Batching | None = None) -> Shadow:
        """The same, where what runs of the replica ends first; see the protocol."""
        return await self._prepare(target, batching, ends_first=True)

    async def stats(self) -> EngineStats:
        """Of all replicas that serve, together; see the protocol."""
        able = [each for each in self.replicas if each.engine.state is EngineState.SERVING] or self.replicas
        answers = await asyncio.gather(*(each.engine.stats() for each in able), return_exceptions=True)
        known = [answer for answer in answers if isinstance(answer, EngineStats)]
        if not known:
            raise next(answer for answer in answers if isinstance(answer, BaseException))
        return EngineStats(
            running=sum(each.running for each in known),
            waiting=sum(each.waiting for each in known),
            free_blocks=sum(each.free_blocks for each in known),
            total_blocks=sum(each.total_blocks for each in known),
            worker_pids={device: pid for each in known for device, pid in each.worker_pids.items()},
            standby=tuple(topology for each in known for topology in each.standby),
            prefix_cache_queries=sum(each.prefix_cache_queries for each in known),
            prefix_cache_hits=sum(each.prefix_cache_hits for each in known),
        )

    async def exposition(self) -> str:
        """The metrics of the engine where there is one; those of several have the same names."""
        return await self.replicas[0].engine.exposition() if len(self.replicas) == 1 else ""

    async def close(self) -> None:
        """End every replica; see the protocol."""
        await cancel(self._background)
        await asyncio.gather(*(replica.engine.close() for replica in self._pumps))
        await cancel(self._pumps.values())
        self._outputs.put_nowait(None)

    # --- what a service tells and asks beside it ---

    @property
    def policy(self) -> Policy:
        """What a plan says of the replicas."""
        return self._policy

    @policy.setter
    def policy(self, policy: Policy) -> None:
        self._policy = policy
        for replica in self.replicas:
            replica.num_taken = 0
        self.heed()

    @property
    def leaving(self) -> tuple[Replica, ...]:
        """Those that were retired and have not ended."""
        return tuple(replica for replica in [*self._pumps] if replica not in self.replicas)  # other threads ask, too

    def be_patient(self, seconds: float) -> None:
        """Let requests of replicas that stop go on there for so long.

        Also of those that stop already. Others take them then.
        """
        self.patience_s = seconds
        self._hurry.set()

    def changes(self, target: Topology, batching: Batching | None = None) -> tuple[Change, ...]:
        """What leads from here to a target, one replica at a time."""
        known = [replica.engine.capabilities for replica in self.replicas]
        serving = {each.engine.topology for each in self.replicas if each.serves}

        def can_switch(before: Topology, after: Topology) -> bool:
            """One that is lost cannot, while others serve: it stops, and another one starts."""
            return (before in serving or not serving) and self._can_switch(before, after)

        return transition(self.topology, target, [each.running for each in known], batching, can_switch)

    # --- what a change of the set does ---

    def add(self, engine: Engine) -> Replica:
        """An engine serves beside the others."""
        replica = Replica(engine)
        engine.comeback = self._comeback
        self._pumps[replica] = asyncio.create_task(supervised("replica", lambda: self._pump(replica)))
        self.replicas.append(replica)
        self.heed()
        return replica

    def heed(self) -> None:
        """Take each replica for what the policy says of its topology, in the order of that."""
        self.replicas = sorted(self.replicas, key=lambda each: min(each.engine.topology.devices))
        for replica in self.replicas:
            replica.heed(self._policy.shares.get(str(replica.engine.topology), NO_SHARE))

    def retire(self, replica: Replica) -> tuple[str, ...]:
        """It takes no more requests; those that it has go on there.

        Raises:
            SwitchError: it is the last one that serves.
        """
        if replica.serves and not any(each.serves for each in self.replicas if each is not replica):
            raise SwitchError(Reason.ENGINE_LOST, f"the other replicas do not serve; {replica.name} goes on")
        self.replicas.remove(replica)
        return tuple(replica.requests)

    async def end(self, replica: Replica) -> None:
        """End its engine. Idempotent."""
        await replica.engine.close()
        self._prefixes.forget(replica)
        if pump := self._pumps.pop(replica, None):
            await cancel([pump])

    async def emptied(self, replica: Replica) -> None:
        """Return when a replica that was retired has no requests.

        They ended, or time is up and they go on in others.
        """
        began_s = time.monotonic()
        while replica.requests and (left_s := began_s + self.patience_s - time.monotonic()) > 0:
            self._hurry.clear()
            waiting = [asyncio.create_task(event.wait()) for event in (replica.is_empty, self._hurry)]
            try:
                await asyncio.wait(waiting, timeout=left_s, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in waiting:
                    task.cancel()
        self._give_away(replica)

    def fence(self, epoch: int, moved: Sequence[str] = ()) -> None:
        """New requests speak under this epoch."""
        self._outputs.put_nowait([Moved(epoch, tuple(moved))])

    # --- within ---

    async def _prepare(self, target: Topology, batching: Batching | None, *, ends_first: bool) -> Shadow:
        (change, *more) = self.changes(target, batching) or (Change(None, None, target),)
        if more:
            raise SwitchError(
                Reason.UNSUPPORTED, f"{target} is {len(more) + 1} changes away; one replica changes at a time"
            )
        found = next((each for each in self.replicas if each.engine.topology == change.before), None)
        if change.after is None:
            assert found is not None, "a replica that stops is there"
            return Stopping(self, found)
        wanted = change.batching
        if found is None:
            return Starting(self, asyncio.create_task(_started(self._start(change.after, wanted))))
        begin_switch = found.engine.succeed_by if ends_first else found.engine.prepare
        found.is_avoided = len(self.replicas) > 1
        try:
            return Switching(found, await begin_switch(change.after, wanted), self.heed)
        except BaseException:
            found.is_avoided = False
            raise

    def _open(self, tenant: str, tried: Sequence[Replica]) -> list[Replica]:
        """Replicas that may take a request of a tenant.

        Those that serve, else those that stall, or all where none does.
        """
        left = [each for each in self.replicas if each not in tried and each.share.may_serve(tenant)]
        serving = [each for each in left if each.engine.state is EngineState.SERVING]
        return serving or [each for each in left if each.serves] or left

    def _chosen(self, request: GenerationRequest, tried: Sequence[Replica]) -> InFlight:
        """The request as the replica has it that takes it.

        Raises:
            RequestError: no replica may serve its tenant.
        """
        able = self._open(request.tenant, tried)
        if not able:
            whose = f"the tenant {request.tenant!r}" if request.tenant else "requests of no tenant"
            raise RequestError(f"no replica may serve {whose}: the plan that runs has others' replicas alone")
        tokens = (*request.prompt, *request.past)
        expected = max(1.0, min(self._usual_tokens, request.sampling.max_tokens - len(request.past)))
        if len(able) == 1:
            return able[0].in_flight(request, able[0].forecast(len(tokens), expected), len(tokens))
        keys = keys_of(tokens)
        known = self._prefixes.cached(keys, able)
        left = [max(1, len(tokens) - BLOCK * known.get(each, 0)) for each in able]
        forecasts = [each.forecast(count, expected) for each, count in zip(able, left, strict=True)]
        bounds = self._policy.of_tenants.get(request.tenant, self._policy.bounds)
        place = self._forgotten(able, forecasts, bounds)
        if place is None:
            place = choose(forecasts, bounds, self._behind(able), [each.is_avoided for each in able])
        for each in able:
            each.num_passed += 1
        able[place].num_passed = 0
        self._prefixes.note(keys, able[place])
        chosen = able[place].in_flight(request, forecasts[place], left[place])
        chosen.why = _why(able, forecasts, place, len(tokens) - left[place])
        return chosen

    def _forgotten(self, able: Sequence[Replica], forecasts: Sequence[Forecast], bounds: Bounds) -> int | None:
        """The place of an idle replica that was passed over for long and keeps the bounds, if there is one."""
        for place, each in enumerate(able):
            is_old = each.num_passed >= PROBED - 1 and not each.requests and not each.is_avoided
            if is_old and bounds.held(forecasts[place]):
                return place
        return None

    def _behind(self, able: Sequence[Replica]) -> list[float]:
        """How much of its planned share each lacks; nothing where no plan says shares."""
        taken = sum(each.num_taken for each in able) or 1
        return [each.share.share - each.num_taken / taken if each.share.share else 0.0 for each in able]

    def _forget(self, entry: InFlight) -> None:
        name = entry.request.request_id
        if self._requests.get(name) is entry:
            del self._requests[name]
        if entry.replica is not None:
            entry.replica.leave(entry)

    async def _pump(self, replica: Replica) -> None:
        try:
            async for batch in replica.engine.outputs():
                if passed := self._heard(replica, batch):
                    self._outputs.put_nowait(passed)
        except EngineLostError as error:  # for good: what it had goes on in others, if there are any
            if self.replicas == [replica]:
                self._outputs.put_nowait(error)
            else:
                self._give_away(replica)

    def _heard(self, replica: Replica, batch: Sequence[Output]) -> list[Output]:
        """What a replica may say: of requests that others have, nothing."""
        passed = list[Output]()
        is_sample = True
        for item in batch:
            if isinstance(item, Moved):
                passed.append(self._moved(replica, item))
                continue
            entry = self._requests.get(item.request_id)
            if entry is not None and entry.replica is not replica:
                continue
            if entry is not None:
                is_first = not entry.has_begun
                replica.hear(entry, item, is_sample=is_sample)
                is_sample = is_sample and is_first
                if item.finish is not None:
                    self._ended_one(entry, item)
                elif is_first and entry.why:
                    item = replace(item, detail=entry.why)  # noqa: PLW2901 - the token with more to tell
            passed.append(item)
        return passed

    def _ended_one(self, entry: InFlight, token: Token) -> None:
        if token.finish in {Finish.STOP, Finish.LENGTH}:
            self._usual_tokens += RECENT * (entry.tokens - self._usual_tokens)
        self._forget(entry)
        if token.is_lost and entry.replica is not None:
            self._prefixes.forget(entry.replica)

    def _moved(self, replica: Replica, moved: Moved) -> Moved:
        mine = [name for name in moved.request_ids if name not in self._requests or name in replica.requests]
        for name in mine:
            if entry := self._requests.get(name):
                entry.epoch = moved.epoch
        return Moved(moved.epoch, tuple(mine))

    def _give_away(self, replica: Replica) -> None:
        """Have others go on with what a replica has."""
        given = list[Output]()
        for name, entry in list(replica.requests.items()):
            replica.leave(entry)
            entry.replica = None
            why = f"{replica.engine.topology.shape} is emptied"
            given.append(
                Token(name, entry.epoch, -1, None, finish=Finish.ERROR, detail=why, is_lost=True, is_handed_on=True)
            )
            begin("replica", _cancelled(replica.engine, name), self._background)
        if given:
            log.info("%d requests of %s go on in other replicas", len(given), replica.engine.topology)
            self._outputs.put_nowait(given)


async def _started(starting: Awaitable[Engine]) -> Engine:
    return await starting


async def _cancelled(engine: Engine, request_id: str) -> None:
    with contextlib.suppress(EngineLostError):
        await engine.cancel(request_id)


def _why(able: Sequence[Replica], forecasts: Sequence[Forecast], place: int, cached: int) -> str:
    """Why a request is where it is, for operators."""

    def told(number: int) -> str:
        found = forecasts[number]
        return f"{able[number].name} {found.ttft_s:.3g}+{found.finish_s - found.ttft_s:.3g} s"

    best = sorted(range(len(able)), key=lambda number: forecasts[number].finish_s)
    others = [told(number) for number in best[: TOLD + 1] if number != place]
    kept = f", {cached} tokens cached" if cached else ""
    return f"{told(place)}{kept}; else {', '.join(others)}"
