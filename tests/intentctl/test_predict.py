"""``intentctl predict`` and ``intentctl simulate`` as a person types them."""

import json

import pytest

from intentctl.predict import case
from runtime.capabilities import Batching, Limits
from selector.models import SearchInput, Workload
from selector.prediction import candidate
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


def predicted(run, *arguments, code=0):
    found, out, err = run(*arguments, "-o", "json")
    assert found == code, err
    return json.loads(out)


@rows(
    ("load", "names"),
    [
        (("--batch", "8"), {"mean"}),
        (("--concurrency", "32"), {"mean", "p50", "p90", "p95", "p99", "p99.9"}),
        (("--rate", "2"), {"mean", "p50", "p90", "p95", "p99", "p99.9"}),
    ],
)
def test_a_prediction_has_every_sli_and_its_source(run, load, names):
    found = predicted(run, *PREDICT, *load)
    for key in ("ttft_s", "tpot_s", "e2e_s"):
        assert found[key].keys() == names
        assert all(value > 0 for value in found[key].values())
    assert found["throughput_tok_s"] > 0
    assert (found["source"], found["saturated"], found["fits"]) == ("calibrated", False, True)


def test_beyond_saturation_it_still_answers(run):
    found = predicted(run, *PREDICT, "--rate", "10000")
    assert (found["ttft_s"], found["e2e_s"], found["saturated"], found["fits"]) == (None, None, True, True)
    assert found["throughput_tok_s"] == found["sustained_tok_s"] == pytest.approx(2500, rel=0.2)


def test_what_does_not_fit_is_said_and_is_no_success(run):
    big = ("predict", "--topology", "A100x1", "--model", "llama-2-70b", "--input", "1000", "--output", "100")
    for load in (("--batch", "4"), ("--rate", "1"), ("--concurrency", "2")):
        assert predicted(run, *big, *load, code=5)["fits"] is False
    loaded = predicted(run, *big, "--rate", "1", code=5)
    assert (loaded["throughput_tok_s"], loaded["tpot_s"], loaded["saturated"]) == (0.0, None, True)
    code, out, _ = run(*big, "--batch", "4")
    assert code == 5
    assert "does not fit" in out
    assert predicted(run, *PREDICT, "--rate", "1", "--kv-gb", "0.01", code=5)["fits"] is False


def test_a_rate_is_answered_by_the_estimator_of_plans(run):
    found = predicted(run, *PREDICT, "--rate", "2", "--max-sequences", "16", "--max-step-tokens", "512")
    bound = case("A100x4@fp16", "llama-2-70b", Batching(16, 512))
    problem = SearchInput(
        bound.cluster, bound.model, Workload(2.0, 128, 128, 1), None, Limits(max_sequences=16, max_step_tokens=512)
    )
    same = candidate(bound.topology, problem, bound.profiles).prediction
    assert (found["ttft_s"], found["tpot_s"], found["e2e_s"]) == (same.ttft_s, same.tpot_s, same.e2e_s)
    assert found["sustained_tok_s"] == same.throughput_tok_s


@rows(
    ("option", "metric"),
    [
        (("--input", "800:2400"), "ttft_s"),
        (("--burstiness", "3"), "ttft_s"),
        (("--max-sequences", "12"), "ttft_s"),
        (("--kv-gb", "1"), "ttft_s"),
    ],
)
def test_what_a_load_or_an_engine_is_like_counts_in_the_tail(run, option, metric):
    usual = dict(zip(PREDICT[1::2], PREDICT[2::2], strict=True)) | {"--input": "800:800", "--rate": "2"}
    other = usual | dict([option])
    calm, uneven = (
        predicted(run, "predict", *(word for pair in each.items() for word in pair)) for each in (usual, other)
    )
    assert uneven[metric]["p99"] > 1.05 * calm[metric]["p99"]


def test_cached_prefixes_and_lengths_that_are_all_alike_shorten_waits(run):
    rate = (*PREDICT[:5], "--output", "128", "--rate", "4", "--input")
    found = [
        predicted(run, *rate, *words)["ttft_s"]["p99"]
        for words in (("800",), ("800", "--prefix-hit", "0.8"), ("800:800",))
    ]
    assert found[0] > max(found[1:])


def test_it_shows_the_spread_that_it_took(run):
    _, out, _ = run(*PREDICT[:5], "--input", "800", "--output", "250:250", "--rate", "1")
    words = " ".join(out.split())
    assert "800 tokens in (P95 2184, public chat (Azure 2023)), 250 out (P95 250, --output)" in words


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
        ({"--input": "4000"}, 1, "4000 tokens in and 128 out: llama-2-70b holds 4096"),
        ({"--input": "9:8", "--batch": None, "--rate": "1"}, 2, "--input 9:8: a P95 is the mean or more"),
        (
            {"--output": "9:90", "--batch": None, "--rate": "1"},
            2,
            "--output 9:90: a P95 is the mean or more, and at most 3.87",
        ),
        ({"--output": "9:", "--batch": None, "--rate": "1"}, 2, "--output 9:: write tokens"),
        ({"--input": "800:900"}, 2, "requests of a static batch are all alike"),
        ({"--burstiness": "2"}, 2, "--burstiness is that of arrivals"),
        ({"--prefix-hit": "1", "--batch": None, "--rate": "1"}, 2, "--prefix-hit"),
        ({"--max-step-tokens": "1"}, 2, "--max-step-tokens"),
        ({"--batch": None}, 2, "one of --batch, --rate and --concurrency"),
        ({"--rate": "2"}, 2, "one of --batch, --rate and --concurrency"),
        ({"--batch": None, "--rate": "0"}, 1, "a rate of 0 requests/s is no load"),
        ({"--batch": None, "--rate": "nan"}, 2, "less than or equal to 1000000"),
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


def test_prefixes_that_a_trace_repeats_are_cached_in_its_replay(run, tmp_path):
    file = tmp_path / "trace.jsonl"
    request = {"input_length": 5120, "output_length": 50, "hash_ids": list(range(10))}
    file.write_text("\n".join(json.dumps({"timestamp": n * 500, **request}) for n in range(40)), encoding="utf-8")
    where = ("simulate", "--trace", file, "--topology", "A100x1", "--model", "llama-3-8b")
    cached = predicted(run, *where)
    anew = predicted(run, *where, "--prefix-hit", "0")
    assert (round(cached["prefix_hit"], 2), anew["prefix_hit"]) == (0.97, 0)
    assert cached["ttft_s"]["mean"] < anew["ttft_s"]["mean"] / 2
    slow = predicted(run, *where, "--prefix-hit", "0", "--max-step-tokens", "64")
    assert slow["ttft_s"]["mean"] > anew["ttft_s"]["mean"]


def test_requests_over_the_context_are_counted_and_not_served(run, tmp_path):
    file = tmp_path / "trace.csv"
    file.write_text("arrival_s,input_tokens,output_tokens\n0,9000,10\n1,100,10\n", encoding="utf-8")
    found = predicted(run, "simulate", "--trace", file, "--topology", "A100x1", "--model", "llama-3-8b")
    assert (found["requests"], found["too_long"]) == (2, 1)
    assert found["ttft_s"]["p99"] < 1


@rows(
    "absurd",
    [
        ("--rate", "inf"),
        ("--rate", "1", "--burstiness", "1e300"),
        ("--rate", "1", "--kv-gb", "inf"),
        ("--rate", "1", "--max-sequences", "4000000000000000000000"),
        ("--concurrency", "100000"),
    ],
)
def test_what_nothing_has_is_refused(run, absurd):
    code, _, err = run(*PREDICT, *absurd)
    assert code == 2
    assert absurd[-2] in err


@rows(
    ("text", "code", "reason"),
    [
        (None, 1, "cannot be read"),
        ("", 1, "no trace"),
        ("arrival_s,input_tokens,output_tokens\n1,999999,5\n", 5, "holds 8192 tokens of a request, and each has more"),
        ("arrival_s,input_tokens,output_tokens\n1e300,100,5\n", 1, "arrival at 1e+300"),
    ],
)
def test_a_trace_that_is_none_is_refused(run, tmp_path, text, code, reason):
    file = tmp_path / "trace.csv"
    if text is not None:
        file.write_text(text, encoding="utf-8")
    found, _, err = run("simulate", "--trace", file, "--topology", "A100x1", "--model", "llama-3-8b")
    assert found == code
    assert reason in " ".join(err.split())
