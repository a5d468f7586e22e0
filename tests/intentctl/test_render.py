import json

import pytest

from intentctl import render
from intentctl.arguments import Form


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0 B"), (999, "999 B"), (1500, "1.5 kB"), (2_000_000, "2 MB"), (3.5e12, "3.5 TB")]
)
def test_sizes_read_well(value, text):
    assert render.size(value) == text


@pytest.mark.parametrize(("value", "text"), [(0.0123, "12.3 ms"), (0.5, "500 ms"), (2, "2 s")])
def test_durations_read_well(value, text):
    assert render.seconds(value) == text


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
