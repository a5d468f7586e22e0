"""Two carriers on this host over TCP: what moves, and what becomes of a move when a side hangs, dies or is another one."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np
import pytest
import torch

from runtime.errors import Reason, SwitchError
from runtime.footprint import Transfer
from runtime.kv.carrier.carrier import Carrier
from runtime.kv.carrier.transfer_side import Address
from runtime.kv.store import KvHandle, KvShape, KvStore
from runtime.process.launcher import LocalLauncher
from tests.forked import FORK_SERVER

pytestmark = pytest.mark.slow

SHAPE = KvShape(4, 2, 64, 16, 32, torch.float32)
TP2_TO_PP2 = (
    Transfer(2, 0, (0, 2), (0, 1)),
    Transfer(2, 1, (0, 2), (1, 2)),
    Transfer(3, 0, (2, 4), (0, 1)),
    Transfer(3, 1, (2, 4), (1, 2)),
)
RUNS = np.array([[0, 320], [330, 331], [400, 407], [1000, 1024]])
TOKENS = [token for run in RUNS.tolist() for token in range(*run)]


@pytest.fixture(autouse=True)
def over_tcp(monkeypatch: pytest.MonkeyPatch) -> None:
    """As between hosts; UCX takes shared memory on one."""
    monkeypatch.setenv("UCX_TLS", "tcp")


def filled(shape: KvShape, seed: int) -> KvStore:
    store = KvStore(shape)
    store.cache.copy_(torch.randn(shape.dims, generator=torch.Generator().manual_seed(seed)).to(shape.dtype))
    return store


@dataclass(slots=True)
class Sides:
    shape: KvShape
    boxes: tuple[Transfer, ...]
    kv: dict[int, KvStore]
    carriers: list[Carrier]

    @property
    def source(self) -> Carrier:
        return self.carriers[0]

    @property
    def target(self) -> Carrier:
        return self.carriers[1]

    async def start(self, host: str, devices: set[int]) -> Carrier:
        stores = {device: self.kv[device].handle for device in devices}
        carrier = await Carrier.start(LocalLauncher(host), self.shape, self.boxes, stores)
        self.carriers.append(carrier)
        return carrier

    def before(self) -> dict[int, torch.Tensor]:
        return {box.target: self.kv[box.target].cache.clone() for box in self.boxes}

    def unchanged(self, before: dict[int, torch.Tensor]) -> bool:
        return all(torch.equal(self.kv[device].cache, cache) for device, cache in before.items())

    def is_moved(self) -> bool:
        """Each token of ``RUNS``, and nothing else but what fills the last stack up."""
        wanted = {box.target: torch.zeros(self.shape.dims, dtype=self.shape.dtype) for box in self.boxes}
        for box in self.boxes:
            first, last = box.layers
            layers, heads = range(first, -(-last // self.shape.stack) * self.shape.stack), slice(*box.heads)
            for layer, token in ((layer, token) for layer in layers for token in TOKENS):
                stack, inner = divmod(layer, self.shape.stack)
                block, at = divmod(token, self.shape.block_size)
                place = slice(None), stack, heads, block, inner, at
                wanted[box.target][place] = self.kv[box.source].cache[place]
        return all(torch.equal(self.kv[device].cache, cache) for device, cache in wanted.items())


@contextlib.asynccontextmanager
async def sides(shape: KvShape = SHAPE, boxes: tuple[Transfer, ...] = TP2_TO_PP2) -> AsyncIterator[Sides]:
    sources, targets = {box.source for box in boxes}, {box.target for box in boxes}
    kv = {device: filled(shape, device) for device in sources} | {device: KvStore(shape) for device in targets}
    made = Sides(shape, boxes, kv, [])
    try:
        await asyncio.gather(made.start("a", sources), made.start("b", targets))
        made.carriers.sort(key=lambda carrier: carrier.host)
        yield made
    finally:
        for carrier in made.carriers:
            carrier.close()
            await carrier.process.close()
            assert not runs(carrier.process.pid)


def runs(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def ends(pid: int) -> None:
    until_s = time.monotonic() + 120
    while runs(pid):
        assert time.monotonic() < until_s
        time.sleep(0.01)


def signalled(carrier: Carrier, number: signal.Signals) -> None:
    os.kill(carrier.process.pid, number)


async def refused(awaited: object) -> SwitchError:
    with pytest.raises(SwitchError) as raised:
        await awaited  # type: ignore[misc]
    return raised.value


@pytest.mark.parametrize(
    ("shape", "boxes"),
    [
        (SHAPE, TP2_TO_PP2),
        pytest.param(
            KvShape(5, 4, 64, 16, 24, torch.bfloat16, stack=2),
            (Transfer(9, 0, (0, 2), (0, 2)), Transfer(8, 0, (0, 2), (2, 4)), Transfer(9, 1, (2, 5), (0, 4))),
            marks=pytest.mark.exhaustive,
        ),
    ],
    ids=["tp2 to pp2", "stacks of two layers"],
)
async def test_what_was_gathered_is_fetched_to_where_it_belongs(shape, boxes):
    async with sides(shape, boxes) as move:
        met = await move.target.meet(move.source.address)
        assert met.transport == "nixl"
        assert met.lane.startswith("tcp/")
        assert met.bytes_s > 0
        assert met.round_trip_s > 0
        gathered, fetched = await move.source.gather(RUNS), await move.target.fetch(RUNS)
        assert gathered.num_bytes == fetched.num_bytes >= sum(len(box.pieces) for box in boxes) * len(TOKENS) * 8
        assert move.is_moved()
        assert await move.source.digest(RUNS) == await move.target.digest(RUNS)
        assert await move.source.digest(RUNS, seed=3) == await move.target.digest(RUNS, seed=3)
        again = np.array([[640, 656]])  # what is staged is that of the last order alone
        await move.source.gather(again)
        await move.target.fetch(again)
        assert await move.source.digest(again) == await move.target.digest(again)


async def test_wrong_bytes_and_other_tokens_are_noticed():
    async with sides() as move:
        await move.target.meet(move.source.address)
        await move.source.gather(RUNS)
        before = move.before()
        error = await refused(move.target.fetch(RUNS[:2]))
        assert "has staged other tokens" in str(error)
        assert "host b" in str(error)
        assert move.unchanged(before)
        await move.target.fetch(RUNS)
        move.kv[3].cache[1, 3, 1, 1, 0, 4, 7] += 1
        assert await move.source.digest(RUNS) != await move.target.digest(RUNS)
        too_many = np.array([[0, move.source.most_slots + 1]])
        assert (await refused(move.source.gather(too_many))).reason is Reason.NO_MEMORY


async def test_a_read_from_a_stopped_owner_ends_at_its_deadline_and_writes_nothing_later():
    async with sides() as move:
        await move.target.meet(move.source.address)
        await move.source.gather(RUNS)
        before = move.before()
        signalled(move.source, signal.SIGSTOP)
        error = await refused(move.target.fetch(RUNS, within_s=0.5))
        assert error.reason is Reason.DEADLINE
        assert "host b did not end its Fetch within 0.5 s" in str(error)
        assert await refused(move.target.digest(RUNS)) is error
        signalled(move.source, signal.SIGCONT)
        with contextlib.suppress(SwitchError):  # UCX may end it over a peer that is gone
            await move.source.digest(RUNS)
        assert move.unchanged(before)
        owner, other = await asyncio.gather(move.start("a", {0, 1}), move.start("b", {2, 3}))
        await other.meet(owner.address)
        await owner.gather(RUNS)
        await other.fetch(RUNS)
        assert move.is_moved()


async def test_a_killed_owner_ends_a_read_that_waits_for_it():
    async with sides() as move:
        await move.target.meet(move.source.address)
        await move.source.gather(RUNS)
        before = move.before()
        signalled(move.source, signal.SIGSTOP)
        read = asyncio.create_task(refused(move.target.fetch(RUNS, within_s=20)))
        await asyncio.sleep(0)
        signalled(move.source, signal.SIGKILL)
        error = await read
        assert error.reason is Reason.RANK_LOST, error
        assert "host b could not read from host a" in str(error)
        assert move.unchanged(before)
        lost = await refused(move.source.gather(RUNS))
        assert lost.reason is Reason.RANK_LOST
        assert "host a ended" in str(lost)


async def test_a_carrier_that_hangs_or_is_closed_fails_whoever_waits():
    async with sides() as move:
        signalled(move.source, signal.SIGSTOP)
        error = await refused(move.source.gather(RUNS, within_s=0.3))
        assert error.reason is Reason.DEADLINE
        waiting = asyncio.create_task(refused(move.target.digest(RUNS)))
        await asyncio.sleep(0)
        move.target.close()
        assert (await waiting).reason is Reason.CANCELLED


async def test_peers_that_do_not_fit_or_do_not_answer_are_refused():
    async with sides() as move:
        theirs = msgspec.msgpack.decode(move.source.address, type=Address)
        changes = {
            "it has NIXL 1.4.0 there, 1.5.1 here": {"nixl": "1.4.0"},
            "block_size 8 there, 16 here": {"layout": msgspec.structs.replace(theirs.layout, block_size=8)},
            "given other pieces": {"boxes": theirs.boxes[:1]},
            "host b could not connect to host a by NIXL": {"port": (b"garbage", 0)},
        }
        for expected, change in changes.items():
            peer = msgspec.msgpack.encode(msgspec.structs.replace(theirs, **change))
            error = await refused(move.target.meet(peer))
            assert error.reason is Reason.UNSUPPORTED
            assert expected in str(error)
        assert "no address of a carrier" in str(await refused(move.target.meet(b"\xff")))
        signalled(move.source, signal.SIGSTOP)
        hung = await refused(move.target.meet(move.source.address, within_s=0.5))
        assert hung.reason is Reason.DEADLINE
        assert "let the hosts reach each other" in str(hung)
        move.source.close()
        await move.source.process.close()
        other = await move.start("b", {2, 3})
        gone = await refused(other.meet(move.source.address))
        assert gone.reason is Reason.UNSUPPORTED, gone
        assert "host b could not connect to host a by NIXL" in str(gone)
        assert "refused" in str(gone)


async def test_a_side_that_cannot_start_says_why(monkeypatch, tmp_path):
    launcher, store = LocalLauncher("a"), filled(SHAPE, 0)
    box = (Transfer(2, 0, (0, 4), (0, 2)),)
    chunks = tmp_path / "chunks"
    chunks.write_bytes(b"x" * 4096)
    error = await refused(Carrier.start(launcher, SHAPE, box, {0: KvHandle(str(chunks))}))
    assert error.reason is Reason.UNSUPPORTED
    assert "device 0 on host a is not in host memory" in str(error)
    error = await refused(Carrier.start(launcher, SHAPE, box, {0: KvHandle("/proc/0/fd/3")}))
    assert error.reason is Reason.RANK_LOST
    (tmp_path / "nixl_cu12.py").write_text("raise ImportError('not installed')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    error = await refused(Carrier.start(launcher, SHAPE, box, {0: store.handle}))
    assert error.reason is Reason.UNSUPPORTED
    assert "host a has no NIXL" in str(error)
    assert "intentctl[cluster]" in str(error)


DRIVER = """
import asyncio
from tests.runtime.kv.carrier.test_carrier import SHAPE, TP2_TO_PP2, Carrier, KvStore, LocalLauncher
async def main():
    stores = {2: KvStore(SHAPE), 3: KvStore(SHAPE)}
    handles = {device: store.handle for device, store in stores.items()}
    carrier = await Carrier.start(LocalLauncher("b"), SHAPE, TP2_TO_PP2, handles)
    reading = asyncio.create_task(carrier.meet(address, 600))
    await asyncio.sleep(0)
    told.send(carrier.process.pid)
    await reading
asyncio.run(main())
"""


async def test_a_carrier_ends_with_its_driver_in_a_read_that_never_ends_too():
    async with sides() as move:
        signalled(move.source, signal.SIGSTOP)
        ours, theirs = FORK_SERVER.Pipe()
        names = {"address": move.source.address, "told": theirs}
        driver = FORK_SERVER.Process(target=exec, args=(DRIVER, names))  # torch is imported there
        driver.start()
        theirs.close()
        pid = await asyncio.to_thread(ours.recv)
        driver.kill()
        driver.join()
        await asyncio.to_thread(ends, pid)


def test_a_carrier_does_not_import_torch():
    code = "import sys, runtime.kv.carrier.transfer_side; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
