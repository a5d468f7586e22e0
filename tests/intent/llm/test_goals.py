"""Each type of goal from its slots, and the slots that the text does not bear."""

from dataclasses import replace

import pytest

from benchmarks.misbehaving_llm import NOTHING, goal
from intent.llm.goals import read_answer
from tests.intent.rules.conftest import short
from tests.intent.tables import table
from tests.rows import rows


@pytest.fixture(scope="session")
def here(catalogue):
    return replace(
        catalogue,
        tenants=("acme", "free"),
        models=("counting", "llama"),
        aliases={"免费用户": "free"},
        devices={"A100": 4, "L40S": 4},
        nodes=("a", "node-b"),
    )


def read(text, here, *goals):
    return read_answer({**NOTHING, "goals": list(goals)}, text, here)


def one(evidence, kind, **slots):
    return goal(evidence=evidence, type=kind, **slots)


def meant(text, here, *goals):
    found = read(text, here, *goals)
    assert found.problems == []
    assert found.draft.questions == []
    return short(found.draft.goals[-1])


OBJECTIVE = {"comparison": "<=", "number": "2", "unit": "s", "subject": "ttft"}
TTFT = one("TTFT under 2s", "objective", **OBJECTIVE)


@rows(("text", "slots", "said"), table("answers.txt"))
def test_an_answer_comes_to_a_goal_a_question_or_a_slot_that_the_text_denies(text, slots, said, here):
    kind, *filled = slots.split("; ")
    answer = one(text, kind, **dict(slot.split(" ", 1) for slot in filled))
    mark, _, name = said.partition(" ")
    if mark == "!":
        found = read(text, here, answer)
        assert f"/goals/0/{name}" in [problem.pointer for problem in found.problems]
        assert found.draft.goals == []
    elif mark == "?":
        found = read(text, here, answer)
        assert found.problems == []
        assert [finding.code for finding in found.draft.findings][:1] == [name]
        assert found.draft.questions[0].options[0] == found.draft.questions[0].default
    else:
        assert meant(text, here, answer) == said


@rows(
    ("text", "slots", "said"),
    [
        ("acme may exceed that", {}, "not ttft peak acme"),
        (
            "acme may exceed it, up to 5 s",
            {"change": "to", "number": "5", "unit": "s"},
            "not ttft 5 s peak acme",
        ),
        ("acme 20 % more", {"change": "by", "number": "20", "unit": "%"}, "not ttft x1.2 peak acme"),
        ("double for acme", {"change": "times", "number": "double"}, "not ttft x2 peak acme"),
    ],
)
def test_an_exception_is_from_the_bound_said_before_and_in_its_window(text, slots, said, here):
    bound = one("TTFT under 2s at peak", "objective", **OBJECTIVE, window="at peak")
    answer = one(text, "exception", tenant="acme", **slots)
    assert meant(f"TTFT under 2s at peak; {text}", here, bound, answer) == said


def test_an_ellipsis_has_the_unit_of_the_goal_before(here):
    other = one("acme 1", "objective", **OBJECTIVE | {"number": "1", "tenant": "acme"})
    assert meant("TTFT under 2s; acme 1", here, TTFT, other) == "ttft p95 <= 1 s acme"
    metric = one("TPOT 1", "objective", **OBJECTIVE | {"number": "1", "subject": "tpot"})
    assert read("TTFT under 2s; TPOT 1", here, TTFT, metric).problems
