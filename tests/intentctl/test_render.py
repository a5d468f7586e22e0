import json
from dataclasses import replace

import pytest

from intent.models import Assumption
from intentctl import render
from intentctl.arguments import Form
from tests.service.examples import intent


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0 B"), (999, "999 B"), (1500, "1.5 kB"), (2_000_000, "2 MB"), (3.5e12, "3.5 TB")]
)
def test_sizes_read_well(value, text):
    assert render.size(value) == text


@pytest.mark.parametrize(("value", "text"), [(0.0123, "12.3 ms"), (0.5, "500 ms"), (2, "2 s")])
def test_durations_read_well(value, text):
    assert render.seconds(value) == text


@pytest.mark.parametrize(
    ("facts", "text"),
    [
        ({"paths": {"patch": 10, "follow": 2}}, "10 by patch, 2 by follow; 0 tokens recomputed"),
        ({"paths": {"patch": 12, "follow": 0}}, "12 by patch; 0 tokens recomputed"),
        ({}, "12 requests; 0 tokens recomputed"),
        (
            {"stays": {"nearly done": 2, "no room": 1}},
            "12 requests; 0 tokens recomputed; 3 left to drain (2 nearly done, 1 no room)",
        ),
    ],
)
def test_what_moved_is_told_by_path_with_what_stayed(facts, text):
    nothing = {"paths": {}, "stays": {}, "tokens_recomputed": 0}
    assert render.moved(moved=12, **nothing | facts) == text


def test_names_that_repeat_are_shown_once(capsys):
    render.grid([("why", "one"), ("why", "two"), ("other", "three")])

    assert capsys.readouterr().out.count("why") == 1


def test_text_from_outside_is_never_markup(capsys):
    render.grid([("understood", "[bold red]x[/] :smile: [link=http://a]b[/link]")])

    assert "[bold red]x[/] :smile: [link=http://a]b[/link]" in capsys.readouterr().out


def test_data_is_data_and_rows_are_for_people(capsys):
    render.emit({"a": [1, "é"]}, Form.JSON, [("a", "1")])
    assert json.loads(capsys.readouterr().out) == {"a": [1, "é"]}

    render.emit({"a": [1, "é"]}, Form.TABLE, [("a", "1")])
    assert capsys.readouterr().out.split() == ["a", "1"]


def test_the_same_assumption_of_several_goals_is_said_once():
    assumed = tuple(Assumption("/goals/0/window", text) for text in ("always", "P95", "always"))
    rows = render.intent_rows(replace(intent(), assumptions=assumed))

    assert [text for name, text in rows if name == "assumed"] == ["always", "P95"]
