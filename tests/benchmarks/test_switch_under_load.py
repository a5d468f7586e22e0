"""The picture of the README: what it shows of what was recorded."""

import json

import pytest

from benchmarks.switch_under_load import RESULT, arrivals_s, draw, longest_gaps, main, rates


@pytest.fixture(scope="module")
def recorded():
    return json.loads(RESULT.read_text(encoding="utf-8"))


def test_what_is_on_file_is_a_demo_that_lost_nothing(recorded):
    report = recorded["report"]
    assert (report["tokens_lost"], report["tokens_duplicated"], report["notes"]) == (0, 0, [])
    assert report["streams"] == report["streams_equal"] == len(recorded["streams"]) == 8
    assert report["tokens"] == sum(len(stream["gaps_ms"]) + 1 for stream in recorded["streams"])
    for switch in recorded["switches"]:
        assert list(switch["phases_s"]) == [
            "planned",
            "warming",
            "syncing",
            "cutting",
            "committed",
            "cleaning",
            "done",
        ]
        assert list(switch["phases_s"].values()) == sorted(switch["phases_s"].values())


def test_arrivals_are_the_sum_of_gaps():
    assert arrivals_s({"first_ms": 500.0, "gaps_ms": [250.0, 1000.0]}) == [0.5, 0.75, 1.75]


def test_tokens_are_counted_in_whole_bins_of_what_is_shown():
    assert rates([[-0.5, 0.0, 0.25, 1.0], [0.75, 2.0, 2.2]], end_s=2.1, bin_s=1.0) == [3.0, 1.0]


def test_a_bin_has_the_longest_gap_that_ends_in_it():
    assert list(longest_gaps([0.0, 0.5, 1.25, 1.5], bin_s=1.0)) == [(0.5, 500.0), (1.5, 750.0)]


def test_the_picture_names_both_switches_and_is_light(recorded, tmp_path):
    draw(recorded, tmp_path / "switch.svg")
    text = (tmp_path / "switch.svg").read_text(encoding="utf-8")
    assert [label in text for label in ("PP2 → 1x1", "1x1 → TP2", "tokens per second,")] == [True] * 3
    assert len(text) < 80_000


def test_it_draws_from_a_file(tmp_path):
    assert main(["--out", str(tmp_path / "again.svg")]) == 0
    assert (tmp_path / "again.svg").is_file()
