import ast
import re
import string
from pathlib import Path
from typing import get_args

import pytest

import validator
from intent.messages import templates
from intent.models import METRIC_LABELS, NAMED_WINDOWS, Objective
from validator.words import OPS, Words, name, plain

MESSAGES = templates("validator")
FOLDER = Path(validator.__file__).parent
COMPUTED = {
    "metric": set(METRIC_LABELS),
    "window": {*NAMED_WINDOWS, "other"},
    "side": {"latency", "throughput", "cost", "quality"},
    "place": {"gpu_type", "gpu", "node"},
    "unknown": {"tenant", "model", "window", "gpu_type", "gpu", "node"},
}
"""Keys that are put together of a kind and a name."""


def literals():
    """Every text that stands in the package's code."""
    for file in FOLDER.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value


def fields(template):
    return {field for _, field, _, _ in string.Formatter().parse(template) if field is not None}


@pytest.mark.parametrize("key", MESSAGES)
def test_a_message_says_the_same_facts_in_both_languages(key):
    assert set(MESSAGES[key]) == {"en", "zh"}
    assert fields(MESSAGES[key]["en"]) == fields(MESSAGES[key]["zh"])


def test_each_message_is_used_and_each_that_is_used_is_there():
    computed = {f"{kind}.{one}" for kind in ("metric", "window", "side", "place") for one in COMPUTED[kind]}
    computed |= {f"unknown_{one}" for one in COMPUTED["unknown"]}
    said = set(literals())
    assert computed <= set(MESSAGES)
    assert set(MESSAGES) - computed <= said
    assert set(OPS.values()) <= set(MESSAGES)


def test_english_labels_are_those_of_the_models():
    assert {metric: Words("en").metric(metric) for metric in METRIC_LABELS} == METRIC_LABELS


def test_chinese_messages_are_chinese():
    bare = {key: re.sub(r"{\w+}", "", texts["zh"]) for key, texts in MESSAGES.items()}
    assert [
        key
        for key, text in bare.items()
        if re.search("[a-z]", text) and not re.search("[\u4e00-\u9fff]", text)
    ] == []


@pytest.mark.parametrize(
    ("value", "unit", "evidence", "amount"),
    [
        (2.0, "s", "under 2 s", "2 s"),
        (2.0, "s", "2000 ms", "2000 ms"),
        (1.5, "s", "1,500 ms", "1500 ms"),
        (120.0, "s", "2 minutes", "2 min"),
        (0.5, "s", "半秒", "500 ms"),
        (5.0, "requests/s", "300 requests a minute", "300 requests/min"),
        (0.7, "ratio", "x", "70 %"),
        (0.07, "ratio", "x", "7 %"),
        (4.0, "gpus", "4 GPUs", "4"),
        (40.0, "USD/day", "$40/day", "40 USD/day"),
        (1e-20, "s", "x", "0.00000000000000001 ms"),
        (1e20, "tokens/s", "x", "100000000000000000000 tokens/s"),
    ],
)
@pytest.mark.parametrize("language", ["en", "zh"])
def test_amounts_speak_the_operators_units(value, unit, evidence, amount, language):
    assert Words(language).amount(value, unit, evidence) == amount


@pytest.mark.parametrize(
    ("value", "text"),
    [(2.0, "2"), (0.1 + 0.2, "0.3"), (-0.0, "0"), (1e-12, "0.000000000001"), (float("inf"), "Infinity")],
)
def test_numbers_have_no_exponent(value, text):
    assert plain(value) == text


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ("acme", "acme"),
        ("meta/llama-3.1", "meta/llama-3.1"),
        ("企业", "企业"),
        ("big corp", '"big corp"'),
        ('a"; b', '"a\\"; b"'),
    ],
)
def test_a_name_of_more_than_one_word_is_quoted(said, words):
    assert name(said) == words


@pytest.mark.parametrize(
    ("selector", "en", "zh"),
    [
        ("gpu_type:A100", "A100", "A100"),
        ("gpu:gpu-3", "gpu-3", "gpu-3"),
        ("node:a", "node a", "节点 a"),
        ("gpu:3", "GPU 3", "GPU 3"),
        ("gpu_type:gpu-3", "GPU type gpu-3", "GPU 型号 gpu-3"),
        ("gpu_type:A 100", 'GPU type "A 100"', 'GPU 型号 "A 100"'),
    ],
)
def test_places_are_called_as_people_call_them(selector, en, zh):
    assert (Words("en").place(selector), Words("zh").place(selector)) == (en, zh)


def test_a_finding_speaks_the_language_and_quotes_the_words():
    goal = Objective("ttft", "<=", "P99 < 0.1 ms", value=0.0001, unit="s")
    for language, phrase in (("en", "no hardware"), ("zh", "任何硬件")):
        found = Words(language).finding(
            "below_physical_floor", "/goals/0/value", goal, "at_least", floor="1 ms", least="1 ms"
        )
        assert phrase in found.message
        assert "P99 < 0.1 ms" in found.message
        assert found.evidence == "P99 < 0.1 ms"
        assert "1 ms" in found.suggestion


def test_both_languages_are_those_of_an_intent():
    assert set(get_args(Words.__annotations__["language"])) == {"en", "zh"}
