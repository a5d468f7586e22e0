"""A carrier as the driver of its host has it.

A process of its own, so that a read that never ends can be ended with it.

A read goes into the memory of the carrier that reads, and only what was read in time and whole is copied to KV files: whatever
a peer does, no KV is written to late.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from runtime.errors import Reason, SwitchError
from runtime.footprint import Transfer
from runtime.kv.carrier import messages
from runtime.kv.carrier.layout import KvLayout, num_tokens
from runtime.kv.pages import Runs
from runtime.kv.store import KvHandle, KvShape
from runtime.process import messages as wire
from runtime.process.content import other_code
from runtime.process.launcher import Launcher, Program

MODULE = "runtime.kv.carrier.transfer_side"
START_S = 30.0
"""How long a carrier may take to start: it imports NIXL and opens the network's devices."""
MEET_S = 10.0
CALL_S = 10.0
_SLOWER = 4
"""A read may take so many times what the probe lets expect, and ``CALL_S`` besides."""


class Carrier:
    """One side of a move. Its calls are made one after the other; who gives up waiting for one closes it."""

    def __init__(self, launcher: Launcher) -> None:
        """Start the process; ``start`` makes it ready.

        Raises:
            SwitchError: no process can be started.
        """
        self.host = launcher.host
        self.address = b""
        """What the other side needs to ``meet`` this one."""
        self.most_slots = 0
        """Tokens that one ``gather`` or ``fetch`` may have."""
        self._token_bytes = 0
        self._bytes_s = 0.0
        self._gone: SwitchError | None = None
        self._calls = wire.Calls()
        try:
            self.process = launcher.start(Program(MODULE, messages.FromCarrier), self._hear, self._ended)
        except OSError as error:
            raise SwitchError(Reason.LOAD_FAILED, f"{self.host}: no carrier can be started: {error}") from error

    @classmethod
    async def start(
        cls,
        launcher: Launcher,
        shape: KvShape,
        boxes: Sequence[Transfer],
        stores: Mapping[int, KvHandle],
        toward: str = "",
    ) -> "Carrier":
        """Start a carrier for one end of ``boxes``.

        ``stores`` has the KV memory of all their sources, or of all their targets. ``toward`` is an address of the peer's
        host: of several networks, the one that leads there is taken.

        Raises:
            SwitchError: it cannot be started, NIXL is missing, or KV is not in host memory.
        """
        dtype = str(shape.dtype).removeprefix("torch.")
        layout = KvLayout(
            shape.num_layers, shape.num_kv_heads, shape.num_blocks, shape.block_size, shape.head_dim, dtype,
            shape.dtype.itemsize, shape.stack,
        )  # fmt: skip
        paths = {device: handle.path for device, handle in stores.items()}
        carrier = cls(launcher)
        try:
            opened = await carrier._call(messages.OpenSide(carrier.host, layout, tuple(boxes), paths, toward), START_S)
        except BaseException:
            carrier.close()
            raise
        carrier.address = opened.address
        carrier.most_slots = opened.most_slots
        carrier._token_bytes = opened.token_bytes
        return carrier

    async def meet(self, peer: bytes, within_s: float = MEET_S) -> messages.PeerReached:
        """Reach the carrier with this ``address``, of the other side, and measure the way.

        Raises:
            SwitchError: it cannot be reached, or is of another version or layout.
        """
        met = await self._call(messages.Meet(peer), within_s)
        self._bytes_s = met.bytes_s
        return met

    async def gather(self, runs: Runs, within_s: float = CALL_S) -> messages.Gathered:
        """Of the source: stage these tokens.

        The peer may fetch them from now on, until others are staged.

        Raises:
            SwitchError: it failed.
        """
        return await self._call(messages.Gather(runs), within_s)

    async def fetch(self, runs: Runs, within_s: float | None = None) -> messages.Fetched:
        """Of the target: read the tokens that the peer has gathered, and copy them to the KV files.

        Raises:
            SwitchError: it failed; then part of these tokens may have been copied, and none is from now on.
        """
        if within_s is None:
            within_s = CALL_S + _SLOWER * num_tokens(runs) * self._token_bytes / max(self._bytes_s, 1.0)
        return await self._call(messages.Fetch(runs), within_s)

    async def digest(self, runs: Runs, seed: int | None = None, within_s: float = CALL_S) -> bytes:
        """Digest of these tokens in the KV files, the same on both sides where their bytes are.

        ``seed``: of a sample of their pieces (``layout.SAMPLES``), instead of all.

        Raises:
            SwitchError: it failed.
        """
        return await self._call(messages.DigestRuns(runs, seed), within_s)

    def close(self) -> None:
        """End the process; whoever waits hears of it. Idempotent."""
        self._lose(Reason.CANCELLED, "was closed")

    async def _call(self, command: wire.Command[wire.Answer], within_s: float) -> wire.Answer:
        if self._gone:
            raise self._gone
        call, done = self._calls.begin(command)
        self.process.send(call)
        # not ``timeout``: of an answer that came while this process stood still, nobody was late
        await asyncio.wait({done}, timeout=within_s)
        if not done.done():
            self._lose(Reason.DEADLINE, _late(command, within_s))
        return await done

    def _hear(self, message: wire.Greeting | wire.Reply) -> None:
        if isinstance(message, wire.Reply):
            self._calls.settle(message)
        elif why := other_code(message.code):
            self._lose(Reason.LOAD_FAILED, f"cannot be used: {why}")

    def _ended(self, why: str) -> None:
        self._lose(Reason.RANK_LOST, f"ended{': ' if why else ''}{why}")

    def _lose(self, reason: Reason, how: str) -> None:
        self._gone = self._gone or SwitchError(reason, f"the carrier of KV on host {self.host} {how}")
        self.process.end()
        self._calls.fail(self._gone)


def _late(command: wire.Command[Any], within_s: float) -> str:
    took = f"did not end its {type(command).__name__} within {within_s:.1f} s and was ended"
    match command:
        case messages.Meet():
            return f"{took}: the other host does not answer; let the hosts reach each other on all TCP ports"
        case messages.Fetch():
            return f"{took}: the other host answers no more, or too slowly"
    return took
