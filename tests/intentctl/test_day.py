"""The day of the demo: its windows, and what is made of what its clients saw."""

from datetime import UTC, datetime, timedelta

import yaml

from intentctl.day import LEAST_NIGHT_S, TEXTS, Day, Lived, prompts, report
from intentctl.streams import Recording
from service.documents.promises import OutcomeDocument

NOW = datetime(2026, 1, 5, 23, 58, 40, tzinfo=UTC)
DAY = Day.soon(NOW)


def recording(asked_s: float, ttft_s: float, tokens: str = "abc") -> Recording:
    arrivals = [asked_s + ttft_s + n / 10 for n in range(len(tokens))]
    return Recording(
        prompts()[0], arrivals, list(tokens), [0.0] * len(tokens), [""] * len(tokens), "length", None, asked_s
    )


def test_each_moment_is_in_a_window_and_the_night_is_long_enough():
    assert timedelta(seconds=LEAST_NIGHT_S) <= DAY.peak - NOW < timedelta(seconds=LEAST_NIGHT_S + 60)
    windows = yaml.safe_load(DAY.deployment)["windows"]
    assert windows["overnight"]["end"] == windows["peak"]["start"] == f"{DAY.peak:%H:%M}"
    assert windows["off_peak"] == {"start": f"{DAY.off_peak:%H:%M}", "end": f"{DAY.business:%H:%M}"}
    peak_s = DAY.peak.timestamp()
    seen = [DAY.window_of(peak_s + after_s) for after_s in (-1, 0, 59, 60, 119, 120)]
    assert seen == ["overnight", "peak", "peak", "off_peak", "off_peak", "business_hours"]
    assert len({tuple(prompt[:4]) for prompt in prompts()}) == len(prompts())


def test_a_day_is_reported_as_clients_saw_it() -> None:
    peak_s = DAY.peak.timestamp()
    lived = Lived(DAY, peak_s - 60)
    lived.recordings = [
        recording(peak_s + 1, 0.5),
        recording(peak_s + 2, 1.5),
        recording(peak_s + 130, 2.9, "abX"),
    ]
    lived.references = [recording(0, 0)]
    lived.ran = [(peak_s - 60, 2), (peak_s - 54, 1), (peak_s, 2), (peak_s + 66, 1)]
    lived.outcomes = [
        OutcomeDocument(
            operation="op-1",
            model="m",
            cause="window",
            reason="",
            source="a",
            target="b",
            at_s=peak_s - 2,
            stop_ms=1.234,
            verdict="recovered",
        )
    ]
    document = report(lived)
    assert (document["streams"], document["streams_equal"], document["tokens_lost"]) == (3, 2, 0)
    assert list(document["attainment"].values()) == [0.5, 0.9, 1.0]
    assert list(document["attainment"]) == list(TEXTS)
    (switch,) = document["switches"]
    assert (switch["cause"], switch["verdict"], switch["stop_ms"], switch["after_peak_begins_s"]) == (
        "window",
        "recovered",
        1.23,
        -2.0,
    )
