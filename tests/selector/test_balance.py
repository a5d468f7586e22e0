"""The split against brute force, its certificate against an independent count, and laws it must obey."""

from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from selector.balance import Split, StageKind, fastest

KINDS = st.lists(
    st.builds(
        StageKind,
        kind=st.sampled_from("ab"),
        tp=st.sampled_from([1, 2]),
        precision=st.sampled_from(["bf16", "int8"]),
        fixed_s=st.integers(0, 5).map(float),
        layer_s=st.integers(1, 9).map(float),
        last_s=st.integers(0, 4).map(float),
        capacity=st.integers(0, 7),
    ),
    min_size=1,
    max_size=4,
)
DEVICES = st.fixed_dictionaries({"a": st.integers(0, 3), "b": st.integers(0, 3)})


def sequences(kinds, devices, most_stages):
    """Every sequence of stages that the devices allow."""
    for count in range(1, most_stages + 1):
        for chosen in product(kinds, repeat=count):
            used = {name: sum(kind.tp for kind in chosen if kind.kind == name) for name in devices}
            if all(used[name] <= devices[name] for name in devices):
                yield chosen


def brute(kinds, devices, layers, most_stages):
    """The smallest slowest stage over every sequence and every split."""
    best = None
    for chosen in sequences(kinds, devices, most_stages):
        for counts in product(*(range(1, kind.capacity + 1) for kind in chosen)):
            if sum(counts) == layers:
                slowest = max(
                    kind.time_s(count, last=place == len(chosen) - 1)
                    for place, (kind, count) in enumerate(zip(chosen, counts, strict=True))
                )
                best = slowest if best is None else min(best, slowest)
    return best


@settings(max_examples=2000)
@given(KINDS, DEVICES, st.integers(1, 8), st.integers(1, 3))
def test_it_is_as_fast_as_the_best_of_all(kinds, devices, layers, most_stages):
    split, best = fastest(kinds, devices, layers, most_stages), brute(kinds, devices, layers, most_stages)
    assert (split is None) == (best is None)
    if split:
        assert split.slowest_s == best
        check(split, devices, layers, most_stages)


def check(split: Split, devices, layers, most_stages):
    """It is what it says, and nothing is over any limit."""
    assert sum(count for _, count in split.stages) == layers
    assert len(split.stages) <= most_stages
    for name, budget in devices.items():
        assert sum(kind.tp for kind, _ in split.stages if kind.kind == name) <= budget
    times = []
    for place, (kind, count) in enumerate(split.stages):
        assert 1 <= count <= kind.capacity
        times.append(kind.time_s(count, last=place == len(split.stages) - 1))
    assert max(times) <= split.slowest_s


@settings(max_examples=200)
@given(KINDS, DEVICES, st.integers(1, 8), st.integers(1, 3))
def test_the_certificate_holds_by_a_count_of_its_own(kinds, devices, layers, most_stages):
    split = fastest(kinds, devices, layers, most_stages)
    if split is None:
        return
    time_s = split.certificate.time_s
    assert time_s < split.slowest_s
    most = 0
    for chosen in sequences(kinds, devices, most_stages):
        held = [kind.layers_within(time_s, last=n == len(chosen) - 1) for n, kind in enumerate(chosen)]
        most = max(most, sum(held) if held[-1] else 0)
    assert most == max(0, split.certificate.layers)
    assert most < layers
    steps = {
        kind.time_s(n, last=last)
        for kind in kinds
        for n in range(1, min(kind.capacity, layers) + 1)
        for last in (False, True)
    }
    assert not [one for one in steps if time_s < one < split.slowest_s]  # nothing changes in between


@given(KINDS, DEVICES, st.integers(1, 8), st.integers(1, 3))
def test_more_devices_stages_or_memory_never_slow_it_down(kinds, devices, layers, most_stages):
    usual = fastest(kinds, devices, layers, most_stages)
    if usual is None:
        return
    roomier = [replace(kind, capacity=kind.capacity + 1) for kind in kinds]
    richer = {name: count + 1 for name, count in devices.items()}
    for more in (
        fastest(kinds, richer, layers, most_stages),
        fastest(kinds, devices, layers, most_stages + 1),
        fastest(roomier, devices, layers, most_stages),
    ):
        assert more is not None
        assert more.slowest_s <= usual.slowest_s


def test_the_faster_kind_gets_more_layers():
    fast, slow = (
        StageKind(name, 1, "bf16", fixed_s=0.0, layer_s=layer_s, last_s=0.0, capacity=80)
        for name, layer_s in (("fast", 1.0), ("slow", 3.0))
    )
    split = fastest([fast, slow], {"fast": 1, "slow": 1}, 80, 2)
    assert split is not None
    assert {kind.kind: count for kind, count in split.stages} == {"fast": 60, "slow": 20}
    assert split.slowest_s == pytest.approx(60.0)


def test_what_no_memory_holds_has_no_split():
    tiny = StageKind("a", 1, "bf16", 0.0, 1.0, 0.0, capacity=3)
    assert fastest([tiny], {"a": 2}, 7, 4) is None
    assert fastest([tiny], {"a": 0}, 1, 4) is None
    assert fastest([], {"a": 4}, 1, 4) is None
