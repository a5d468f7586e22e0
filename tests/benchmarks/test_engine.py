import importlib.util

import pytest

from benchmarks.checkpoints import LLAMA_150M, make_llama
from benchmarks.counting import prompt_tokens
from benchmarks.engine import main, parameters, parser, summary, table
from runtime.torch_engine.worker.checkpoint import Checkpoint


def test_the_ratio_is_the_median_of_the_rounds_with_a_line_per_checkpoint():
    found = summary([90.0, 200.0, 30.0], [100.0, 160.0, 20.0])
    assert found["ratios"] == [0.9, 1.25, 1.5]
    assert found["ratio"] == 1.25
    assert (found["torch_tokens_per_s"], found["vllm_tokens_per_s"]) == (90.0, 100.0)
    lines = table([{"checkpoint": "counting", **summary([1200.0, 800.0], [1000.0, 1000.0])}])
    assert len(lines) == 2
    assert lines[1].split() == ["counting", "1,000", "1,000", "1.00", "1.20", "0.80"]
    assert lines[0].index("ratio") + len("ratio") == lines[1].index("1.00") + len("1.00")


def test_what_was_asked_for_is_reported_and_without_vllm_it_says_so(monkeypatch, capsys):
    options = parser().parse_args(["--streams", "4", "--context", "100", "--rounds", "2", "-o", "json"])
    assert (options.checkpoint, options.format) == ("all", "json")
    asked = {"streams": 4, "context": 100, "output": 200, "rounds": 2, "temperature": 0.0}
    assert parameters(options) == {**asked, "topology": "1x1", "precision": "fp32", "threads": 1}
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert main([]) == 2
    assert "vLLM is not installed" in capsys.readouterr().err


def test_the_random_llama_is_one_that_the_engine_loads_and_has_150_million_parameters(tmp_path, subject):
    small = {"vocab_size": 128, "hidden_size": 96, "intermediate_size": 64, "num_hidden_layers": 2}
    make_llama(tmp_path, LLAMA_150M | small)
    assert Checkpoint(tmp_path).spec.num_layers == 2
    shape = LLAMA_150M
    attention = (
        shape["hidden_size"] * shape["head_dim"] * (2 * shape["num_attention_heads"] + 2 * shape["num_key_value_heads"])
    )
    layer = attention + 3 * shape["hidden_size"] * shape["intermediate_size"]
    total = shape["num_hidden_layers"] * layer + 2 * shape["vocab_size"] * shape["hidden_size"]
    assert 145e6 < total < 160e6
    assert len(prompt_tokens(subject.checkpoint, 0, 50)) == 50


@pytest.mark.vllm
def test_both_engines_are_measured_by_turns(measured):
    pytest.importorskip("vllm")
    sizes = ["--rounds", "2", "--streams", "2", "--context", "40", "--output", "20"]
    document, _ = measured("engine", "--checkpoint", "counting", *sizes)
    (found,) = document["results"]
    assert found["checkpoint"] == "counting"
    assert len(found["torch_runs"]) == len(found["vllm_runs"]) == 2
    assert min(found["torch_runs"] + found["vllm_runs"]) > 0
