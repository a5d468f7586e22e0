"""The lowest reading that the bounds of the search allow."""

import math
from collections.abc import Sequence

from selector.pipelines.grid import Grid, Pipeline
from selector.pipelines.optimum import Threshold, _BoundSearch, _rationed, reading, spent


def best(grid: Grid, wanted: Threshold, bounds: Sequence[Threshold] = ()) -> tuple[Pipeline | None, float]:
    """A pipeline that reads it, smaller is better (a rate is its negative); infinite where nothing holds the bounds."""
    grid = _rationed(grid, bounds)
    if "e2e" in {wanted.metric, *(bound.metric for bound in bounds)}:
        grid = grid.dealt()
    search = _BoundSearch.begin(grid, bounds)
    if not search.feasible:
        return None, math.inf
    if wanted.metric in {"devices", "usd_per_hour"}:
        (cheapest, *_) = search.cheapest(wanted.metric, 1)
        return cheapest, spent(cheapest, wanted.metric, grid)
    under, bound = search.with_lowest(wanted)
    if math.isinf(bound.value):
        return None, math.inf
    found = under.pipeline()
    value = reading(found, wanted, grid)
    return found, -value if wanted.metric == "rate" else value


def lowest(grid: Grid, wanted: Threshold, *bounds: Threshold) -> float:
    """The reading alone."""
    return best(grid, wanted, bounds)[1]
