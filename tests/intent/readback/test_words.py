from intent.models import METRIC_LABELS
from intent.readback import Words, name, plain
from tests.rows import rows


def test_english_labels_are_those_of_the_models():
    assert {metric: Words("en").metric(metric) for metric in METRIC_LABELS} == METRIC_LABELS


@rows(
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
@rows("language", ["en", "zh"])
def test_amounts_speak_the_operators_units(value, unit, evidence, amount, language):
    assert Words(language).amount(value, unit, evidence) == amount


@rows(
    ("value", "text"),
    [(2.0, "2"), (0.1 + 0.2, "0.3"), (-0.0, "0"), (1e-12, "0.000000000001"), (float("inf"), "Infinity")],
)
def test_numbers_have_no_exponent(value, text):
    assert plain(value) == text


@rows(
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


@rows(
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
