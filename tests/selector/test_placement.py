"""Where a model may run, by what was said."""

from dataclasses import replace

import pytest

from intent.models import Placement
from runtime.capabilities import Capabilities
from runtime.models import uniform
from selector.models import SearchInput
from selector.objectives import places
from selector.space import blocker
from tests.rows import rows


@pytest.fixture
def problem(mixed, llama, peak) -> SearchInput:
    """Running on the first A100."""
    return SearchInput(mixed, llama, peak, uniform(mixed, "A100", 1, 1, 80, "int4"))


def left(problem: SearchInput, *rules: tuple[str, str]) -> list[int]:
    goals = [Placement(rule, selector, f"{rule} {selector}") for rule, selector in rules]
    return [gpu.index for gpu in places(goals, problem).allowed.gpus]


@rows(
    ("rules", "devices"),
    [
        ([], [0, 1, 2, 3, 4, 5, 6, 7]),
        ([("require", "gpu_type:L40S")], [4, 5, 6, 7]),
        ([("forbid", "node:a")], [4, 5, 6, 7]),
        ([("forbid", "gpu:gpu-3")], [0, 1, 2, 4, 5, 6, 7]),
        ([("require", "node:a"), ("forbid", "gpu:2")], [0, 1, 3]),
        ([("freeze", "gpu:gpu-5")], [0, 1, 2, 3, 4, 6, 7]),
        ([("require", "gpu_type:A100"), ("forbid", "gpu_type:A100")], []),
    ],
)
def test_placements_leave_devices(problem, rules, devices):
    assert left(problem, *rules) == devices


def test_a_frozen_device_that_serves_is_named_and_stays_where_it_is(problem):
    found = places([Placement("freeze", "node:a", "leave node a alone")], problem)
    assert found.frozen == (0,)
    assert [gpu.index for gpu in found.allowed.gpus] == [0, 4, 5, 6, 7]


def test_preferred_devices_are_part_of_what_is_allowed(problem):
    goals = [Placement("prefer", "gpu_type:A100", "rather A100"), Placement("forbid", "gpu:0", "not 0")]
    found = places(goals, problem)
    assert [gpu.index for gpu in found.preferred.gpus] == [1, 2, 3]
    assert places(goals[1:], problem).preferred is None


def test_what_is_said_of_another_workload_does_not_count(problem):
    goal = Placement("forbid", "node:a", "no batch jobs on a", workload="batch")
    assert places([goal], problem).allowed == problem.cluster
    assert places([goal], problem).notes == ()


def test_what_is_left_is_said(problem):
    found = places([Placement("forbid", "node:a", "keep node a free")], problem)
    assert found.notes == ("'keep node a free': of the inventory that leaves the devices 4, 5, 6, 7",)


def test_a_device_that_is_out_is_left_to_nobody_though_it_may_still_run(problem):
    engine = Capabilities((1, 2, 4), 8, ("int4",), tp_per_stage=True, replicated_kv_heads=False)
    here = replace(problem, capabilities=replace(engine, out=frozenset({0, 3})))
    found = places([Placement("forbid", "gpu:1", "not 1")], here)
    assert [gpu.index for gpu in found.allowed.gpus] == [2, 4, 5, 6, 7]
    said = "'not 1' and device 0 is out and device 3 is out"
    assert found.notes == (f"{said}: of the inventory that leaves the devices 2, 4, 5, 6, 7",)
    assert blocker(here.now, here, ("int4",)) == "it uses the device 0, which is out"
