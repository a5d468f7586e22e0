"""One decision from one look; each rule has a case that it alone decides."""

import re
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from service.promises.decide import Ahead, Decision, Past, Rules, State, decide

RULES = Rules()
ROOT = Path(__file__).parents[3]
NOW_S = 100_000.0
STATE = State(now_s=NOW_S, runs="a", target="a", began_s=NOW_S - 3600, rescue="a")


def past(
    cause: str = "window", *, ago_s: float = 1000, source: str = "b", target: str = "a", **facts: object
) -> Past:
    return Past(NOW_S - ago_s, source, target, cause, **{"is_done": True, "verdict": "recovered", **facts})  # type: ignore[arg-type]


def looked(**facts: object) -> Decision:
    return decide(replace(STATE, **facts), RULES)  # type: ignore[arg-type]


def kind(**facts: object) -> tuple[str, str | None, str | None]:
    found = looked(**facts)
    return found.kind, found.target, found.cause


MISSED = {"missed": "P99 TTFT <= 2 s", "missed_s": 60.0, "rescue": "b"}
AHEAD = Ahead(begins_in_s=60, target="b", takes_s=50, is_early=True)


def test_all_is_well() -> None:
    assert kind() == ("wait", None, None)


def test_a_window_that_asks_for_another_topology_gets_it() -> None:
    assert kind(target="b") == ("switch", "b", "window")


def test_nothing_that_holds_changes_nothing() -> None:
    assert kind(target=None) == ("wait", None, None)


def test_a_window_is_made_ready_for_before_it_begins() -> None:
    assert kind(ahead=AHEAD) == ("switch", "b", "window")
    assert kind(ahead=replace(AHEAD, begins_in_s=80)) == ("wait", None, None)


def test_what_is_ready_for_the_next_window_stays_until_then() -> None:
    assert kind(runs="b", target="a", ahead=AHEAD) == ("wait", None, None)


def test_a_target_that_breaks_what_holds_now_waits_for_its_window() -> None:
    assert kind(ahead=replace(AHEAD, is_early=False)) == ("wait", None, None)


def test_a_goal_that_is_missed_is_acted_on() -> None:
    assert kind(**MISSED) == ("switch", "b", "rescue")
    assert kind(**{**MISSED, "missed_s": 5.0}) == ("wait", None, None)


@pytest.mark.parametrize("rescue", [None, "a"])
def test_a_goal_that_is_missed_where_nothing_better_is_known(rescue: str | None) -> None:
    found = looked(**{**MISSED, "rescue": rescue})
    assert found.kind == "wait"
    assert "nothing better" in found.reason


STOPS = {
    "paused": {"is_paused": True},
    "override": {"override": "somebody applied tp4"},
    "no data": {"data_age_s": 21.0},
}


@pytest.mark.parametrize("stop", STOPS.values(), ids=STOPS)
@pytest.mark.parametrize(
    "wish", [{"target": "b"}, {"ahead": AHEAD}, MISSED], ids=["window", "ahead", "missed"]
)
def test_what_stops_the_controller_stops_all_it_wishes(
    stop: dict[str, object], wish: dict[str, object]
) -> None:
    assert kind(**wish)[0] == "switch"
    assert kind(**wish, **stop)[0] == "hold"


def test_one_switch_at_a_time() -> None:
    assert kind(target="b", is_switching=True) == ("wait", None, None)


def test_a_promised_limit_binds_even_a_roll_back() -> None:
    assert kind(target="b", barred="no changes until noon") == ("hold", "b", "window")
    assert kind(past=[past(verdict="worse")], barred="no changes")[0] == "hold"


def test_what_made_it_worse_is_rolled_back_at_once() -> None:
    assert kind(past=[past(ago_s=30, verdict="worse")]) == ("switch", "b", "roll_back")


@pytest.mark.parametrize("verdict", ["recovered", "not_recovered", "unknown", None])
def test_nothing_else_is_rolled_back(verdict: str | None) -> None:
    assert kind(past=[past(ago_s=30, verdict=verdict)]) == ("wait", None, None)


def test_a_roll_back_is_not_rolled_back() -> None:
    assert kind(past=[past("roll_back", ago_s=30, verdict="worse")]) == ("wait", None, None)


def test_what_was_rolled_back_from_is_not_tried_again_in_its_segment() -> None:
    back = past("roll_back", ago_s=2000, source="b")
    assert kind(target="b", past=[back])[0] == "hold"
    assert kind(**MISSED, past=[back])[0] == "hold"
    assert kind(target="b", past=[back], began_s=NOW_S - 1000)[0] == "switch"


def test_two_switches_for_a_window_are_enough() -> None:
    two = [past(ago_s=3000, source="c", target="d"), past(ago_s=2000, source="d")]
    assert kind(target="b", past=two)[0] == "hold"
    assert kind(target="b", past=two[1:])[0] == "switch"
    assert kind(**MISSED, past=two)[0] == "switch"


def test_one_rescue_in_a_dwell_time() -> None:
    assert kind(**MISSED, past=[past("rescue", ago_s=299, source="c")])[0] == "hold"
    assert kind(**MISSED, past=[past("rescue", ago_s=301, source="c")])[0] == "switch"


def test_what_only_wastes_waits_for_calm() -> None:
    assert kind(**{**MISSED, "missed_s": 299.0}, wastes=True) == ("wait", None, None)
    assert kind(**{**MISSED, "missed_s": 301.0}, wastes=True) == ("switch", "b", "saving")


RESCUED = {"target": "b", "past": [past("rescue", ago_s=400)]}


def test_what_a_rescue_did_is_taken_back_when_it_was_calm_for_long() -> None:
    assert kind(**RESCUED, calm_s=299.0) == ("hold", "b", "return")
    assert kind(**RESCUED, calm_s=301.0) == ("switch", "b", "return")


def test_the_next_window_takes_back_a_rescue_at_once() -> None:
    assert kind(**RESCUED, began_s=NOW_S - 10) == ("switch", "b", "window")


def test_no_switch_undoes_the_last_one_in_a_dwell_time() -> None:
    assert kind(target="b", past=[past(ago_s=299)], began_s=NOW_S - 10)[0] == "hold"
    assert kind(target="b", past=[past(ago_s=301)], began_s=NOW_S - 10)[0] == "switch"
    assert kind(target="c", past=[past(ago_s=299)], began_s=NOW_S - 10)[0] == "switch"


@pytest.mark.parametrize(("failures", "waits_s"), [(1, 30), (2, 60), (3, 120), (20, 3600)])
def test_it_waits_longer_after_each_switch_that_was_given_up(failures: int, waits_s: float) -> None:
    def after(ago_s: float) -> str:
        tries = [
            past(ago_s=ago_s + failures - n, target="b", source="a", is_done=False)
            for n in range(1, failures + 1)
        ]
        return kind(target="b", past=tries)[0]

    assert after(waits_s - 1) == "hold"
    assert after(waits_s + 1) == "switch"


def test_the_docs_have_the_usual_patience() -> None:
    rows = re.findall(
        r"^\| (`promises\..*?) \| (.*?) \|", (ROOT / "docs" / "promises.md").read_text(), re.MULTILINE
    )
    told = {
        name: float(value)
        for names, values in rows
        for name, value in zip(re.findall(r"promises\.(\w+)", names), values.split(", "), strict=True)
    }
    assert told == {name: float(value) for name, value in asdict(RULES).items()}
