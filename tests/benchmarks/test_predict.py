"""Predictions against published measurements: what the profiles promise, held."""

import json
import sys
from pathlib import Path

import pytest

from benchmarks import published
from benchmarks.predict import Compared, beside, config_of, main, ranks
from tests.rows import rows


def test_rows_have_sources_and_errors_are_relative_and_signed():
    found = published.rows()
    assert len(found) == len(set(found)) > 150
    assert all(row.source and any((row.ttft_ms, row.decode_ms, row.throughput_tok_s)) for row in found)
    assert all((row.batch is None) == (row.load == "saturated") for row in found)
    row = published.rows()[0]
    assert Compared(row, "ttft", 10.0, 8.0).error == pytest.approx(-0.2)
    assert ranks([Compared(row, "saturation", 1.0, 2.0), Compared(row, "saturation", 2.0, 1.0)]) == {row.gpu: -1.0}


@pytest.fixture
def few(tmp_path, monkeypatch):
    """The first two rows alone."""
    lines = published.ROWS.read_text(encoding="utf-8").splitlines(keepends=True)
    (tmp_path / "few.csv").write_text("".join(lines[:3]), encoding="utf-8")
    monkeypatch.setattr("benchmarks.predict.rows", lambda: published.rows(tmp_path / "few.csv"))


@pytest.mark.usefixtures("few")
def test_the_benchmark_prints_a_table_and_writes_everything(tmp_path, capsys):
    assert main(["--json", str(tmp_path / "out.json"), "--rows"]) == 0
    printed = capsys.readouterr().out
    assert "ms per answer" in printed
    assert "A100x1@fp16" in printed
    document = json.loads((tmp_path / "out.json").read_text(encoding="utf-8"))
    assert document["rows"] == 2
    assert {"commit", "hardware", "errors", "kendall_tau", "seconds_per_answer"} <= document.keys()


@pytest.mark.usefixtures("few")
def test_another_tool_is_asked_about_the_same_rows_in_its_own_environment(tmp_path, capsys, monkeypatch):
    asking = tmp_path / "ask.py"
    asking.write_text(
        "import json, sys\n"
        "rows = json.load(sys.stdin)\n"
        "assert rows[0]['config']['num_hidden_layers'] == 32\n"
        "print(json.dumps([{'ttft_ms': 2 * rows[0]['ttft_ms'], 'tpot_ms': rows[0]['decode_ms'], 'seconds': 0.5},\n"
        "                  {'error': 'no data', 'seconds': 0.1}]))\n",
        encoding="utf-8",
    )
    monkeypatch.setattr("benchmarks.predict.ASKING", asking)
    assert main(["--beside", sys.executable, "--json", str(tmp_path / "out.json")]) == 0
    assert "aiconfigurator: 300 ms per answer, 1 rows unanswered" in capsys.readouterr().out
    other = json.loads((tmp_path / "out.json").read_text(encoding="utf-8"))["aiconfigurator"]
    assert {one["figure"]: one["bias"] for one in other["errors"]} == {"ttft": 1.0, "tpot": 0.0}
    assert other["unanswered"] == ["no data"]


@rows("python", [sys.executable, "/nowhere/python"])
def test_an_environment_without_the_tool_is_named(python):
    with pytest.raises(SystemExit, match="could not ask aiconfigurator"):
        beside(Path(python))


def test_a_config_says_what_a_shape_has():
    assert config_of("llama-2-70b")["num_key_value_heads"] == 8
    assert config_of("mixtral-8x7b")["architectures"] == ["MixtralForCausalLM"]
