import pytest

from benchmarks.connector_overhead import lines, main, summary


def test_the_overhead_is_the_median_over_neighbouring_runs():
    found = summary([100.0, 200.0, 50.0], [98.0, 180.0, 50.0])
    assert found["overheads"] == [0.02, 0.1, 0.0]
    assert found["overhead"] == 0.02
    assert (found["tokens_per_s_without"], found["tokens_per_s_with"]) == (100.0, 98.0)
    assert lines(found)[-1].endswith("2.0%, from 0.0% to 10.0% per pair of runs")


@pytest.mark.vllm
def test_both_sides_are_measured_by_turns(measured):
    pytest.importorskip("vllm")
    sizes = ["--runs", "2", "--streams", "2", "--context", "40", "--output", "20"]
    document, _ = measured("connector_overhead", *sizes)
    assert len(document["runs_without"]) == len(document["runs_with"]) == 2
    assert min(document["runs_without"] + document["runs_with"]) > 0


@pytest.mark.vllm
def test_a_connector_that_is_none_ends_the_benchmark_with_a_message(capfd):
    pytest.importorskip("vllm")
    assert main(["--connector", "json:NoSuch", "--runs", "1"]) == 1
    assert "error: the engine with connector ended" in capfd.readouterr().err
