"""OR-tools CP-SAT on the model of the search: the pipeline whose slowest stage is busy for least, over operating points.

Times are whole nanoseconds there. ``benchmarks.search.quickest`` answers the same by ``pipelines.optimum``.
"""

import importlib
import importlib.util
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from selector.pipelines.grid import Grid

NS = 1e9
WORKERS = 2
Whole = np.ndarray[Any, np.dtype[np.int64]]


class OrToolsMissingError(Exception):
    """The package is not there."""


@dataclass(frozen=True, slots=True)
class Found:
    """What CP-SAT says."""

    status: str
    """``OPTIMAL``, ``FEASIBLE`` (time was up), ``INFEASIBLE`` or ``UNKNOWN``."""
    value_s: float | None
    """*Busy* of the slowest stage of the best pipeline; None if there is none."""
    bound_s: float
    """No pipeline has less."""
    seconds: float


def required() -> None:
    """See that OR-tools is there, without loading it.

    Raises:
        OrToolsMissingError: it is not.
    """
    if importlib.util.find_spec("ortools") is None:
        raise OrToolsMissingError("--beside cp-sat needs OR-tools: pip install 'ortools>=9.11,<10'")


def tolerance_s(num_layers: int) -> float:
    """How far rounding may take a stage: half a nanosecond for every layer and for what comes on top."""
    return (num_layers + 1) / 2 / NS


def least_busy(grid: Grid, limit_s: float) -> Found:
    """The least *busy* over the points of a grid, within a time limit; OR-tools is loaded here and nowhere else."""
    cp_model = importlib.import_module("ortools.sat.python.cp_model")
    model = _Model(cp_model.CpModel(), grid)
    model.state()
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = limit_s
    solver.parameters.num_workers = WORKERS
    status = solver.status_name(solver.solve(model.model))
    value_s = solver.objective_value / NS if status in {"OPTIMAL", "FEASIBLE"} else None
    return Found(status, value_s, solver.best_objective_bound / NS, solver.wall_time)


@dataclass(frozen=True)
class _Model:
    """Variables and constraints. Stages are counted from the last, so that position 0 has the head whatever their number."""

    model: Any
    grid: Grid

    def state(self) -> None:
        """All of it."""
        self._choose_point()
        self._choose_stages()
        for position in range(self.depth):
            for point in np.flatnonzero(self.stages > position).tolist():
                self._limit(position, point)
        self._stay_within_pools()
        self._break_symmetry()
        self.model.minimize(self.slowest)

    @property
    def num_layers(self) -> int:
        return self.grid.setting.model.num_layers

    @cached_property
    def stages(self) -> Whole:
        """Of each point."""
        return self.grid.points.stages.astype(np.int64)

    @cached_property
    def depth(self) -> int:
        return int(self.stages.max())

    @cached_property
    def times(self) -> tuple[Whole, Whole, Whole]:
        """Nanoseconds of a layer, of an inner stage and of the last one beyond its layers."""
        busy = self.grid.busy
        layer, inner, last = (np.rint(one * NS).astype(np.int64) for one in (busy.layer_s, busy.inner_s, busy.last_s))
        return layer, inner, last

    @cached_property
    def slowest(self) -> Any:
        layer, inner, last = (int(one.max()) for one in self.times)
        return self.model.new_int_var(0, layer * self.num_layers + max(inner, last), "slowest")

    @cached_property
    def point(self) -> list[Any]:
        return [self.model.new_bool_var(f"point {n}") for n in range(len(self.stages))]

    @cached_property
    def exists(self) -> list[Any]:
        """Whether there is a stage at a position."""
        return [self.model.new_bool_var(f"stage {n}") for n in range(self.depth)]

    @cached_property
    def layers(self) -> list[Any]:
        return [self.model.new_int_var(0, self.num_layers, f"layers {n}") for n in range(self.depth)]

    @cached_property
    def kind(self) -> list[list[Any]]:
        """Which kind of stage stands at a position."""
        return [
            [self.model.new_bool_var(f"{position} is {number}") for number in range(len(self.grid.kinds))]
            for position in range(self.depth)
        ]

    def _choose_point(self) -> None:
        self.model.add_exactly_one(self.point)
        for position, exists in enumerate(self.exists):
            deep = [self.point[n] for n in np.flatnonzero(self.stages > position)]
            self.model.add(sum(deep) == exists)

    def _choose_stages(self) -> None:
        for exists, layers, kinds in zip(self.exists, self.layers, self.kind, strict=True):
            self.model.add(sum(kinds) == exists)
            self.model.add(layers >= exists)
            self.model.add(layers <= self.num_layers * exists)
        self.model.add(sum(self.layers) == self.num_layers)

    def _limit(self, position: int, point: int) -> None:
        """What a stage at a position may hold at a point, and how long it is busy with that."""
        first, last = position == self.stages[point] - 1, position == 0
        layer, on_top = self.times[0], self.times[2 if last else 1]
        for number, kind in enumerate(self.kind[position]):
            most = int(self.grid.capacity[first, last][number, point])
            chosen = kind, self.point[point]
            if most < 1:
                self.model.add_bool_or(one.negated() for one in chosen)
                continue
            held = self.layers[position]
            self.model.add(held <= most).only_enforce_if(chosen)
            busy = int(layer[number, point]) * held + int(on_top[number, point])
            self.model.add(busy <= self.slowest).only_enforce_if(chosen)

    def _stay_within_pools(self) -> None:
        for place, pool in enumerate(self.grid.pools):
            taken = [
                kind.tp * chosen
                for kinds in self.kind
                for kind, chosen in zip(self.grid.kinds, kinds, strict=True)
                if kind.pool == place
            ]
            self.model.add(sum(taken) <= pool.size)

    def _break_symmetry(self) -> None:
        """Inner stages may change places: only one order of them counts."""
        numbers = [sum(number * chosen for number, chosen in enumerate(kinds)) for kinds in self.kind]
        for position in range(1, self.depth - 2):
            inner = self.exists[position + 2]  # a third one behind both: neither is the first
            self.model.add(numbers[position] <= numbers[position + 1]).only_enforce_if(inner)
