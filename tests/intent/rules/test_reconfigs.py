import pytest

from intent.messages import say
from intent.rules import read

NOTHING = say("intent", "en", "nothing")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("at most 2 reconfigurations per hour", "limit 2 1/h"),
        ("reconfigure at most twice a day", "limit 2 1/day"),
        ("reconfigure once per hour at most", "limit 1 1/h"),
        ("reconfigure no more than 3 times a day", "limit 3 1/day"),
        ("allow 2 reconfigurations per hour", "limit 2 1/h"),
        ("at most 7 reconfigurations a week", "limit 1 1/day"),
        ("at most 30 reconfigurations a month", "limit 1 1/day"),
        ("at most 2 reconfigurations per minute", "limit 120 1/h"),
        ("reconfigure at most once every 4 hours", "limit 0.25 1/h"),
        ("reconfigure at most once every 2 days", "limit 0.5 1/day"),
        ("at most 2 reconfigurations per hour at peak", "limit 2 1/h peak"),
        ("no reconfiguration", "forbid"),
        ("never reconfigure", "forbid"),
        ("avoid reconfiguration", "forbid"),
        ("zero reconfigurations", "forbid"),
        ("zero reconfigurations per day", "forbid"),
        ("not a single reconfiguration at peak", "forbid peak"),
        ("no reconfiguration during business hours", "forbid business_hours"),
        ("freeze the topology at peak", "forbid peak"),
        ("reconfigure only off-peak", "forbid peak"),
        ("reconfigure only at peak", "forbid off_peak"),
        ("高峰期禁止切换", "forbid peak"),
        ("工作时间不要重配置", "forbid business_hours"),
        ("只在低峰期切换", "forbid peak"),
        ("每小时最多切换 2 次", "limit 2 1/h"),
        ("每天最多重配置两次", "limit 2 1/day"),
    ],
)
def test_reconfigurations_are_forbidden_or_limited(text, expected, goals):
    assert goals(text) == [expected]


def test_each_window_is_a_goal(goals):
    assert goals("don't reconfigure at peak and overnight") == ["forbid peak", "forbid overnight"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("reconfiguration pause under 50 ms", ["reconfig_pause <= 0.05 s"]),
        ("切换停顿不超过 50 毫秒", ["reconfig_pause <= 0.05 s"]),
        ("no pause above 50 ms when reconfiguring", ["reconfig_pause <= 0.05 s"]),
        ("switch to tp=2", ["tp == 2"]),
    ],
)
def test_how_long_one_takes_and_what_to_switch_to_is_no_limit(text, expected, goals):
    assert goals(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "reconfigure at least twice a day",
        "reconfigure less often",
        "at most 2 reconfigurations",
        "at most 2 reconfigurations per second",
        "reconfigure at most once every 5 s",
        "减少切换",
    ],
)
def test_what_could_be_none_or_some_is_asked_about(text, asked):
    code, options = asked(text)
    assert code == "reconfig_unclear"
    assert len(options) == 2


@pytest.mark.parametrize(
    "text",
    [
        "don't reconfigure twice a day",
        "never not reconfigure",
        "reconfigure only overnight",
        "don't reconfigure only off-peak",
        "no reconfiguration longer than 2 s",
    ],
)
def test_what_holds_a_negation_or_a_limit_is_left_as_it_is_unless_answered(text, asked):
    code, options = asked(text)
    assert code == "reconfig_unclear"
    assert options == (NOTHING, "no reconfiguration", "at most 2 reconfigurations per hour")


def test_a_word_without_a_place_is_asked_about(asked):
    assert asked("no reconfiguration unless needed")[0] == "words_not_understood"
    assert asked("03/04 当天不要重新配置")[0] == "ambiguous_time"


def test_the_window_is_assumed_and_the_evidence_is_what_was_used(catalogue):
    draft = read("please, at most 2 reconfigurations per hour, thanks", catalogue)
    assert [one.pointer for one in draft.assumptions] == ["/goals/0/window"]
    assert draft.goals[0].evidence == "at most 2 reconfigurations per hour"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("no topology changes on 2026-12-24, change freeze", 1),
        ("change freeze, no topology changes on 2026-12-24", 1),
        ("no topology changes. no reconfiguration on 2026-12-24", 2),
    ],
)
def test_a_bare_freeze_beside_a_ban_with_hours_names_that_ban(text, expected, goals):
    assert len(goals(text)) == expected
    assert "forbid" not in goals(text) or expected == 2
