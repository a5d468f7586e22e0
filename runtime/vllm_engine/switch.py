"""The vLLM engine's side of a switch.

Two engines, staging memory between them, and one moment that counts.

    ready    start the target's engine (or take a standby one), make the staging memory
    lag      source copies to staging, target from it; requests are parked on the target; followed ones get tokens
    cut      suspend the source at a step boundary, last patch, release on the target, its first step: commit
    release  what was left to drain ends on the source; the source becomes standby, or ends

Until the commit the source holds everything, suspended at most: going back is letting it go on.
"""

import asyncio
import contextlib
import time
from collections.abc import Iterable
from typing import Protocol

from runtime.capabilities import Batching
from runtime.engine import Cut, Lag, Token
from runtime.errors import CheckpointError, EngineLostError, EngineStartError, Reason, SwitchError
from runtime.models import BYTES_PER_VALUE, Cluster, CutTimings, ModelSpec, Topology
from runtime.process.launcher import Launcher
from runtime.vllm_engine import messages
from runtime.vllm_engine.connector.frontier import Terms, counted, path_of, tail_start
from runtime.vllm_engine.geometry import KvGeometry
from runtime.vllm_engine.instance import Instance, TrackedRequest
from runtime.vllm_engine.models import Stay, SwitchPath, VllmSettings
from runtime.vllm_engine.staging import Staging, size_of

LOAD_BYTES = 64 << 20
"""KV the target takes from staging memory in one of its steps at most."""
DRAIN_PAUSE_S = 0.02
"""Between two looks at what is left."""
ANSWER_TIMEOUT_S = 10.0
"""How long an engine that does not serve may take to answer."""


class VllmHost(Protocol):
    """The engine, as far as a switch concerns it."""

    model: ModelSpec
    cluster: Cluster
    settings: VllmSettings
    streams: dict[str, TrackedRequest]
    active: Instance
    standby: list[Instance]

    async def launch(self, topology: Topology, batching: Batching | None = None) -> Instance:
        """Start one vLLM engine."""

    def launcher_of(self, topology: Topology) -> Launcher:
        """Of the host of a topology."""

    def close_gate(self) -> None:
        """Let nothing in or out until ``open_gate``."""

    def open_gate(self) -> None:
        """Go on."""

    def commit(self, epoch: int, moved: tuple[str, ...], target: Instance) -> None:
        """From now on ``target`` serves, and these requests are its own."""

    def hear(self, instance: Instance, tokens: list[Token]) -> None:
        """Book tokens, and pass them on."""

    def end_streams(self, names: list[str], detail: str) -> None:
        """End requests with an error."""

    async def retire(self, instance: Instance) -> None:
        """Keep an engine that serves no more as standby, or end it."""

    def end_switch(self) -> None:
        """Another one may begin."""


class VllmShadow:
    """The target side of a switch; see ``runtime.engine.Shadow``."""

    def __init__(
        self, engine: VllmHost, topology: Topology, standby: Instance | None, batching: Batching | None = None
    ) -> None:
        self._engine = engine
        self._source = engine.active
        self._topology = topology
        self._standby = standby
        self._batching = batching
        self._starting = asyncio.create_task(self._start())
        self._staging: Staging | None = None
        self._terms: Terms
        self._paths: dict[str, SwitchPath | Stay] = {}
        self._told: dict[str, int] = {}
        """Requests the target knows, and how many of their output tokens."""
        self._held: list[list[Token]] = []
        """What the target said before the commit."""
        self._is_committed = self._is_over = False

    async def ready(self) -> None:
        """Wait until the target's engine serves, and see how KV can come to it."""
        try:
            target = await asyncio.shield(self._starting)
        except (CheckpointError, EngineStartError) as error:
            raise SwitchError(Reason.LOAD_FAILED, str(error)) from error
        except EngineLostError as error:
            raise SwitchError(Reason.RANK_LOST, str(error)) from error
        if self._staging is not None:
            return
        ours = self._source.started.geometry
        theirs = target.started.geometry
        self._terms = self._agree(ours, theirs, target)
        if isinstance(ours, KvGeometry) and not self._terms.difference:
            await self._attach(ours, target)

    async def lag(self) -> Lag:
        """Copy in the background, and tell what the target still lacks."""
        with self._source.in_a_switch():
            target = self._target
            state = await self._source.call(messages.Sync(self._named("patch")))
            await self._bring(target)
            extents = {name: state.extents[name] for name in self._told.keys() & state.extents.keys()}
            there = await target.call(messages.Advance(extents, self._news()))
        patched = set(self._named("patch"))
        lacking = {
            name: self._lack(name, extent, there.computed.get(name, 0))
            for name, extent in state.extents.items()
            if state.free_slots or name not in patched or not self._overflows(extent)
        }
        copied = sum(lacking[name] for name in lacking.keys() & patched)
        size = copied * self._terms.kv_bytes_per_token
        transport = "none" if self._hosts_differ() else "file"
        return Lag(sum(lacking.values()), size, state.copied_bytes, transport=transport)

    async def cut(self, epoch: int, deadline_s: float) -> Cut:
        """Move every request that can move; see the protocol."""
        self._engine.close_gate()
        try:
            async with asyncio.timeout(deadline_s):
                with self._source.in_a_switch():
                    done = await self._cut(epoch)
        except TimeoutError:
            detail = f"the cut took longer than {deadline_s} s; the old topology goes on"
            raise SwitchError(Reason.DEADLINE, detail) from None
        finally:
            if not self._engine.active.gone:
                self._engine.open_gate()
            if not self._is_committed and not self._source.gone:
                await self._resume()
        await self._let_source_go(done.moved)
        return done

    async def drain(self) -> None:
        """Let what was left behind end; past a deadline of the deployment's it is ended."""
        try:
            async with asyncio.timeout(self._engine.settings.drain_timeout_s):
                while self._left():  # noqa: ASYNC110 - streams end in many places
                    await asyncio.sleep(DRAIN_PAUSE_S)
        except TimeoutError:
            late = self._left()
            timeout_s = self._engine.settings.drain_timeout_s
            detail = (
                f"it could not move to {self._topology.shape} and did not end in {timeout_s} s; send the request again"
            )
            self._engine.end_streams(late, detail)
            with contextlib.suppress(EngineLostError):
                await self._source.call(messages.Abandon(tuple(late)))

    async def release(self) -> None:
        """Give the source up. Idempotent."""
        if self._is_over or not self._is_committed:
            return
        self._is_over = True
        try:
            await self._engine.retire(self._source)
        finally:
            self._close_staging()
            self._engine.end_switch()

    async def abort(self, reason: Reason) -> None:  # noqa: ARG002 - the coordinator reports it
        """Give the target up. Idempotent."""
        if self._is_over or self._is_committed:
            return
        self._is_over = True
        try:
            target = await self._started_or_none()
            if not self._source.gone and self._staging is not None:
                await self._resume()
            if target is not None:
                await self._give_back(target)
        finally:
            self._close_staging()
            self._engine.end_switch()

    async def end(self) -> None:
        """The whole engine is being closed."""
        self._is_over = True
        if (target := await self._started_or_none()) is not None:
            await target.close()
        if self._is_committed:
            await self._source.close()
        self._close_staging()

    def holds_back(self, instance: Instance, tokens: list[Token]) -> bool:
        """Keep what the target says until it is sure to be the one that speaks."""
        if self._is_committed or self._is_over or instance is self._engine.active:
            return False
        self._held.append(tokens)
        return True

    # --- inside ---

    async def _start(self) -> Instance:
        return self._standby or await self._engine.launch(self._topology, self._batching)

    @property
    def _target(self) -> Instance:
        return self._starting.result()

    def _agree(self, ours: KvGeometry | str, theirs: KvGeometry | str, target: Instance) -> Terms:
        wanted = self._engine.settings.path
        difference = _difference(ours, theirs)
        if self._hosts_differ():
            difference = "it is on another host"
        elif self._weights_differ():
            difference = difference or "weights of another precision"
        if wanted == "patch" and difference:
            raise SwitchError(
                Reason.UNSUPPORTED, f"KV cannot be copied to {self._topology}: {difference}; use path: auto or follow"
            )
        device = self._source.topology.devices[0]
        target_device = device if self._hosts_differ() else self._topology.devices[0]
        link = self._engine.cluster.link_between(device, target_device)
        model = self._engine.model
        precision = self._source.topology.stages[0].precision
        values = 2 * model.num_layers * model.num_kv_heads * model.head_dim
        return Terms(
            wanted=wanted,
            difference=difference,
            kv_bytes_per_token=round(values * BYTES_PER_VALUE[precision.kv]),
            link_bytes_s=link.bandwidth_bytes_s,
            prefill_tokens_s=target.started.prefill_tokens_s,
            seeds_travel=self._source.started.runner == target.started.runner,
            drain_tokens=self._engine.settings.drain_tokens,
        )

    def _weights_differ(self) -> bool:
        """KV made by other weights is not what the target would compute."""
        now, then = (topology.stages[0].precision for topology in (self._source.topology, self._topology))
        return now != then

    def _hosts_differ(self) -> bool:
        """KV stays on a host; the target computes it anew from the tokens."""
        now, then = (process.process.incarnation.host for process in (self._source, self._target))
        return now != then

    async def _attach(self, geometry: KvGeometry, target: Instance) -> None:
        block_bytes = geometry.block_size * self._terms.kv_bytes_per_token
        settings = self._engine.settings
        size = size_of(block_bytes, settings.staging_bytes)
        with self._source.in_a_switch():
            memory = await self._engine.launcher_of(self._topology).memory(size)
        self._staging = Staging(geometry, block_bytes, settings.staging_bytes, memory)
        least_blocks = max(1, settings.slice_bytes // block_bytes)
        # nobody waits for the target's steps yet
        load_blocks = max(1, LOAD_BYTES // block_bytes)
        with self._source.in_a_switch():
            await self._source.call(messages.AttachSource(self._staging.handle, least_blocks))
            await target.call(messages.AttachTarget(self._staging.handle, load_blocks))

    async def _bring(self, target: Instance) -> None:
        """Choose paths for new requests and bring them to the target; drop there what has ended."""
        streams = {name: stream for name, stream in self._engine.streams.items() if stream.owner is self._source}
        gone = tuple(name for name in self._paths if name not in streams)
        for name in gone:
            del self._paths[name]
        if dropped := tuple(name for name in gone if self._told.pop(name, None) is not None):
            await target.call(messages.Abandon(dropped))
        for name, stream in streams.items():
            if name not in self._paths:
                self._paths[name] = path_of(stream.request, len(stream.emitted), self._terms)
        for path, command in (("patch", messages.Park), ("follow", messages.Follow)):
            new = [streams[name] for name in self._named(path) if name not in self._told]
            self._told |= {stream.request.request_id: len(stream.emitted) for stream in new}
            if new:
                await target.call(
                    command([messages.Parking(tracked.request, tuple(tracked.emitted)) for tracked in new])
                )

    def _news(self) -> messages.News:
        """What was said since the target was told last."""
        news = {}
        for name, count in self._told.items():
            if (stream := self._engine.streams.get(name)) and len(stream.emitted) > count:
                news[name] = tuple(stream.emitted[count:])
                self._told[name] = len(stream.emitted)
        return news

    def _overflows(self, extent: messages.Extent) -> bool:
        """Staging memory has no slots for all of it: it will be left to drain."""
        return len(extent.slots) * self._source.started.block_size < extent.num_computed

    def _lack(self, name: str, extent: messages.Extent, there: int) -> int:
        """Positions that the target lacks and that would make the cut longer.

        The last block is copied in it anyway.
        """
        path = self._paths.get(name)
        lacking = max(0, extent.num_computed - there)
        if path == "patch" and there >= tail_start(extent.num_computed, self._source.started.block_size):
            return 0
        return 0 if isinstance(path, Stay) else lacking

    def _named(self, path: str) -> tuple[str, ...]:
        return tuple(name for name, chosen in self._paths.items() if chosen == path)

    async def _cut(self, epoch: int) -> Cut:
        await self._bring(self._target)
        self._refuse_to_leave(path for path in self._paths.values() if isinstance(path, Stay))
        if self._named("follow"):
            await self._target.call(messages.Settle())
        started_s = time.monotonic()
        state = await self._source.call(messages.Suspend(self._named("patch")))
        suspended_s = time.monotonic()
        await self._bring(self._target)
        self._check_source()
        releases = [release for name in self._told if (release := self._release_of(name, state, epoch))]
        moved = tuple(release.request_id for release in releases)
        paths = {name: self._paths[name] for name in self._left() if name not in moved}
        stays = {name: path if isinstance(path, Stay) else Stay.NO_ROOM for name, path in paths.items()}
        self._refuse_to_leave(stays.values())
        done = await self._target.call(messages.Takeover(releases, self._news()))
        self._check_source()
        self._commit(epoch, moved)
        # the step in flight when the order came is drained too
        drain_s = suspended_s - started_s - state.patch_s
        commit_s = time.monotonic() - suspended_s - done.load_s - done.first_step_s
        return Cut(
            epoch=epoch,
            moved=moved,
            left_to_drain=tuple(stays),
            bytes_inside=done.loaded_bytes,
            free_device_bytes=self._target.started.free_bytes,
            timings=CutTimings(
                drain_ms=drain_s * 1e3,
                patch_ms=(state.patch_s + done.load_s) * 1e3,
                commit_ms=commit_s * 1e3,
                first_step_ms=done.first_step_s * 1e3,
            ),
            tokens_recomputed=self._recomputed(releases, state),
            paths=counted(self._paths[name] for name in moved),
            stays=counted(stays.values()),
        )

    def _refuse_to_leave(self, stays: Iterable[Stay]) -> None:
        """Those that are nearly done may stay under any policy."""
        reasons = [why for why in stays if why is not Stay.NEARLY_DONE]
        if self._engine.settings.drain == "refuse" and reasons:
            listed = "; ".join(f"{count} {why}" for why, count in counted(reasons).items())
            raise SwitchError(
                Reason.UNSUPPORTED,
                f"{len(reasons)} requests cannot move to {self._topology.shape} ({listed}); "
                "wait for their end, or let them drain with vllm.drain: wait",
            )

    def _check_source(self) -> None:
        """A source that is gone is being replaced, and its streams have ended: there is nothing to move."""
        if self._source.gone:
            raise EngineLostError("the engine that served was lost inside the cut")

    async def _resume(self, moved: tuple[str, ...] = ()) -> None:
        """Let the source go on without what has moved; one that does not answer is as good as lost."""
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT_S):
                await self._source.call(messages.Resume(moved))
        except TimeoutError:
            self._source.kill()
        except EngineLostError:
            pass

    def _release_of(self, name: str, state: messages.SourceState, epoch: int) -> messages.ReleaseRequest | None:
        """How a request that the target knows goes on there; None when it stays on the source."""
        index = len(self._engine.streams[name].emitted)
        generator = state.generators.get(name, b"")
        if self._paths[name] == "follow":
            return messages.ReleaseRequest(name, epoch, index, None, generator)
        extent = state.extents.get(name)
        # no room in staging memory: it stays
        is_there = extent is not None and extent.staged >= extent.num_computed
        return messages.ReleaseRequest(name, epoch, index, extent, generator) if is_there else None

    def _recomputed(self, releases: list[messages.ReleaseRequest], state: messages.SourceState) -> int:
        """Positions with KV on the source that the target computed itself."""
        followed = [release.request_id for release in releases if release.extent is None]
        return sum(state.extents[name].num_computed for name in followed if name in state.extents)

    def _commit(self, epoch: int, moved: tuple[str, ...]) -> None:
        """No way back; nothing is awaited here."""
        self._is_committed = True
        self._engine.commit(epoch, moved, self._target)
        for tokens in self._held:
            self._engine.hear(self._target, tokens)
        self._held.clear()
        self._engine.open_gate()

    async def _let_source_go(self, moved: tuple[str, ...]) -> None:
        """The moved requests' blocks on the source are free; those left to drain go on."""
        await self._resume(moved)
        with contextlib.suppress(EngineLostError):  # who watches over the target ends it if it hangs
            await self._target.call(messages.Abandon(tuple(self._told.keys() - set(moved))))
            await self._target.call(messages.Commit())

    def _left(self) -> list[str]:
        streams = self._engine.streams.items()
        return [name for name, stream in streams if stream.owner is self._source]

    async def _started_or_none(self) -> Instance | None:
        """The target if it has started; one that is starting is ended."""
        if self._standby is not None:
            return self._standby
        if not self._starting.done():
            self._starting.cancel()
        try:
            return await self._starting
        except (asyncio.CancelledError, CheckpointError, EngineStartError, EngineLostError):
            return None

    async def _give_back(self, target: Instance) -> None:
        if target.gone or self._standby is None:
            await target.close()
            return
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT_S):
                await target.call(messages.Abandon(tuple(self._told)))
                await target.call(messages.Commit())
        except (TimeoutError, EngineLostError):
            await target.close()
        else:
            self._engine.standby.append(target)

    def _close_staging(self) -> None:
        if self._staging is not None:
            self._staging.close()


def _difference(ours: KvGeometry | str, theirs: KvGeometry | str) -> str:
    if isinstance(ours, str):
        return ours
    return theirs if isinstance(theirs, str) else ours.difference(theirs)
