"""From one set of replicas to another: every set on the way can be, and as many serve as may."""

from hypothesis import given
from hypothesis import strategies as st

from runtime.capabilities import Batching
from runtime.models import LayerRange, Precision, Stage, Topology
from runtime.replicas.steps import Change, changes, transition
from tests.rows import rows

DEVICES = 8
FP32 = Precision("fp32", "fp32", "fp32")


def replica(*stages: tuple[int, ...]) -> Topology:
    """A pipeline of eight layers on these devices."""
    ends = [8 * (number + 1) // len(stages) for number in range(len(stages))]
    ranges = zip([0, *ends[:-1]], ends, strict=True)
    return Topology(
        tuple(Stage("cpu", devices, LayerRange(*bounds), FP32) for devices, bounds in zip(stages, ranges, strict=True))
    )


def set_of(*devices: tuple[int, ...]) -> Topology:
    return Topology.of_replicas([replica(each) for each in devices])


@st.composite
def sets(draw: st.DrawFn) -> Topology:
    """Up to four replicas of one or two devices each."""
    free = list(draw(st.permutations(range(DEVICES))))
    sizes = draw(st.lists(st.integers(1, 2), min_size=1, max_size=4))
    return set_of(*(tuple(sorted(free.pop() for _ in range(size))) for size in sizes))


def is_free(change: Change, present: Topology) -> bool:
    """Whether no other replica uses the devices that a change leads to."""
    used = {device for each in present.replicas if each != change.before for device in each.devices}
    return used.isdisjoint(change.after.devices)


@given(sets(), sets())
def test_each_change_is_of_one_replica_on_devices_that_no_other_uses(now, target):
    present = now
    way = changes(now, target)
    for place, change in enumerate(way):
        after = {*change.leads_to.replicas}
        gone, come = {*present.replicas} - after, after - {*present.replicas}
        assert (gone, come) == ({change.before} - {None}, {change.after} - {None})
        used = [device for each in after for device in each.devices]
        assert len(used) == len(set(used))
        if change.after is None:  # who stops early does so because everyone waits for devices of another
            assert not any(is_free(later, present) for later in way[place + 1 :] if later.after)
        present = change.leads_to
    assert present == target


@given(sets(), sets())
def test_replicas_of_both_sets_stay(now, target):
    both = {*now.replicas} & {*target.replicas}
    touched = {side for change in changes(now, target) for side in (change.before, change.after)}
    assert not both & touched


@rows(
    ("now", "target", "words"),
    [
        (((0, 1), (2, 3)), ((0, 1), (2, 3)), []),
        (((0, 1),), ((0, 1), (2, 3)), ["starts"]),
        (((0, 1), (2, 3)), ((2, 3),), ["stops"]),
        (((0, 1), (2, 3)), ((0,), (2, 3)), ["switches"]),
        (((0, 1, 2, 3),), ((0, 1), (2, 3)), ["switches", "starts"]),
        (((0, 1), (2, 3)), ((0, 1, 2, 3),), ["stops", "switches"]),
        (((0,), (1,)), ((0, 2), (1, 3)), ["switches", "switches"]),
        (((0,),), ((5,),), ["switches"]),
    ],
)
def test_what_changes(now, target, words):
    assert [change.verb for change in changes(set_of(*now), set_of(*target))] == words


def test_what_cannot_become_another_starts_and_stops():
    def on_one_side(now, then):
        return {device < 4 for device in now.devices} == {device < 4 for device in then.devices}

    found = changes(set_of((0, 1)), set_of((4, 5)), on_one_side)
    assert [change.verb for change in found] == ["starts", "stops"]
    found = changes(set_of((0, 1), (4,)), set_of((2,), (5,)), on_one_side)
    assert [change.verb for change in found] == ["switches", "switches"]


def test_replicas_that_wait_for_each_others_devices_do_not_wait_for_ever():
    now = Topology.of_replicas([replica((0, 1)), replica((2, 3))])
    target = Topology.of_replicas([replica((0, 3)), replica((1, 2))])
    assert [change.verb for change in changes(now, target)] == ["stops", "switches", "starts"]


def test_who_stops_early_is_the_one_whose_devices_let_the_others_go_on():
    now = set_of((0, 1), (2, 3), (4, 5), (6, 7))
    target = set_of((0, 5), (1, 6), (2, 4), (3, 7))
    assert [change.verb for change in changes(now, target)] == ["stops", "switches", "switches", "switches", "starts"]


def test_steps_that_are_filled_otherwise_are_changes_too():
    small = Batching(8, 64)
    large = Batching(16, 64)
    now = set_of((0,), (1,))
    target = set_of((0,), (2,), (3,))
    found = transition(now, target, [small, small], Batching.of_replicas([large, small, large]))
    assert [(change.verb, change.after, change.batching) for change in found] == [
        ("switches", replica((2,)), small),
        ("starts", replica((3,)), large),
        ("switches", replica((0,)), large),
    ]
    assert transition(target, target, [large, small, large], Batching.of_replicas([large, small, large])) == ()
    assert found[-1].leads_to == target
    assert [change.filled for change in found] == [
        small,
        Batching.of_replicas([small, small, large]),
        Batching.of_replicas([large, small, large]),
    ]
