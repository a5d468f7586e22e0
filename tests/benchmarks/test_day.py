"""The days of the demo: their windows and loads, and what is made of what their clients saw."""

import math
from datetime import UTC, datetime, timedelta

import pytest
import yaml

from benchmarks.day import (
    LEAD_S,
    LEAST_NIGHT_S,
    SMALLEST,
    SURGE_BURST,
    SURGE_S,
    Lived,
    main,
    prompts,
    report,
    report_rows,
    surge_deployment,
    surging,
    usual,
    usual_deployment,
)
from intentctl.streams import Recording
from service.deployment.file import load
from service.documents.promises import OutcomeDocument

NOW = datetime(2026, 1, 5, 23, 58, 40, tzinfo=UTC)
DAY = usual(NOW)
SURGE = surging(1000.0, 2.0)


def recording(asked_s: float, ttft_s: float, tokens: str = "abc") -> Recording:
    arrivals = [asked_s + ttft_s + n / 10 for n in range(len(tokens))]
    return Recording(
        prompts()[0], arrivals, list(tokens), [0.0] * len(tokens), [""] * len(tokens), "length", None, asked_s
    )


def outcome(at_s: float, cause: str = "window") -> OutcomeDocument:
    return OutcomeDocument(
        operation="op-1",
        model="m",
        cause=cause,
        reason="applied by anybody",
        source="a",
        target="b",
        at_s=at_s,
        stop_ms=1.234,
        verdict=None if cause == "person" else "recovered",
    )


def test_each_moment_is_in_a_window_and_the_night_is_long_enough():
    peak = datetime.fromtimestamp(DAY.peak_s, UTC)
    assert timedelta(seconds=LEAST_NIGHT_S) <= peak - NOW < timedelta(seconds=LEAST_NIGHT_S + 60)
    windows = yaml.safe_load(usual_deployment(DAY))["windows"]
    assert windows["overnight"]["end"] == windows["peak"]["start"] == f"{peak:%H:%M}"
    after = [f"{peak + timedelta(minutes=minutes):%H:%M}" for minutes in (1, 2, 7)]
    assert windows["off_peak"] == {"start": after[0], "end": after[1]}
    assert windows["business_hours"] == {"start": after[1], "end": after[2]}
    seen = [DAY.part_at(DAY.peak_s + after_s).window for after_s in (-1, 0, 59, 60, 119, 120)]
    assert seen == ["overnight", "peak", "peak", "off_peak", "off_peak", "business_hours"]
    assert len({tuple(prompt[:4]) for prompt in prompts()}) == len(prompts())


def test_requests_of_a_day_come_as_its_parts_say():
    come = [(at_s - DAY.peak_s, burst) for at_s, burst in DAY.arrivals(DAY.peak_s - 3)]
    assert come[:4] == [(-3, 1), (-1, 1), (0, 7), (4, 7)]
    assert [one for one in come if 56 <= one[0] < 63] == [(56, 7), (60, 1), (62, 1)]
    assert [one for one in come if 120 <= one[0] < 127] == [(120, 1), (122, 1), (123, 7), (126, 7)]
    assert DAY.peak_s + come[-1][0] < DAY.end_s


def test_a_surge_asks_for_what_two_devices_were_measured_to_answer_and_begins_again_alike():
    come = list(SURGE.arrivals(0.0))
    assert come[:4] == [(1000.0, 1), (1005.0, 1), (1010.0, SURGE_BURST), (1012.5, SURGE_BURST)]
    peak_s = 1000.0 + LEAD_S
    assert SURGE.peak_s == peak_s
    assert sum(burst > 1 for _, burst in come) == math.ceil(SURGE_S / 2.5)
    assert [one for one in come if one[0] >= peak_s + SURGE_S] == [(1034.0, 1), (1039.0, 1)]
    again = [(at_s - 500.0, burst) for at_s, burst in surging(1500.0, 2.0).arrivals(0.0)]
    assert again == come


def test_a_slot_of_the_surge_holds_one_request_and_two_hold_a_burst(tmp_path):
    from runtime.footprint import blocks
    from runtime.models import uniform

    (file := tmp_path / "surge.yaml").write_text(surge_deployment())
    (model,) = load(file).models
    one, two = (uniform(model.cluster, "CPU", 1, pp, 8, "fp32") for pp in (1, 2))
    request = -(-(200 + 100) // 32)
    held = [blocks(topology, model.spec, model.cluster, 32) // request for topology in (one, two)]
    assert held == [1, SURGE_BURST]


def test_a_day_is_reported_as_clients_saw_it() -> None:
    peak_s = DAY.peak_s
    lived = Lived(DAY, peak_s - 60)
    lived.recordings = [
        recording(peak_s + 1, 0.5),
        recording(peak_s + 2, 1.5),
        recording(peak_s + 130, 2.9, "abX"),
    ]
    lived.references = [recording(0, 0)]
    lived.ran = [(peak_s - 60, 2), (peak_s - 54, 1), (peak_s, 2), (peak_s + 66, 1)]
    lived.outcomes = [outcome(peak_s - 61, "person"), outcome(peak_s - 2)]
    document = report(lived)
    assert (document["streams"], document["streams_equal"], document["tokens_lost"]) == (3, 2, 0)
    assert document["attainment"] == {
        "keep P95 TTFT < 1 s at peak": 0.5,
        "use at most 1 GPU overnight and off-peak": 0.9,
        "keep P95 TTFT < 3 s during business hours": 1.0,
    }
    assert document["over_bound"] == 1
    (switch,) = document["switches"]
    assert (switch["cause"], switch["verdict"], switch["stop_ms"], switch["after_peak_begins_s"]) == (
        "window",
        "recovered",
        1.23,
        -2.0,
    )


def test_a_surge_says_how_many_waited_too_long_with_the_controller_and_without() -> None:
    lived = Lived(SURGE, 1000.0)
    lived.recordings = [recording(1001.0, 0.1), recording(1010.0, 1.6), recording(1020.0, 0.2)]
    lived.recordings.append(Recording(prompts()[0], error="it broke", asked_s=1021.0))
    lived.references = [recording(0, 0)]
    lived.outcomes = [outcome(1014.0, "rescue")]
    document = report(lived) | {"static": {SMALLEST: {}}, "static_over_bound": {SMALLEST: 3}}
    assert (document["over_bound"], document["errors"]) == (2, ["it broke"])
    said = dict(report_rows(document))
    assert said["over bound"] == "2 of 4 requests waited longer than promised; 3 on 1x1 alone"
    assert said["rescue"].startswith("+4.0 s of peak: a to b; stood still 1.23 ms; recovered: ")


def test_a_day_and_a_surge_are_two_things(capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["--surge", "--statics"])
    assert "not allowed with argument" in capsys.readouterr().err
