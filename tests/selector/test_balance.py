"""Layers over stages: the knapsack against trying every combination."""

import itertools
from collections.abc import Sequence

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from selector.balance import Holds, Seat, fullest, most_layers

SEATS = (Seat(0, 1), Seat(0, 2), Seat(1, 1), Seat(1, 3))


def holds_of(rows: Sequence[Sequence[Sequence[int]]]) -> Holds:
    """From layers by role, seat and point."""
    return Holds(*(np.array(role, dtype=np.int16) for role in rows))


def tried(holds: Holds, point: int, budget: Sequence[int], stages: int) -> int:
    """The most layers on exactly these devices, over all orders of all seats."""
    best = -1
    for seats in itertools.product(range(len(SEATS)), repeat=stages):
        used = [sum(SEATS[seat].tp for seat in seats if SEATS[seat].pool == pool) for pool in (0, 1)]
        roles = ["only"] if stages == 1 else ["first", *["inner"] * (stages - 2), "last"]
        layers = [int(getattr(holds, role)[seat, point]) for role, seat in zip(roles, seats, strict=True)]
        if used == list(budget) and min(layers) > 0:
            best = max(best, sum(layers))
    return best


layers_by_role = st.lists(
    st.lists(st.lists(st.integers(0, 9), min_size=4, max_size=4), min_size=4, max_size=4),
    min_size=4,
    max_size=4,
)


@given(rows=layers_by_role)
def test_the_table_says_what_trying_everything_says(rows: list[list[list[int]]]) -> None:
    holds, stages, budget = holds_of(rows), [1, 2, 2, 4], (3, 4)
    table = most_layers(holds, SEATS, budget, stages)
    for point, number in enumerate(stages):
        for counts in itertools.product(range(budget[0] + 1), range(budget[1] + 1)):
            expected = tried(holds, point, counts, number)
            assert (
                int(table[(point, *counts)]) == expected if expected > 0 else int(table[(point, *counts)]) < 0
            )


@given(rows=layers_by_role, stages=st.integers(1, 4), budget=st.tuples(st.integers(0, 3), st.integers(0, 4)))
def test_the_stages_found_hold_what_the_table_says(
    rows: list[list[list[int]]], stages: int, budget: tuple[int, int]
) -> None:
    holds = holds_of(rows).taken([0])
    most = int(most_layers(holds, SEATS, budget, [stages])[(0, *budget)])
    if most < 1:
        return
    found = fullest(holds, SEATS, budget, stages)
    roles = ["only"] if stages == 1 else ["first", *["inner"] * (stages - 2), "last"]
    assert sum(int(getattr(holds, role)[seat, 0]) for role, seat in zip(roles, found, strict=True)) == most
    assert [sum(SEATS[seat].tp for seat in found if SEATS[seat].pool == pool) for pool in (0, 1)] == list(
        budget
    )


def test_many_impossible_stages_do_not_overflow() -> None:
    nothing = holds_of([[[0], [0], [0], [0]]] * 4)
    assert int(most_layers(nothing, SEATS, (8, 8), [8]).max()) < 0


def test_no_points_have_no_layers() -> None:
    assert most_layers(holds_of([[[], [], [], []]] * 4), SEATS, (2, 2), []).size == 0
