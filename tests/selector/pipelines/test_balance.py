"""Layers over stages: the knapsack against trying every combination."""

import itertools
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from selector.pipelines.balance import LayerCapacity, StageSlot, fullest, most_layers
from tests.tries import tries

SEATS = (StageSlot(0, 1), StageSlot(0, 2), StageSlot(1, 1), StageSlot(1, 3))


def holds_of(rows: Sequence[Sequence[Sequence[int]]], units: Sequence[int] = (0,)) -> LayerCapacity:
    """From layers by role, seat and point; each unit more is so many layers more where there is room for any."""
    more = np.cumsum(units)[:, None]
    found = (np.array(role, dtype=np.int16)[:, None] for role in rows)
    return LayerCapacity(*(np.where(role > 0, role + more, 0).astype(np.int16) for role in found))


def tried(holds: LayerCapacity, point: int, stages: int) -> dict[tuple[int, ...], int]:
    """Devices to the most layers on exactly these, over all orders of all seats and ways to deal the units."""
    best, ways = (
        dict[tuple[int, ...], int](),
        list(itertools.product(range(len(SEATS)), range(holds.units + 1))),
    )
    for taken in itertools.product(ways, repeat=stages):
        layers = [int(getattr(holds, role)[(*way, point)]) for role, way in zip(ROLES[stages], taken, strict=True)]
        if sum(units for _, units in taken) <= holds.units and min(layers) > 0:
            used = devices_of(taken)
            best[used] = max(best.get(used, 0), sum(layers))
    return best


def devices_of(taken: Sequence[tuple[int, int]]) -> tuple[int, ...]:
    """Of each pool, by seats and units taken."""
    return tuple(
        sum(SEATS[stage_slot].tp for stage_slot, _ in taken if SEATS[stage_slot].pool == pool) for pool in (0, 1)
    )


ROLES = {1: ["only"]} | {number: ["first", *["inner"] * (number - 2), "last"] for number in (2, 3, 4)}
layers_by_role = st.lists(
    st.lists(st.lists(st.integers(0, 9), min_size=4, max_size=4), min_size=4, max_size=4),
    min_size=4,
    max_size=4,
)
units = st.lists(st.integers(0, 5), min_size=1, max_size=2)


@pytest.mark.slow
@tries(50)
@given(rows=layers_by_role, more=units)
def test_the_table_says_what_trying_everything_says(rows, more):
    holds, stages, budget = holds_of(rows, more), [1, 2, 2, 4], (3, 4)
    table = most_layers(holds, SEATS, budget, stages)
    for point, number in enumerate(stages):
        best = tried(holds, point, number)
        for counts in itertools.product(range(budget[0] + 1), range(budget[1] + 1)):
            found = int(table[(point, *counts)])
            assert found == best[counts] if counts in best else found < 0


@pytest.mark.slow
@given(
    rows=layers_by_role,
    more=units,
    stages=st.integers(1, 4),
    budget=st.tuples(st.integers(0, 3), st.integers(0, 4)),
)
def test_the_stages_found_hold_what_the_table_says(rows, more, stages, budget):
    every = holds_of(rows, more)
    holds = LayerCapacity(*(getattr(every, role)[..., [0]] for role in ("inner", "first", "last", "only")))
    most = int(most_layers(holds, SEATS, budget, [stages])[(0, *budget)])
    if most < 1:
        return
    found = fullest(holds, SEATS, budget, stages)
    layers = [int(getattr(holds, role)[(*way, 0)]) for role, way in zip(ROLES[stages], found, strict=True)]
    assert sum(layers) == most
    assert sum(taken for _, taken in found) <= holds.units
    assert devices_of(found) == budget


def test_many_impossible_stages_do_not_overflow():
    nothing = holds_of([[[0], [0], [0], [0]]] * 4)
    assert int(most_layers(nothing, SEATS, (8, 8), [8]).max()) < 0


def test_no_points_have_no_layers():
    assert most_layers(holds_of([[[], [], [], []]] * 4), SEATS, (2, 2), []).size == 0
