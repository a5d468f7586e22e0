"""What a case gives, or why it gives nothing, is a line of JSON."""

import io
import json
from typing import Any

import pytest

from benchmarks.gpu.heard import ChangedError, worst_logprob
from benchmarks.gpu.rows import Rows, SkippedError, outcome
from runtime.engine import Token
from runtime.errors import EngineLostError
from tests.rows import rows


def raising(error: Exception) -> dict[str, Any]:
    raise error


@rows(
    ("error", "row"),
    [
        (SkippedError("needs 80 GB"), {"skipped": "needs 80 GB"}),
        (EngineLostError("gone"), {"problem": "EngineLostError: gone"}),
        (ChangedError("a byte"), {"problem": "ChangedError: a byte"}),
        (ZeroDivisionError("by zero"), {"problem": "ZeroDivisionError: by zero"}),
    ],
)
def test_what_breaks_a_case_is_its_row(error, row):
    assert outcome(lambda: raising(error)) == row


def test_a_case_that_breaks_does_not_keep_others_from_running_and_what_is_no_number_is_null():
    out = io.StringIO()
    cases = {"a": lambda: raising(ValueError("x")), "b": lambda: {"figure": 2}}
    Rows(out).take_each(cases)
    assert [json.loads(line) for line in out.getvalue().splitlines()] == [
        {"planned": ["a", "b"]},
        {"case": "a", "problem": "ValueError: x"},
        {"case": "b", "figure": 2},
    ]
    out = io.StringIO()
    Rows(out).say("a", {"x": float("nan"), "y": [float("inf"), 1.0], "z": {1: (2, "t")}})
    assert json.loads(out.getvalue()) == {"case": "a", "x": None, "y": [None, 1.0], "z": {"1": [2, "t"]}}


def said(*ids: int, logprob: float = -1.0) -> list[Token]:
    return [Token("r", 1, index, token_id, logprob) for index, token_id in enumerate(ids)]


def test_tokens_that_are_the_same_differ_in_their_logprobs_at_most():
    assert worst_logprob(said(1, 2), said(1, 2, logprob=-1.5)) == 0.5


@rows(("got", "at"), [(said(1, 3, 3), 1), (said(1, 2), 2), (said(), 0), (said(1, 2, 3, 4), 3)])
def test_another_token_or_one_that_is_missing_is_said_with_its_number(got, at):
    with pytest.raises(ChangedError, match=f"from number {at} on"):
        worst_logprob(got, said(1, 2, 3))
