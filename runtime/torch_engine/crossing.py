"""The service's side of a switch to another host: two drivers, and one moment that counts.

    prepare  the source makes room for what the target holds, or refuses
    ready    the target's driver starts, or one that stands by is taken; two carriers of KV meet
    lag      the source gathers a slice, the target fetches it
    cut      the source stands still, the target takes everything over: commit, first step
    release  the source stands by

Until the commit the source holds everything, and going back is letting it go on.
"""

import asyncio
import contextlib
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Protocol

from runtime.capabilities import Batching
from runtime.engine import Cut, Lag, Moved
from runtime.errors import EngineLostError, Reason, RuntimeFault, SwitchError
from runtime.kv.carrier.messages import Fetched, PeerReached
from runtime.models import CutTimings, MeasuredLink, Topology
from runtime.process.driver import DriverProcess
from runtime.process.liveness import in_time
from runtime.process.messages import Answer, Command, Fatal
from runtime.process.supervised import cancel
from runtime.torch_engine import messages
from runtime.torch_engine.models import EngineSettings

ANSWER_S = 10.0
"""How long a driver that serves nothing may take to clean up, or to begin."""


class CrossingEngine(Protocol):
    """The engine, as far as a switch between hosts concerns it."""

    coming: DriverProcess | None
    standing: dict[Topology, DriverProcess]
    gate: asyncio.Event | None

    @property
    def topology(self) -> Topology:
        """What serves."""

    @property
    def driver(self) -> DriverProcess:
        """The one that serves."""

    @property
    def settings(self) -> EngineSettings:
        """As it was started with."""

    def begin_driver(self, topology: Topology) -> DriverProcess:
        """Start another driver."""

    def commit(self, driver: DriverProcess, epoch: int, request_ids: tuple[str, ...]) -> None:
        """From now on it serves, and these requests are its own."""

    def stand_by(self, driver: DriverProcess, topology: Topology) -> None:
        """Keep a driver that serves no more."""

    async def clear(self, host: str) -> None:
        """End the drivers that stand by on a host."""

    def address(self, host: str, seen_by: str) -> str:
        """Of a host, as another one reaches it."""

    def renew_spare(self) -> None:
        """Have the next driver's process wait on the host that serves now."""

    async def up(self) -> None:
        """Wait some time for a driver that is started anew."""


class CrossingShadow:
    """The target side of a switch to another host; see ``runtime.engine.Shadow``."""

    def __init__(self, engine: CrossingEngine, target: Topology, hosts: tuple[str, str], batching: Batching) -> None:
        """Use ``prepare``."""
        self._engine = engine
        self.target = target
        self.batching = batching
        """How far steps are filled from its commit on."""
        self._hosts = hosts
        self._source = engine.driver
        self._left = engine.topology
        self.moved: Moved | None = None
        """The commit, once there is one."""
        self._driver = self._standing()
        self._stood_by = self._driver is not None
        self._starting = asyncio.create_task(self._start())
        self._starting.add_done_callback(lambda task: task.cancelled() or task.exception())
        self._fetched: Fetched | None = None
        self._met: PeerReached
        self._crossed_bytes = 0
        self._is_over = False

    @classmethod
    async def prepare(
        cls, engine: CrossingEngine, target: Topology, hosts: tuple[str, str], batching: Batching
    ) -> "CrossingShadow":
        """Have the source refuse it, or make room; ``hosts`` are those of the source and the target."""
        await engine.up()
        here, there = hosts
        await engine.driver.call(messages.BeginDeparture(target, here, engine.address(there, here)))
        return cls(engine, target, hosts, batching)

    async def ready(self) -> None:
        """Wait until the target is up and KV can come to it."""
        with self._source.in_a_switch():
            await asyncio.shield(self._starting)

    async def lag(self) -> Lag:
        """Copy a slice and tell what is left."""
        with self._source.in_a_switch():
            return await self._slice(is_last=False)

    async def cut(self, epoch: int, deadline_s: float) -> Cut:
        """Move every request to the target."""
        engine = self._engine
        engine.gate = asyncio.Event()
        try:
            with self._source.in_a_switch():
                began_s = time.monotonic()
                await in_time(self._approach(), deadline_s, "the last copy before the cut")
                left_s = time.monotonic()
                left = await self._ask(self._source, messages.Leave(max(0.1, deadline_s - left_s + began_s)))
                most_s = engine.settings.stop_timeout_s
                arrived = await in_time(self._arrive(left, epoch), most_s, "the last patch")
                arrived_s = time.monotonic()
                self._refuse_lost_source()
                assert self._driver, "it has answered"
            engine.commit(self._driver, epoch, arrived.request_ids)
            engine.coming = None
        except BaseException:
            await self._stay()
            raise
        finally:
            engine.gate.set()
            engine.gate = None
        committed_s = time.monotonic()
        with contextlib.suppress(EngineLostError):  # then it starts anew as the target: there is no way back
            await self._driver.call(messages.Begin(self.batching))
        # what the order to leave took besides is mostly the way back of its answer, in which requests stand still
        patch_s = arrived_s - left_s - left.fence_s - left.drain_s
        timings = CutTimings(
            drain_ms=left.drain_s * 1000,
            patch_ms=patch_s * 1000,
            commit_ms=(committed_s - arrived_s) * 1000,
            first_step_ms=(time.monotonic() - committed_s) * 1000,
        )
        patch_bytes = arrived.fetched.num_bytes
        return Cut(
            epoch,
            moved=arrived.request_ids,
            left_to_drain=(),
            bytes_inside=patch_bytes,
            timings=timings,
            paths={"patch": len(arrived.request_ids)},
            bytes_between_hosts=self._crossed_bytes + patch_bytes,
        )

    async def drain(self) -> None:
        """Every request moves: nothing is ever left."""

    async def release(self) -> None:
        """Have the source stand by, or end it. Idempotent."""
        if self._is_over or self.moved is None:
            return
        self._is_over = True
        with contextlib.suppress(EngineLostError):  # whoever watches over the target starts another
            await self._engine.driver.call(messages.EndSwitch())
        if self._engine.settings.num_standby and await self._cleaned_up(self._source, messages.EndSwitch()):
            self._engine.stand_by(self._source, self._left)
        else:
            await self._source.close()
        self._engine.renew_spare()

    async def abort(self, reason: Reason) -> None:
        """Give the target up; one that stood by does again. Idempotent."""
        if self._is_over or self.moved is not None:
            return
        self._is_over = True
        await cancel({self._starting})
        self._engine.coming = None
        with contextlib.suppress(EngineLostError):  # what it held went with it
            await asyncio.gather(self._source.call(messages.AbortSwitch(reason)), self._let_target_go(reason))

    # --- inside ---

    async def _let_target_go(self, reason: Reason) -> None:
        if self._driver and self._stood_by and await self._cleaned_up(self._driver, messages.AbortSwitch(reason)):
            self._engine.stand_by(self._driver, self.target)
        elif self._driver:
            await self._driver.close()

    def _standing(self) -> DriverProcess | None:
        """The driver that stands by as the target, if its block ids are those of the source."""
        driver = self._engine.standing.get(self.target)
        if driver is None or driver.ready.result().reserved_blocks != self._source.ready.result().reserved_blocks:
            return None
        self._take(self._engine.standing.pop(self.target))
        return driver

    def _take(self, driver: DriverProcess) -> None:
        self._engine.coming = driver

        def ended(fatal: Fatal) -> None:
            lost = EngineLostError(f"the target's driver on host {self._hosts[1]} is lost: {fatal.detail}")
            if not driver.ready.done():
                driver.ready.set_exception(fatal.trouble.error if fatal.trouble else lost)
            driver.end(lost)

        driver.on_end = ended
        driver.on_stood_in = lambda stand_in: ended(Fatal(Reason.RANK_LOST, stand_in.why))

    async def _start(self) -> None:
        here, there = self._hosts
        opening = asyncio.ensure_future(self._source.call(messages.OpenDeparture()))
        opening.add_done_callback(lambda done: done.cancelled() or done.exception())
        if self._driver is None:
            await self._engine.clear(there)
            try:
                self._driver = self._engine.begin_driver(self.target)
            except OSError as error:
                raise SwitchError(Reason.RANK_LOST, f"no driver can be started on host {there}: {error}") from error
            self._take(self._driver)
        try:
            await self._driver.ready
        except (SwitchError, EngineLostError):
            raise
        except RuntimeFault as error:
            raise SwitchError(Reason.LOAD_FAILED, f"host {there}: {error}") from error
        toward = self._engine.address(here, there)
        self._met = await self._driver.call(messages.BeginArrival(self._left, await opening, there, toward))

    async def _slice(self, *, is_last: bool) -> Lag:
        sliced = await self._ask(self._source, messages.NextSlice(self._fetched, is_last))
        self._fetched = None
        if sliced.packed_runs or sliced.newcomers:
            self._fetched = fetched = await self._ask(self._driver, messages.FetchSlice(sliced.gathered))
            self._crossed_bytes += fetched.num_bytes
        met = self._met
        link = MeasuredLink(met.bytes_s, met.round_trip_s, met.lane)
        return replace(sliced.lag, transport=met.transport, bytes_between_hosts=self._crossed_bytes, link=link)

    async def _approach(self) -> None:
        """While requests still run: what came since the lag was measured, and whether the bytes are right."""
        await self._slice(is_last=True)
        sample = await self._ask(self._source, messages.TakeSample())
        if not await self._ask(self._driver, messages.CompareSample(sample)):
            self._refuse_bytes("a sample of the KV that was copied")

    async def _arrive(self, left: messages.Departed, epoch: int) -> messages.Arrived:
        arrived, digest = await asyncio.gather(
            self._ask(self._driver, messages.Arrive(left, epoch)),
            self._ask(self._source, messages.DigestPatch()),
        )
        if arrived.digest != digest:
            self._refuse_bytes("the last patch")
        return arrived

    def _refuse_bytes(self, what: str) -> None:
        here, there = self._hosts
        raise SwitchError(
            Reason.LOAD_FAILED,
            f"{what} has other bytes on host {there} than on host {here}; nothing was moved: look at the memory and the network "
            "of both",
        )

    def _refuse_lost_source(self) -> None:
        """What it served has ended and is being submitted again: there is nothing to move."""
        if self._source.gone:
            raise self._source.gone

    async def _stay(self) -> None:
        with contextlib.suppress(RuntimeFault):  # a lost source is started anew
            await self._source.call(messages.StayHere())

    async def _cleaned_up(self, driver: DriverProcess, command: Command[Any]) -> bool:
        """Whether a driver that serves nothing holds nothing any more, and lives."""
        if driver.gone:
            return False
        try:
            async with asyncio.timeout(ANSWER_S):
                await driver.call(command)
        except (TimeoutError, RuntimeFault):
            return False
        return True

    async def _ask(self, driver: DriverProcess | None, command: Command[Answer]) -> Answer:
        assert driver, "a target is asked once it is ready"
        return await driver.call(command)


async def standing_in(
    standing: Mapping[Topology, DriverProcess], most_tokens: int, batching: Batching | None = None
) -> Topology | None:
    """The newest topology that stands by and serves now; None if none can hold ``most_tokens``."""
    for topology, driver in reversed([*standing.items()]):
        with contextlib.suppress(RuntimeFault, TimeoutError):
            async with asyncio.timeout(ANSWER_S):
                await driver.call(messages.Serve(most_tokens, batching))
            return topology
    return None
