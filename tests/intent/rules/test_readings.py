import pytest

from intent.rules.clauses import clauses
from intent.rules.phrasing import tokenize
from intent.rules.readings import bind, extent, united


def bound(text, catalogue):
    readings, leftovers, previous = [], [], ()
    for clause in clauses(tokenize(text, catalogue)):
        result = bind(clause, previous, text)
        previous = result.readings
        readings += result.readings
        leftovers += [text[token.start : token.end] for token in result.leftovers]
    return readings, leftovers


def slots(reading):
    tokens = (reading.head, reading.stat, reading.comparison, reading.quantity, reading.window)
    return tuple(
        token and (token.value.value if token is reading.quantity else token.value) for token in tokens
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("P99 TTFT < 2s at peak", [("ttft", "p99", "<=", 2, "peak")]),
        ("under 2s P99 TTFT", [("ttft", "p99", "<=", 2, None)]),
        ("2s > P99 TTFT", [("ttft", "p99", "<=", 2, None)]),
        ("2s ≥ TTFT", [("ttft", None, "<=", 2, None)]),
        ("500 tok/s < throughput", [("throughput", None, ">=", 500, None)]),
        ("2s over TTFT", [("ttft", None, ">=", 2, None)]),
        ("TTFT at most 2s or less", [("ttft", None, "<=", 2, None)]),
        ("不超过 2 秒以内首字", [("ttft", None, "<=", 2, None)]),
        ("TTFT and TPOT p99 under 2s", [("ttft", "p99", "<=", 2, None), ("tpot", "p99", "<=", 2, None)]),
        ("P50 TTFT and P99 TPOT under 2s", [("ttft", "p50", "<=", 2, None), ("tpot", "p99", "<=", 2, None)]),
        ("P50 and P99 TTFT under 2s", [("ttft", "p50", "<=", 2, None), ("ttft", "p99", "<=", 2, None)]),
        ("GPU util 60-80%", [("gpu_util", None, ">=", 0.6, None), ("gpu_util", None, "<=", 0.8, None)]),
        ("at least 500 tok/s", [("throughput_tok", None, ">=", 500, None)]),
        ("under $4/h", [("cost", None, "<=", 4, None)]),
        ("4-way tensor parallel", [("tp", None, None, 4, None)]),
        ("the vibes under 2s", [("vibes", None, "<=", 2, None)]),
        ("minimise TTFT below 2s", [("ttft", None, "minimize", None, None), ("ttft", None, "<=", 2, None)]),
        (
            "minimise cost and TTFT",
            [("cost", None, "minimize", None, None), ("ttft", None, "minimize", None, None)],
        ),
        ("lower TTFT from 3s to 2s", [("ttft", None, None, 2, None)]),
    ],
)
def test_every_word_finds_its_slot(text, expected, catalogue):
    readings, leftovers = bound(text, catalogue)
    assert [slots(reading) for reading in readings] == expected
    assert leftovers == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("P99 TTFT < 2s at peak and 5s overnight", ("ttft", "p99", "<=", 5, "overnight")),
        ("p50 TTFT < 1s and p99 < 2s", ("ttft", "p99", "<=", 2, None)),
        ("minimise cost at peak and TTFT overnight", ("ttft", None, "minimize", None, "overnight")),
        ("p50 TTFT < 1s at peak, p99 2s", ("ttft", "p99", "<=", 2, "peak")),
        ("高峰期首字延迟不超过 2 秒，夜间不超过 5 秒", ("ttft", None, "<=", 5, "overnight")),
        ("GPU util 60-80% at peak and overnight", ("gpu_util", None, "<=", 0.8, "overnight")),
        (
            "throughput > 500 tok/s at peak, overnight at most 200 tok/s",
            ("throughput_tok", None, "<=", 200, "overnight"),
        ),
    ],
)
def test_what_an_ellipsis_leaves_out_comes_from_the_goal_before(text, expected, catalogue):
    readings, leftovers = bound(text, catalogue)
    assert slots(readings[-1]) == expected
    assert leftovers == []


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("acme TTFT < 2s at peak; free 4s", [("peak", "acme", None), ("peak", "free", None)]),
        ("TTFT < 2s for acme and free", [(None, "acme", None), (None, "free", None)]),
        (
            "TTFT < 2s for counting at peak, 5s overnight",
            [("peak", None, "counting"), ("overnight", None, "counting")],
        ),
        (
            "acme and free: TTFT < 2s at peak and overnight",
            [
                ("peak", "acme", None),
                ("peak", "free", None),
                ("overnight", "acme", None),
                ("overnight", "free", None),
            ],
        ),
    ],
)
def test_a_reading_holds_for_one_window_tenant_and_model(text, names, catalogue):
    readings, _ = bound(text, catalogue)
    found = [(reading.window, reading.tenant, reading.model) for reading in readings]
    assert [tuple(token and token.value for token in one) for one in found] == names


@pytest.mark.parametrize(
    ("text", "leftover"),
    [
        ("don't minimise cost", ["don't"]),
        ("tp=2 or tp=4", ["or"]),
        ("TTFT < 2s unless cost < $4/h", ["unless"]),
        ("about 2s TTFT", ["about"]),
        ("TTFT < 2s per GPU", ["per GPU"]),
        ("p50 p99 TTFT TPOT E2E < 2s", ["p99"]),
    ],
)
def test_what_finds_no_slot_is_left_over(text, leftover, catalogue):
    assert bound(text, catalogue)[1] == leftover


@pytest.mark.parametrize(
    "text", ["TTFT < 2s • 🙂", "* TTFT < 2s", "TTFT < 2s for us", "then TTFT < 2s", "TTFT < 2s … @"]
)
def test_marks_pictures_and_adverbs_are_idle(text, catalogue):
    assert bound(text, catalogue)[1] == []


@pytest.mark.parametrize(
    ("text", "soft"),
    [
        ("ideally TTFT < 2s", True),
        ("TTFT < 2s", False),
        ("TTFT < 2s if possible", True),
        ("尽量 TTFT < 2s", True),
    ],
)
def test_a_soft_word_makes_a_soft_reading(text, soft, catalogue):
    assert bound(text, catalogue)[0][0].soft is soft


@pytest.mark.parametrize(
    ("text", "direction"),
    [
        ("cut TTFT to 2s", "<="),
        ("raise throughput to 500 tok/s", ">="),
        ("首字延迟压到 2 秒", "<="),
        ("吞吐做到 500 tok/s", ">="),
        ("set TTFT to 2s", None),
        ("TTFT 2s", None),
    ],
)
def test_a_verb_that_goes_somewhere_says_a_side(text, direction, catalogue):
    assert bound(text, catalogue)[0][0].direction == direction


@pytest.mark.parametrize(
    ("text", "value", "unit"),
    [
        ("QPS at least 50", 50, "requests/s"),
        ("每秒至少 1000 个 token", 1000, "tokens/s"),
        ("every minute at least 600 requests", 10, "requests/s"),
        ("token throughput of 6000 every minute", 100, "tokens/s"),
        ("每小时成本不超过 40 美元", 40, "USD/h"),
        ("daily cost under 40", 40, "USD/day"),
        ("每用户至少 20 tokens/s", 20, "tokens/s/user"),
        ("每天 TTFT 2", 2, None),
        ("daily 40 things", 40, None),
    ],
)
def test_a_unit_that_stands_apart_from_its_number_is_joined_to_it(text, value, unit, catalogue):
    (clause,) = clauses(tokenize(text, catalogue))
    quantity = next(token for token in united(clause).tokens if token.kind == "quantity").value
    assert (quantity.value, quantity.unit) == (value, unit)


def test_two_numbers_have_each_their_own_unit(catalogue):
    (clause,) = clauses(tokenize("reconfigure 2 times every 4 hours", catalogue))
    assert united(clause) is clause


def test_a_window_behind_a_list_of_tenants_holds_for_each(catalogue):
    readings, _ = bound("TTFT < 2s for acme and free at peak", catalogue)
    assert [reading.window and reading.window.value for reading in readings] == ["peak", "peak"]


def test_the_comparison_behind_the_number_closes_the_phrase(catalogue):
    (reading,), _ = bound("exactly 2s or less TTFT", catalogue)
    assert reading.comparison.value == "<="


def test_evidence_leaves_out_what_was_left_over(catalogue):
    text = "keep P99 TTFT < 2s at peak per GPU"
    (reading,), _ = bound(text, catalogue)
    assert text[reading.start : reading.end] == "P99 TTFT < 2s at peak"


def test_the_extent_of_words_is_from_the_first_to_the_last(catalogue):
    tokens = tokenize("keep P99 TTFT < 2s", catalogue)
    assert extent(tokens[:0:-1]) == (5, 18)


@pytest.mark.parametrize(
    "text",
    [
        "设备越少越好",
        "as few devices as possible",
        "run it with as few GPUs as possible",
        "with the fewest GPUs",
    ],
)
def test_few_devices_are_wished_for_in_many_words(text, goals):
    assert goals(text) == ["gpu_count minimize"]
