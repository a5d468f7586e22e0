"""Series over time as lines in a box."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from intentctl.console.charts import (
    HEIGHT,
    WIDTH,
    Band,
    ChartMark,
    ChartSpec,
    ahead,
    chart,
    clock_times,
    rounded_up,
)
from runtime.models import LayerRange, Precision, Stage, Topology
from service.documents.promises import LoadDocument, SegmentDocument
from tests.rows import rows

NOON = datetime(2026, 1, 5, 12, tzinfo=UTC).timestamp()


def asked(*points, **more):
    return ChartSpec("TTFT", "ms", [("P99", points)], NOON, NOON + 600, **more)


@rows(("value", "top"), [(0, 1), (0.3, 0.5), (1, 1), (1.2, 2), (7, 10), (230, 500)])
def test_the_scale_ends_at_a_round_number(value, top):
    assert rounded_up(value) == pytest.approx(top)


def test_a_line_goes_from_edge_to_edge_and_has_gaps_where_nothing_is_known():
    drawn = chart(asked((NOON, 0), (NOON + 300, 10), (NOON + 400, None), (NOON + 600, 5)), UTC)
    (line,) = drawn.lines
    assert drawn.top == 10
    assert line.path == f"M0 {HEIGHT:g}h0.1L300 0M600 70h0.1"
    assert line.last == 5
    drawn = chart(asked((NOON, None)), UTC)
    assert drawn.is_empty
    assert "unknown" in drawn.summary


def test_the_band_is_where_the_prediction_is_and_marks_of_the_time_that_is_shown_are_drawn():
    drawn = chart(asked((NOON, 100), band=Band(NOON + 150, 25, 75)), UTC)
    assert drawn.band == (150.0, 35.0, 70.0)
    assert chart(asked((NOON, 10), band=Band(NOON, 400, 600)), UTC).top == 10
    marks = [ChartMark(NOON - 1, "before", ""), ChartMark(NOON + 60, "op-1", "/operations/op-1")]
    assert [(x, mark.name) for x, mark in chart(asked((NOON, 1), marks=marks), UTC).marks] == [(60.0, "op-1")]


@rows("minutes", [5, 15, 60, 24 * 60, 7 * 24 * 60])
def test_there_are_a_few_round_clock_times(minutes):
    found = clock_times(NOON, NOON + minutes * 60, UTC)
    assert 3 <= len(found) <= 9
    assert all(NOON <= at <= NOON + minutes * 60 for at, _ in found)


def test_clock_times_are_those_of_the_zone():
    assert clock_times(NOON, NOON + 900, ZoneInfo("Asia/Shanghai"))[0][1] == "20:00"


def segment(begins_h, ends_h, text, **more):
    at = datetime(2026, 1, 5, tzinfo=UTC)
    return SegmentDocument(
        model="m",
        begins=at + timedelta(hours=begins_h),
        ends=at + timedelta(hours=ends_h),
        windows=(),
        goals=(),
        load=LoadDocument(rate_rps=1, input_tokens=1, output_tokens=1, concurrency=None),
        topology=Topology((Stage(text, (0,), LayerRange(0, 1), Precision("fp32", "fp32", "fp32")),)),
        predicted_by="simulation",
        switch=None,
        **more,
    )


def test_segments_lie_side_by_side_and_the_same_topology_has_the_same_colour():
    band = ahead([segment(0, 6, "a"), segment(6, 18, "b"), segment(18, 24, "a")], UTC)
    assert [(one.x, one.width, one.hue) for one in band.stretches] == [
        (0, 150, 0),
        (150, 300, 1),
        (450, 150, 0),
    ]
    assert sum(one.width for one in band.stretches) == WIDTH
