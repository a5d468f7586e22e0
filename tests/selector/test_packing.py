"""The exact choice of replicas against trying every choice."""

import itertools
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from runtime.capabilities import Batching
from runtime.models import LayerRange, Precision, Stage, Topology
from selector.packing import Box, BoxPipeline, Pack, Wanted, packs
from tests.tries import tries

DRAWS = st.integers(0, 2**32).map(Random)
BF16 = Precision("bf16", "bf16", "bf16")


def pipeline(draw: Random, size: int, price: float) -> BoxPipeline:
    topology = Topology((Stage("A100", tuple(range(size)), LayerRange(0, 1), BF16),))
    return BoxPipeline(topology, Batching(draw.randint(1, 99)), (draw.randint(1, 12) / 2,), size * price)


def boxes(draw: Random) -> list[Box]:
    """Up to three boxes of up to four devices, on one or two nodes."""
    found = []
    for _ in range(draw.randint(1, 3)):
        price = draw.choice([1.0, 2.0])
        fits = tuple(pipeline(draw, draw.randint(1, 4), price) for _ in range(draw.randint(1, 3)))
        found.append(Box(draw.choice("ab"), tuple(range(draw.randint(1, 4))), fits))
    return found


def every(room: list[Box]) -> list[Pack]:
    """All that fit, whatever they are worth."""
    inside = []
    for place, box in enumerate(room):
        choices = [
            chosen
            for count in range(len(box.devices) + 1)
            for chosen in itertools.combinations_with_replacement(box.pipelines, count)
            if sum(each.size for each in chosen) <= len(box.devices)
        ]
        inside.append([[(place, each) for each in chosen] for chosen in choices])
    found = []
    for parts in itertools.product(*inside):
        chosen = tuple(itertools.chain.from_iterable(parts))
        cost = sum(each.cost for _, each in chosen)
        found.append(Pack(chosen, cost, (sum(each.rates_rps[0] for _, each in chosen),)))
    return [pack for pack in found if pack.chosen]


def is_wanted(pack: Pack, room: list[Box], wanted: Wanted) -> bool:
    nodes = {box.node for box in room}
    counts = [sum(room[place].node == node for place, _ in pack.chosen) for node in nodes]
    return (
        (wanted.replicas is None or wanted.replicas(len(pack.chosen)))
        and (wanted.per_node is None or all(map(wanted.per_node, counts)))
        and pack.size <= wanted.most_devices
    )


@given(DRAWS)
@tries(60)
def test_nothing_cheaper_holds_any_load(draw):
    room = boxes(draw)
    count = draw.randint(1, 3)
    wanted = Wanted(
        replicas=draw.choice([None, lambda number: number == count, lambda number: number >= count]),
        per_node=draw.choice([None, None, lambda number: number == 1]),
        most_devices=draw.choice([float("inf"), 3]),
        lost_devices=draw.choice([0, 0, 1]),
        lost_nodes=draw.choice([0, 0, 1]),
    )
    found = packs(room, wanted)
    allowed = [pack for pack in every(room) if is_wanted(pack, room, wanted)]
    assert all(is_wanted(pack, room, wanted) for pack in found)
    for load_rps in (0.5, 2.0, 5.0, 9.0):
        cheapest, least = (
            min((pack.cost for pack in sets if wanted.left(pack, room)[0] >= load_rps), default=None)
            for sets in (found, allowed)
        )
        assert cheapest == least


def test_what_may_be_lost_is_taken_off_the_best():
    topology = Topology((Stage("A100", (0,), LayerRange(0, 1), BF16),))
    good, bad = (BoxPipeline(topology, Batching(), (rate,), 1.0) for rate in (5.0, 2.0))
    room = [Box("a", (0, 1), (good, bad)), Box("b", (2, 3), (good, bad))]
    pack = Pack(((0, good), (0, bad), (1, bad), (1, bad)), 4.0, (11.0,))
    assert Wanted().left(pack, room) == (11.0,)
    assert Wanted(lost_devices=1).left(pack, room) == (6.0,)
    assert Wanted(lost_nodes=1).left(pack, room) == (4.0,)
