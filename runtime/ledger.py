"""The ledger: for every stream who may speak (owner, epoch) and which output index is next. Pure.

An epoch has one owner, the topology that speaks under it. A cut raises the epoch of the requests it moves; a
request left to drain keeps its own. A token is accepted only if epoch and index match, else it is dropped and
counted: that is what makes "no token lost, none twice" a checked fact instead of a hope.
"""

from dataclasses import dataclass
from enum import StrEnum

from runtime.engine import Finish, Moved, Token


class DropReason(StrEnum):
    """Why a token was not delivered."""

    CLOSED = "closed"
    """The stream is not open: it ended or was cancelled, and this was still under way."""
    DUPLICATE = "duplicate"
    """Its index was delivered before."""
    WRONG_EPOCH = "wrong_epoch"
    """Its owner does not own the stream: not any more, or not yet (no fence came before it)."""
    GAP = "gap"
    """Tokens before it never came; the stream cannot go on."""


@dataclass(frozen=True, slots=True)
class Accepted:
    """The token is the stream's next one."""

    epoch: int
    owner: str
    fingerprint: str
    """``epoch-owner``: what a client is told about who made the token."""


@dataclass(frozen=True, slots=True)
class Dropped:
    """The token is not delivered."""

    reason: DropReason
    lost: int = 0
    """Tokens that never came, for a gap."""


@dataclass(slots=True)
class Counts:
    """What the ledger saw since it was made."""

    accepted: int = 0
    duplicates: int = 0
    wrong_epoch: int = 0
    lost: int = 0


@dataclass(slots=True)
class _Stream:
    epoch: int
    next_index: int = 0


class Ledger:
    """Ownership of all open streams."""

    def __init__(self, owner: str) -> None:
        self.epoch = 0
        """The epoch of new streams."""
        self.counts = Counts()
        self._epochs = [_speaker(0, owner)]
        self._streams: dict[str, _Stream] = {}

    def __len__(self) -> int:
        return len(self._streams)

    def announce(self, owner: str) -> int:
        """Reserve the epoch of a cut that ``owner`` may win; a cut that fails leaves its epoch unused."""
        epoch = len(self._epochs)
        self._epochs.append(_speaker(epoch, owner))
        return epoch

    def open(self, request_id: str) -> int:
        """Begin a stream under the present epoch, which is returned."""
        self._streams[request_id] = _Stream(self.epoch)
        return self.epoch

    def close(self, request_id: str) -> None:
        """Forget a stream; what still comes for it is dropped."""
        self._streams.pop(request_id, None)

    def lose(self, epoch: int) -> None:
        """Whoever spoke under an epoch is gone: who serves next speaks under one that it never had."""
        if epoch == self.epoch:
            self.epoch = self.announce(self._epochs[epoch].owner)

    def serves(self, owner: str) -> None:
        """Whoever speaks under the present epoch is this one.

        An engine that was lost may come back as another topology.
        """
        if self._epochs[self.epoch].owner != owner:
            self._epochs[self.epoch] = _speaker(self.epoch, owner)

    def resume(self, request_id: str) -> int:
        """Let a stream whose engine was lost be spoken for under the present epoch, which is returned."""
        self._streams[request_id].epoch = self.epoch
        return self.epoch

    def move(self, moved: Moved) -> list[str]:
        """Set the epoch of the requests a cut moved, and raise that of new ones.

        An unannounced one means nothing.

        A request may have a later one, if a replica was lost since the cut was announced: the one that cut has it, and speaks.
        Returns the requests that are open and had another epoch.
        """
        if moved.epoch >= len(self._epochs):
            return []
        self.epoch = max(self.epoch, moved.epoch)
        raised = list[str]()
        for request_id in moved.request_ids:
            stream = self._streams.get(request_id)
            if stream is not None and stream.epoch != moved.epoch:
                stream.epoch = moved.epoch
                raised.append(request_id)
        return raised

    def accept(self, token: Token) -> Accepted | Dropped:
        """Let a token pass or drop it, and count it."""
        stream = self._streams.get(token.request_id)
        if stream is None:
            return Dropped(DropReason.CLOSED)
        if token.epoch != stream.epoch:
            self.counts.wrong_epoch += 1
            return Dropped(DropReason.WRONG_EPOCH)
        ended_early = token.token_id is None and token.finish in {Finish.CANCELLED, Finish.ERROR}
        if token.index < stream.next_index and not ended_early:
            self.counts.duplicates += 1
            return Dropped(DropReason.DUPLICATE)
        if token.index > stream.next_index and not ended_early:
            lost = token.index - stream.next_index
            self.counts.lost += lost
            return Dropped(DropReason.GAP, lost)
        if token.token_id is not None:
            stream.next_index += 1
            self.counts.accepted += 1
        return self._epochs[stream.epoch]


def _speaker(epoch: int, owner: str) -> Accepted:
    return Accepted(epoch, owner, f"{epoch}-{owner}")
