import pytest

from intent.messages import say
from intent.rules import read

NOTHING = say("intent", "en", "nothing")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("no INT4", "forbid int4"),
        ("never use int4", "forbid int4"),
        ("not int4", "forbid int4"),
        ("no INT4 at peak", "forbid int4 peak"),
        ("don't use int4 for acme", "forbid int4 acme"),
        ("int4 is forbidden", "forbid int4"),
        ("int4 is off the table", "forbid int4"),
        ("use bf16", "require bf16"),
        ("only bf16", "require bf16"),
        ("serve acme in bf16", "require bf16 acme"),
        ("full precision off-peak", "require full off_peak"),
        ("don't quantise", "require full"),
        ("ban quantisation", "require full"),
        ("use fp8 on counting", "require fp8 counting"),
        ("int8 is fine", "allow int8"),
        ("allow int4 overnight", "allow int4 overnight"),
        ("we may use int8", "allow int8"),
        ("at least fp8", "min fp8"),
        ("minimum precision fp8", "min fp8"),
        ("nothing below fp8", "min fp8"),
        ("fp8 or better", "min fp8"),
        ("禁用 int4", "forbid int4"),
        ("高峰期禁止 INT4", "forbid int4 peak"),
        ("不要用4比特", "forbid int4"),
        ("只用 bf16", "require bf16"),
        ("非高峰用全精度", "require full off_peak"),
        ("不要量化", "require full"),
        ("可以用 int8", "allow int8"),
        ("int8 可以接受", "allow int8"),
        ("至少 fp8", "min fp8"),
        ("不低于 fp8", "min fp8"),
    ],
)
def test_a_format_is_required_forbidden_allowed_or_the_least(text, expected, goals):
    assert goals(text) == [expected]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("no int4 or int8", ["forbid int4", "forbid int8"]),
        ("no int4 and no fp8", ["forbid int4", "forbid fp8"]),
        ("no int4 and don't quantise", ["forbid int4", "require full"]),
        ("use fp8 at peak and bf16 overnight", ["require fp8 peak", "require bf16 overnight"]),
        ("no int4 at peak and overnight", ["forbid int4 peak", "forbid int4 overnight"]),
        ("不要用 int4 和 int8", ["forbid int4", "forbid int8"]),
        ("at peak, TTFT < 2s and no int4", ["ttft p95 <= 2 s peak", "forbid int4 peak"]),
    ],
)
def test_each_format_and_window_is_a_goal(text, expected, goals):
    assert goals(text) == expected


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("at most fp8", ("use only fp8", "allow fp8", "never use fp8")),
        ("not at least fp8", (NOTHING, "use only fp8", "allow fp8", "never use fp8")),
        ("don't never use int4", (NOTHING, "use only int4", "allow int4", "never use int4")),
        ("quantise", ("use only int8", "allow int8", "never use int8")),
        ("bf16 only at peak", (NOTHING, "use only bf16", "allow bf16", "never use bf16")),
        ("at least fp8 and int8", ("use only fp8", "allow fp8", "never use fp8")),
        ("量化", ("只用 int8", "允许使用 int8", "禁止使用 int8")),
    ],
)
def test_what_could_be_more_than_one_rule_is_asked_about(text, options, asked):
    assert asked(text) == ("precision_unclear", options)


@pytest.mark.parametrize(
    ("text", "texts"),
    [
        ("at most fp8", ("use only fp8", "allow fp8", "never use fp8")),
        ("not at least fp8", (NOTHING, "use only fp8", "allow fp8", "never use fp8")),
        ("don't never use int4", (NOTHING, "use only int4", "allow int4", "never use int4")),
        ("quantise", ("use only int8", "allow int8", "never use int8")),
        (
            "bf16 only at peak",
            (NOTHING, "use only bf16 at peak", "allow bf16 at peak", "never use bf16 at peak"),
        ),
        ("at least fp8 and int8", ("use only fp8", "allow fp8", "never use fp8")),
        ("量化", ("只用 int8", "允许使用 int8", "禁止使用 int8")),
    ],
)
def test_an_answer_makes_a_text_that_keeps_when_and_for_whom(text, texts, catalogue):
    assert read(text, catalogue).questions[0].texts == texts


@pytest.mark.parametrize(
    ("text", "code"),
    [("no int4 for gold customers", "unknown_tenant"), ("use int4 unless it rains", "words_not_understood")],
)
def test_a_name_or_word_that_is_not_known_is_asked_about(text, code, asked):
    assert asked(text)[0] == code


def test_the_window_is_assumed_and_the_evidence_is_what_was_used(catalogue):
    draft = read("please, no INT4 ever", catalogue)
    assert [one.pointer for one in draft.assumptions] == ["/goals/0/window"]
    assert draft.goals[0].evidence == "no INT4"
