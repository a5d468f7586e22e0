import itertools
import json

import pytest

from benchmarks.report import (
    Measured,
    Run,
    Tally,
    figures,
    memcpy_share,
    ratio_lines,
    ratios,
    run_document,
    stop_curves,
    switch_stops,
    table,
)
from benchmarks.stops import StopCurve
from benchmarks.strategy import Switched
from intentctl.measure import ClientStream, TimeInterval
from runtime.models import CutTimings
from tests.rows import rows


def stream(gap_ms, *, stop_ms=None, before=120, after=120) -> ClientStream:
    """Tokens at an even pace from second 100 on; with a stop, the next ones are another's."""
    gaps_s = [gap_ms / 1000] * (before + after)
    if stop_ms is not None:
        gaps_s[before] += stop_ms / 1000
    arrivals = tuple(itertools.accumulate(gaps_s, initial=100.0))
    owners = ("0-1x1",) * (before + 1) + (("0-1x1",) if stop_ms is None else ("1-TP2",)) * after
    return ClientStream(arrivals, (), (), owners)


def switched(**more) -> Switched:
    """A switch in the gap after token 120 of a stream with gaps of 10 ms."""
    defaults = {"interval": TimeInterval(101.2, 101.25), "prepare_s": 0.5, "paths": {"patch": 1}}
    return Switched(**(defaults | more))


def measured(source="1x1", target="tp2", **more) -> Measured:
    one = switched(**more)
    quiet = (TimeInterval(99.0, one.interval.start_s), TimeInterval(one.interval.end_s, 103.0))
    return Measured(source, target, one, quiet)


NOTHING = Tally(0, 0, 0)


def run(*every: Measured, streams=(), mode="patch", tally=NOTHING, error=None) -> Run:
    return Run(mode, "1x1-tp2", 12, 300, 8, every, streams, tally, error)


def document_of(one: Run) -> dict:
    return run_document(one, memcpy_bytes_s=10e9)


def test_a_stop_is_measured_at_each_stream_or_is_what_a_request_waited():
    stops, worst = switch_stops(measured(), [stream(10.0, stop_ms=30.0), stream(10.0, stop_ms=20.0)])
    assert stops == pytest.approx([30.0, 20.0])
    assert worst == pytest.approx([40.0, 30.0])
    one = measured(waits_s=(1.5, 0.25))
    assert switch_stops(one, [stream(10.0, stop_ms=30.0)]) == ([1500.0, 250.0], [])


def test_a_document_has_the_figures_of_all_switches():
    timings = (CutTimings(1.0, 2.0, 3.0, 4.0), CutTimings(3.0, 2.0, 1.0, 8.0))
    first = measured(bytes_before=100, bytes_inside=10, timings=timings[0], left_to_drain=1)
    second = measured("tp2", "1x1", bytes_before=50, timings=timings[1], paths={"patch": 2, "follow": 1}, prepare_s=0.1)
    streams = (stream(10.0, stop_ms=30.0), stream(10.0))
    document = document_of(run(first, second, streams=streams, tally=Tally(482, 1, 2)))
    assert document["switches"] == 2
    assert document["stops"] == 2  # the same stop seen by both
    assert document["stop_ms"] == {"p50": 30.0, "p99": 30.0, "max": 30.0}
    assert list(document["stop_ms_by_direction"]) == ["1x1 to tp2", "tp2 to 1x1"]
    assert document["sham_stop_ms"] == {"p50": 0.0, "p99": 0.0, "max": 0.0}
    assert document["median_gap_ms"] == 10.0
    assert document["prepare_s"] == {"p50": 0.1, "p99": 0.5, "max": 0.5}
    assert (document["bytes_before"], document["bytes_inside"]) == (150, 10)
    assert (document["tokens"], document["tokens_lost"], document["tokens_duplicated"]) == (482, 1, 2)
    assert document["paths"] == {"patch": 3, "follow": 1}
    assert document["left_to_drain"] == 1
    assert document["active"] == 12
    assert document["fence_to_commit_ms"] == {"p50": 6.0, "p99": 6.0, "max": 6.0}
    assert document["engine_ms_p50"] == {
        "drain_ms": 2.0,
        "patch_ms": 2.0,
        "commit_ms": 2.0,
        "first_step_ms": 6.0,
    }
    assert [one["stops_ms"] for one in document["each"]] == [[30.0], [30.0]]
    assert document["drain_s"] is None
    json.dumps(document)


def test_a_run_that_measured_nothing_is_all_null():
    document = document_of(run(error="SwitchError: busy"))
    assert document["stop_ms"] is document["median_gap_ms"] is document["engine_ms_p50"] is None
    assert "patch ended early: SwitchError: busy" in table([document])
    assert figures(range(1, 201)) == {"p50": 100, "p99": 198, "max": 200}
    assert figures([]) is None


def documents(**p99_by_mode) -> list[dict]:
    runs = [run(measured(waits_s=(p99,)), mode=mode) for mode, p99 in p99_by_mode.items()]
    return [document_of(one) for one in runs]


def test_ratios_are_to_the_engines_own_patch():
    found = ratios(documents(patch=0.01, replay=0.08, drain=4.0))
    assert found == [{"pair": "1x1-tp2", "active": 12, "context": 300, "replay/patch": 8.0, "drain/patch": 400.0}]
    assert ratio_lines(found) == [
        "1x1-tp2, 12 active, 300 tokens: stop p99 replay/patch = 8.0",
        "1x1-tp2, 12 active, 300 tokens: stop p99 drain/patch = 400.0",
    ]


@rows("p99", [{"replay": 0.08}, {"patch": -0.001, "replay": 0.08}, {"patch": 0.01, "replay": -0.001}])
def test_a_ratio_to_nothing_is_not_known(p99):
    found = ratios(documents(**p99))
    assert found == [{"pair": "1x1-tp2", "active": 12, "context": 300, "replay/patch": None}]
    assert ratio_lines(found) == []


def test_the_table_has_a_column_per_mode_and_a_block_per_pair():
    lines = table(documents(patch=0.01, drain=4.0)).splitlines()
    assert lines[0].split() == ["1x1-tp2,", "12", "active,", "300", "tokens", "patch", "drain"]
    (stop,) = [line for line in lines if line.startswith("stop ms")]
    assert stop.split()[-10:] == ["10.0", "/", "10.0", "/", "10.0", "4,000.0", "/", "4,000.0", "/", "4,000.0"]
    other = Run("patch", "1x1-pp2", 12, 300, 8, (), (), NOTHING)
    assert table([*documents(patch=0.01), document_of(other)]).count("\n\n") == 1


def test_what_cuts_copy_is_held_against_memcpy():
    def cut(num_bytes, patch_ms):
        return switched(bytes_inside=num_bytes, timings=CutTimings(9.0, patch_ms, 9.0, 9.0))

    cuts = [cut(40_000_000, 10.0), cut(50_000_000, 10.0), cut(60_000_000, 10.0), cut(0, 1.0), switched()]
    assert memcpy_share(cuts, 10e9) == 0.5
    assert memcpy_share([switched()], 10e9) is None


def test_curves_are_drawn_against_what_was_swept():
    found = documents(patch=0.01, drain=4.0)
    found[1]["stop_ms"] = None
    assert stop_curves(found) == (
        [StopCurve("patch", {12: (10.0, 10.0)}), StopCurve("drain", {})],
        "streams that run",
    )
    (one,) = documents(patch=0.01)
    point = (10.0, 10.0)
    longer, fewer = one | {"context": 900}, one | {"pair": "pp2-CPU", "layers_moved": 2}
    assert stop_curves([one, longer]) == ([StopCurve("patch", {300: point, 900: point})], "prompt tokens")
    assert stop_curves([one, fewer]) == ([StopCurve("patch", {8: point, 2: point})], "layers that move")
    more = [each | {"active": number} for number in (10, 50) for each in (one, longer)]
    assert stop_curves(more) == (
        [StopCurve(f"patch {tokens}", {10: point, 50: point}) for tokens in (300, 900)],
        "streams that run",
    )
