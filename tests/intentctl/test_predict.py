"""``intentctl predict`` and ``intentctl simulate`` as a person types them."""

import json

import pytest

from tests.rows import rows

PREDICT = (
    "predict",
    "--topology",
    "A100x4@fp16",
    "--model",
    "llama-2-70b",
    "--input",
    "128",
    "--output",
    "128",
)
TRACE = "arrival_s,input_tokens,output_tokens\n" + "".join(f"{n * 0.5},200,50\n" for n in range(40))


def predicted(run, *arguments):
    code, out, err = run(*arguments, "-o", "json")
    assert code == 0, err
    return json.loads(out)


@rows(
    ("load", "names"),
    [
        (("--batch", "8"), {"mean"}),
        (("--concurrency", "32"), {"mean", "p50", "p90", "p95", "p99"}),
        (("--rate", "2"), {"mean", "p50", "p90", "p95", "p99"}),
    ],
)
def test_a_prediction_has_every_sli_and_its_source(run, load, names):
    found = predicted(run, *PREDICT, *load)
    for key in ("ttft_s", "tpot_s", "e2e_s"):
        assert found[key].keys() == names
        assert all(value > 0 for value in found[key].values())
    assert found["throughput_tok_s"] > 0
    assert (found["source"], found["saturated"], found["fits"]) == ("calibrated", False, True)


def test_beyond_saturation_it_still_answers_and_what_does_not_fit_is_said(run):
    found = predicted(run, *PREDICT, "--rate", "10000")
    assert (found["ttft_s"], found["e2e_s"], found["saturated"]) == (None, None, True)
    assert found["throughput_tok_s"] == pytest.approx(2500, rel=0.2)
    big = ("predict", "--topology", "A100x1", "--model", "llama-2-70b", "--input", "1000", "--output", "100")
    assert predicted(run, *big, "--batch", "4")["fits"] is False
    code, out, _ = run(*big, "--batch", "4")
    assert code == 0
    assert "does not fit" in out
    loaded = predicted(run, *big, "--rate", "1")
    assert (loaded["throughput_tok_s"], loaded["tpot_s"], loaded["saturated"]) == (0.0, None, True)


def test_a_mixed_pipeline_is_slower_than_one_stage_of_the_faster_kind(run):
    mixed = ("--topology", "A100x2:0-50@bf16 > L40S[4,5]:50-80@fp8")
    rest = ("--model", "llama-3-70b", "--input", "1000", "--output", "100", "--batch", "1")
    slow, fast = (predicted(run, "predict", *topology, *rest) for topology in (mixed, ("--topology", "A100x4")))
    assert slow["tpot_s"]["mean"] > fast["tpot_s"]["mean"]
    assert slow["topology"] == "A100[0,1]:0-50@bf16 > L40S[4,5]:50-80@fp8"


def test_a_model_can_be_a_config_file(run, tmp_path):
    config = {
        "architectures": ["LlamaForCausalLM"], "num_hidden_layers": 32, "hidden_size": 4096, "intermediate_size": 11008,
        "num_attention_heads": 32, "vocab_size": 32000, "max_position_embeddings": 4096,
    }  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    load = ("--input", "128", "--output", "128", "--batch", "1", "--topology", "A100x1@fp16")
    named = predicted(run, "predict", "--model", "llama-2-7b", *load)
    for given in (tmp_path, tmp_path / "config.json"):
        assert predicted(run, "predict", "--model", given, *load)["tpot_s"] == named["tpot_s"]


@rows(
    ("changes", "code", "reason"),
    [
        ({"--topology": "T4x4"}, 1, "no profile for 'T4'"),
        ({"--topology": "A100x3"}, 1, "TP 3 does not divide"),
        ({"--topology": ",,"}, 1, "cannot read topology"),
        ({"--topology": "A100x2 > A100x2"}, 1, "does not say its layers"),
        ({"--topology": "A100x2:0-40"}, 1, "80"),
        ({"--topology": "A100x0"}, 1, "A100x0"),
        ({"--model": "nope"}, 1, "no shape for 'nope'; known are"),
        ({"--model": "/nowhere/config.json"}, 1, "cannot be read"),
        ({"--input": "0"}, 2, "--input"),
        ({"--input": "9999999999"}, 1, "requests of 1 to"),
        ({"--batch": None}, 2, "one of --batch, --rate and --concurrency"),
        ({"--rate": "2"}, 2, "one of --batch, --rate and --concurrency"),
        ({"--batch": None, "--rate": "0"}, 1, "a rate of 0 requests/s is no load"),
        ({"--batch": None, "--rate": "nan"}, 1, "is no load"),
        ({"--batch": "-1"}, 2, "--batch"),
    ],
)
def test_bad_input_is_named_and_gives_no_traceback(run, changes, code, reason):
    usual = dict(zip(PREDICT[1::2], PREDICT[2::2], strict=True)) | {"--batch": "1"}
    arguments = [word for key, value in (usual | changes).items() if value is not None for word in (key, value)]
    found, _, err = run("predict", *arguments)
    assert found == code
    assert reason in " ".join(err.split())


def test_a_trace_is_replayed(run, tmp_path):
    file = tmp_path / "trace.csv"
    file.write_text(TRACE + "x,1,1\n1,999999,5\n", encoding="utf-8")
    found = predicted(run, "simulate", "--trace", file, "--topology", "A100x1", "--model", "llama-3-8b")
    assert (found["requests"], found["bad_rows"], found["too_long"]) == (41, 1, 1)
    assert found["ttft_s"]["p50"] < 0.1
    assert found["first_bad_rows"][0].startswith("line 42:")
    code, out, _ = run("simulate", "--trace", file, "--topology", "A100x1", "--model", "llama-3-8b")
    assert code == 0
    assert "1 left out" in out
    assert "would never fit" in out


@rows(
    ("text", "reason"),
    [
        (None, "cannot be read"),
        ("", "no trace"),
        ("arrival_s,input_tokens,output_tokens\n1,999999,5\n", "not one of its 1"),
    ],
)
def test_a_trace_that_is_none_is_refused(run, tmp_path, text, reason):
    file = tmp_path / "trace.csv"
    if text is not None:
        file.write_text(text, encoding="utf-8")
    code, _, err = run("simulate", "--trace", file, "--topology", "A100x1", "--model", "llama-3-8b")
    assert code == 1
    assert reason in " ".join(err.split())
