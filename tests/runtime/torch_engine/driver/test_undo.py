"""Wherever a stream switch fails, the source holds all KV again: on a driver that only keeps track of who holds what."""

from collections.abc import Container
from types import SimpleNamespace
from typing import Any

import pytest

from runtime.errors import Reason, SwitchError
from runtime.footprint import owned
from runtime.kv.blocks import BlockPool
from runtime.kv.store import KvHandle
from runtime.models import Cluster
from runtime.notation import parse_topology
from runtime.process.messages import Fatal
from runtime.sync.stream import KvSize, plan
from runtime.torch_engine.driver.switch import StreamingSwitch
from runtime.torch_engine.messages import Copied, Copy
from runtime.torch_engine.models import EngineSettings
from tests.rows import rows
from tests.runtime.torch_engine.ears import MODEL

SETTINGS = EngineSettings(block_size=4)


class Books:
    """Which device holds which pieces; the things asked of a worker whose numbers are in ``fails`` fail."""

    def __init__(self, cluster: Cluster, now: str, target: str, fails: Container[int]) -> None:
        self.now, self.target = (parse_topology(text, cluster, MODEL.num_layers, "fp32") for text in (now, target))
        self.held = {device: set(pieces) for device, pieces in owned(self.now, MODEL).items()}
        self.asked, self.fails = 0, fails
        self.ended = list[Fatal]()
        pool = BlockPool(8)
        for block in pool.take(2):
            pool.written(block, 0, 4)
        self.driver = SimpleNamespace(
            model=MODEL,
            pool=pool,
            settings=SETTINGS,
            shape=SimpleNamespace(piece_slot_bytes=8),
            workers=self,
            standby=SimpleNamespace(clear=self.nothing),
            probe=self.probe,
            fail=self.ended.append,
        )
        self.driver.parts, self.driver.num_running = self.driver, 0
        self.capacity = SimpleNamespace(gain=self.nothing, give_back=self.nothing)
        self.driver.active = self.ranks(self.now, 1)
        self.all_blocks = ((0, 8),)

    def ranks(self, topology: Any, generation: int) -> Any:
        held = owned(topology, MODEL)
        return SimpleNamespace(
            topology=topology,
            generation=generation,
            is_loaded=False,
            pieces=lambda device: held.get(device, frozenset()),
            load_without_weights=self.nothing,
        )

    async def nothing(self, *_: Any) -> None:
        """What is beside the point."""

    def sources(self, boxes: Any) -> Any:
        return tuple((box, KvHandle(str(box.source))) for box in boxes)

    def ask(self) -> None:
        self.asked += 1
        if self.asked in self.fails:
            raise SwitchError(Reason.LOAD_FAILED, "as the test wants")

    async def probe(self, _: Any) -> None:
        self.ask()

    async def order(self, device: int, order: Any) -> Any:
        self.ask()
        if not isinstance(order, Copy):
            return ""
        for box, source in order.boxes:
            assert {*box.pieces} <= self.held[int(source.path)], "copied from where it is no more"
            self.held.setdefault(device, set()).update(box.pieces)
        return Copied(1, 0.001)

    async def give_back(self, device: int, pieces: Any, _: Any) -> None:
        self.held.setdefault(device, set()).difference_update(pieces)  # gone, even if the answer does not come
        self.ask()


def begun(books: Books) -> StreamingSwitch:
    steps = plan(books.now, books.target, MODEL, KvSize(8, 4), dict.fromkeys(range(4), 1.0))
    return StreamingSwitch(books.driver, books.capacity, books.ranks(books.target, 2), steps)  # type: ignore[arg-type] - what it needs


WAYS = [("CPU[0]:0-4", "CPU[0,1]:0-4"), ("CPU[0,1]:0-4", "CPU[1]:0-1 > CPU[0]:1-4")]


@rows("way", WAYS)
async def test_the_source_holds_everything_again_wherever_it_fails(cluster, way):
    fails = 1
    while True:
        books = Books(cluster, *way, {fails})
        switch = begun(books)
        await switch.ready()
        try:
            await switch._copy_rest()
        except SwitchError:
            assert all(books.held[device] >= pieces for device, pieces in owned(books.now, MODEL).items()), fails
            assert not books.ended
            fails += 1
        else:
            break
    assert fails > 4 * 3
    assert all(books.held[device] >= pieces for device, pieces in owned(books.target, MODEL).items())


@rows("way", WAYS)
async def test_an_undo_that_fails_ends_the_engine(cluster, way):
    for fails in range(1, 12):
        books = Books(cluster, *way, range(fails, 1000))
        switch = begun(books)
        await switch.ready()
        with pytest.raises(SwitchError):
            await switch._copy_rest()
        whole = all(books.held[device] >= pieces for device, pieces in owned(books.now, MODEL).items())
        assert [ended.reason for ended in books.ended] == [Reason.ENGINE_LOST] or (whole and books.asked == fails)
