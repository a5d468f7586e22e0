import itertools
from dataclasses import replace

from intent.models import Config, Objective
from runtime.capabilities import Limits
from tests.rows import rows
from validator.consistency import asked_for, check_devices
from validator.models import MessageWords

TP, PP = Config("tp", "==", 2, "x"), Config("pp", "==", 4, "x")
REPLICAS = Config("replicas", "==", 2, "x")
COUNT = Objective("gpu_count", ">=", "x", value=3.0, unit="gpus")


def asked(site, *goals):
    return list(asked_for(dict(enumerate(goals)), site))


def found(site, en, *goals):
    return [(finding.code, finding.pointer) for finding in check_devices(dict(enumerate(goals)), site, en)]


@rows("goals", list(itertools.permutations([TP, PP, REPLICAS])))
def test_settings_of_one_time_multiply_in_any_order(goals, site):
    assert asked(site, *goals) == [(2, 16)]


def test_settings_of_different_times_do_not(site):
    assert sorted(asked(site, replace(TP, window="peak"), replace(PP, window="overnight"))) == [
        (0, 2),
        (1, 4),
    ]


def test_two_that_never_meet_are_not_multiplied_for_meeting_a_third(site):
    goals = replace(TP, window="peak"), replace(REPLICAS, window="overnight"), PP
    assert asked(site, *goals) == [(2, 8), (2, 8)]
    assert sorted(asked(site, *reversed(goals))) == [(1, 8), (2, 8)]


def test_of_several_for_one_setting_and_time_the_largest_counts(site):
    assert asked(site, replace(TP, value=4), TP, PP) == [(2, 16)]


def test_what_is_only_a_most_asks_for_nothing(site):
    assert asked(site, TP, replace(PP, op="<=")) == [(0, 2)]


def test_a_number_of_gpus_asks_for_itself(site):
    assert asked(site, COUNT) == [(0, 3)]
    assert asked(site, replace(COUNT, value=2.5)) == [(0, 3)]
    assert asked(site, replace(COUNT, op="<=")) == asked(site, replace(COUNT, soft=True)) == []


def test_hundreds_of_wishes_for_one_time_are_one(site):
    assert asked(site, *[TP, PP, REPLICAS] * 500) == [(1499, 16)]


@rows("language", ["en", "zh"])
def test_more_devices_than_there_are_is_found_at_the_last(site, language):
    (finding,) = check_devices({3: replace(TP, value=4), 7: PP}, site, MessageWords(language))
    assert (finding.code, finding.pointer) == ("too_few_devices", "/goals/7/value")
    assert "16" in finding.message
    assert finding.suggestion


def test_a_count_above_the_inventory_is_found(site, en):
    assert found(site, en, replace(COUNT, value=5.0)) == [("too_few_devices", "/goals/0/value")]
    assert found(site, en, replace(COUNT, value=4.0)) == []


@rows("goals", [(replace(TP, value=4),), (TP, replace(PP, value=2)), (replace(COUNT, value=4.0),)])
def test_more_devices_than_the_deployment_allows_is_found(goals, site, en):
    (finding,) = check_devices(dict(enumerate(goals)), replace(site, limits=Limits(max_gpus=3)), en)
    assert (finding.code, finding.pointer) == ("over_device_limit", f"/goals/{len(goals) - 1}/value")
    assert "the limit is 3" in finding.message
    assert finding.suggestion == "at most 3 devices"
    assert found(replace(site, limits=Limits(max_gpus=4)), en, *goals) == []
