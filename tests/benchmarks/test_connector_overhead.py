import json
import subprocess
import sys

import pytest

from benchmarks.connector_overhead import lines, summary


def test_the_overhead_is_the_median_over_neighbouring_runs():
    found = summary([100.0, 200.0, 50.0], [98.0, 180.0, 50.0])
    assert found["overheads"] == [0.02, 0.1, 0.0]
    assert found["overhead"] == 0.02
    assert (found["tokens_per_s_without"], found["tokens_per_s_with"]) == (100.0, 98.0)
    assert lines(found)[-1].endswith("2.0%, from 0.0% to 10.0% per pair of runs")


@pytest.mark.slow
@pytest.mark.vllm
def test_both_sides_are_measured_by_turns(tmp_path):
    pytest.importorskip("vllm")
    file = tmp_path / "overhead.json"
    sizes = ["--runs", "2", "--streams", "2", "--context", "40", "--output", "20"]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.connector_overhead", *sizes, "--json", file],
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    document = json.loads(file.read_text())
    assert len(document["runs_without"]) == len(document["runs_with"]) == 2
    assert min(document["runs_without"] + document["runs_with"]) > 0


@pytest.mark.slow
@pytest.mark.vllm
def test_a_connector_that_is_none_ends_the_benchmark_with_a_message(tmp_path):
    pytest.importorskip("vllm")
    command = [
        sys.executable,
        "-m",
        "benchmarks.connector_overhead",
        "--connector",
        "json:NoSuch",
        "--runs",
        "1",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=200)
    assert done.returncode == 1
    assert "error: the engine with connector ended" in done.stderr
