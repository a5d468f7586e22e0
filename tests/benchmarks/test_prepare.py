import subprocess
import sys

import pytest

from benchmarks import prepare
from benchmarks.load import Recording
from benchmarks.prepare import ROOT, Side, by_turns, checkout, spread, summary, table
from benchmarks.prepare_side import gaps_ms

ECHO = """
import json, sys
print("{}", flush=True)
for line in sys.stdin:
    print(json.dumps({"prepare_s": float(len(line.strip())), "gaps_ms": {"before": [1.0]}}), flush=True)
"""


def side(name: str, script: str = ECHO) -> Side:
    command = [sys.executable, "-c", script]
    return Side(name, subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT))


def run(number: int, name: str, prepare_s: float, *gaps: float) -> dict[str, object]:
    found = {"before": spread([2.0]), "meanwhile": spread(gaps)}
    return {"round": number, "side": name, "target": "tp2", "prepare_s": prepare_s, "gaps_ms": found}


def test_gaps_are_those_of_one_stream_in_the_span():
    one, other = Recording((1,), 9), Recording((1,), 9)
    one.arrivals_s, other.arrivals_s = [0.9, 1.0, 1.01, 1.03, 3.0], [1.5, 1.6]
    assert gaps_ms([one, other], (1.0, 2.0)) == [10.0, 20.0, 100.0]
    assert spread([]) == {"count": 0}
    assert spread([3.0, 1.0, 2.0]) == {"count": 3, "median": 2.0, "p99": 3.0, "worst": 3.0}


def test_a_row_has_medians_over_rounds_and_is_a_line_of_the_table():
    runs = [
        run(0, "before", 40.0, 5.0, 30.0),
        run(0, "spare", 10.0, 4.0, 9.0),
        run(1, "before", 80.0, 5.0),
        run(1, "spare", 12.0, 6.0),
        run(2, "before", 10.0, 5.0),
        run(2, "spare", 10.0),
    ]
    older, newer = summary(runs)
    assert (older["prepare_s"], older["of_before"], older["meanwhile_worst_ms"]) == (40.0, 1.0, 30.0)
    assert (newer["prepare_s"], newer["of_before"], newer["meanwhile_worst_ms"]) == (10.0, 0.25, 9.0)
    assert newer["meanwhile_median_ms"] == 6.25
    assert "importing_worst_ms" not in newer
    assert summary([run(0, "spare", 1.0)])[0]["of_before"] is None
    lines = table(summary([run(0, "spare", 1.0, 4.0)]))
    assert lines[1].split() == ["tp2", "spare", "1.00", "-", "2.00", "4.00", "4.00", "-", "-"]
    assert len(lines[0]) == len(lines[1])


def test_sides_take_turns_and_the_order_turns_too():
    sides = [side("a"), side("b")]
    found = list(by_turns(sides, ["tp2", "1x1pp2"], 2))
    for one in sides:
        one.process.communicate()
    assert [(each["round"], each["target"], each["side"]) for each in found] == [
        (0, "tp2", "a"), (0, "tp2", "b"), (0, "1x1pp2", "a"), (0, "1x1pp2", "b"),
        (1, "tp2", "b"), (1, "tp2", "a"), (1, "1x1pp2", "b"), (1, "1x1pp2", "a"),
    ]  # fmt: skip
    assert found[0]["prepare_s"] == 3.0
    assert found[0]["gaps_ms"]["before"]["median"] == 1.0


def test_a_side_that_ends_is_told_by_name():
    ended = side("older", "pass")
    with pytest.raises(prepare.SideEndedError, match="older ended"):
        ended.hear()
    ended.process.communicate()


def test_an_older_commit_gets_this_benchmarks_side():
    with checkout("HEAD") as folder:
        assert (folder / "runtime" / "engine.py").is_file()
        assert (folder / "benchmarks" / "prepare_side.py").is_file()
    assert not folder.exists()
