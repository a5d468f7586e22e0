"""A worker: one process on one device.

It holds up to two roles, active and incoming, and blocks when idle.

Orders run one after another between steps, so that every worker sees the driver's total order and no two wait for
each other; only loading weights and getting or returning KV memory run beside, in threads. So inference and migration
never want a device in two orders, as they would if each had a process (PipeLive locks them into one order with a handshake).
"""

import ctypes
import gc
import os
import signal
import socket
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

import msgspec
import torch

from runtime.errors import EngineStartError, Reason, SwitchError
from runtime.kv.chunks import ChunkedStore
from runtime.kv.memory import MemoryFaultError
from runtime.kv.store import KvStore, Slice
from runtime.models import LayerRange
from runtime.process import messages as wire
from runtime.process.channel import BlockingChannel
from runtime.torch_engine import messages
from runtime.torch_engine.models import Span
from runtime.torch_engine.worker.backends import PLACES
from runtime.torch_engine.worker.checkpoint import READERS
from runtime.torch_engine.worker.distributed import DistributedRanks, open_store
from runtime.torch_engine.worker.group import COMPUTES, IDLE, SOLO, GroupAborted, Peers
from runtime.torch_engine.worker.quantised_files import QuantisedFiles
from runtime.torch_engine.worker.sampler import sample
from runtime.torch_engine.worker.shard import Aside, Shard, ShardSpec
from runtime.torch_engine.worker.weights import Weights

_M_TRIM_THRESHOLD = -1  # malloc.h
_M_MMAP_THRESHOLD = -3  # malloc.h
_KEPT_BYTES = 256 << 20
"""Freed memory that a worker keeps: else each step faults its temporaries in anew, a quarter of its time at 200 sequences."""
_LARGEST_KEPT_BYTES = 32 << 20
"""Of one allocation; the most that glibc takes from its heap."""
_WARM_UP = ((1, 2),)
"""Tokens of each sequence of the steps that a role warms up with: decodes and prompts have kernels of their own."""
_WARM_UP_ON_GPU = (*_WARM_UP, *((2,) * (1 << power) for power in range(1, 9)))
"""A matrix product has kernels by the number of tokens: one that is loaded in a step holds it up for 20 ms and more."""
_NICENESS = 10
"""Of threads that work beside the loop: steps of what runs come first."""
_SLICE_S = 0.003
"""How long a device may keep a step waiting to gain memory, give it back or have a peer's."""
_SLICE_SHARE = 0.2
"""Or, where that is longer, for so much of the last step."""
_BESIDE_SLICE_S = 0.05
"""How long memory is gained or given back before it is asked whether to go on, where no step waits for it."""


@dataclass(frozen=True, slots=True)
class _Role:
    shard: Shard
    spec: ShardSpec
    ranks: Peers

    def heads(self, num_kv_heads: int) -> slice:
        return self.spec.share.of(num_kv_heads)


def run(sock: socket.socket) -> None:
    """Body of a worker process; the first message is its ``WorkerConfig``."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the service's to handle
    torch.set_num_threads(1)
    keep_freed_memory()
    gc.freeze()  # what was inherited lives on: a full collection walking it would hold up a step for 0.1 s
    channel = BlockingChannel(sock, messages.ToWorker)
    incoming = channel.messages()
    try:
        worker = Worker(channel, next(incoming))
    except EngineStartError as error:
        channel.send(messages.Unable(str(error)))
        for _ in incoming:
            pass
    else:
        try:
            worker.serve(incoming)
        except RuntimeError as error:  # torch's form of CUDA's errors
            channel.send(messages.Unable(str(error)))
            raise


def _be_nice() -> None:
    os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICENESS)


def _return_freed_memory() -> None:
    """Weights that are gone go back to the system, though freed memory is kept."""
    ctypes.CDLL(None).malloc_trim(0)


def keep_freed_memory() -> None:
    """Have malloc use freed memory again instead of giving it back to the system at once."""
    libc = ctypes.CDLL(None)
    libc.mallopt(_M_MMAP_THRESHOLD, _LARGEST_KEPT_BYTES)
    libc.mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)


class Worker:
    """Roles, KV memory and the loop over orders."""

    def __init__(self, channel: BlockingChannel, config: messages.WorkerConfig) -> None:
        """Open the device.

        Raises:
            EngineStartError: there is no such device here.
        """
        self._channel = channel
        self._config = config
        self._shape = config.shape
        self._weights: Weights | None = None
        self._place = PLACES[config.place](config.index - config.first_device, self._shape)
        self._store = self._place.store
        self._rendezvous = open_store(config.address) if config.address else None
        self._roles: dict[int, _Role] = {}
        self._loading: set[int] = set()
        self._aside: Aside = {}
        """Layers of the role that serves in formats that it does not compute with."""
        self._laying: threading.Thread | None = None
        """The last that loaded such layers or let them go."""
        self._slice_s = _SLICE_S
        self._turn = threading.Lock()
        """Between the loop and the threads that load."""
        self._beside: threading.Thread | None = None
        """The last that changed what memory is held."""

    def serve(self, incoming: Iterator[messages.LoadShard | messages.Run | wire.Call[messages.Order]]) -> None:
        """Work until the driver is gone."""
        store = self._rendezvous
        self._channel.send(messages.Hello(self._store.handle, (store.host, store.port) if store else None))
        with torch.inference_mode(), suppress(BrokenPipeError):
            for message in incoming:
                self._obey(message)

    def _obey(self, order: messages.LoadShard | messages.Run | wire.Call[messages.Order]) -> None:
        match order:
            case messages.Run():
                self._run(order)
            case messages.LoadShard():
                self._loading.add(order.generation)
                threading.Thread(target=self._load, args=(order,), daemon=True).start()
            case wire.Call(number, messages.Gain() as change) if isinstance(self._store, KvStore):
                if isinstance(change, messages.GiveBack):
                    self._store.avoid(change.runs)  # now: the steps that come next run beside it
                self._beside = threading.Thread(
                    target=self._change_beside, args=(number, change, self._beside), daemon=True
                )
                self._beside.start()
            case wire.Call(number, messages.FetchLayer() | messages.LetGo() as change):
                loading = threading.Thread(target=self._lay_beside, args=(number, change, self._laying), daemon=True)
                self._laying = loading
                loading.start()
            case wire.Call(number, command):
                self._do(number, lambda: self._outcome(command))

    def _do(self, number: int, work: Callable[[], object]) -> None:
        """Answer with what ``work`` returns, or with why it failed: that ends the switch, not this worker."""
        try:
            done = wire.reply(number, work())
        except SwitchError as error:
            done = wire.Reply(number, trouble=wire.Trouble.of(error))
        except Exception as error:  # noqa: BLE001 - whatever it is, the driver waits for an answer
            traceback.print_exc()
            failed = SwitchError(Reason.LOAD_FAILED, f"{type(error).__name__}: {error}")
            done = wire.Reply(number, trouble=wire.Trouble.of(failed))
        self._channel.send(done)

    def _outcome(self, order: messages.Order) -> object:
        outcome: object = None
        match order:
            case messages.Copy():
                outcome = self._copy(order)
            case messages.OpenPeers(boxes, runs, after) if isinstance(self._store, ChunkedStore):
                outcome = self._store.reach(boxes, runs, self._slice_s, after)
            case messages.Drop():
                self._drop(order)
            case messages.Gain():
                outcome = self._change(order, self._slice_s)
            case messages.WarmUp():
                outcome = self._warm_again(order)
            case messages.Forget():
                outcome = self._store.forget_peers(self._slice_s)
            case messages.Exchange():
                self._exchange(order)
            case messages.SwapLayers(generation, layers):
                coming = {layer: self._aside[layer] for layer in layers if layer in self._aside}
                self._aside |= self._roles[generation].shard.exchange(coming)
            case messages.Digest(places):
                outcome = [self._store.digest(piece, block, tokens) for block, tokens, piece in places]
        return outcome  # of a ``Ping``: nothing

    def _run(self, order: messages.Run) -> None:
        if (role := self._roles.get(order.generation)) is None:
            return
        role.ranks.note(COMPUTES)
        began_s = self._place.clock_s()
        try:
            attention = self._place.attention(role.heads(self._shape.num_kv_heads), order.spans)
            tokens = torch.tensor(order.tokens, device=self._place.device)
            hidden = role.shard.forward(tokens, attention, role.ranks)
            self._place.wait()
            if role.spec.is_last:
                logits = role.shard.logits(hidden, order.rows, role.ranks) if order.rows else None
                if role.spec.tp_rank == 0:
                    self._channel.send(
                        messages.BatchFinished(order.batch_id, [] if logits is None else sample(logits, order.tasks))
                    )
            role.ranks.note(IDLE)
            self._slice_s = max(_SLICE_S, _SLICE_SHARE * (self._place.clock_s() - began_s))
        except GroupAborted:
            self._roles.pop(order.generation, None)

    def _copy(self, order: messages.Copy) -> messages.Copied:
        began_s = self._place.clock_s()
        num_bytes = self._store.copy(order.boxes, order.runs)
        return messages.Copied(num_bytes, self._place.clock_s() - began_s)

    def _change_beside(self, number: int, order: messages.Gain, earlier: threading.Thread | None) -> None:
        _be_nice()
        if earlier:
            earlier.join()  # or what is given back might be gained again
        self._do(number, lambda: self._change(order, _BESIDE_SLICE_S))

    def _lay_beside(
        self, number: int, order: messages.FetchLayer | messages.LetGo, earlier: threading.Thread | None
    ) -> None:
        self._place.use()
        _be_nice()
        if earlier:
            earlier.join()  # or what is let go might be loaded afterwards
        with torch.inference_mode():
            self._do(number, lambda: self._lay_aside(order))

    def _lay_aside(self, order: messages.FetchLayer | messages.LetGo) -> None:
        if isinstance(order, messages.LetGo):
            self._aside = {}
            _return_freed_memory()
            self._place.return_freed()
            return
        self._verify()
        self._aside[order.layer] = self._roles[order.generation].shard.fetched(order.layer, order.format)
        self._verify()

    def _change(self, order: messages.Gain, slice_s: float) -> Slice:
        change = self._store.give_back if isinstance(order, messages.GiveBack) else self._store.gain
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
        self._channel.send(messages.Loading(generation))

    def _load(self, order: messages.LoadShard) -> None:
        try:
            self._place.use()
            _be_nice()
            with torch.inference_mode():
                ranks = self._join(order)  # first: all begin at once, and take their time over weights
                self._verify()
                self._weights = self._weights or self._opened()
                shard = Shard(self._weights, order.shard, LayerRange(order.layers.start, order.layers.start))
                for layer in order.layers:
                    shard.take(LayerRange(layer, layer + 1))
                    self._progress(order.generation)
                self._verify()
                role = _Role(shard, order.shard, ranks)
                if shard.is_complete:
                    self._warm_up(role, _WARM_UP if self._place.device.type == "cpu" else _WARM_UP_ON_GPU)
                self._place.warm_up_copy()
                self._place.return_freed()
        except Exception as error:  # noqa: BLE001 - whatever it is, the driver must hear of it
            self._settle(messages.LoadFailed(order.generation, f"{type(error).__name__}: {error}"))
        else:
            self._settle(messages.Loaded(order.generation), role)

    def _opened(self) -> Weights:
        checkpoint = READERS[self._config.reader](self._config.checkpoint.folder)
        beat = messages.Loading(0)  # of no role: the driver hears that this worker lives
        files = QuantisedFiles(checkpoint, self._config.checkpoint.digest, lambda: self._channel.send(beat))
        return Weights(checkpoint, self._shape.dtype, self._place.device, files)

    def _verify(self) -> None:
        """Look whether the checkpoint is what was served first.

        Before weights are loaded, and after: it may change meanwhile.

        Raises:
            CheckpointError: it is not.
        """
        self._config = msgspec.structs.replace(self._config, checkpoint=self._config.checkpoint.verified())

    def _join(self, order: messages.LoadShard) -> Peers:
        if isinstance(order.ranks, DistributedRanks):
            return order.ranks.join(
                stage=order.stage,
                rank=order.shard.tp_rank,
                address=self._config.address or "",
                device=self._place.device,
            )
        return order.ranks.join(stage=order.stage, rank=order.shard.tp_rank)

    def _settle(self, outcome: messages.Loaded | messages.LoadFailed, role: _Role | None = None) -> None:
        """Take a role that was loaded, unless it was dropped meanwhile: then nobody waits for it."""
        with self._turn:
            if outcome.generation not in self._loading:
                return
            self._loading.remove(outcome.generation)
            if role is not None:
                self._roles[outcome.generation] = role
            self._channel.send(outcome)

    def _exchange(self, order: messages.Exchange) -> None:
        old = self._roles.get(order.sheds)
        new = self._roles.get(order.takes)
        stays = old and new and old.spec.share == new.spec.share
        if new and stays:
            new.shard.take(order.layers)  # what the old role still holds is not loaded again
        if old:
            old.shard.shed(order.layers)
        if new:
            new.shard.take(order.layers)
        self._verify()
        self._place.return_freed()  # KV of the layers that come next needs it

    def _warm_up(self, role: _Role, steps: Sequence[tuple[int, ...]]) -> None:
        """Decodes and prompts alone, so that kernels and memory are warm before peers depend on this rank."""
        for counts in steps:
            spans = [Span(0, count, (self._config.scratch_block,) * count) for count in counts]
            attention = self._place.attention(role.heads(self._shape.num_kv_heads), spans)
            tokens = torch.zeros(sum(counts), dtype=torch.int64, device=self._place.device)
            role.shard.forward(tokens, attention, SOLO)

    def _warm_again(self, order: messages.WarmUp) -> bool:
        """Returns whether there is such a role."""
        if (role := self._roles.get(order.generation)) is None:
            return False
        self._warm_up(role, _WARM_UP)
        self._place.wait()
        return True

    def _drop(self, order: messages.Drop) -> None:
        with self._turn:
            self._loading.discard(order.generation)
            self._roles.pop(order.generation, None)
        _return_freed_memory()
        self._place.return_freed()
