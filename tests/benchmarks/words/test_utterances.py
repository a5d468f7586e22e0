import itertools
from collections import Counter

import pytest
from jsonschema import Draft202012Validator

from benchmarks.words.utterances import CorpusError, complete, load, own_files
from intent.models import Outcome
from tests.rows import rows
from validator.schema import domain_schema

UTTERANCES = load(own_files())
GOALS = domain_schema()["properties"]["goals"]["items"]
GOAL_TYPES = GOALS["discriminator"]["mapping"].keys()
LINE = '{"id": "a", "text": "cost first", "language": "en", "outcome": "ok", "goals": [%s], "tags": []}'


def test_the_utterances_are_said_once_and_enough_of_each_kind():
    for values in ([one.id for one in UTTERANCES], [one.text.casefold() for one in UTTERANCES]):
        assert [value for value, count in Counter(values).items() if count > 1] == []
    assert len(UTTERANCES) >= 300
    assert {one.language for one in UTTERANCES} == {"en", "zh", "mixed"}
    assert all(one.tags for one in UTTERANCES)
    for language in ("en", "zh"):
        said = [one for one in UTTERANCES if one.language == language]
        assert {one.outcome for one in said} == set(Outcome)
        assert {goal["type"] for one in said for goal in one.goals} == GOAL_TYPES


def test_only_settled_wishes_have_goals_that_the_schema_knows():
    schema = Draft202012Validator(GOALS | {"$defs": domain_schema()["$defs"]})
    broken = [
        f"{one.id}: {problem.message}"
        for one in UTTERANCES
        for goal in one.goals
        for problem in schema.iter_errors(goal | {"evidence": one.text})
    ]
    assert broken == []
    for one in UTTERANCES:
        has_goals = one.outcome in {Outcome.OK, Outcome.CONFLICT, Outcome.INFEASIBLE}
        assert bool(one.goals) == has_goals, one.id
    goals = itertools.chain.from_iterable(one.goals for one in UTTERANCES)
    assert [goal for goal in goals if goal.get("metric") in {"ttft", "tpot", "e2e"} and not goal.get("stat", "-")] == []


def test_what_a_goal_leaves_out_is_its_default():
    assert complete({"type": "priority", "higher": "cost"}) == {
        "type": "priority", "higher": "cost", "lower": None, "window": "always",
    }  # fmt: skip


@rows(
    ("line", "message"),
    [
        ("{", "x.jsonl:2: "),
        ("[]", "x.jsonl:2: "),
        (LINE.replace("tags", "tag") % "", "x.jsonl:2: missing or unknown: tag, tags"),
        (LINE.replace('"ok"', '"fine"') % "", "x.jsonl:2: 'fine' is not a valid Outcome"),
        (LINE % '{"type": "wish"}', "x.jsonl:2: 'wish'"),
        (LINE % '{"type": "config", "size": 2}', "x.jsonl:2: a goal of type config has no size"),
    ],
)
def test_a_line_that_is_no_utterance_is_named(tmp_path, line, message):
    file = tmp_path / "x.jsonl"
    file.write_text(LINE % "" + "\n" + line + "\n", encoding="utf-8")
    with pytest.raises(CorpusError, match=message):
        load([file])


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(CorpusError, match=r"none\.jsonl"):
        load([tmp_path / "none.jsonl"])
