"""How the ranks of one topology talk: ``Group`` within a stage, ``Hop`` between neighbouring stages.

Here through shared memory.

One memory file per topology, made by the driver and mapped by each rank, so nothing is global and two topologies can stand
side by side. Every rank of a stage holds the complete hidden state; rank ``i`` of the next stage receives from ``i mod`` the
previous TP. Sums run in rank order on every rank, so the ranks stay bit-identical.

Ranks on GPUs use the same memory of the host: what they hand over is copied to it and from it, and the copy that announces
it waits for their kernels. ``distributed`` is the other form, which needs no common host.

Ordering relies on x86-64's total store order: data is stored before the flag that announces it.
"""

import mmap
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import msgspec
import torch

_WORD = 8
_LINE_WORDS = 8  # one cache line per flag: ranks do not fight over it
_YIELDS_BEFORE_SLEEP = 4000
_NAP_S = 0.0001
IDLE, COMPUTES, _WAITS = range(3)
"""What a rank does, for whoever looks for the one that hangs."""
AHEAD = 2
"""Hand-overs that may be under way: a stage waits for the next one before a third."""


class GroupAborted(Exception):  # noqa: N818 - an event, not an error of the caller
    """A member of the group is gone; the driver has called the group off."""


class Group(Protocol):
    """The ranks of one stage."""

    def all_reduce(self, part: torch.Tensor) -> torch.Tensor:
        """Sum of every rank's ``part`` (any shape), the same bits on each; ``part`` may hold it afterwards.

        Raises:
            GroupAborted: a rank is gone.
        """

    def gather(self, part: torch.Tensor) -> torch.Tensor:
        """Every rank's ``part`` ``[rows, columns]`` side by side, in rank order. All parts have one shape.

        Raises:
            GroupAborted: a rank is gone.
        """


class Hop(Protocol):
    """A rank's neighbours in the stages before and after its own."""

    def send(self, hidden: torch.Tensor) -> None:
        """Hand ``hidden`` to the next stage; waits only if that stage is two messages behind.

        Raises:
            GroupAborted: a rank is gone.
        """

    def receive(self, shape: tuple[int, int], dtype: torch.dtype) -> torch.Tensor:
        """The hidden state ``[tokens, hidden]`` from the previous stage.

        Raises:
            GroupAborted: a rank is gone.
        """


@dataclass(frozen=True, slots=True)
class Peers:
    """A rank's ways to the others of its topology."""

    group: Group
    hop: Hop
    note: Callable[[int], None] = lambda _: None
    """Leaves word of what this rank does, where somebody can read it."""


class Position:
    """Where a rank stands in its topology. Ranks are counted over all stages."""

    def __init__(self, tp_sizes: tuple[int, ...], stage: int, rank: int) -> None:
        """``rank`` is the one in its stage."""
        first = sum(tp_sizes[:stage])
        before, own, after = (0, *tp_sizes, 0)[stage : stage + 3]
        self.peers = range(first, first + own)
        """Ranks of its stage."""
        self.me = self.peers[rank]
        self.source = first - before + rank % before if stage else None
        """The rank that it receives from; the first stage receives nothing."""
        self.receivers = [first + own + other for other in range(after) if other % own == rank]
        """Ranks of the next stage that read what it hands over."""


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


class SharedRanks(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag=True):
    """Where the ranks of a topology find its memory."""

    path: str
    shape: GroupShape

    def join(self, stage: int, rank: int) -> Peers:
        """One rank's side."""
        member = _Member(self, Position(self.shape.tp_sizes, stage, rank))
        return Peers(SharedGroup(member), SharedHop(member), member.note)


class GroupMemory:
    """The driver's side: makes the memory, and can call the ranks off."""

    def __init__(self, shape: GroupShape) -> None:
        self.shape = shape
        self._fd = os.memfd_create("intentctl-group")
        os.ftruncate(self._fd, shape.total_bytes)
        self._map = mmap.mmap(self._fd, shape.total_bytes)
        self._map.madvise(mmap.MADV_DONTFORK)  # workers forked later have nothing to do with this group

    @property
    def ranks(self) -> SharedRanks:
        """Where ranks open it; valid while this process lives and ``close`` was not called."""
        return SharedRanks(f"/proc/{os.getpid()}/fd/{self._fd}", self.shape)

    def computing(self) -> list[int]:
        """Ranks that are inside a step and wait for nobody: where a step does not end, they are why."""
        words = memoryview(self._map).cast("q")
        found = [rank for rank in range(self.shape.ranks) if words[_progress(rank)] == COMPUTES]
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


class _Member:
    """One rank's view of the memory."""

    def __init__(self, memory: SharedRanks, position: Position) -> None:
        self.position = position
        self._num_ranks = memory.shape.ranks
        with Path(memory.path).open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), memory.shape.total_bytes)
        self.flags = memoryview(self._map).cast("q")
        data = torch.frombuffer(self._map, dtype=torch.float32, offset=memory.shape.data_start)
        self.slots = data.view(memory.shape.ranks, 4, memory.shape.max_values)
        self._own, self._parent = _progress(position.me), os.getppid()

    def note(self, state: int) -> None:
        """See ``Peers``."""
        self.flags[self._own] = state

    def line(self, kind: int, rank: int) -> int:
        """The word of a rank's flag: 0 of what it reduces, 1 of what it hands over, 2 of what it has received."""
        return _LINE_WORDS * (1 + kind * self._num_ranks + rank)

    def wait(self, word: int, value: int) -> None:
        """Spin politely: give the core away each turn, then nap.

        Leave when the group is called off or its driver gone.
        """
        turns = 0
        flags = self.flags
        own = self._own
        state = flags[own]
        flags[own] = _WAITS
        while flags[word] < value:
            turns += 1
            if flags[0] or (turns % 1000 == 0 and os.getppid() != self._parent):
                raise GroupAborted
            if turns < _YIELDS_BEFORE_SLEEP:
                os.sched_yield()
            else:
                time.sleep(_NAP_S)
        flags[own] = state


class SharedGroup:
    """``Group`` in shared memory."""

    def __init__(self, member: _Member) -> None:
        self._member = member
        self._slots = member.slots
        self._me = member.position.me
        self._peers = member.position.peers
        self._reduced = 0

    def all_reduce(self, part: torch.Tensor) -> torch.Tensor:
        """See the protocol; in rank order."""
        if len(self._peers) == 1:
            return part
        slots = self._exchange(part)
        total = slots[0].clone()
        for slot in slots[1:]:
            total += slot
        return total.view(part.shape).to(part)

    def gather(self, part: torch.Tensor) -> torch.Tensor:
        if len(self._peers) == 1:
            return part
        return torch.cat([slot.view(part.shape) for slot in self._exchange(part)], dim=-1).to(part)

    def _exchange(self, part: torch.Tensor) -> list[torch.Tensor]:
        """Post this rank's values and wait for the others'.

        Two slots suffice: whoever posts message n + 2 has seen every peer post n + 1, and a peer does that only
        after reading message n.
        """
        self._reduced += 1
        member = self._member
        parity = self._reduced % 2
        count = part.numel()
        self._slots[self._me, parity, :count].copy_(part.reshape(-1))
        member.flags[member.line(0, self._me)] = self._reduced
        for peer in self._peers:
            member.wait(member.line(0, peer), self._reduced)
        return [self._slots[peer, parity, :count] for peer in self._peers]


class SharedHop:
    """``Hop`` in shared memory."""

    def __init__(self, member: _Member) -> None:
        self._member = member
        self._slots = member.slots
        self._me = member.position.me
        self._source = member.position.source
        self._receivers = member.position.receivers
        self._sent = self._received = 0

    def send(self, hidden: torch.Tensor) -> None:
        self._sent += 1
        member = self._member
        for receiver in self._receivers:
            member.wait(member.line(2, receiver), self._sent - AHEAD)
        self._slots[self._me, 2 + self._sent % 2, : hidden.numel()].copy_(hidden.reshape(-1))
        member.flags[member.line(1, self._me)] = self._sent

    def receive(self, shape: tuple[int, int], dtype: torch.dtype) -> torch.Tensor:
        assert self._source is not None, "the first stage receives nothing"
        self._received += 1
        member = self._member
        count = shape[0] * shape[1]
        member.wait(member.line(1, self._source), self._received)
        hidden = self._slots[self._source, 2 + self._received % 2, :count].view(shape).to(dtype, copy=True)
        member.flags[member.line(2, self._me)] = self._received
        return hidden


class Solo:
    """Both for a rank that computes alone, as while it warms up: nobody is waited for."""

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


SOLO = Peers(Solo(), Solo())
