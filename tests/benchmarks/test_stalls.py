"""What the clients of the stalls benchmark saw becomes figures, held against the bars."""

from benchmarks.intake import Seen
from benchmarks.stalls import (
    BODY_BYTES,
    KINDS,
    chat,
    misses_of_bodies,
    misses_of_stalls,
    percentile,
    seen_in,
    table,
)
from tests.rows import rows


def waits(client_s: float, service_s: float, tail_s: float = 0.0) -> dict:
    names = ("p50", "p95", "p99")
    said = dict.fromkeys(names, service_s)
    return {"client_s": dict.fromkeys(names, client_s) | {"p99": tail_s or client_s}, "service_s": said}


def window(gap_s: float, usual_s: float = 0.01, worst_s: float = 0.5) -> dict:
    gaps = {"p50": gap_s, "p99": gap_s, "max": gap_s}
    return {"gap_s": gaps, "healthz_s": {"p50": usual_s, "max": worst_s}}


def test_bodies_are_as_large_as_their_names_say():
    assert [len(chat(kind)) // 10_000 for kind in KINDS] == [0, 4, 4]
    assert len(chat(KINDS[1])) == BODY_BYTES


def test_percentiles_are_nearest_ranks():
    assert [percentile(range(1, 101), share) for share in (0.5, 0.9, 0.99, 1.0)] == [50, 90, 99, 100]


def test_a_window_has_what_was_seen_in_it():
    seen = Seen([[0.0, 1.0, 1.5, 3.5, 9.0]], [(0.5, 0.1), (2.0, 0.3), (8.0, 7.0)])
    found = seen_in(seen, 0.5, 4.0)
    assert (found["gaps"], found["gap_s"]["max"]) == (2, 2.0)
    assert found["healthz_s"] == {"p50": 0.2, "max": 0.3}


@rows(
    ("one", "num_missed"),
    [(waits(0.13, 0.1), 0), (waits(0.15, 0.1), 2), (waits(0.1, 0.1, 0.7), 0), (waits(0.1, 0.1, 0.8), 1)],
)
def test_bars_of_bodies(one, num_missed):
    assert len(misses_of_bodies({"small": [waits(0.1, 0.1)], "large": [one]})) == num_missed


@rows(
    ("busy", "num_missed"),
    [(window(0.0129), 0), (window(0.0131), 1), (window(0.01, 0.021), 1), (window(0.01, 0.01, 1.1), 1)],
)
def test_bars_of_stalls(busy, num_missed):
    assert len(misses_of_stalls([{"quiet": window(0.01), "busy": busy}])) == num_missed


def test_the_table_has_a_line_for_each_kind_and_window():
    windows = {name: window(0.01) for name in ("quiet", "hog", "busy")}
    found = {"bodies": {"small": [waits(0.1, 0.1)]}, "stalls": [windows]}
    *lines, ratio = table({"now": found}).splitlines()
    found_lines = [line.split()[1] for line in lines if line.startswith("now: ")]
    assert found_lines == ["small", "quiet", "hog", "busy"]
    assert ratio == "now: median gap 1.00 times the quiet one"
