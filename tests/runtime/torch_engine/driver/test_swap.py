"""The driver's side of a swap on a driver that only remembers: a layer that never comes blocks no later switch."""

import asyncio
from types import SimpleNamespace
from typing import Any

from runtime.errors import Reason
from runtime.notation import parse_topology
from runtime.process.messages import StoodIn
from runtime.torch_engine.driver.swap import Swap
from runtime.torch_engine.messages import FetchLayer, LetGo, SwapLayers
from tests.runtime.scripted import cluster_of

CLUSTER = cluster_of()
NOW = parse_topology("CPU[0]@fp32", CLUSTER, 4)
TARGET = parse_topology("CPU[0]:0-4@fp32,0-4=int8", CLUSTER, 4)


async def nothing(*_: Any) -> None:
    """What is waited for is there."""


class Remembering:
    """Workers, pool and driver; the fetch of one layer hangs."""

    def __init__(self, hangs: int | None) -> None:
        self.hangs = hangs
        self.waits = asyncio.Event()
        self.orders: list[object] = []
        self.ended: list[object] = []
        self.told: list[StoodIn] = []
        self.active = SimpleNamespace(generation=1, topology=NOW)
        settings = SimpleNamespace(load_after_s=0.01)
        self.parts = SimpleNamespace(workers=self, settings=settings, standby=SimpleNamespace(clear=nothing))
        self.over = self.ended.append

    async def order(self, _: int, order: object) -> None:
        self.orders.append(order)
        if isinstance(order, FetchLayer) and order.layer == self.hangs:
            self.waits.set()
            await asyncio.Event().wait()

    def begun(self) -> Swap:
        """A swap in two rounds."""
        rounds = ({0: ("fp32", "int8"), 1: ("fp32", "int8")}, {2: ("fp32", "int8"), 3: ("fp32", "int8")})
        capacity = SimpleNamespace(make_room_to_swap=lambda _: rounds, shrunk=nothing, settle=nothing)
        return Swap(self, capacity, TARGET, self.told.append)  # type: ignore[arg-type]


async def test_a_swap_whose_first_layer_never_comes_ends_as_it_was():
    host = Remembering(hangs=1)
    swap = host.begun()
    await host.waits.wait()
    await swap.abort(Reason.DEADLINE)
    assert host.ended == [host.active]
    assert (host.active.topology, host.told) == (NOW, [])
    assert not any(isinstance(order, SwapLayers) for order in host.orders)
    assert sum(isinstance(order, LetGo) for order in host.orders) == 1, (
        "before it began: behind what hangs nobody waits"
    )


async def test_a_swap_that_hangs_between_rounds_says_which_layers_stay_changed():
    host = Remembering(hangs=3)
    swap = host.begun()
    await host.waits.wait()
    await swap.abort(Reason.DEADLINE)
    stays = parse_topology("CPU[0]:0-4@fp32,0-2=int8", CLUSTER, 4)
    assert host.ended == [host.active]
    assert host.active.topology == stays
    (told,) = host.told
    assert (told.topology, "layers 0, 1 could not be changed back" in told.why) == (stays, True)


async def test_a_swap_that_is_given_up_between_rounds_goes_back_round_by_round():
    host = Remembering(hangs=None)
    swap = host.begun()
    await swap.ready()
    await swap.abort(Reason.CANCELLED)
    assert (host.active.topology, host.told, host.ended) == (NOW, [], [host.active])
    fetched = [(order.layer, order.format) for order in host.orders if isinstance(order, FetchLayer)]
    assert fetched == [(0, "int8"), (1, "int8"), (2, "int8"), (3, "int8"), (0, None), (1, None)]
    assert [order.layers for order in host.orders if isinstance(order, SwapLayers)] == [(0, 1), (0, 1)]
