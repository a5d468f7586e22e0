"""What the clients of the intake benchmark saw becomes figures, and the bodies are as large as their names say."""

import json

import pytest

from benchmarks.intake import Seen, misses, row, table
from benchmarks.intake_sender import KINDS
from tests.rows import rows

SEEN = Seen([[0.0, 0.1, 0.3, 1.0, 1.1], [0.0, 0.2, 0.4, 0.9, 1.1]], [(0.1, 0.01), (0.8, 0.2), (2.0, 9.0)])
ANSWERS = [{"status": 413, "seconds": 0.2}, {"status": 413, "seconds": 0.6}]


def test_a_gap_counts_where_it_touches_a_window_and_a_row_has_the_worst_of_everything():
    assert SEEN.worst_gaps_s([(0.0, 0.25)]) == pytest.approx([0.2, 0.2])
    assert SEEN.worst_gaps_s([(0.5, 0.6)]) == pytest.approx([0.7, 0.5])
    assert SEEN.probes_within([(0.0, 1.0)]) == [0.01, 0.2]
    one = row(SEEN, [(0.0, 0.25)], [(0.5, 1.0)], ANSWERS)
    assert (one["statuses"], one["slowest_answer_s"]) == ([413], 0.6)
    assert one["healthz_s"] == {"without": 0.01, "with": 0.2}
    assert one["gap_ratio"] == pytest.approx(3.5)
    assert misses(one)
    assert not misses(one | {"gap_ratio": 1.9})
    assert "now: 4 MB" in table({"now": {"4 MB": one}})


@rows("kind", [kind for kind, (_, size) in KINDS.items() if 0 < size < 64_000_000])
def test_bodies_are_json_of_the_size_that_is_said(kind):
    make, size = KINDS[kind]
    body = make(size)
    assert json.loads(body)["model"] == "counting"
    assert abs(len(body) - size) <= 100
