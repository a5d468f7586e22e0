import random
from typing import get_args

from benchmarks.words.utterances import DEPLOYMENT, NOW
from benchmarks.words.wishes import MOST_GOALS, wish
from intent.models import (
    HIGHER_IS_BETTER,
    LOWER_IS_BETTER,
    DatedWindow,
    FromNowWindow,
    Goal,
    Intent,
    Objective,
    RecurringWindow,
    TranslatorInfo,
)
from service.deployment import load
from validator.schema import check
from validator.words import Words

CATALOGUE = load(DEPLOYMENT).catalogue(NOW)


def wishes(count, seed=0):
    chance = random.Random(seed)
    return [wish(chance, CATALOGUE) for _ in range(count)]


def test_the_domain_schema_knows_every_goal():
    for goals in wishes(200):
        assert 1 <= len(goals) <= MOST_GOALS
        intent = Intent("said", "en", goals, TranslatorInfo("rules"))
        assert list(check(intent, Words("en"))) == []


def test_every_goal_type_and_kind_of_window_is_drawn():
    goals = [goal for goals in wishes(400) for goal in goals]
    assert {type(goal) for goal in goals} == set(get_args(Goal))
    assert {RecurringWindow, DatedWindow, FromNowWindow, str} == {type(goal.window) for goal in goals}
    assert {goal.window for goal in goals if isinstance(goal.window, str)} == set(CATALOGUE.windows)


def test_bounds_lie_on_the_side_that_somebody_needs():
    objectives = [goal for goals in wishes(400) for goal in goals if isinstance(goal, Objective)]
    assert not [one for one in objectives if one.metric in HIGHER_IS_BETTER and one.op in {"<=", "minimize"}]
    wrong = {">=", "maximize"}
    assert not [
        one for one in objectives if one.metric in LOWER_IS_BETTER - {"gpu_count"} and one.op in wrong
    ]


def test_the_same_seed_draws_the_same_goals():
    assert wishes(20, seed=3) == wishes(20, seed=3)
    assert wishes(20, seed=3) != wishes(20, seed=4)
