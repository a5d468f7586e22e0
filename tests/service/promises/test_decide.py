"""One decision from one look; each rule has a case that it alone decides."""

import re
from dataclasses import asdict, replace
from pathlib import Path

from service.deployment.policy import Rules
from service.promises.decide import Ahead, ControlState, Decision, PastSwitch, decide
from tests.rows import rows

RULES = Rules()
ROOT = Path(__file__).parents[3]
NOW_S = 100_000.0
STATE = ControlState(now_s=NOW_S, runs="a", target="a", began_s=NOW_S - 3600, rescue="a")


def past(
    cause: str = "window", *, ago_s: float = 1000, source: str = "b", target: str = "a", **facts: object
) -> PastSwitch:
    return PastSwitch(NOW_S - ago_s, source, target, cause, **{"is_done": True, "verdict": "recovered", **facts})  # type: ignore[arg-type]


def looked(**facts: object) -> Decision:
    return decide(replace(STATE, **facts), RULES)  # type: ignore[arg-type]


def kind(**facts: object) -> tuple[str, str | None, str | None]:
    found = looked(**facts)
    return found.kind, found.target, found.cause


MISSED = {"missed": "P99 TTFT <= 2 s", "missed_s": 60.0, "rescue": "b"}
AHEAD = Ahead(begins_in_s=60, target="b", takes_s=50, is_early=True)


TWO = [past(ago_s=3000, source="c", target="d"), past(ago_s=2000, source="d")]
BACK = [past("roll_back", ago_s=2000, source="b")]
RESCUED = {"target": "b", "past": [past("rescue", ago_s=400)]}
WAIT = ("wait", None, None)
HOLD, SWITCH = "hold", "switch"

GIVEN_UP = [
    past(ago_s=200, verdict="worse"),
    past("roll_back", ago_s=20, source="a", target="b", is_done=False),
]


@rows(
    ("said", "facts", "expected"),
    [
        ("all is well", {}, WAIT),
        ("a window that asks for another topology gets it", {"target": "b"}, (SWITCH, "b", "window")),
        ("nothing that holds changes nothing", {"target": None}, WAIT),
        ("a window is made ready for before it begins", {"ahead": AHEAD}, (SWITCH, "b", "window")),
        ("but not long before", {"ahead": replace(AHEAD, begins_in_s=80)}, WAIT),
        ("what is ready for the next window stays until then", {"runs": "b", "target": "a", "ahead": AHEAD}, WAIT),
        ("a target that breaks what holds now waits for its window", {"ahead": replace(AHEAD, is_early=False)}, WAIT),
        ("a goal that is missed is acted on", MISSED, (SWITCH, "b", "rescue")),
        ("but not at once", {**MISSED, "missed_s": 5.0}, WAIT),
        ("one switch at a time", {"target": "b", "is_switching": True}, WAIT),
        ("a promised limit binds", {"target": "b", "barred": "no changes until noon"}, (HOLD, "b", "window")),
        ("a no holds against a window", {"target": "b", "refused": {"b": "ada rejected plan-1"}}, HOLD),
        ("against a rescue", {**MISSED, "refused": {"b": "ada rejected plan-1"}}, HOLD),
        ("not against another target", {"target": "b", "refused": {"c": "ada rejected plan-1"}}, SWITCH),
        ("even a roll back", {"past": [past(verdict="worse")], "barred": "no changes"}, HOLD),
        ("what made it worse is rolled back at once", {"past": [past(ago_s=30, verdict="worse")]},
         (SWITCH, "b", "roll_back")),
        ("nothing else is rolled back", {"past": [past(ago_s=30, verdict="recovered")]}, WAIT),
        ("what did not help is not", {"past": [past(ago_s=30, verdict="not_recovered")]}, WAIT),
        ("nor what nobody knows of", {"past": [past(ago_s=30, verdict="unknown")]}, WAIT),
        ("nor what has no verdict", {"past": [past(ago_s=30, verdict=None)]}, WAIT),
        ("a roll back is not rolled back", {"past": [past("roll_back", ago_s=30, verdict="worse")]}, WAIT),
        ("what was rolled back from is not tried again in its segment", {"target": "b", "past": BACK}, HOLD),
        ("not even as a rescue", {**MISSED, "past": BACK}, HOLD),
        ("it is in the next one", {"target": "b", "past": BACK, "began_s": NOW_S - 1000}, SWITCH),
        ("two switches for a window are enough", {"target": "b", "past": TWO}, HOLD),
        ("one is not", {"target": "b", "past": TWO[1:]}, SWITCH),
        ("two are no reason against a rescue", {**MISSED, "past": TWO}, SWITCH),
        ("one rescue in a dwell time, while it has no verdict",
         {**MISSED, "past": [past("rescue", ago_s=299, source="c", verdict=None)]}, HOLD),
        ("another once it has", {**MISSED, "past": [past("rescue", ago_s=299, source="c")]}, SWITCH),
        ("and after that time", {**MISSED, "past": [past("rescue", ago_s=301, source="c", verdict=None)]}, SWITCH),
        ("none after a way back", {**MISSED, "past": [past("return", ago_s=299, source="c")]}, HOLD),
        ("what a person did is not rolled back", {"past": [past("person", ago_s=30, verdict="worse")]}, WAIT),
        ("a roll back that was given up waits", {"past": GIVEN_UP}, HOLD),
        ("and is tried again", {"past": GIVEN_UP, "now_s": NOW_S + 15}, (SWITCH, "b", "roll_back")),
        ("a target that cannot come up bars no other",
         {**MISSED, "past": [past(ago_s=20 + n, target="c", source="a", is_done=False) for n in range(8)]}, SWITCH),
        ("a roll back that has to wait keeps no rescue waiting",
         {**MISSED, "rescue": "c", "past": GIVEN_UP}, (SWITCH, "c", "rescue")),
        ("nor the next window",
         {"ahead": replace(AHEAD, target="c"), "past": GIVEN_UP}, (SWITCH, "c", "window")),
        ("a window that has to wait keeps no rescue waiting",
         {**MISSED, "ahead": AHEAD, "rescue": "c", "refused": {"b": "ada rejected plan-1"}}, (SWITCH, "c", "rescue")),
        ("a rescue that was given up keeps none to elsewhere waiting",
         {**MISSED, "past": [past("rescue", ago_s=20, source="a", target="c", is_done=False, verdict=None)]}, SWITCH),
        ("what only wastes waits for calm", {**MISSED, "missed_s": 299.0, "wastes": True}, WAIT),
        ("and is saved then", {**MISSED, "missed_s": 301.0, "wastes": True}, (SWITCH, "b", "saving")),
        ("what a rescue did stays while it is not calm", {**RESCUED, "calm_s": 299.0}, (HOLD, "b", "return")),
        ("and is taken back when it was calm for long", {**RESCUED, "calm_s": 301.0}, (SWITCH, "b", "return")),
        ("the next window takes back a rescue at once", {**RESCUED, "began_s": NOW_S - 10}, (SWITCH, "b", "window")),
        ("no switch undoes the last one in a dwell time",
         {"target": "b", "past": [past(ago_s=299)], "began_s": NOW_S - 10}, HOLD),
        ("it does after that", {"target": "b", "past": [past(ago_s=301)], "began_s": NOW_S - 10}, SWITCH),
        ("one to elsewhere undoes nothing", {"target": "c", "past": [past(ago_s=299)], "began_s": NOW_S - 10}, SWITCH),
    ],
    ids=str,
)  # fmt: skip
def test_each_rule_decides_alone(said: str, facts: dict[str, object], expected: object) -> None:
    found = kind(**facts)
    assert expected in (found, found[0])


@rows("rescue", [None, "a"])
def test_a_goal_that_is_missed_where_nothing_better_is_known(rescue: str | None) -> None:
    found = looked(**{**MISSED, "rescue": rescue})
    assert found.kind == "wait"
    assert "nothing better" in found.reason


@rows("stop", [{"hold": "somebody applied tp4"}, {"data_age_s": 21.0}])
@rows("wish", [{"target": "b"}, {"ahead": AHEAD}, MISSED])
def test_what_stops_the_controller_stops_all_it_wishes(stop: dict[str, object], wish: dict[str, object]) -> None:
    assert kind(**wish)[0] == "switch"
    assert kind(**wish, **stop)[0] == "hold"


@rows(("failures", "waits_s"), [(1, 30), (2, 60), (3, 120), (20, 3600)])
def test_it_waits_longer_after_each_switch_that_was_given_up(failures: int, waits_s: float) -> None:
    def after(ago_s: float) -> str:
        tries = [
            past(ago_s=ago_s + failures - n, target="b", source="a", is_done=False) for n in range(1, failures + 1)
        ]
        return kind(target="b", past=tries)[0]

    assert after(waits_s - 1) == "hold"
    assert after(waits_s + 1) == "switch"


def test_the_docs_have_the_usual_patience() -> None:
    rows = re.findall(r"^\| (`promises\..*?) \| (.*?) \|", (ROOT / "docs" / "promises.md").read_text(), re.MULTILINE)
    told = {
        name: float(value)
        for names, values in rows
        for name, value in zip(re.findall(r"promises\.(\w+)", names), values.split(", "), strict=True)
    }
    assert told == {name: float(value) for name, value in asdict(RULES).items()}
