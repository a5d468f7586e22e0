from itertools import permutations, product

from hypothesis import given
from hypothesis import strategies as st

from intent.models import Priority
from tests.rows import rows
from validator.consistency import check_priorities


def over(words, window="always"):
    higher, _, lower = words.partition(" > ")
    return Priority(higher, words, lower or None, window)


def codes(site, en, goals):
    return [finding.code for finding in check_priorities(goals, site, en)]


@rows(
    "goals",
    [
        ["latency > cost", "cost > latency"],
        ["latency > cost", "cost > quality", "quality > latency"],
        ["latency > cost", "cost > quality", "quality > throughput", "throughput > latency"],
        ["latency", "cost"],
        ["latency", "cost > latency"],
        ["tenant:paid > tenant:free", "tenant:free > tenant:paid"],
    ],
)
def test_a_circle_is_found_in_any_order_and_names_its_members(goals, site, en):
    for order in permutations(map(over, goals)):
        (finding,) = check_priorities(order, site, en)
        assert finding.code == "priority_circle"
        assert finding.pointer == f"/goals/{len(goals) - 1}"
        assert all(f'"{goal}"' in finding.message for goal in goals)


@rows(
    "goals",
    [
        ["latency > cost", "latency > quality"],
        ["latency > cost", "quality > cost"],
        ["latency > cost", "cost > quality"],
        ["latency", "latency > cost"],
        ["latency", "cost > quality"],
        ["latency", "latency"],
    ],
)
def test_an_order_passes(goals, site, en):
    for order in permutations(map(over, goals)):
        assert codes(site, en, order) == []


def test_orders_of_different_hours_are_no_circle(site, en):
    assert codes(site, en, [over("latency > cost", "peak"), over("cost > latency", "overnight")]) == []
    assert codes(site, en, [over("latency > cost", "peak"), over("cost > latency")]) == ["priority_circle"]


def test_a_side_before_itself_is_found(site, en):
    assert codes(site, en, [over("cost > cost")]) == ["over_itself"]


SIDES = ("latency", "throughput", "cost", "quality")


def closed(pairs):
    """By brute force: whether following pairs leads from a side to itself."""
    reach = set(pairs)
    for middle, a, b in product(SIDES, SIDES, SIDES):
        if (a, middle) in reach and (middle, b) in reach:
            reach.add((a, b))
    return any((side, side) in reach for side in SIDES)


@given(st.lists(st.tuples(st.sampled_from(SIDES), st.sampled_from([*SIDES, ""])), max_size=5))
def test_a_circle_is_found_exactly_when_following_the_pairs_closes_one(site, en, pairs):
    goals = [over(" > ".join(filter(None, pair))) for pair in pairs]
    spread = {(a, b) for a, lower in pairs for b in SIDES if b == lower or (not lower and b != a)}
    assert bool(codes(site, en, goals)) is closed(spread)
