"""Sentences for people."""

from intent.models import Config, Objective, Placement
from runtime.models import uniform
from runtime.notation import parse_topology
from selector import explain
from selector.models import Candidate, Margin, Prediction
from selector.pipelines.optimum import Proof, Threshold
from tests.rows import rows


@rows(
    ("value", "unit", "words"),
    [
        (2.0, "s", "2 s"),
        (4.123, "s", "4.12 s"),
        (0.35, "s", "350 ms"),
        (0.00012, "s", "0.12 ms"),
        (0.4, "ratio", "40 %"),
        (18.1, "ratio", "1,810 %"),
        (3.0, "gpus", "3"),
        (2.0, "", "2"),
        (12345.6, "tokens/s", "12,346 tokens/s"),
        (4.4, "USD/h", "4.4 USD/h"),
        (float("inf"), "USD/Mtok", "without end"),
    ],
)
def test_amounts_have_three_digits_and_their_unit(value, unit, words):
    assert explain.amount(value, unit) == words


@rows(
    ("goal", "words"),
    [
        (Objective("ttft", "<=", "x", stat="p99", value=2.0, unit="s"), "p99 TTFT <= 2 s"),
        (Objective("gpu_util", ">=", "x", value=0.4, unit="ratio"), "GPU utilisation >= 40 %"),
        (Objective("tpot", "minimize", "x", stat="mean"), "minimize mean TPOT"),
        (Config("tp", "==", 2, "x"), "tp == 2"),
        (Config("pp", "minimize", 0, "x"), "minimize pp"),
        (Placement("forbid", "node:a", "not on node a"), "'not on node a'"),
    ],
)
def test_goals_read_as_they_were_meant(goal, words):
    assert explain.goal_words(goal) == words


def test_topologies_are_named_by_kind_shape_and_precision(mixed, llama):
    assert explain.topology_words(uniform(mixed, "A100", 2, 2, 80, "bf16")) == "A100 TP2xPP2@bf16"
    two_kinds = parse_topology("A100x4:0-52@bf16 > L40Sx4:52-80@fp8", mixed, llama.num_layers, "bf16")
    assert explain.topology_words(two_kinds) == "A100+L40S TP4xPP2@bf16+fp8"


def test_a_summary_says_what_is_predicted_and_how_sure_that_is(mixed):
    prediction = Prediction(
        {"mean": 0.156}, {"mean": 0.0501}, {"mean": 1.0}, 638.2, 0.5, 8.8, 32, 0.0, 0.11, "calibrated", 4
    )
    candidate = Candidate(uniform(mixed, "A100", 4, 1, 80, "bf16"), prediction, "")
    assert explain.summary(candidate) == (
        "A100 TP4@bf16 on 4 devices: mean TTFT 156 ms, TPOT 50.1 ms, up to 638 tokens/s (± 11%, calibrated)"
    )


@rows(
    ("bound", "words"),
    [
        (Threshold("devices", 4.0), "on fewer than 4 devices"),
        (Threshold("usd_per_hour", 8.8), "for less than 8.8 USD/h"),
    ],
)
def test_a_certificate_says_what_is_out_of_reach(bound, words):
    room = "nothing can hold these goals: they leave room for"
    assert explain.proof(Proof(bound, 77), 80) == f"{words} {room} at most 77 of 80 layers"


@rows(
    ("margin", "words"),
    [
        (Margin("p99 TTFT <= 2 s", 4.1, 2.0, "s", -1.05), "misses p99 TTFT <= 2 s: 4.1 s predicted"),
        (Margin("tp == 2", 1.0, 2.0, "", -0.5), "misses tp == 2: it has 1"),
    ],
)
def test_a_miss_is_said_with_what_there_is_instead(margin, words):
    assert explain.misses(margin) == words


@rows(("words", "sentence"), [([], ""), (["a"], "a"), (["a", "b"], "a and b"), (["a", "b", "c"], "a, b and c")])
def test_lists_read_like_sentences(words, sentence):
    assert explain.listed(words) == sentence
