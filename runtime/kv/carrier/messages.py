"""What a driver and its carrier say to each other. No torch: the carrier does not import it."""

import numpy as np
from numpy.typing import NDArray

from runtime.footprint import Transfer
from runtime.kv.carrier.layout import KvLayout
from runtime.process import messages as wire


class Opened(wire.WirePart, frozen=True):
    """A carrier is ready."""

    address: bytes
    most_slots: int
    token_bytes: int


class PeerReached(wire.WirePart, frozen=True):
    """A peer was reached, and how well."""

    bytes_s: float
    round_trip_s: float
    """Of a read of one page."""
    lane: str
    """What UCX chose, as ``tcp/eth0``; several are apart by spaces, and it is empty where UCX does not say."""
    transport: str = "nixl"


class Gathered(wire.WirePart, frozen=True):
    """Bytes are staged."""

    num_bytes: int
    copy_s: float


class Fetched(wire.WirePart, frozen=True):
    """Bytes were read from the peer, and copied to where they belong."""

    num_bytes: int
    link_s: float
    copy_s: float


class OpenSide(wire.Command[Opened], frozen=True):
    """Map KV files, and be ready to be read from or to read."""

    host: str
    layout: KvLayout
    boxes: tuple[Transfer, ...]
    stores: dict[int, str]
    """Device to the path of its KV file."""
    toward: str
    """An address of the peer's host, as this one reaches it; empty: the network is UCX's to choose."""


class Meet(wire.Command[PeerReached], frozen=True):
    """Reach a peer, and measure how fast it is read from."""

    peer: bytes


class Gather(wire.Command[Gathered], frozen=True):
    """Stage these tokens for the peer to read."""

    runs: NDArray[np.int64]


class Fetch(wire.Command[Fetched], frozen=True):
    """Read what the peer has staged of these tokens, and copy it to where it belongs."""

    runs: NDArray[np.int64]


class DigestRuns(wire.Command[bytes], frozen=True):
    """Digest of these tokens as they lie in the KV files."""

    runs: NDArray[np.int64]
    seed: int | None
    """Of the pieces to take for a sample; None: all of them."""


Order = OpenSide | Meet | Gather | Fetch | DigestRuns
ToCarrier = wire.Call[Order]
FromCarrier = wire.Greeting | wire.Reply
