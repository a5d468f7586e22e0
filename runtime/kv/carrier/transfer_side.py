"""The carrier's process: moves bytes between KV files of this host and memory that its peer reads.

It has one driver, which ends it; a driver's death is its own. Linux.
"""

import ctypes
import hashlib
import importlib.metadata
import mmap
import os
import select
import signal
import socket
import struct
import sys
import time
import traceback
from pathlib import Path

import msgspec
import numpy as np

from runtime.errors import Reason, SwitchError
from runtime.footprint import Transfer
from runtime.kv.carrier import layout, messages
from runtime.kv.carrier.layout import KvLayout, Memory, Rows
from runtime.kv.carrier.one_sided import ReadPort
from runtime.kv.pages import Runs
from runtime.process import messages as wire
from runtime.process.channel import Frames, encode
from runtime.process.content import CODE

STAGING_BYTES = 64 << 20
PROBE_BYTES = 4 << 20
"""Of known content, at the beginning of what a peer may read; then the head of what is staged."""
_HEAD = struct.Struct("<16sQ")
"""Digest of the runs that are staged, and how many bytes they have."""
_DATA = PROBE_BYTES + mmap.PAGESIZE
_TRIES = 5
"""Reads after which a probe ends."""
_PROBE_S = 1.0
"""Or after so long; over a slow link one read takes as long as it takes."""
_PR_SET_PDEATHSIG = 1


class Address(wire.WirePart, frozen=True):
    """What a carrier's peer has to know of it."""

    host: str
    nixl: str
    layout: KvLayout
    boxes: tuple[Transfer, ...]
    port: tuple[bytes, int]


class TransferSide:
    """One side's KV files and staged bytes."""

    def __init__(self, side: messages.OpenSide) -> None:
        """Map the files.

        Raises:
            SwitchError: NIXL is missing, or KV is not in files of this layout.
        """
        self._side = side
        self._layout = side.layout
        self._is_source = all(box.source in side.stores for box in side.boxes)
        devices = {device: self._mapped(device, path) for device, path in side.stores.items()}
        ends = [box.source if self._is_source else box.target for box in side.boxes]
        self._boxes: list[tuple[Transfer, Rows]] = [
            (box, devices[end]) for box, end in zip(side.boxes, ends, strict=True)
        ]
        self._token_bytes = self._layout.token_bytes(side.boxes)
        size = max(STAGING_BYTES, self._token_bytes * self._layout.block_size)
        self._memory: Memory = np.zeros(_DATA + size, np.uint8)
        self._memory[:PROBE_BYTES] = _probe()
        self.port = ReadPort(side.host, self._memory, side.toward)
        nixl = importlib.metadata.version("nixl-cu12")
        self._own = Address(side.host, nixl, self._layout, side.boxes, self.port.address)
        most_slots = size // max(self._token_bytes, 1)
        self.opened = messages.Opened(msgspec.msgpack.encode(self._own), most_slots, self._token_bytes)

    def outcome(self, order: messages.Order) -> object:
        """Carry out an order.

        Raises:
            SwitchError: it fails.
        """
        match order:
            case messages.Meet(peer):
                return self._meet(peer)
            case messages.Gather(runs):
                return self._gather(runs)
            case messages.Fetch(runs):
                return self._fetch(runs)
            case messages.DigestRuns(runs, seed):
                if seed is None:
                    return layout.digest(self._boxes, runs, self._layout)
                return layout.digest_sample(self._boxes, runs, self._layout, seed)
        return self.opened

    def _mapped(self, device: int, path: str) -> Rows:
        try:
            with Path(path).open("rb" if self._is_source else "r+b") as file:
                size = os.fstat(file.fileno()).st_size
                if size != self._layout.num_bytes:
                    raise SwitchError(
                        Reason.UNSUPPORTED,
                        f"the KV of device {device} on host {self._side.host} is not in host memory (a file of {size:,} bytes, "
                        f"its layout has {self._layout.num_bytes:,}); requests move between hosts on CPU devices only",
                    )
                access = mmap.ACCESS_READ if self._is_source else mmap.ACCESS_WRITE
                return layout.rows_of(mmap.mmap(file.fileno(), 0, access=access), self._layout)
        except OSError as error:
            gone = f"the KV memory of device {device} on host {self._side.host} is gone: {error}"
            raise SwitchError(Reason.RANK_LOST, gone) from error

    def _meet(self, encoded: bytes) -> messages.PeerReached:
        try:
            peer = msgspec.msgpack.decode(encoded, type=Address)
        except msgspec.MsgspecError as error:
            raise SwitchError(Reason.UNSUPPORTED, f"that is no address of a carrier: {error}") from error
        if wrong := _differences(self._own, peer):
            refused = f"KV cannot move from host {peer.host} to host {self._own.host}: {wrong}"
            raise SwitchError(Reason.UNSUPPORTED, refused)
        try:
            self.port.connect(peer.host, peer.port)
            round_trip_s = self._probe(mmap.PAGESIZE)
            all_s = self._probe(PROBE_BYTES)
        except SwitchError as error:
            raise SwitchError(Reason.UNSUPPORTED, error.detail) from error
        return messages.PeerReached(PROBE_BYTES / all_s, round_trip_s, self.port.lane)

    def _probe(self, size: int) -> float:
        """Seconds of the fastest of a few reads, the first of which opens connections."""
        began_s = time.perf_counter()
        tries = list[float]()
        while len(tries) < _TRIES and time.perf_counter() - began_s < _PROBE_S:
            self._memory[:size] = 0
            read_s = time.perf_counter()
            self.port.read((0, size))
            tries.append(time.perf_counter() - read_s)
            if not np.array_equal(self._memory[:size], _probe()[:size]):
                raise SwitchError(Reason.UNSUPPORTED, f"host {self._own.host} read other bytes than known ones")
        return min(tries)

    def _gather(self, runs: Runs) -> messages.Gathered:
        began_s = time.perf_counter()
        staged = self._staged(runs)
        self._memory[PROBE_BYTES:_DATA] = 0  # who reads meanwhile sees that it is not whole
        layout.gather(self._boxes, runs, self._layout, staged)
        _HEAD.pack_into(self._memory.data, PROBE_BYTES, *_head(runs, staged))
        self.port.expect()
        return messages.Gathered(staged.nbytes, time.perf_counter() - began_s)

    def _fetch(self, runs: Runs) -> messages.Fetched:
        began_s = time.perf_counter()
        staged = self._staged(runs)
        self.port.read((PROBE_BYTES, _DATA + staged.nbytes))
        read_s = time.perf_counter()
        if _HEAD.unpack_from(self._memory.data, PROBE_BYTES) != _head(runs, staged):
            raise SwitchError(
                Reason.LOAD_FAILED, f"the peer of host {self._own.host} has staged other tokens than these, or not all"
            )
        layout.scatter(self._boxes, runs, self._layout, staged)
        return messages.Fetched(staged.nbytes, read_s - began_s, time.perf_counter() - read_s)

    def _staged(self, runs: Runs) -> Memory:
        count = layout.num_tokens(runs)
        if count > self.opened.most_slots:
            raise SwitchError(
                Reason.NO_MEMORY, f"{count:,} tokens in one go, a carrier stages {self.opened.most_slots:,}"
            )
        return self._memory[_DATA : _DATA + count * self._token_bytes]


def _head(runs: Runs, staged: Memory) -> tuple[bytes, int]:
    return hashlib.blake2b(runs.tobytes(), digest_size=16).digest(), staged.nbytes


def _probe() -> Memory:
    return np.resize(np.arange(1, 252, dtype=np.uint8), PROBE_BYTES)


def _differences(here: Address, there: Address) -> str:
    """Why two carriers cannot be one's peers; empty: they can."""
    if here.nixl != there.nixl:
        return f"it has NIXL {there.nixl} there, {here.nixl} here; install the same"
    if differences := here.layout.differences(there.layout):
        return f"their KV layouts differ: {', '.join(differences)}"
    return "they were given other pieces to move" if here.boxes != there.boxes else ""


def serve(sock: socket.socket) -> None:
    """Greet, carry out orders, and help the peer between them, until the driver is gone."""
    sock.sendall(encode(wire.Greeting(CODE)))
    frames = Frames(messages.ToCarrier)
    side = None
    while True:
        is_readable = select.select([sock], [], [], side.port.turn_s if side else None)[0]
        if side:
            side.port.turn()
        if not is_readable:
            continue
        data = sock.recv(1 << 18)
        if not data:
            return
        for call in frames.feed(data):
            try:
                side = side or TransferSide(call.command)
                answer = wire.reply(call.call_id, side.outcome(call.command))
            except Exception as error:  # noqa: BLE001 - whatever it is, the driver waits for an answer
                if not isinstance(error, SwitchError):
                    traceback.print_exc()
                    error = SwitchError(Reason.LOAD_FAILED, f"{type(error).__name__}: {error}")
                answer = wire.Reply(call.call_id, trouble=wire.Trouble.of(error))
            sock.sendall(encode(answer))


def main() -> None:
    """Serve the socket whose descriptor is the first argument."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the service's to handle
    # it may be in a read that never ends, where it does not see that the socket closed
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    serve(socket.socket(fileno=int(sys.argv[1])))


if __name__ == "__main__":
    main()
