"""Bounds only rule out: whatever the simulation holds is left, with its devices and its depth, and something is found for it."""

from collections.abc import Sequence
from random import Random

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from selector.pipelines.grid import Grid
from selector.pipelines.optimum import Threshold, _BoundSearch, _halved, eased_of
from tests.selector.pipelines.sampled import STATS, Sampled, sampled
from tests.tries import tries


def left(one: Sampled, grid: Grid, bounds: Sequence[Threshold]) -> bool:
    """Whether bounds leave so many devices of each pool and so many stages."""
    if any(bound.metric == "e2e" for bound in bounds):
        grid = grid.taken(_halved(grid, bounds).within_reach()).dealt()
    layers = _BoundSearch.begin(grid, bounds).layers
    devices = set(one.topology.devices)
    cell = tuple(sum(len(devices & set(node)) for node in pool.nodes) for pool in grid.pools)
    if any(count >= size for count, size in zip(cell, layers.shape[1:], strict=True)):
        return False
    here = layers[(grid.points.stages == one.topology.pp_size, *cell)]
    return bool(here.max(initial=0) >= one.finder.problem.model.num_layers)


@pytest.mark.slow
@tries(40, derandomize=True)
@given(st.integers(0, 10**6))
def test_what_the_simulation_holds_is_never_ruled_out(seed):
    one = sampled(seed)
    assume(one is not None)
    draw = Random(seed)
    held = [(metric, draw.choice(STATS)) for metric in draw.sample(("ttft", "tpot", "e2e"), draw.randint(1, 3))]
    bounds = [*(one.held(*what) for what in held), Threshold("rate", one.sustained_rps)]
    (grid,) = one.finder.grids(())
    assert left(one, grid, eased_of(bounds))
    assert left(one, grid, eased_of([Threshold("rate", one.sustained_rps)]))
    goals = [*(one.goal(*what) for what in held), one.sustains]
    assert one.finder.shortlist(goals)
    assert one.finder.none_below(goals, one.found.prediction.usd_per_hour * 1.001) is None
