import json
import subprocess
import sys

import pytest

from benchmarks.between_hosts import bar_ms, bytes_s
from benchmarks.strategy import Switched
from intentctl.measure import TimeInterval
from tests.rows import rows
from tests.runtime.hosts.machines import namespaces

__all__ = ["namespaces"]


@rows(("rate", "value"), [("8gbit", 1e9), ("200mbit", 25e6), ("8kbit", 1e3)])
def test_rates_are_those_of_tc(rate, value):
    assert bytes_s(rate) == value


@rows(("between_hosts", "bar"), [(5_000_000, 4 * 3 + 2 + 10), (0, 2 * 3 + 10)])  # within a host no patch takes the link
def test_the_bar_is_round_trips_and_the_patch_over_the_link_and_ten_milliseconds(between_hosts, bar):
    switched = Switched(TimeInterval(0.0, 1.0), 0.5, {}, bytes_between_hosts=between_hosts, bytes_inside=2_000_000)
    assert bar_ms(switched, {"round_trip_ms": 3.0, "bytes_s": 1e9}) == pytest.approx(bar)


@pytest.mark.timeout(1200)
def test_every_mode_moves_streams_to_the_other_host_and_back(namespaces):
    sizes = ["--active", "3", "--switches", "1", "--context", "60", "--output", "400"]
    command = [sys.executable, "-m", "benchmarks.cutover", "--hosts", "2", "--rate", "1gbit", *sizes, "-o", "json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["link"] == {"rate": "1gbit", "delay_ms": 0.0, "bytes_s": 125e6, "round_trip_ms": 0.0}
    assert len(document["rows"]) == 10  # three pairs by three modes, and one within the other host
    for row in document["rows"]:
        assert (row["error"], row["switches"]) == (None, 2)
        assert (row["tokens_lost"], row["tokens_duplicated"]) == (0, 0)
        if row["mode"] != "replay":
            assert row["bytes_inside"] > 0
            assert row["bar_ms"]["p50"] >= 10
    crossing = [row for row in document["rows"] if row["bytes_between_hosts"] >= row["bytes_inside"] > 0]
    patches = [row["bytes_inside"] for row in crossing if row["mode"] == "patch"]
    whole = [row["bytes_inside"] for row in crossing if row["mode"] == "stop-and-copy"]
    assert len(patches) == 3
    assert all(patch < all_of_it for patch, all_of_it in zip(patches, whole, strict=True))
