"""The driver's workers: started on demand, kept as standby when idle, missed when they die."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import msgspec

from runtime.engine import SamplingParams
from runtime.errors import Reason, SwitchError
from runtime.footprint import Piece, Transfer, owned
from runtime.kv.store import KvHandle, KvShape, Slice
from runtime.models import FULL, LayerRange, ModelSpec, Stage, Topology
from runtime.process import messages as wire
from runtime.process.channel import encode
from runtime.process.launcher import Incarnation, Launcher, Process, Program
from runtime.torch_engine import messages
from runtime.torch_engine.models import EngineSettings, Span, base_of, is_on_gpus
from runtime.torch_engine.sampling_tasks import SamplingTask
from runtime.torch_engine.worker.distributed import DistributedRanks
from runtime.torch_engine.worker.group import GroupMemory, GroupShape, SharedRanks
from runtime.torch_engine.worker.shard import ShardSpec

LOCAL = "127.0.0.1"
"""Where workers of this host find each other."""
MODULE = "runtime.torch_engine.worker.loop"
Runs = tuple[tuple[int, int], ...]

DEVICE_FAULTS = (
    "uncorrectable ECC error",
    "uncorrectable NVLink error",
    "hardware stack error",
    "GPU is lost",
    "no CUDA-capable device is detected",
    "invalid device ordinal",
)
"""In CUDA's words. An illegal address or a failed launch may be a fault of the program."""
_PING_S = 2.0
"""After so long without a word a worker is asked whether it lives."""
_REAP_S = 2.0
"""How long the end of the driver waits for that of a worker."""


class WorkerLostError(SwitchError):
    """A worker died, or was ended because it hung, while something was awaited from it."""

    def __init__(self, device: int, how: str = "died") -> None:
        super().__init__(Reason.RANK_LOST, f"the worker on device {device} {how}")


@dataclass(slots=True)
class _Worker:
    process: Process
    greeting: "asyncio.Future[messages.Hello]"
    heard_s: float
    calls: wire.Calls = field(default_factory=wire.Calls)


class Workers:
    """Workers by device index."""

    def __init__(
        self,
        launcher: Launcher,
        config: messages.WorkerConfig,
        on_event: Callable[[int, Any], None],
        on_lost: Callable[[int, str], None],
    ) -> None:
        """Take who hears of events and of lost workers.

        ``on_event`` gets what is no answer to an order, ``on_lost`` the device of a worker that is gone, and
        how.
        """
        self._launcher = launcher
        self._config = config
        self._on_event = on_event
        self._on_lost = on_lost
        self._workers: dict[int, _Worker] = {}
        self._closing = defaultdict[int, asyncio.Lock](asyncio.Lock)
        self._now_s = 0.0

    @property
    def incarnations(self) -> dict[int, Incarnation]:
        """The worker of each device that has one."""
        return {device: worker.process.incarnation for device, worker in self._workers.items()}

    @property
    def pids(self) -> dict[int, int]:
        """Their process ids, for people."""
        return {device: worker.process.pid for device, worker in self._workers.items()}

    @property
    def all_blocks(self) -> Runs:
        """The run of every block of a slab."""
        return ((0, self._config.shape.num_blocks),)

    async def ensure(self, devices: Iterable[int]) -> None:
        """Start what is missing and wait until each has greeted."""
        wanted = list(devices)
        for device in wanted:
            if device not in self._workers:
                self._start(device)
        # shielded: whoever gives up waiting must not cancel a greeting that others wait for later
        await asyncio.gather(*(asyncio.shield(self._workers[device].greeting) for device in wanted))

    def hello(self, device: int) -> messages.Hello:
        """What a worker greeted with: where its KV memory is, and where ranks meet.

        Raises:
            WorkerLostError: it is gone.
        """
        if device not in self._workers:
            raise WorkerLostError(device)
        return self._workers[device].greeting.result()

    def broadcast(self, devices: Iterable[int], message: object) -> None:
        """Send one message to several workers, encoded once."""
        data = encode(message)
        for device in devices:
            if worker := self._workers.get(device):
                worker.process.send_encoded(data)

    async def order(self, device: int, order: wire.Command[wire.Answer]) -> wire.Answer:
        """Give an order and wait for its outcome.

        Raises:
            WorkerLostError: the worker is or gets lost.
            SwitchError: the worker could not do it.
        """
        if device not in self._workers:
            raise WorkerLostError(device)
        try:
            return await self._send(self._workers[device], order)
        except WorkerLostError:
            raise
        except SwitchError as error:
            failed = f"device {device} failed at {type(order).__name__}: {error.detail}"
            raise SwitchError(error.reason, failed) from error

    def _send(self, worker: _Worker, order: wire.Command[wire.Answer]) -> "asyncio.Future[wire.Answer]":
        call, done = worker.calls.begin(order, self._now_s)
        worker.process.send(call)
        return done

    def turn(self, now_s: float, patience_s: float, greeting_s: float) -> None:
        """End workers that have been silent for ``patience_s`` of the awake clock while an answer is awaited.

        Ask quiet ones.

        A new one may take ``greeting_s`` to open its device.
        """
        self._now_s = now_s
        for device, worker in list(self._workers.items()):
            silent_s = now_s - worker.heard_s
            if not worker.greeting.done():
                if silent_s > max(patience_s, greeting_s):
                    self.lose(device, f"did not greet for {silent_s:.0f} s")
            elif (first := worker.calls.oldest) is None:
                if silent_s > _PING_S:
                    self._send(worker, messages.Ping())
            elif min(silent_s, now_s - first.since_s) > patience_s:
                name = type(first.command).__name__
                self.lose(device, f"did not answer {name} for {silent_s:.0f} s and was ended")

    async def give_back(self, device: int, pieces: Iterable[Piece], runs: Iterable[tuple[int, int]]) -> list[Slice]:
        """Have a worker give memory back to the system.

        Slice by slice beside its steps, or between them on a GPU.

        Raises:
            WorkerLostError: the worker is or gets lost; its memory went with it.
        """
        given_back = tuple(sorted(pieces))
        every = tuple(runs)
        if self.gains and given_back and every:
            await self._have_closed(device)
        return await self._in_slices(device, messages.GiveBack, given_back, every)

    @property
    def gains(self) -> bool:
        """KV memory has to be gained; elsewhere writing to it does."""
        return self._config.gains

    async def gain(self, wanted: Mapping[int, Iterable[Piece]], runs: Iterable[tuple[int, int]]) -> None:
        """Have workers hold these pieces of these blocks.

        Slice by slice beside their steps, or between them on a GPU.

        Raises:
            WorkerLostError: a worker is or gets lost.
            SwitchError: a device has not so much memory.
        """
        every = tuple(runs)
        orders = [
            self._in_slices(device, messages.Gain, tuple(sorted(pieces)), every) for device, pieces in wanted.items()
        ]
        await asyncio.gather(*orders)

    async def reach(self, device: int, boxes: Iterable[Transfer], runs: Iterable[tuple[int, int]]) -> None:
        """Have a worker open the memory of the peers that it will copy these runs of blocks from.

        Raises:
            WorkerLostError: a worker is or gets lost.
            SwitchError: it cannot open it.
        """
        await self._in_slices(device, messages.OpenPeers, self.sources(boxes), tuple(runs))

    def sources(self, boxes: Iterable[Transfer]) -> tuple[tuple[Transfer, KvHandle], ...]:
        """Each box with the memory that it comes from.

        Raises:
            WorkerLostError: whose it was is gone.
        """
        return tuple((box, self.hello(box.source).handle) for box in boxes)

    async def _in_slices(self, device: int, kind: Callable[..., wire.Command[Slice]], *what: Any) -> list[Slice]:
        slices: list[Slice] = []
        after: int | None = 0
        while after is not None:
            done = await self.order(device, kind(*what, after))
            slices.append(done)
            after = done.rest
        return slices

    async def _have_closed(self, device: int) -> None:
        """No peer has this worker's memory open when this returns, nor opens again what nobody copies from."""
        await asyncio.gather(*(self.forget(other) for other in self._workers if other != device))

    async def forget(self, device: int) -> None:
        """Have a worker, if it lives, close the memory of peers, one slice between two steps.

        Raises:
            SwitchError: it cannot.
        """
        async with self._closing[device]:
            with suppress(WorkerLostError):
                await self._in_slices(device, messages.Forget)

    def end(self) -> None:
        """Kill every worker and wait for it."""
        ended = [self._reap(device) for device in list(self._workers)]
        for worker in ended:
            worker.process.join(_REAP_S)

    def stopped(self, devices: Iterable[int]) -> list[int]:
        """Those whose worker was stopped by a signal or a debugger."""
        workers = {device: self._workers[device] for device in devices if device in self._workers}
        return [device for device, worker in workers.items() if worker.process.is_stopped]

    def _start(self, device: int) -> None:
        process = self._launcher.start(
            Program(MODULE, messages.FromWorker, device, is_warm=True),
            lambda message: self._hear(device, message),
            lambda why: self.lose(device, f"said what is no message ({why})" if why else "died"),
        )
        greeting = asyncio.get_running_loop().create_future()
        self._workers[device] = _Worker(process, greeting, self._now_s)
        process.send(msgspec.structs.replace(self._config, index=device))

    def _hear(self, device: int, message: Any) -> None:
        worker = self._workers[device]
        worker.heard_s = self._now_s
        match message:
            case messages.Hello():
                worker.greeting.set_result(message)
            case messages.Unable(detail) if worker.greeting.done():
                self.lose(device, f"failed: {detail}")
            case messages.Unable(detail):
                unable = SwitchError(Reason.LOAD_FAILED, f"device {device} cannot be used: {detail}")
                unable.device, unable.is_broken = device, names_device(detail)
                self._reap(device).greeting.set_exception(unable)
            case wire.Reply():
                worker.calls.settle(message)
            case _:
                self._on_event(device, message)

    def lose(self, device: int, how: str) -> None:
        """A worker died, or hangs and is ended: whoever waits for it hears of it."""
        worker = self._reap(device)
        lost = WorkerLostError(device, how)
        worker.calls.fail(lost)
        if not worker.greeting.done():
            worker.greeting.set_exception(lost)
            worker.greeting.exception()  # whoever waits hears of it; nobody has to
        self._on_lost(device, how)

    def _reap(self, device: int) -> _Worker:
        worker = self._workers.pop(device)
        worker.process.end()
        return worker


class Ranks:
    """One topology on the workers. ``generation`` names it to the workers."""

    def __init__(self, generation: int, topology: Topology, model: ModelSpec, settings: EngineSettings) -> None:
        self.generation = generation
        self.topology = topology
        self._model = model
        self._tp_sizes = tuple(stage.tp_size for stage in topology.stages)
        self._load_after_s = settings.load_after_s
        widest = max(-(-model.vocab_size // stage.tp_size) for stage in topology.stages)
        rows = settings.max_running + 1  # of logits at most: an urgent sequence may be beyond the rest
        values = max(settings.max_batch_tokens * model.hidden_size, rows * widest)
        self._memory: GroupMemory | None = None
        """None where the ranks need no memory of this host; then nobody can call them off either."""
        if settings.rank_transport == "shared_memory":
            self._memory = GroupMemory(GroupShape(self._tp_sizes, values))
        self._workers: dict[int, Incarnation] = {}
        self._loading = set(topology.devices)
        self._asked = False
        self.heard_s: float | None = None
        """When, by the awake clock, a layer of it was loaded last."""
        self._loaded = asyncio.get_running_loop().create_future()
        self._loaded.add_done_callback(lambda future: future.cancelled() or future.exception())

    @property
    def is_loaded(self) -> bool:
        """Every worker has its role, or can have none."""
        return self._loaded.done()

    def is_stuck(self, now_s: float, patience_s: float) -> bool:
        """Roles were given, and none got a layer for so long."""
        if self.heard_s is None or not self._asked or self.is_loaded:
            self.heard_s = now_s
        return now_s - self.heard_s > patience_s

    async def load(self, workers: Workers) -> None:
        """Give every worker its role and wait until each has loaded and warmed up alone.

        A standby has all that.
        """
        if not self._loaded.done():
            await self._give_roles(workers, lambda layers: layers)
        await self._loaded

    async def load_without_weights(self, workers: Workers) -> None:
        """The same without weights: they come layer by layer."""
        await self._give_roles(workers, lambda layers: LayerRange(layers.start, layers.start))
        await self._loaded

    async def _give_roles(self, workers: Workers, loading: Callable[[LayerRange], LayerRange]) -> None:
        await workers.ensure(self.topology.devices)
        self._workers = {device: workers.incarnations[device] for device in self.topology.devices}
        last, self._asked, ranks = self.topology.pp_size - 1, True, self._ranks(workers)
        for number, stage in enumerate(self.topology.stages):
            for rank, device in enumerate(stage.devices):
                ends = number == 0, number == last
                shard = ShardSpec(stage.layers, rank, stage.tp_size, *ends, formats_of(stage))
                order = messages.LoadShard(self.generation, shard, loading(stage.layers), number, ranks)
                workers.broadcast([device], order)

    def _ranks(self, workers: Workers) -> SharedRanks | DistributedRanks:
        if self._memory:
            return self._memory.ranks
        rendezvous = workers.hello(self.topology.devices[0]).rendezvous
        assert rendezvous, "workers whose ranks share no memory open a store"
        host, port = rendezvous
        return DistributedRanks(
            host=host,
            port=port,
            name=str(self.generation),
            tp_sizes=self._tp_sizes,
            timeout_s=self._load_after_s,
        )

    def could_block(self, serving: "Ranks") -> bool:
        """Whether a step of these that does not end could keep serving workers from their own.

        It does so as long as nobody ends who hangs.
        """
        return self._memory is None and not {*self.topology.devices}.isdisjoint(serving.topology.devices)

    def is_whole(self, workers: Workers) -> bool:
        """Every worker that was given a role is still there; one that was forked since has none."""
        return self._workers.items() <= workers.incarnations.items()

    async def warm_up(self, workers: Workers) -> None:
        """Have every worker of a topology that served before run a step alone: no rank waits for another.

        Raises:
            SwitchError: one is lost, or has lost its role.
        """
        devices = self.topology.devices
        are_there = await asyncio.gather(*(workers.order(each, messages.WarmUp(self.generation)) for each in devices))
        for device, is_there in zip(devices, are_there, strict=True):
            if not is_there:
                raise SwitchError(Reason.RANK_LOST, f"the worker on device {device} has lost its role")

    def hung(self, workers: Workers) -> list[int]:
        """Devices whose worker keeps a step from its end, as far as anybody can see."""
        devices = self.topology.devices
        if stopped := workers.stopped(devices):
            return stopped
        return [devices[rank] for rank in self._memory.computing()] if self._memory else list(devices)

    def loaded(self, device: int) -> None:
        """A worker has its role."""
        self._loading.discard(device)
        if not self._loading and not self._loaded.done():
            self._loaded.set_result(None)

    def lose(self, error: SwitchError) -> None:
        """A member is gone or cannot load: wake whoever waits, here and in the group."""
        if self._memory:
            self._memory.abort()
        if not self._loaded.done():
            self._loaded.set_exception(error)

    def probe(self, batch_id: int, scratch_block: int, decodes: int, prompts: int) -> messages.Run:
        """A step of so many decodes, and prompts of two tokens, that touches no sequence's KV."""
        spans = (Span(0, 1, (scratch_block,)),) * decodes
        sampling_task = SamplingTask(SamplingParams(max_tokens=1), 0)
        spans += (Span(0, 2, (scratch_block,) * 2),) * prompts  # blocks may be of one token
        tokens = [0] * (decodes + 2 * prompts)
        return messages.Run(self.generation, batch_id, tokens, spans, list(range(decodes)), [sampling_task] * decodes)

    def pieces(self, device: int) -> frozenset[Piece]:
        """KV pieces a device holds for this topology."""
        return owned(self.topology, self._model).get(device, frozenset())

    async def stand_by(self, workers: Workers, keep: "Ranks | None" = None) -> None:
        """Give back the KV memory that ``keep``, if there is one, does not need. Roles and group stay.

        Raises:
            SwitchError: devices that could not, after all others did.
        """
        failed = list[str]()
        for device in self.topology.devices:
            try:
                kept = keep.pieces(device) if keep else frozenset()
                await workers.give_back(device, self.pieces(device) - kept, workers.all_blocks)
            except WorkerLostError:
                pass  # its memory went with it
            except SwitchError as error:
                failed.append(error.detail)
        if failed:
            raise SwitchError(Reason.NO_MEMORY, f"KV memory stays taken: {'; '.join(failed)}")

    async def release_all(self, workers: Workers, keep: "Ranks") -> None:
        """The same, and forget the roles and the group."""
        try:
            await self.stand_by(workers, keep)
        finally:
            await self.release(workers)

    async def release(self, workers: Workers) -> None:
        """Forget the roles and the group, as far as workers can."""
        try:
            for device in self.topology.devices:
                with suppress(WorkerLostError):
                    await workers.order(device, messages.Drop(self.generation))
                    await workers.forget(device)
        finally:
            if self._memory:
                self._memory.close()


def formats_of(stage: Stage) -> tuple[str | None, ...]:
    """Of its layers' weights; None: as the engine computes."""
    names = (stage.precision_of(layer).weights for layer in stage.layers)
    return tuple(None if name in FULL else name for name in names)


def load_failed(device: int, detail: str) -> SwitchError:
    """What a worker that cannot take its role means for the switch."""
    error = SwitchError(Reason.LOAD_FAILED, f"device {device} could not take its role: {detail}")
    if names_device(detail):  # else the checkpoint may be to blame, or too little memory
        error.device = device
        error.is_broken = True
    return error


def names_device(detail: str) -> bool:
    """Whether an error is one by which CUDA says that the device itself is broken or gone."""
    return any(words in detail for words in DEVICE_FAULTS)


def worker_config(
    config: messages.TorchDriverConfig, shape: KvShape, scratch: int, reader: str
) -> messages.WorkerConfig:
    """What workers are started with. Whatever touches a GPU happens in them: CUDA does not outlive a fork."""
    gpus = is_on_gpus(config.topology)
    blocks = shape.num_blocks, shape.block_size
    return messages.WorkerConfig(
        checkpoint=config.checkpoint,
        kv=(shape.num_layers, shape.num_kv_heads, *blocks, shape.head_dim, shape.stack),
        precision=base_of(config.topology),
        scratch_block=scratch,
        place="gpu" if gpus else "cpu",
        gains=gpus,
        reader=reader,
        address=LOCAL if config.settings.rank_transport == "torch_distributed" else None,
        first_device=config.first_device,
    )
