"""Predictions against published measurements: what the profiles promise, held."""

import json
import sys
from pathlib import Path

import pytest

from benchmarks import published
from benchmarks.predict import Compared, beside, compare, config_of, errors, main, ranks
from benchmarks.published import rows
from selector.profiles import load


@pytest.fixture(scope="module")
def compared():
    return [figure for row in rows() for figure in compare(row)]


def worst(compared, gpu, figures, fitted):
    of = [one for one in errors(compared) if (one["gpu"], one["fitted"]) == (gpu, fitted)]
    return [one["mean_abs"] for one in of if one["figure"] in figures]


@pytest.mark.slow
@pytest.mark.parametrize(("gpu", "bar"), [("A100", 0.10), ("L40S", 0.15)])
def test_static_latencies_are_predicted_on_the_mean_within_the_bar(compared, gpu, bar):
    found = worst(compared, gpu, {"ttft", "tpot", "throughput"}, fitted=True)
    assert len(found) == 3
    assert max(found) <= bar


@pytest.mark.slow
@pytest.mark.parametrize("gpu", ["A100", "L40S"])
def test_no_static_latency_is_off_by_more_than_the_profile_says(compared, gpu):
    band = load(gpu).error_band
    static = [one for one in compared if one.row.gpu == gpu and one.figure in {"ttft", "tpot"}]
    assert len(static) > 30
    assert max(abs(one.error) for one in static) <= band


@pytest.mark.parametrize(
    ("gpu", "bar"), [("A100", 0.15), ("L40S", 0.15), ("A100-PCIE", 0.20), ("H100", 0.20), ("H200", 0.10)]
)
def test_saturation_of_models_that_nothing_was_fitted_to_is_predicted(compared, gpu, bar):
    (found,) = worst(compared, gpu, {"saturation"}, fitted=False)
    assert found <= bar


def test_configurations_come_in_the_order_in_which_they_were_measured(compared):
    assert ranks(compared).keys() == {"A100", "A100-PCIE", "H100", "H200", "L40S"}
    assert min(ranks(compared).values()) >= 0.85


def test_every_row_has_a_source_and_a_figure():
    found = rows()
    assert len(found) == len(set(found)) > 150
    assert all(row.source and any((row.ttft_ms, row.decode_ms, row.throughput_tok_s)) for row in found)
    assert all((row.batch is None) == (row.load == "saturated") for row in found)


def test_an_error_is_relative_and_signed():
    row = rows()[0]
    assert Compared(row, "ttft", 10.0, 8.0).error == pytest.approx(-0.2)
    assert ranks([Compared(row, "saturation", 1.0, 2.0), Compared(row, "saturation", 2.0, 1.0)]) == {
        row.gpu: -1.0
    }


def test_the_benchmark_prints_a_table_and_writes_everything(tmp_path, capsys, monkeypatch):
    few = tmp_path / "few.csv"
    few.write_text(
        "".join(published.ROWS.read_text(encoding="utf-8").splitlines(keepends=True)[:4]), encoding="utf-8"
    )
    monkeypatch.setattr("benchmarks.predict.rows", lambda: rows(few))
    assert main(["--json", str(tmp_path / "out.json"), "--rows"]) == 0
    printed = capsys.readouterr().out
    assert "ms per answer" in printed
    assert "A100x1@fp16" in printed
    document = json.loads((tmp_path / "out.json").read_text(encoding="utf-8"))
    assert document["rows"] == 3
    assert {"commit", "hardware", "errors", "kendall_tau", "seconds_per_answer"} <= document.keys()


def test_another_tool_is_asked_about_the_same_rows_in_its_own_environment(tmp_path, capsys, monkeypatch):
    few = tmp_path / "few.csv"
    few.write_text(
        "".join(published.ROWS.read_text(encoding="utf-8").splitlines(keepends=True)[:3]), encoding="utf-8"
    )
    asking = tmp_path / "ask.py"
    asking.write_text(
        "import json, sys\n"
        "rows = json.load(sys.stdin)\n"
        "assert rows[0]['config']['num_hidden_layers'] == 32\n"
        "print(json.dumps([{'ttft_ms': 2 * rows[0]['ttft_ms'], 'tpot_ms': rows[0]['decode_ms'], 'seconds': 0.5},\n"
        "                  {'error': 'no data', 'seconds': 0.1}]))\n",
        encoding="utf-8",
    )
    monkeypatch.setattr("benchmarks.predict.rows", lambda: rows(few))
    monkeypatch.setattr("benchmarks.predict.ASKING", asking)
    assert main(["--beside", sys.executable, "--json", str(tmp_path / "out.json")]) == 0
    assert "aiconfigurator: 300 ms per answer, 1 rows unanswered" in capsys.readouterr().out
    other = json.loads((tmp_path / "out.json").read_text(encoding="utf-8"))["aiconfigurator"]
    assert {one["figure"]: one["bias"] for one in other["errors"]} == {"ttft": 1.0, "tpot": 0.0}
    assert other["unanswered"] == ["no data"]


@pytest.mark.parametrize("python", [sys.executable, "/nowhere/python"])
def test_an_environment_without_the_tool_is_named(python):
    with pytest.raises(SystemExit, match="could not ask aiconfigurator"):
        beside(Path(python))


def test_a_config_says_what_a_shape_has():
    assert config_of("llama-2-70b")["num_key_value_heads"] == 8
    assert config_of("mixtral-8x7b")["architectures"] == ["MixtralForCausalLM"]
