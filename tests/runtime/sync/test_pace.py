"""The pace of a background copy: its share of the time, and whether it gains."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.sync.pace import Pace, Passes

SLOTS_PER_S = 100_000


def run(pace: Pace, step_s: float, rounds: int, start_s: float = 0.0) -> tuple[int, float, float]:
    """Rounds in which each copy waits for a step, and takes ``start_s`` however little is copied.

    Returns the slots copied, the seconds that took, and those in all.
    """
    slots = 0
    copying_s = all_s = pause_s = 0.0
    for _ in range(rounds):
        count = pace.slots
        took_s = start_s + count / SLOTS_PER_S
        elapsed_s = max(step_s - pause_s, 0.0) + took_s
        pause_s = pace.copied(count, took_s, elapsed_s)
        slots, copying_s, all_s = slots + count, copying_s + took_s, all_s + elapsed_s + pause_s
    return slots, copying_s, all_s


@given(st.floats(0.0, 0.5), st.floats(0.05, 0.5), st.integers(1, 400))
def test_copying_takes_no_more_than_its_share(step_s, share, least):
    _, copying_s, all_s = run(Pace(share, least), step_s, 50)
    assert copying_s <= all_s * share * 1.001 + 0.5 * share


def test_between_long_steps_slices_grow_with_the_steps():
    slots, copying_s, all_s = run(Pace(0.2, 100), 0.4, 50)
    assert copying_s / all_s == pytest.approx(0.2, rel=0.1)
    assert slots > 50 * 7_000


def test_where_a_slice_takes_long_to_start_slices_grow_until_bytes_take_as_long():
    slots, copying_s, all_s = run(Pace(0.15, 32), 0.0, 200, start_s=0.005)
    assert copying_s / all_s == pytest.approx(0.15, rel=0.1)
    assert slots / copying_s > 0.3 * SLOTS_PER_S  # with slices of 32 it is a sixteenth
    assert slots < 200 * 2_000, "and no longer than that"


def test_where_slices_take_as_long_as_their_slots_they_stay_small():
    pace = Pace(0.15, 100)
    assert max(run_slices(pace, 50)) <= 200
    assert sum(run_slices(pace, 160)) < 1.1 * 160 * 100


def run_slices(pace: Pace, rounds: int) -> list[int]:
    """The slots of so many slices."""
    found = []
    for _ in range(rounds):
        found.append(pace.slots)
        pace.copied(found[-1], found[-1] / SLOTS_PER_S, found[-1] / SLOTS_PER_S)
    return found


def test_a_sync_that_is_written_as_fast_as_it_copies_does_not_gain():
    passes = Passes()
    for _ in range(30):
        passes.measured(100, 1000)
    assert not passes.is_gaining
    for left in range(1000, 0, -50):
        passes.measured(100, left)
    assert passes.is_gaining


def test_a_sync_that_shrinks_gains_all_the_time():
    passes = Passes()
    for left in (1000, 900, 800, 700, 600, 500, 400, 300, 200, 100, 0):
        passes.measured(100, left)
        assert passes.is_gaining
