import json
from pathlib import Path

import pytest

from benchmarks.words.readable import numbers, unsaid
from benchmarks.words.utterances import complete, load, own_files
from tests.rows import rows

TTFT = complete({"type": "objective", "metric": "ttft", "stat": "p95", "op": "<=", "value": 2.0, "unit": "s"})
FILE = Path(__file__).parents[2] / "data" / "unsaid.jsonl"


def test_every_number_of_the_corpus_is_found_in_its_text():
    missing = [(one.id, unsaid(goal, one.text)) for one in load(own_files()) for goal in one.goals]
    assert [one for one in missing if one[1]] == []


@rows(
    ("text", "number"),
    [
        ("1,500 ms", 1500), ("0.35", 0.35), (".5s", 0.5), ("two hundred and fifty", 250), ("one point five", 1.5),
        ("twenty five thousand", 25_000), ("一千五百", 1500), ("百分之四十", 40), ("三点五", 3.5),
        ("两万三", 23_000), ("一千二", 1200), ("二十三", 23),
        ("1e-5", 1e-5), ("a third", 1 / 3), ("three quarters", 0.75), ("twice", 2),
    ],
)  # fmt: skip
def test_numbers_are_read_in_digits_and_words(text, number):
    assert any(number == pytest.approx(one) for one in numbers(text))


@rows(("text", "goal", "wrong"), [json.loads(line) for line in FILE.read_text(encoding="utf-8").splitlines()])
def test_a_number_nobody_said_is_named_and_what_arithmetic_makes_of_one_is_said(text, goal, wrong):
    """A goal without a type is what it has beside the one of a TTFT."""
    assert unsaid(complete(goal) if "type" in goal else TTFT | goal, text) == wrong
