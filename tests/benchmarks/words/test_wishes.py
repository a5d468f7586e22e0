import random
from typing import get_args

from benchmarks.words.utterances import DEPLOYMENT, NOW
from benchmarks.words.wishes import MOST_GOALS, wish
from intent.models import (
    HIGHER_IS_BETTER,
    LOWER_IS_BETTER,
    DatedWindow,
    DatesWindow,
    FromNowWindow,
    Goal,
    Intent,
    Objective,
    RecurringWindow,
    TranslatorInfo,
)
from service.deployment.file import load
from validator.models import MessageWords
from validator.schema import check

CATALOGUE = load(DEPLOYMENT).catalogue(NOW)


def wishes(count, seed=0):
    chance = random.Random(seed)
    return [wish(chance, CATALOGUE) for _ in range(count)]


def test_wishes_are_of_all_kinds_and_the_same_for_a_seed():
    for goals in wishes(200):
        assert 1 <= len(goals) <= MOST_GOALS
        intent = Intent("said", "en", goals, TranslatorInfo("rules"))
        assert list(check(intent, MessageWords("en"))) == []
    goals = [goal for goals in wishes(400) for goal in goals]
    assert {type(goal) for goal in goals} == set(get_args(Goal))
    assert {RecurringWindow, DatedWindow, DatesWindow, FromNowWindow, str} == {type(goal.window) for goal in goals}
    assert {goal.window for goal in goals if isinstance(goal.window, str)} == set(CATALOGUE.windows)
    assert wishes(20, seed=3) == wishes(20, seed=3)
    assert wishes(20, seed=3) != wishes(20, seed=4)


def test_bounds_lie_on_the_side_that_somebody_needs():
    objectives = [goal for goals in wishes(400) for goal in goals if isinstance(goal, Objective)]
    assert not [one for one in objectives if one.metric in HIGHER_IS_BETTER and one.op in {"<=", "minimize"}]
    wrong = {">=", "maximize"}
    assert not [one for one in objectives if one.metric in LOWER_IS_BETTER - {"gpu_count"} and one.op in wrong]
