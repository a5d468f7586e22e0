"""What a switch was good for."""

from dataclasses import replace

import pytest

from service.promises.attainment import Tally
from service.promises.decide import Rules
from service.promises.verdict import Reading, judge

RULES = Rules(probation_requests=20, probation_s=60)
KEPT = Reading("P99 TTFT <= 2 s", 0.99, before=Tally(10, 20), after=Tally(20, 20), measured=1.0, left=5.0)
MISSED = replace(KEPT, after=Tally(15, 20), measured=4.0)


def verdict(
    *readings: Reading, cause: str = "window", elapsed_s: float = 61, load: float = 1.0
) -> str | None:
    found = judge(readings, cause, elapsed_s, load, RULES)  # type: ignore[arg-type]
    return found.verdict if found else None


def test_goals_that_are_kept() -> None:
    assert verdict(KEPT) == "recovered"
    assert verdict(KEPT, elapsed_s=5) == "recovered"


def test_it_waits_for_requests_or_for_the_end_of_probation() -> None:
    few = replace(KEPT, after=Tally(10, 10))
    assert verdict(few, elapsed_s=5) is None
    assert verdict(few) == "recovered"


def test_too_few_requests_tell_nothing() -> None:
    assert verdict(replace(KEPT, after=Tally(4, 4))) == "unknown"
    assert verdict() == "unknown"


def test_a_goal_that_is_still_missed() -> None:
    assert verdict(MISSED) == "not_recovered"
    assert verdict(MISSED, cause="rescue") == "not_recovered"


def test_slower_than_what_was_left_is_predicted_to_be() -> None:
    assert verdict(replace(MISSED, left=2.0)) == "worse"


def test_a_load_that_nobody_planned_for_is_not_the_fault_of_the_topology() -> None:
    assert verdict(replace(MISSED, left=2.0), load=1.5) == "not_recovered"


@pytest.mark.parametrize(("before", "expected"), [(Tally(18, 20), "worse"), (Tally(16, 20), "not_recovered")])
def test_a_rescue_is_held_against_what_was_measured_before(before: Tally, expected: str) -> None:
    assert verdict(replace(MISSED, before=before), cause="rescue") == expected


def test_what_is_worse_need_not_wait_for_the_end_of_probation() -> None:
    assert verdict(replace(MISSED, left=2.0, after=Tally(2, 10)), elapsed_s=3) == "worse"


def test_the_way_back_is_judged_but_never_worse() -> None:
    assert verdict(replace(MISSED, left=2.0), cause="roll_back") == "not_recovered"
