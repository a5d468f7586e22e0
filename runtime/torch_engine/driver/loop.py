"""The driver: one process that lives as long as its model is served.

It owns sequences, block tables and versions; workers own weights and KV memory. A switch gives workers incoming
roles and turns the epoch here; no sequence leaves this process.

Run as ``python -m runtime.torch_engine.driver.loop FD`` by ``TorchEngine``; the socket FD carries ``DriverConfig`` first.
"""

import asyncio
import dataclasses
import gc
import logging
import os
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any

import msgspec
import torch

from runtime import footprint
from runtime.capabilities import Batching
from runtime.engine import Cut, EngineStats, GenerationRequest, Moved
from runtime.errors import Reason, RuntimeFault, SwitchError, TopologyError
from runtime.footprint import refuse_cut_groups
from runtime.kv.blocks import BlockPool
from runtime.kv.store import KvShape
from runtime.models import CutTimings, Topology
from runtime.process import messages as wire
from runtime.process.channel import AsyncChannel
from runtime.process.content import CODE
from runtime.process.launcher import LocalLauncher
from runtime.process.liveness import BEAT_S
from runtime.sync.swap import is_swap
from runtime.torch_engine import messages
from runtime.torch_engine.driver.capacity import Capacity, start_blocks
from runtime.torch_engine.driver.digests import digests
from runtime.torch_engine.driver.grammars import Compiler
from runtime.torch_engine.driver.host import DriverParts, Underway
from runtime.torch_engine.driver.scheduler import Chunk, ModelLimits, Scheduler
from runtime.torch_engine.driver.standby import Standby
from runtime.torch_engine.driver.swap import Swap
from runtime.torch_engine.driver.switch import StreamingSwitch, Switch
from runtime.torch_engine.driver.watchdog import Watchdog
from runtime.torch_engine.driver.workers import Ranks, Workers, load_failed, names_device, worker_config
from runtime.torch_engine.models import SCRATCH, base_of
from runtime.torch_engine.worker import backends
from runtime.torch_engine.worker.checkpoint import READERS

log = logging.getLogger(__name__)


class TorchDriver:
    """Schedules, and answers the service's calls."""

    switch_class = Switch
    """How it brings requests to another topology."""
    reader = "safetensors"
    """How it and its workers read a checkpoint folder: one of ``READERS``."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._service = AsyncChannel(sock, self._hear, self._closed, messages.ToDriver)
        self._service.send(wire.Greeting(CODE))
        self.batches: dict[int, list[Chunk]] = {}
        self._batch_id = self._generation = self._epoch = 0
        self._fenced = False
        self._fenced_s: float | None = None
        self._unsent: list[wire.Tokens | wire.Fenced] = []
        self._drained = asyncio.Event()
        self._first_step: asyncio.Future[None] | None = None
        self.switch: Underway | None = None
        self.leaving: asyncio.Future[None] | None = None
        """While requests are on their way to another driver: done once it is known where they are."""
        self._end_workers: Callable[[], None] = lambda: None
        self.coming_up: dict[int, Ranks] = {}
        """By generation, those that do not serve yet or are about to."""
        self._calls: set[asyncio.Task[None]] = set()

    async def start(self, config: messages.TorchDriverConfig) -> None:
        """Open the checkpoint, fork the workers of the first topology and tell the service."""
        try:
            await self._start(config)
        except RuntimeFault as error:
            self.fail(
                wire.Fatal(
                    Reason.LOAD_FAILED,
                    str(error),
                    trouble=wire.Trouble.of(error),
                    device=error.device,
                    is_broken=error.is_broken,
                )
            )
        except Exception as error:  # noqa: BLE001 - the service must hear of it, whatever it is
            traceback.print_exc()
            self.fail(wire.Fatal(Reason.LOAD_FAILED, f"{type(error).__name__}: {error}"))
        else:
            reserved = self.parts.shape.num_blocks
            self._service.send(messages.TorchStarted(self.parts.model, self.capacity.wanted + SCRATCH, reserved))

    def worker_config(self, config: messages.TorchDriverConfig, shape: KvShape) -> messages.WorkerConfig:
        """What workers are started with."""
        return worker_config(config, shape, self._scratch, self.reader)

    async def _verified(self, config: messages.TorchDriverConfig) -> messages.TorchDriverConfig:
        """The orders with the checkpoint's files as they are here.

        A disk may be slow: the service hears meanwhile that this process lives.
        """
        verified = await config.checkpoint.verified_beside(BEAT_S, lambda: self._service.send(wire.Beat()))
        return msgspec.structs.replace(config, checkpoint=verified)

    async def _start(self, config: messages.TorchDriverConfig) -> None:
        config = await self._verified(config)
        settings = config.settings
        cluster = config.cluster
        model = READERS[self.reader](config.checkpoint.folder).spec
        size = settings.block_size
        config.topology.check(cluster, model)
        refuse_cut_groups(config.topology, model)
        self.grammars = Compiler(config.checkpoint, model.vocab_size)
        blocks = start_blocks(config, model)
        shape = KvShape(
            num_layers=model.num_layers,
            num_kv_heads=model.num_kv_heads,
            num_blocks=blocks.reserved,
            block_size=size,
            head_dim=model.head_dim,
            dtype=backends.DTYPES[base_of(config.topology)],
            stack=settings.layers_per_slab,
        )
        shape.check(config.topology)
        pool = BlockPool(blocks.reserved)
        pool.resize(blocks.held)
        self._scratch = pool.reserve()  # of those that are held: on a GPU its neighbours share its chunk
        self.batching = config.batching or Batching(settings.max_running, settings.max_batch_tokens)
        limits = ModelLimits(min(model.max_position_embeddings, (blocks.reserved - SCRATCH) * size), model.vocab_size)
        self.scheduler = Scheduler(pool, size, self.batching.max_sequences, limits, settings.prefix_caching)
        workers = Workers(LocalLauncher(), self.worker_config(config, shape), self._worker_said, self._worker_lost)
        standby = Standby(workers, model, cluster, settings.num_standby)
        self.parts = DriverParts(settings, model, cluster, shape, pool, workers, standby)
        self._end_workers = workers.end
        self.capacity = Capacity(self, self.scheduler, blocks.wanted - SCRATCH)
        self._watch = Watchdog(self, self.batches, self.coming_up, self.lose_incoming, self._service.send)
        self.active = self._ranks(config.topology)
        began_s = time.perf_counter()
        await self.capacity.gain(self.active)
        await self.active.load(self.parts.workers)
        largest = max(footprint.weight_bytes(config.topology, self.parts.model).values())
        self.load_bytes_per_s = largest / (time.perf_counter() - began_s)
        await self.probe(self.active)
        gc.freeze()  # what start-up made lives on: keep the collector from walking it in a step

    def _ranks(self, topology: Topology) -> Ranks:
        self._generation += 1
        ranks = self.coming_up[self._generation] = Ranks(
            self._generation, topology, self.parts.model, self.parts.settings
        )
        return ranks

    async def probe(self, ranks: Ranks) -> None:
        """Run one token through every rank of a topology; each by itself where it could block what serves.

        On GPUs, as many as what runs has in a step, then with prompts as many as fit: kernels are loaded, and memory is taken,
        by that.

        Raises:
            SwitchError: it does not come back.
        """
        if ranks is not self.active and ranks.could_block(self.active):
            await ranks.warm_up(self.parts.workers)
            return
        decodes = 1
        prompts_of_steps = [0]
        if self.parts.workers.gains:
            decodes = max(1, -(-self.num_running // ranks.topology.pp_size))
            prompts_of_steps.append((self.parts.settings.max_batch_tokens - decodes) // 2)
        for prompts in prompts_of_steps:
            self._batch_id += 1
            step = ranks.probe(self._batch_id, self._scratch, decodes, prompts)
            self.parts.workers.broadcast(ranks.topology.devices, step)
            await self._watch.probe(self._batch_id, ranks)

    def schedule(self) -> None:
        """Fill the pipeline with micro-batches; blocks that came free and shall retire do so beside."""
        if self.capacity.is_owing:
            self._spawn(self.capacity.give_back())
        stages = self.active.topology.pp_size
        while not self._fenced and len(self.batches) < stages:
            chunks = self.scheduler.next_batch(self._token_budget(), stages)
            if not chunks:
                return
            self._batch_id += 1
            self._watch.stepped(is_first=not self.batches)
            self.batches[self._batch_id] = chunks
            self.parts.workers.broadcast(self.active.topology.devices, self._run(chunks))

    @property
    def num_running(self) -> int:
        """Sequences that have begun."""
        return len(self.scheduler.running)

    def hold(self) -> None:
        """Start no new sequence until ``admit``."""
        self.scheduler.is_held = True

    def admit(self) -> None:
        """Start new sequences again, from the next step on."""
        self.scheduler.is_held = False

    def _token_budget(self) -> int:
        is_closing = self.switch is not None and self.switch.is_closing
        most = max(self.batching.max_step_tokens, self.num_running)  # those that run each have a place
        return min(most, self.parts.settings.closing_batch_tokens) if is_closing else most

    def fill(self, batching: Batching | None) -> None:
        """Fill steps so far from now on; None: as before."""
        if batching is not None:
            self.batching = batching
            self.scheduler.max_running = batching.max_sequences

    def _run(self, chunks: list[Chunk]) -> messages.Run:
        tokens: list[int] = []
        rows = []
        tasks = []
        for chunk in chunks:
            start = chunk.span.start
            count = chunk.span.count
            tokens += chunk.sequence.tokens[start : start + count]
            if chunk.samples:
                rows.append(len(tokens) - 1)
                tasks.append(chunk.sequence.sampling_task())
        spans = tuple(chunk.span for chunk in chunks)
        return messages.Run(self.active.generation, self._batch_id, tokens, spans, rows, tasks)

    def _ran(self, ran: messages.BatchFinished) -> None:
        if self._watch.probed(ran.batch_id):
            return
        self._watch.stepped(is_first=False)
        if self._fenced and self._fenced_s is None:
            self._fenced_s = time.perf_counter()
        if (chunks := self.batches.pop(ran.batch_id, None)) is None:
            return  # of a topology that was lost meanwhile
        tokens = self.scheduler.complete(chunks, ran.sampled)
        self.schedule()
        if tokens:
            self.emit(wire.Tokens(tokens))
        if not self.batches:
            self._drained.set()
        if self._first_step and not self._first_step.done():
            self._first_step.set_result(None)

    def emit(self, *outputs: wire.Tokens | wire.Fenced) -> None:
        """Send outputs to the service, in order; from the fence on they wait until requests run again.

        Sending wakes the service, which would then take a core from the cut.
        """
        self._unsent += outputs
        if not self._fenced:
            self.flush()

    def flush(self) -> None:
        """Send outputs that waited."""
        for output in self._unsent:
            self._service.send(output)
        self._unsent = []

    async def fence(self) -> tuple[float, float]:
        """Schedule nothing new, and wait for the micro-batches in flight.

        The fence falls when the first of them ends: until then requests run as ever. Returns when it fell and when the
        last one had ended, as ``time.perf_counter``.
        """
        self._fenced = True
        self._fenced_s = None
        self._drained.clear()
        if not self.batches:
            self._fenced_s = time.perf_counter()
            self._drained.set()
        await self._drained.wait()
        assert self._fenced_s is not None, "it fell before the last one ended"
        return self._fenced_s, time.perf_counter()

    def commit(self, ranks: Ranks, epoch: int) -> tuple[str, ...]:
        """Every request belongs to ``ranks`` and speaks under ``epoch`` from here on. Returns their ids."""
        self.active = ranks
        moved = self.move(epoch)
        self.emit(wire.Fenced(Moved(epoch, moved)))
        return moved

    def move(self, epoch: int) -> tuple[str, ...]:
        """Every request speaks under ``epoch`` from here on. Returns their ids."""
        self._epoch = epoch
        return self.scheduler.move(epoch)

    def resume(self) -> asyncio.Future[None]:
        """Schedule again, on the active topology.

        The future is done after the first step (at once if there is none).
        """
        self._fenced = False
        self._first_step = asyncio.get_running_loop().create_future()
        self.schedule()
        self.emit()
        if not self.batches:
            self._first_step.set_result(None)
        return self._first_step

    def _worker_said(self, device: int, event: Any) -> None:
        match event:
            case messages.BatchFinished():
                self._ran(event)
            case messages.Loading(generation) if ranks := self.coming_up.get(generation):
                ranks.heard_s = self._watch.now_s
            case messages.Loaded(generation) if ranks := self.coming_up.get(generation):
                ranks.loaded(device)
            case messages.LoadFailed(generation, detail) if ranks := self.coming_up.get(generation):
                self.lose_incoming(ranks, load_failed(device, detail))

    def lose_incoming(self, ranks: Ranks, error: SwitchError) -> None:
        """What is coming up will not: its switch ends, or the start fails."""
        if self.switch and self.switch.target is ranks:
            self.switch.lose(error)
        else:
            ranks.lose(error)

    def _worker_lost(self, device: int, how: str) -> None:
        detail = f"the worker on device {device} {how}"
        if device in self.active.topology.devices:
            why = f"{detail}; {self.active.topology} needs it"
            is_calm = self.switch is None and not self._fenced
            if is_calm and (standby := self.parts.standby.whole(self.capacity.can_serve)):
                self._spawn(self._stand_in(standby, why))
                return
            self.fail(wire.Fatal(Reason.RANK_LOST, why, device=device, is_broken=names_device(how)))
            return
        lost = SwitchError(Reason.RANK_LOST, detail)
        if self.switch and device in self.switch.devices:
            self.switch.lose(lost)
        self._spawn(self.parts.standby.lose(device, lost))

    async def _stand_in(self, standby: Ranks, why: str) -> None:
        """Serve by what stood by instead of what lost a rank; what ran is submitted again."""
        lost = self.active
        self.active = standby
        self._fenced = True
        self.batches.clear()
        self._unsent.clear()
        self._service.send(wire.Tokens(self.scheduler.lose(why)))
        lost.lose(SwitchError(Reason.RANK_LOST, why))
        try:
            if self.parts.workers.gains:  # else nobody's memory is in the way
                await lost.release_all(self.parts.workers, keep=standby)
            await self.capacity.settle()
            await self.capacity.gain(standby)
            await standby.warm_up(self.parts.workers)
        except SwitchError as error:
            self.fail(wire.Fatal(Reason.RANK_LOST, f"{why}; {standby.topology} could not stand in: {error}"))
            return
        self._service.send(wire.StoodIn(standby.topology, why))
        self._fenced = False
        self.schedule()
        self.emit()
        if not self.parts.workers.gains:
            await lost.release_all(self.parts.workers, keep=standby)

    def _hear(self, message: Any) -> None:
        match message:
            case messages.TorchDriverConfig():
                self._spawn(self.start(message))
            case wire.Call():
                self._spawn(self._answer(message))

    def _spawn(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._calls.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._calls.discard(task)
        error = None if task.cancelled() else task.exception()
        if isinstance(error, RuntimeFault):
            log.warning("something beside the steps failed: %s", error)
        elif error is not None:
            self._broke(error)

    def _broke(self, error: BaseException) -> None:
        """A bug: what it was in the middle of would never end."""
        traceback.print_exception(error)
        self.fail(wire.Fatal(Reason.ENGINE_LOST, f"an error of the driver: {type(error).__name__}: {error}"))

    async def _answer(self, call: wire.Call[wire.Command[Any]]) -> None:
        try:
            answer = wire.reply(call.call_id, await self._done(call.command))
        except Exception as error:  # noqa: BLE001 - whoever asked must not wait for ever
            if not isinstance(error, RuntimeFault):
                traceback.print_exc()
            answer = wire.Reply(call.call_id, trouble=wire.Trouble.of(error))
        self._service.send(answer)

    async def _done(self, command: wire.Command[Any]) -> object:
        match command:
            case wire.Submit(request):
                await self._submit(request)
            case wire.CancelStream(request_id):
                self._cancel(request_id)
            case wire.Stats():
                return self._stats()
            case messages.Resize(num_blocks):
                return await self.capacity.resize(num_blocks)
            case messages.ReadDigests(positions):
                return await digests(self, self.scheduler.running, positions)
            case _:
                return await self._switched(command)
        return None

    async def _switched(self, command: wire.Command[Any]) -> object:
        """Part of a switch."""
        match command:
            case messages.BeginSwitch(target):
                await self.begin_switch(target)
            case messages.AwaitTarget():
                await self._current().ready()
            case messages.CopyAhead():
                return await self._current().lag()
            case messages.Refill(epoch, _, batching):
                await self.free_for(self.active.topology)
                self.fill(batching)
                return Cut(epoch, self.commit(self.active, epoch), (), 0, CutTimings(0.0, 0.0, 0.0, 0.0))
            case messages.CutOver(epoch, deadline_s, batching):
                cut = await self._current().cut(epoch, deadline_s)
                self.fill(batching)
                return cut
            case messages.EndSwitch() if self.switch:
                await self.switch.release()
            case messages.AbortSwitch(reason) if self.switch:
                await self.switch.abort(reason)
            case messages.Crossing():
                from runtime.torch_engine.driver.crossing import obey  # where there are several hosts

                return await obey(self, command)
        return None

    async def _submit(self, request: GenerationRequest) -> None:
        """Queue a request and schedule; its grammar is compiled beside the steps first."""
        matcher = await self.grammars.matcher(request) if request.sampling.grammar else None
        if self.leaving:
            await asyncio.shield(self.leaving)
        late = request.epoch < self._epoch
        self.scheduler.submit(dataclasses.replace(request, epoch=self._epoch) if late else request, matcher)
        if late:  # it was sent before the service knew of the cut
            self.emit(wire.Fenced(Moved(self._epoch, (request.request_id,))))
        self.schedule()

    def _cancel(self, request_id: str) -> None:
        self.grammars.cancel(request_id)
        if ended := self.scheduler.cancel(request_id):
            self.emit(wire.Tokens(ended))
        self.schedule()

    async def begin_switch(self, target: Topology) -> None:
        """Begin a switch, or refuse it before anything is touched."""
        await self.free_for(target)
        if is_swap(self.active.topology, target):
            self.switch = Swap(self, self.capacity, target, self._service.send)
        elif streamed := self.capacity.make_room(target):
            self.switch = StreamingSwitch(self, self.capacity, self._ranks(target), streamed)
        else:
            ranks = self.parts.standby.take(target) or self._ranks(target)
            self.switch = self.switch_class(self, self.capacity, ranks)

    async def free_for(self, target: Topology) -> None:
        """Return when a switch to ``target`` can begin, or refuse it.

        Raises:
            SwitchError: another one is under way, or there is no such topology.
        """
        if not self.switch:
            await self.capacity.resized()
        if self.switch or self._fenced:
            raise SwitchError(Reason.BUSY, "another switch is under way; wait for it or cancel it")
        try:
            target.check(self.parts.cluster, self.parts.model)
            refuse_cut_groups(target, self.parts.model)
            backends.refuse_to_cross(self.active.topology, target)
            self.parts.shape.check(target)
        except TopologyError as error:
            raise SwitchError(Reason.UNSUPPORTED, str(error)) from error

    def _stats(self) -> EngineStats:
        scheduler = self.scheduler
        pool = self.parts.pool
        return EngineStats(
            running=len(scheduler.running),
            waiting=scheduler.num_waiting,
            free_blocks=pool.num_free,
            total_blocks=pool.num_blocks,
            worker_pids=self.parts.workers.pids,
            standby=self.parts.standby.topologies,
            prefix_cache_queries=scheduler.prefix_cache_queries,
            prefix_cache_hits=scheduler.prefix_cache_hits,
        )

    def over(self, target: Ranks) -> None:
        """The switch to ``target`` has ended and cleaned up."""
        self.coming_up.pop(target.generation, None)
        if self.switch and self.switch.target is target:
            self.switch = None
            self.schedule()

    @property
    def rank_sets(self) -> tuple[Ranks, ...]:
        """What holds KV: what is active, and what is coming up beside it."""
        return (self.active, self.switch.target) if self.switch else (self.active,)

    def _current(self) -> Switch | Swap:
        if not isinstance(self.switch, Switch | Swap):
            raise SwitchError(Reason.CANCELLED, "there is no switch under way")
        return self.switch

    def heard_of(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """As the loop's exception handler.

        What a callback raised ends the driver, else it would stall in silence.
        """
        loop.default_exception_handler(context)
        error = context.get("exception")
        if "handle" in context and error is not None:  # a panic of llguidance is no ``Exception``
            self._broke(error)

    def _closed(self, why: str) -> None:
        """The service is gone, or said what cannot be read."""
        if why:
            log.error("the driver ends: %s", why)
            self.fail(wire.Fatal(Reason.ENGINE_LOST, why))
        self._end(0)

    def fail(self, fatal: wire.Fatal) -> None:
        """Nothing can go on: tell the service and end."""
        self._service.send(fatal)
        self._end(1)

    def _end(self, status: int) -> None:
        """The service is gone or nothing can go on: no worker survives the driver."""
        self._end_workers()
        os._exit(status)


async def _serve(driver_class: type[TorchDriver], sock: socket.socket) -> None:
    driver = driver_class(sock)
    asyncio.get_running_loop().set_exception_handler(driver.heard_of)
    await asyncio.Event().wait()


def main(driver_class: type[TorchDriver] = TorchDriver) -> None:
    """Serve the socket whose descriptor is the first argument."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the service's to handle; it closes the socket
    torch.set_num_threads(1)
    asyncio.run(_serve(driver_class, socket.socket(fileno=int(sys.argv[1]))))


if __name__ == "__main__":
    main()
