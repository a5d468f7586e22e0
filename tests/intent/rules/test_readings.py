from intent.rules.clauses import clauses
from intent.rules.phrasing import tokenize
from intent.rules.readings import bind, extent, united
from tests.intent.tables import table
from tests.rows import rows


def bound(text, catalogue):
    readings, leftovers, previous = [], [], ()
    for clause in clauses(tokenize(text, catalogue)):
        result = bind(clause, previous, text)
        previous = result.readings
        readings += result.readings
        leftovers += [text[token.start : token.end] for token in result.leftovers]
    return readings, leftovers


def told(reading):
    """Metric, statistic, comparison, number and window."""
    tokens = (reading.head, reading.stat, reading.comparison, reading.quantity, reading.window)
    values = (token and (token.value.value if token is reading.quantity else token.value) for token in tokens)
    return " ".join("-" if value is None else str(value).removesuffix(".0") for value in values)


@rows(("text", "expected"), table("readings.txt"))
def test_every_word_finds_its_slot_and_an_ellipsis_takes_from_the_goal_before(text, expected, catalogue):
    readings, leftovers = bound(text, catalogue)
    assert " | ".join(map(told, readings)) == expected
    assert leftovers == []


@rows(
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


@rows(
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


@rows("text", ["TTFT < 2s • 🙂", "* TTFT < 2s", "TTFT < 2s for us", "then TTFT < 2s", "TTFT < 2s … @"])
def test_marks_pictures_and_adverbs_are_idle(text, catalogue):
    assert bound(text, catalogue)[1] == []


@rows(
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


@rows(
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


@rows(
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
