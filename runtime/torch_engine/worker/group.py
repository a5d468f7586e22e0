"""Communication between the ranks of one topology, through shared memory: all-reduce, gather and hand-over.

One memory file per topology (its *group*), made by the driver and mapped by each rank, so nothing is global and two
groups can stand side by side. Every rank of a stage holds the complete hidden state; rank ``i`` of the next stage
receives from ``i mod`` the previous TP. Sums run in rank order on every rank, so the ranks stay bit-identical.

Ranks on GPUs use the same memory of the host: what they hand over is copied to it and from it, and the copy that announces
it waits for their kernels.

Ordering relies on x86-64's total store order: data is stored before the flag that announces it.
"""

import mmap
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

_WORD = 8
_LINE_WORDS = 8  # one cache line per flag: ranks do not fight over it
_YIELDS_BEFORE_SLEEP = 4000
_NAP_S = 0.0001
_IDLE, _COMPUTES, _WAITS = range(3)
"""What a rank does, for whoever looks for the one that hangs."""


class GroupAborted(Exception):  # noqa: N818 - an event, not an error of the caller
    """A member of the group is gone; the driver has called the group off."""


@dataclass(frozen=True, slots=True)
class GroupShape:
    """Size of a group's memory."""

    tp_sizes: tuple[int, ...]
    """TP degree of each stage."""
    max_values: int
    """float32 values one message can have: tokens x hidden, or rows x vocabulary share."""

    @property
    def ranks(self) -> int:
        """Ranks in all."""
        return sum(self.tp_sizes)

    @property
    def flag_words(self) -> int:
        """One abort word, then per rank: reduce flag, hand-over flag, hand-over acknowledgement."""
        return _LINE_WORDS * (1 + 3 * self.ranks)

    @property
    def data_start(self) -> int:
        """Byte offset of the message slots."""
        return -(-self.flag_words * _WORD // mmap.PAGESIZE) * mmap.PAGESIZE

    @property
    def total_bytes(self) -> int:
        """Per rank two slots to reduce and two to hand over."""
        return self.data_start + 4 * self.ranks * self.max_values * 4


def _progress(rank: int) -> int:
    """The word that says what a rank does: on the line of its first flag."""
    return _LINE_WORDS * (1 + rank) + 1


class GroupMemory:
    """The driver's side: makes the memory, and can call the group off."""

    def __init__(self, shape: GroupShape) -> None:
        self.shape = shape
        self._fd = os.memfd_create("intentctl-group")
        os.ftruncate(self._fd, shape.total_bytes)
        self._map = mmap.mmap(self._fd, shape.total_bytes)
        self._map.madvise(mmap.MADV_DONTFORK)  # workers forked later have nothing to do with this group

    @property
    def path(self) -> str:
        """Where ranks open it; valid while this process lives and ``close`` was not called."""
        return f"/proc/{os.getpid()}/fd/{self._fd}"

    def computing(self) -> list[int]:
        """Ranks that are inside a step and wait for nobody: where a step does not end, they are why."""
        words = memoryview(self._map).cast("q")
        found = [rank for rank in range(self.shape.ranks) if words[_progress(rank)] == _COMPUTES]
        words.release()
        return found

    def abort(self) -> None:
        """Wake every rank that waits, with ``GroupAborted``. After ``close`` nobody does."""
        if not self._map.closed:
            self._map[0] = 1

    def close(self) -> None:
        """Drop the driver's hold; ranks that mapped it keep theirs."""
        self._map.close()
        os.close(self._fd)


class Group:
    """One rank's side of the group."""

    def __init__(self, path: str, shape: GroupShape, stage: int, rank: int) -> None:
        self._shape, self._stage, self._rank = shape, stage, rank
        with Path(path).open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), shape.total_bytes)
        self._flags = memoryview(self._map).cast("q")
        data = torch.frombuffer(self._map, dtype=torch.float32, offset=shape.data_start)
        self._slots = data.view(shape.ranks, 4, shape.max_values)
        firsts = [sum(shape.tp_sizes[:number]) for number in range(len(shape.tp_sizes))]
        self._me = firsts[stage] + rank
        self._peers = range(firsts[stage], firsts[stage] + shape.tp_sizes[stage])
        self._source = firsts[stage - 1] + rank % shape.tp_sizes[stage - 1] if stage else None
        self._receivers = self._receivers_of(firsts)
        self._reduced = self._sent = self._received = 0
        self._parent = os.getppid()

    def begin(self) -> None:
        """A step begins here."""
        self._flags[_progress(self._me)] = _COMPUTES

    def end(self) -> None:
        """It ended."""
        self._flags[_progress(self._me)] = _IDLE

    def _receivers_of(self, firsts: Sequence[int]) -> list[int]:
        """Ranks of the next stage that read what this rank hands over."""
        if self._stage + 1 == len(self._shape.tp_sizes):
            return []
        own, following = self._shape.tp_sizes[self._stage], self._shape.tp_sizes[self._stage + 1]
        return [firsts[self._stage + 1] + rank for rank in range(following) if rank % own == self._rank]

    def all_reduce(self, part: torch.Tensor) -> torch.Tensor:
        """Sum of every rank's ``part`` (any shape), in rank order."""
        if len(self._peers) == 1:
            return part
        slots = self._exchange(part)
        total = slots[0].clone()
        for slot in slots[1:]:
            total += slot
        return total.view(part.shape).to(part)

    def gather(self, part: torch.Tensor) -> torch.Tensor:
        """Every rank's ``part`` ``[rows, columns]`` side by side, in rank order. All parts have one shape."""
        if len(self._peers) == 1:
            return part
        return torch.cat([slot.view(part.shape) for slot in self._exchange(part)], dim=-1).to(part)

    def _exchange(self, part: torch.Tensor) -> list[torch.Tensor]:
        """Post this rank's values and wait for the others'.

        Two slots suffice: whoever posts message n + 2 has seen every peer post n + 1, and a peer does that only
        after reading message n.
        """
        self._reduced += 1
        parity, count = self._reduced % 2, part.numel()
        self._slots[self._me, parity, :count].copy_(part.reshape(-1))
        self._flags[self._line(0, self._me)] = self._reduced
        for peer in self._peers:
            self._wait(self._line(0, peer), self._reduced)
        return [self._slots[peer, parity, :count] for peer in self._peers]

    def send(self, hidden: torch.Tensor) -> None:
        """Hand ``hidden`` to the next stage; waits only if that stage is two messages behind."""
        self._sent += 1
        for receiver in self._receivers:
            self._wait(self._line(2, receiver), self._sent - 2)
        self._slots[self._me, 2 + self._sent % 2, : hidden.numel()].copy_(hidden.reshape(-1))
        self._flags[self._line(1, self._me)] = self._sent

    def receive(self, shape: tuple[int, int], dtype: torch.dtype) -> torch.Tensor:
        """The hidden state ``[tokens, hidden]`` from the previous stage."""
        assert self._source is not None, "the first stage receives nothing"
        self._received += 1
        self._wait(self._line(1, self._source), self._received)
        count = shape[0] * shape[1]
        hidden = self._slots[self._source, 2 + self._received % 2, :count].view(shape).to(dtype, copy=True)
        self._flags[self._line(2, self._me)] = self._received
        return hidden

    def _line(self, kind: int, rank: int) -> int:
        return _LINE_WORDS * (1 + kind * self._shape.ranks + rank)

    def _wait(self, word: int, value: int) -> None:
        """Spin politely: give the core away each turn, then nap; leave when the group is called off or its driver gone."""
        turns, own = 0, _progress(self._me)
        state, self._flags[own] = self._flags[own], _WAITS
        while self._flags[word] < value:
            turns += 1
            if self._flags[0] or (turns % 1000 == 0 and os.getppid() != self._parent):
                raise GroupAborted
            if turns < _YIELDS_BEFORE_SLEEP:
                os.sched_yield()
            else:
                time.sleep(_NAP_S)
        self._flags[own] = state


class SoloGroup:
    """Stands in for a group while a rank warms up alone: nobody is waited for."""

    def all_reduce(self, part: torch.Tensor) -> torch.Tensor:
        """The part itself."""
        return part

    def gather(self, part: torch.Tensor) -> torch.Tensor:
        """The part itself."""
        return part

    def send(self, hidden: torch.Tensor) -> None:
        """Nobody receives."""

    def receive(self, shape: tuple[int, int], dtype: torch.dtype) -> torch.Tensor:
        """Zeros in place of a previous stage's hidden state."""
        return torch.zeros(shape, dtype=dtype)
