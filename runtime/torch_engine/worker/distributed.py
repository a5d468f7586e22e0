"""How ranks talk through ``torch.distributed``: gloo on CPUs, NCCL on GPUs.

They need a network, and no common host.

Each worker keeps a store at an address of its own; the ranks of a topology find each other at the one of their first device.
Nothing is global: a topology has process groups of its own, made while its weights are loaded and tried out there.

Nobody can call them off: gloo's ``abort`` does nothing. Whoever waits for a rank that hangs waits until the driver ends that
rank; then the others see the connection close. So a worker that serves enters none of a target's before its requests move.
"""

import contextlib
import socket
from collections import deque
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import msgspec
import torch
from torch._C import _distributed_c10d as c10d  # what ``torch.distributed`` has, with types
from torch.distributed import ProcessGroup, ProcessGroupGloo

from runtime.process.liveness import MOST_PATIENCE_S
from runtime.torch_engine.worker.group import AHEAD, SOLO, GroupAborted, Peers, Position


def open_store(address: str) -> c10d.TCPStore:
    """A store at a free port of this address and no other.

    It serves from a thread, so only a worker may have one.
    """
    listening = socket.create_server((address, 0))
    port = listening.getsockname()[1]
    fd = listening.detach()
    return c10d.TCPStore(address, port, is_master=True, wait_for_workers=False, master_listen_fd=fd)


class DistributedRanks(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag=True):
    """Where the ranks of a topology meet."""

    host: str
    port: int
    name: str
    """Of the topology, as no other at this store has."""
    tp_sizes: tuple[int, ...]
    timeout_s: float
    """How long they may take to find each other."""

    def join(self, stage: int, rank: int, address: str, device: torch.device) -> Peers:
        """One rank's side, once all are there and have been heard. It is found at ``address``.

        Raises:
            GroupAborted: they are not there in time, or one is gone.
        """
        position = Position(self.tp_sizes, stage, rank)
        group = SOLO.group
        hop = SOLO.hop
        every = range(sum(self.tp_sizes))
        with _heard():
            store = c10d.TCPStore(self.host, self.port, wait_for_workers=False, timeout=self._patience)
            if len(position.peers) > 1:
                group = DistributedGroup(
                    self._process_group(store, members=position.peers, me=position.me, address=address, device=device)
                )
            if len(self.tp_sizes) > 1:
                hop = DistributedHop(
                    self._process_group(store, members=every, me=position.me, address=address, device=device),
                    position,
                    device,
                )
        # one message each way: connections that are made with the first one are there then
        nothing = torch.zeros((1, 1), device=device)
        group.all_reduce(nothing)
        if position.source is not None:
            hop.receive((1, 1), nothing.dtype)
        hop.send(nothing)
        for made in (group, hop):
            if isinstance(made, DistributedGroup | DistributedHop):
                made.ranks.set_timeout(timedelta(seconds=MOST_PATIENCE_S))
        return Peers(group, hop)

    @property
    def _patience(self) -> timedelta:
        return timedelta(seconds=self.timeout_s)

    def _process_group(self, store: c10d.Store, members: range, me: int, address: str, device: torch.device) -> Any:
        kind: Any = ProcessGroupGloo
        if device.type == "cuda":
            from torch.distributed import ProcessGroupNCCL as kind  # noqa: N813 - a class either way

            options = kind.Options()
        else:  # torch has no public name for these
            options = kind._Options()  # noqa: SLF001
            options._devices = [kind.create_device(hostname=address)]  # noqa: SLF001
        options._timeout = self._patience  # noqa: SLF001
        own = c10d.PrefixStore(f"{self.name}/{members}", store)
        return kind(own, members.index(me), len(members), options)


@contextlib.contextmanager
def _heard() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        raise GroupAborted(str(error)) from error


class DistributedGroup:
    """``Group`` in a process group of its stage. Sums run in the order of its backend."""

    def __init__(self, ranks: ProcessGroup) -> None:
        self.ranks = ranks

    def all_reduce(self, part: torch.Tensor) -> torch.Tensor:
        total = part.contiguous()
        with _heard():
            self.ranks.allreduce([total]).wait()
        return total

    def gather(self, part: torch.Tensor) -> torch.Tensor:
        own = part.contiguous()
        parts = [torch.empty_like(own) for _ in range(self.ranks.size())]
        with _heard():
            self.ranks.allgather([parts], [own]).wait()
        return torch.cat(parts, dim=-1)


class DistributedHop:
    """``Hop`` in a process group of the whole topology."""

    def __init__(self, ranks: ProcessGroup, position: Position, device: torch.device) -> None:
        self.ranks = ranks
        self._device = device
        self._source = position.source
        self._receivers = position.receivers
        self._sent = deque[list[Any]]()

    def send(self, hidden: torch.Tensor) -> None:
        with _heard():
            while len(self._sent) >= AHEAD:
                for earlier in self._sent.popleft():
                    earlier.wait()
            self._sent.append([self.ranks.send([hidden], receiver, 0) for receiver in self._receivers])

    def receive(self, shape: tuple[int, int], dtype: torch.dtype) -> torch.Tensor:
        assert self._source is not None, "the first stage receives nothing"
        hidden = torch.empty(shape, dtype=dtype, device=self._device)
        with _heard():
            self.ranks.recv([hidden], self._source, 0).wait()
        return hidden
