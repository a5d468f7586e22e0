from intent.followups.fragments import answered, number_said, option_said
from intent.models import Question
from tests.intent.followups.shared import CATALOGUE
from tests.rows import rows

METRICS = ("keep TTFT under 2 s", "keep TPOT under 2 s", "keep E2E under 2 s")


@rows(
    ("text", "number"),
    [
        ("2", 2), ("option 2", 2), ("#1", 1), ("the 2nd one", 2), ("2)", 2), ("first", 1), ("the last one", 3), ("第二个", 2),
        ("选三", 3), ("选择第1项", 1), ("9", 9), ("2 s", None), ("12", None), ("0", None), ("", None), ("p99", None),
    ],
)  # fmt: skip
def test_a_number_is_one_alone_or_an_ordinal(text, number):
    assert number_said(text, 3) == number


@rows(
    ("text", "options", "place"),
    [
        ("TTFT", METRICS, 0),
        ("首字延迟", METRICS, 0),
        ("keep tpot under 2 s!", METRICS, 1),
        ("2 s", METRICS, None),
        ("wibble", METRICS, None),
        ("", METRICS, None),
        ("TTFT TPOT", METRICS, None),
        ("ms", ("TTFT < 2 s", "TTFT < 2 ms"), 1),
        ("milliseconds", ("TTFT < 2 s", "TTFT < 2 ms"), 1),
        ("at peak", ("TTFT < 2 s at peak", "TTFT < 2 s overnight"), 0),
        ("夜间", ("TTFT < 2 s at peak", "TTFT < 2 s overnight"), 1),
        ("leave it", ("TTFT < 2 s", "leave everything as it is"), 1),
        ("保持现状", ("TTFT < 2 s", "保持现状"), 1),
    ],
)
def test_an_option_is_picked_by_what_only_it_says(text, options, place):
    assert option_said(text, options, CATALOGUE) == place


SHORT = Question(
    "Which latency?",
    ("TTFT", "TPOT", "leave everything as it is"),
    "TPOT",
    ("keep TTFT under 2 s overnight", "keep TPOT under 2 s at peak", "leave everything as it is"),
)


@rows("text", ["yes", "Yes!", "ok.", " sure ", "right", "是的", "好的。", "行"])
def test_yes_is_the_default(text):
    assert answered(text, SHORT, CATALOGUE) == 1


@rows(
    ("text", "place"),
    [
        ("TTFT", 0),
        ("tpot!", 1),
        ("leave it", 2),
        ("首字延迟", 0),
        ("overnight", 0),
        ("夜间", 0),
        ("at peak", 1),
        ("keep TPOT under 2 s at peak", 1),
        ("under 2 s", None),
        ("yes, at noon", None),
        ("wibble", None),
        ("", None),
    ],
)
def test_an_answer_is_an_option_or_what_sets_its_text_apart(text, place):
    assert answered(text, SHORT, CATALOGUE) == place


def test_options_without_texts_are_their_own_texts():
    plain = Question("Which latency?", METRICS, METRICS[2])
    assert answered("yes", plain, CATALOGUE) == 2
    assert answered("TPOT", plain, CATALOGUE) == 1
    assert answered("overnight", plain, CATALOGUE) is None
    assert [plain.stands_for(n) for n in range(3)] == list(METRICS)
    assert [SHORT.stands_for(n) for n in range(3)] == list(SHORT.texts)
