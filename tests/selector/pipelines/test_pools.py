"""Devices that are alike, and who gets which."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.models import Cluster, Gpu, Link, Node
from selector.pipelines.operating import dealt, pools_of


def cluster(*sizes: int, kind: str = "A100", differ: int = 1) -> Cluster:
    nodes, number = [], 0
    for place, size in enumerate(sizes):
        gpus = tuple(Gpu(number + n, kind, 80 + place * differ, 2.0 + place * differ) for n in range(size))
        nodes.append(Node(str(place), gpus, Link("nvlink", 1e9, 1e-6)))
        number += size
    return Cluster(tuple(nodes), Link("network", 1e9, 1e-6))


def test_nodes_of_one_size_that_is_a_power_of_two_are_one_pool():
    (pool,) = pools_of(cluster(4, 4), ["A100"])
    assert (pool.size, pool.node_size, pool.memory_bytes, pool.usd_per_hour) == (8, 4, 80, 2.5)


def test_other_nodes_are_pools_of_their_own():
    assert [pool.size for pool in pools_of(cluster(4, 2), ["A100"])] == [4, 2]
    assert [pool.size for pool in pools_of(cluster(6, 6), ["A100"])] == [6, 6]
    assert pools_of(cluster(4), ["L40S"]) == ()


def test_a_node_of_another_size_leaves_the_rest_together():
    pools = pools_of(cluster(8, 6, 8, 8), ["A100"])
    assert [(pool.size, len(pool.nodes)) for pool in pools] == [(24, 3), (6, 1)]


def test_one_odd_node_of_the_same_devices_goes_with_the_rest_and_a_second_does_not():
    assert [pool.size for pool in pools_of(cluster(8, 6, 8, 6, differ=0), ["A100"])] == [22, 6]


def test_some_devices_go_out_before_others():
    pools = pools_of(cluster(4, 4), ["A100"])
    assert dealt(pools, [(0, 2)], first={6, 7}) == [(6, 7)]
    assert dealt(pools, [(0, 1), (0, 4)], first={6}) == [(0,), (6, 4, 5, 7)]


def test_what_does_not_fit_is_given_nothing():
    pools = pools_of(cluster(2), ["A100"])
    assert dealt(pools, [(0, 2), (0, 1)], first=()) == []


@pytest.mark.slow
@given(
    sizes=st.lists(st.integers(1, 8), min_size=1, max_size=5),
    wanted=st.lists(st.sampled_from([1, 2, 4, 8]), max_size=8),
)
def test_powers_of_two_fit_whenever_there_are_enough(sizes, wanted):
    homes = [node for node, size in enumerate(sizes) for _ in range(size)]
    pools = pools_of(cluster(*sizes, differ=0), ["A100"])
    assert sum(pool.size for pool in pools) == sum(sizes)
    for place, pool in enumerate(pools):
        counts = [count for count in wanted if count <= pool.node_size]
        given_out = dealt(pools, [(place, count) for count in counts], first=())
        if sum(counts) <= pool.size:
            assert [len(devices) for devices in given_out] == counts
            everyone = [device for devices in given_out for device in devices]
            assert len(everyone) == len(set(everyone))
            assert all(len({homes[device] for device in devices}) == 1 for devices in given_out)
        else:
            assert given_out == []
