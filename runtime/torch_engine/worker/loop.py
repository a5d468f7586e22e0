"""A worker: one process on one device. It holds up to two roles, active and incoming, and blocks when idle.

Orders run one after another between steps, so that every worker sees the driver's total order and no two wait for
each other; only loading weights and getting or returning KV memory run beside, in threads. So inference and migration
never want a device in two orders, as they would if each had a process (PipeLive locks them into one order with a handshake).
"""

import ctypes
import gc
import os
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from runtime.errors import EngineStartError, Reason, SwitchError
from runtime.footprint import Piece
from runtime.kv.memory import MemoryFaultError
from runtime.kv.store import KvHandle, KvShape, KvStore, Slice
from runtime.models import LayerRange
from runtime.process.channel import BlockingChannel
from runtime.torch_engine.messages import (
    Copied,
    Copy,
    Digest,
    Done,
    Drop,
    Exchange,
    Forget,
    Gain,
    GiveBack,
    Load,
    Loaded,
    LoadFailed,
    Loading,
    Ping,
    Ran,
    Run,
    WarmUp,
)
from runtime.torch_engine.models import Span
from runtime.torch_engine.worker.checkpoint import Checkpoint
from runtime.torch_engine.worker.group import Group, GroupAborted, SoloGroup
from runtime.torch_engine.worker.places import OpenPlace, open_cpu
from runtime.torch_engine.worker.sampler import sample
from runtime.torch_engine.worker.shard import Shard, ShardSpec
from runtime.torch_engine.worker.weights import Weights

_PR_SET_PDEATHSIG = 1
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # malloc.h
_KEPT_BYTES = 256 << 20
"""Freed memory that a worker keeps: else each step faults its temporaries in anew, a quarter of its time at 200 sequences."""
_LARGEST_KEPT_BYTES = 32 << 20
"""Of one allocation; the most that glibc takes from its heap."""
_WARM_UP_TOKENS = (1, 2)
"""Of the sequences that a role warms up with: decodes and prompts have kernels of their own."""
_NICENESS = 10
"""Of threads that work beside the loop: steps of what runs come first."""
_SLICE_S = 0.003
"""How long a device that cannot do it beside its steps may keep one waiting to gain memory or give it back."""
_BESIDE_SLICE_S = 0.05
"""How long memory is gained or given back before it is asked whether to go on, where no step waits for it."""


Numbered = Copy | Exchange | Drop | Gain | Forget | GiveBack | WarmUp | Digest | Ping
"""Orders that are answered by ``Done``."""


@dataclass(frozen=True, slots=True)
class WorkerConfig:
    """What a worker is forked with."""

    checkpoint: Path
    shape: KvShape
    scratch_block: int
    """A block no sequence ever gets: probes write there."""
    open_place: OpenPlace = open_cpu
    gains: bool = False
    """KV memory has to be gained before it is written to, and peers close it before it is given back."""
    checkpoint_class: type[Checkpoint] = Checkpoint
    """Reads the folder."""


@dataclass(frozen=True, slots=True)
class Hello:
    """The worker is up; peers find its KV memory here."""

    handle: KvHandle


@dataclass(frozen=True, slots=True)
class Unable:
    """There is no such device, or no memory on it: the worker waits for its end."""

    detail: str


@dataclass(frozen=True, slots=True)
class _Role:
    shard: Shard
    spec: ShardSpec
    group: Group

    def heads(self, num_kv_heads: int) -> slice:
        each = num_kv_heads // self.spec.tp_size
        return slice(self.spec.tp_rank * each, (self.spec.tp_rank + 1) * each)


def worker_main(sock: socket.socket, config: WorkerConfig, index: int) -> None:
    """Body of the forked process; returns never."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # a worker never outlives its driver
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the service's to handle
    torch.set_num_threads(1)
    keep_freed_memory()
    gc.freeze()  # what was inherited lives on: a full collection walking it would hold up a step for 0.1 s
    status = 1
    try:
        _work(BlockingChannel(sock), config, index)
        status = 0
    except BaseException:
        traceback.print_exc()
        raise
    finally:
        sys.stderr.flush()
        os._exit(status)  # no clean-up of what was inherited from the driver


def _work(channel: BlockingChannel, config: WorkerConfig, index: int) -> None:
    try:
        worker = Worker(channel, config, index)
    except EngineStartError as error:
        channel.send(Unable(str(error)))
        for _ in channel.messages():
            pass
    else:
        worker.serve()


def _be_nice() -> None:
    os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICENESS)


def keep_freed_memory() -> None:
    """Have malloc use freed memory again instead of giving it back to the system at once."""
    libc = ctypes.CDLL(None)
    libc.mallopt(_M_MMAP_THRESHOLD, _LARGEST_KEPT_BYTES)
    libc.mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)


class Worker:
    """Roles, KV memory and the loop over orders."""

    def __init__(self, channel: BlockingChannel, config: WorkerConfig, index: int = 0) -> None:
        """``index`` is the device's in the inventory.

        Raises:
            EngineStartError: there is no such device here.
        """
        self._channel, self._config = channel, config
        self._weights: Weights | None = None
        self._place = config.open_place(index, config.shape)
        self._store = self._place.store
        self._roles: dict[int, _Role] = {}
        self._loading: set[int] = set()
        self._turn = threading.Lock()
        """Between the loop and the threads that load."""
        self._beside: threading.Thread | None = None
        """The last that changed what memory is held."""

    def serve(self) -> None:
        """Work until the driver is gone."""
        self._channel.send(Hello(self._store.handle))
        with torch.inference_mode():
            for order in self._channel.messages():
                self._obey(order)

    def _obey(self, order: Load | Run | Numbered) -> None:
        match order:
            case Run():
                self._run(order)
            case Load():
                self._loading.add(order.generation)
                threading.Thread(target=self._load, args=(order,), daemon=True).start()
            case Gain() | GiveBack() if isinstance(self._store, KvStore):
                self._beside = threading.Thread(
                    target=self._change_beside, args=(order, self._beside), daemon=True
                )
                self._beside.start()
            case _:
                self._do(order.order, lambda: self._outcome(order))

    def _do(self, number: int, work: Callable[[], object]) -> None:
        """Answer with what ``work`` returns, or with why it failed: that ends the switch, not this worker."""
        try:
            done = Done(number, work())
        except SwitchError as error:
            done = Done(number, error=error)
        except Exception as error:  # noqa: BLE001 - whatever it is, the driver waits for an answer
            traceback.print_exc()
            done = Done(number, error=SwitchError(Reason.LOAD_FAILED, f"{type(error).__name__}: {error}"))
        self._channel.send(done)

    def _outcome(self, order: Numbered) -> object:
        outcome: object = None
        match order:
            case Copy():
                outcome = self._copy(order)
            case Drop():
                self._drop(order)
            case Gain() | GiveBack():
                outcome = self._change(order, _SLICE_S)
            case WarmUp():
                outcome = self._warm_again(order)
            case Forget():
                self._store.forget_peers()
            case Exchange():
                self._exchange(order)
            case Digest():
                outcome = self._digests(order)
            case Ping():
                pass
        return outcome

    def _run(self, order: Run) -> None:
        if (role := self._roles.get(order.generation)) is None:
            return
        role.group.begin()
        try:
            attention = self._place.attention(role.heads(self._config.shape.num_kv_heads), order.spans)
            tokens = torch.tensor(order.tokens, device=self._place.device)
            hidden = role.shard.forward(tokens, attention, role.group)
            self._place.wait()
            if role.spec.is_last:
                logits = role.shard.logits(hidden, order.rows, role.group) if order.rows else None
                if role.spec.tp_rank == 0:
                    self._channel.send(
                        Ran(order.batch_id, [] if logits is None else sample(logits, order.wishes))
                    )
            role.group.end()
        except GroupAborted:
            self._roles.pop(order.generation, None)

    def _copy(self, order: Copy) -> Copied:
        began_s = self._place.clock_s()
        num_bytes = self._store.copy(order.boxes, order.runs)
        return Copied(num_bytes, self._place.clock_s() - began_s)

    def _change_beside(self, order: Gain | GiveBack, earlier: threading.Thread | None) -> None:
        _be_nice()
        if earlier:
            earlier.join()  # or what is given back might be gained again
        self._do(order.order, lambda: self._change(order, _BESIDE_SLICE_S))

    def _change(self, order: Gain | GiveBack, slice_s: float) -> Slice:
        change = self._store.gain if isinstance(order, Gain) else self._store.give_back
        try:
            return change(order.pieces, order.runs, slice_s, order.after)
        except (MemoryFaultError, OSError) as error:
            raise SwitchError(Reason.NO_MEMORY, f"it cannot hold its KV: {error}") from error

    def _progress(self, generation: int) -> None:
        """Tell of a layer that was loaded.

        Raises:
            SwitchError: nobody wants the role any more.
        """
        with self._turn:
            if generation not in self._loading:
                raise SwitchError(Reason.CANCELLED, "the role was dropped while it was loaded")
        self._channel.send(Loading(generation))

    def _load(self, order: Load) -> None:
        try:
            self._place.use()
            _be_nice()
            with torch.inference_mode():
                self._weights = self._weights or Weights(
                    self._config.checkpoint_class(self._config.checkpoint),
                    self._config.shape.dtype,
                    self._place.device,
                )
                shard = Shard(self._weights, order.shard, LayerRange(order.layers.start, order.layers.start))
                for layer in order.layers:
                    shard.take(LayerRange(layer, layer + 1))
                    self._progress(order.generation)
                group = Group(order.group_path, order.group_shape, order.stage, order.shard.tp_rank)
                role = _Role(shard, order.shard, group)
                if shard.is_complete:
                    self._warm_up(role)
                self._place.warm_up_copy()
                self._place.return_freed()
        except Exception as error:  # noqa: BLE001 - whatever it is, the driver must hear of it
            self._settle(
                order.generation, LoadFailed(order.generation, f"{type(error).__name__}: {error}"), None
            )
        else:
            self._settle(order.generation, Loaded(order.generation), role)

    def _settle(self, generation: int, outcome: Loaded | LoadFailed, role: _Role | None) -> None:
        """Take a role that was loaded, unless it was dropped meanwhile: then nobody waits for it."""
        with self._turn:
            if generation not in self._loading:
                return
            self._loading.remove(generation)
            if role is not None:
                self._roles[generation] = role
            self._channel.send(outcome)

    def _exchange(self, order: Exchange) -> None:
        old, new = self._roles.get(order.sheds), self._roles.get(order.takes)
        stays = old and new and old.spec.share == new.spec.share
        if new and stays:
            new.shard.take(order.layers)  # what the old role still holds is not loaded again
        if old:
            old.shard.shed(order.layers)
        if new:
            new.shard.take(order.layers)
        self._place.return_freed()  # KV of the layers that come next needs it

    def _warm_up(self, role: _Role) -> None:
        """A decode and a prompt alone, so that kernels and memory are warm before peers depend on this rank."""
        spans = [Span(0, count, (self._config.scratch_block,)) for count in _WARM_UP_TOKENS]
        attention = self._place.attention(role.heads(self._config.shape.num_kv_heads), spans)
        tokens = torch.zeros(sum(_WARM_UP_TOKENS), dtype=torch.int64, device=self._place.device)
        role.shard.forward(tokens, attention, SoloGroup())

    def _warm_again(self, order: WarmUp) -> bool:
        """Returns whether there is such a role."""
        if (role := self._roles.get(order.generation)) is None:
            return False
        self._warm_up(role)
        self._place.wait()
        return True

    def _drop(self, order: Drop) -> None:
        with self._turn:
            self._loading.discard(order.generation)
            self._roles.pop(order.generation, None)
        self._store.forget_peers()
        ctypes.CDLL(None).malloc_trim(0)  # weights go back, though freed memory is kept
        self._place.return_freed()

    def _digests(self, order: Digest) -> dict[tuple[int, int, Piece], str]:
        return {
            (block, tokens, piece): self._store.digest(piece, block, tokens)
            for block, tokens in order.blocks
            for piece in order.pieces
        }
