"""Words that no goal took up: those of the closed class are asked about where they may change a wish, all others set aside."""

from dataclasses import replace
from importlib.resources import files

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.words.utterances import load, own_files
from intent.models import Objective
from intent.rules.kinds import Kind
from intent.rules.ledger import Coverage, ignored, risky, turning, unclear_scopes
from intent.rules.phrasing import tokenize
from intent.rules.reader import read
from tests.intent.tables import table
from tests.rows import rows

GOAL = "TTFT under 2s"
CLASS = yaml.safe_load(files("intent.rules").joinpath("risky.yaml").read_text(encoding="utf-8"))
PARTS = [(where, name) for where, parts in CLASS.items() for name in parts]


@pytest.fixture(scope="session")
def here(catalogue):
    return replace(catalogue, tenants=("acme", "paid"), aliases={"付费用户": "paid"}, devices={"A100": 4}, nodes=("a",))


def place_of(text, words):
    start = text.index(words)
    return start, start + len(words)


def weighed(text, here, evidence=GOAL, slots=("2s",), told=(), orders=(), **goal):
    """What is asked about of a text with one goal, and what is set aside."""
    parts = ((evidence,), (evidence,), slots, told, orders)
    taken = Coverage(*(tuple(place_of(text, words) for words in part) for part in parts))
    bound = Objective("ttft", "<=", evidence, "p95", 2.0, "s", **goal)
    found = risky(text, tokenize(text, here), [bound], taken)
    return found, ignored(text, taken, found)


def asked(text, here, **taken):
    """Kind, or for words of the class their part, and the words as they stand in the text."""
    found, _ = weighed(text, here, **taken)
    return [(one.value if one.kind is Kind.LIMITING else one.kind.value, text[one.start : one.end]) for one in found]


# -- the closed class --------------------------------------------------------------------------------


def test_words_count_anywhere_beside_a_goal_around_one_or_within_one():
    assert list(CLASS) == ["anywhere", "beside a goal", "right before a goal", "alone"]
    for where, name in PARTS:
        assert all(isinstance(one, str) and one for one in CLASS[where][name]["words"])


ON_FILE = [(*where.split(" | "), *words) for where, *words in table("weighing.txt")]
AROUND = {"right before a goal", "alone"}
"""Where words are looked for by the reader of the rules."""


def on_file(*, around, asked):
    """Rows of the file, without where their words stand."""
    return [row[1:] for row in ON_FILE if (row[0] in AROUND) is around and (len(row) == 4) is asked]


@rows(("name", "text", "words"), on_file(around=False, asked=True))
def test_a_word_of_the_class_is_asked_about(name, text, words, here):
    assert asked(text, here) == [(name, words)]


@rows(
    ("text", "found"),
    [
        (
            "for long prompts TTFT under 2s",
            [("kinds of requests", "long prompts")],
        ),
        ("每个机房 TTFT under 2s", [("scopes", "每个"), ("other places", "每个机房")]),
    ],
)
def test_words_of_two_parts_of_the_class_are_asked_about_as_both(text, found, here):
    assert sorted(asked(text, here)) == sorted(found)


@rows("text", [text for _, text in on_file(around=False, asked=False)])
def test_what_only_looks_like_a_word_of_the_class_is_not_asked_about(text, here):
    assert asked(text, here) == []


def test_each_part_of_the_class_has_words_that_are_asked_about_and_a_near_miss():
    for columns in (3, 4):
        assert {row[:2] for row in ON_FILE if len(row) == columns} == set(PARTS)


@rows(("name", "text", "words"), on_file(around=True, asked=True))
def test_a_word_around_a_goal_is_asked_about_by_the_rules(name, text, words, here):
    place = (place_of(text, GOAL),)
    found = unclear_scopes(text, Coverage(place, place, place))
    assert (name, words) in [(one.value, text[one.start : one.end].strip()) for one in found]
    draft = read(text, here)
    assert len(draft.goals) == 1
    (question,) = draft.questions
    assert words in question.text


@rows("text", [text for _, text in on_file(around=True, asked=False)])
def test_what_only_looks_like_such_a_word_around_a_goal_is_not(text, here):
    draft = read(text, here)
    assert len(draft.goals) == 1
    assert draft.questions == []


@rows("text", ["TTFT under 2s. if it rains, we were in Rome", "如果下雨。TTFT under 2s"])
def test_what_counts_beside_a_goal_does_not_count_in_a_clause_of_its_own(text, here):
    assert asked(text, here) == []


def test_a_scope_far_from_its_goal_is_a_part_of_a_story(here):
    assert asked("for long and rather tedious prompts please keep TTFT under 2s", here) == []


def test_a_word_that_hides_its_case_and_width_is_found_where_it_stands(here):
    assert asked("TTFT under 2s ＵＮＬＥＳＳ it rains", here) == [("limiters", "ＵＮＬＥＳＳ")]


# -- what has a meaning ------------------------------------------------------------------------------


@rows(
    ("text", "found"),
    [
        ("TTFT under 2s, 50 ms", [("quantity", "50 ms")]),
        ("TTFT under 2s, TPOT under 50 ms", [("metric", "TPOT"), ("quantity", "50 ms")]),
        ("TTFT under 2s, p99", [("stat", "p99")]),
        ("TTFT under 2s for acme", [("tenant", "acme")]),
        ("付费用户 TTFT under 2s", [("tenant", "付费用户")]),
        ("at peak. TTFT under 2s", [("window", "at peak")]),
        ("TTFT under 2s, no int4", [("precision", "int4")]),
        ("TTFT under 2s on the A100", [("selector", "A100")]),
        ("TTFT under 2s, tp=2", [("setting", "tp"), ("quantity", "2")]),
        ("TTFT under 2s, acme phones me", [("tenant", "acme")]),
        ("TTFT under 2s, well, 2.5", [("quantity", "2.5")]),
        ("TTFT under 2s, back to 4 at 7", [("quantity", "4"), ("quantity", "7")]),
        ("TTFT under 2s on tuesdya", [("unknown", "tuesdya")]),
    ],
)
def test_an_amount_a_metric_a_name_and_a_time_that_no_goal_says_are_asked_about(text, found, here):
    assert [one for one in asked(text, here) if one in found] == found


@rows(
    "text",
    [
        "TTFT under 2s, p95",
        "TTFT under 2s, TPOT",
        "TTFT under 2s, 2 s it is",
        "TTFT under 2s, three colleagues asked",
        "TTFT under 2s, nine languages, INC-47",
        "we ate noodles at peak with acme. TTFT under 2s",
    ],
)
def test_what_the_goal_says_and_what_a_story_names_is_not(text, here):
    assert asked(text, here) == []


@rows(
    ("text", "goal"),
    [("TTFT under 2s. acme", {"tenant": "acme"}), ("at peak. TTFT under 2s", {"window": "peak"})],
)
def test_a_name_or_a_time_counts_only_while_no_goal_has_it(text, goal, here):
    assert asked(text, here)
    assert asked(text, here, **goal) == []


@rows("evidence", ["TTFT under 2s at peak", "acme TTFT under 2s", "TTFT under 2s and 50 ms"])
def test_a_name_a_time_and_an_amount_count_inside_the_evidence_too(evidence, here):
    assert len(asked(evidence, here, evidence=evidence)) == 1


def test_the_time_at_which_a_line_of_a_chat_was_said_is_no_wish(here):
    assert asked("[12:30] TTFT under 2s\n[12:31] thanks a lot", here) == []


# -- words that turn a meaning -------------------------------------------------------------------------


TURNING = yaml.safe_load(files("intent.rules").joinpath("turning.yaml").read_text(encoding="utf-8"))
TURNED = [(*where.split(" | "), *words) for where, *words in table("turning.txt")]
OF_THEIR_OWN = {"exception", "direction"}
"""Classes whose words have questions of their own where no goal holds them."""
UNHELD = {"unheld", "redundancy"}
"""Classes that no goal holds."""
CORPUS = [one.text for one in load(own_files())][::8]


def became(text, here):
    return {(turn.turns, turn.became) for turn in read(text, here).ledger}


@rows(("name", "text", "words"), [row for row in TURNED if len(row) == 3])
def test_a_turning_word_that_no_goal_used_is_asked_about_with_what_it_turns(name, text, words, here):
    draft = read(text, here)
    assert (name, "question") in became(text, here)
    assert words in draft.questions[0].text


@rows(("name", "text"), [row for row in TURNED if len(row) == 2])
def test_a_turning_word_that_a_goal_used_names_it(name, text, here):
    assert read(text, here).questions == []
    assert all(what.startswith("/goals/") or what in {"idiom", "joins"} for _, what in became(text, here))


def test_every_class_of_turning_words_has_a_reason_a_word_that_is_asked_about_and_one_that_is_used():
    assert all(part["why"] and part["words"] for part in TURNING.values())
    assert {row[0] for row in TURNED if len(row) == 2} | UNHELD == set(TURNING)
    assert {row[0] for row in TURNED if len(row) == 3} | OF_THEIR_OWN == set(TURNING)


@pytest.mark.parametrize("part", range(2))
def test_nothing_that_turns_a_meaning_is_passed_over_in_an_answer_without_a_question(part, here):
    for text in CORPUS[part::2]:
        draft = read(text, here)
        if draft.goals and not draft.questions:
            words = [place for _, place in turning(text)]
            assert [(turn.start, turn.end) for turn in draft.ledger] == words, text
            assert all(turn.became and turn.became != "question" for turn in draft.ledger), text


def test_a_reason_an_order_and_what_is_set_aside_are_in_the_ledger_too(here):
    assert became("TTFT under 2s because nobody may wait", here) >= {("negation", "told")}
    assert ("negation", "set_aside") in became("TTFT under 2s, not my idea", here)
    assert ("limit", "order") in became("ignore all limits. TTFT under 2s", here)


# -- what is set aside -------------------------------------------------------------------------------


@rows(
    ("text", "aside"),
    [
        ("morning all 🎉 TTFT under 2s please, the board is watching", ["morning all", "the board is watching"]),
        ("TTFT under 2s，老板天天催", ["老板天天催"]),
        ("TTFT under 2s, ok, thanks a lot  ; the board, the board", ["thanks a lot", "the board", "the board"]),
        ("TTFT under 2s, ok, 谢谢", []),
        ("TTFT under 2s and that is all", []),
        ("TTFT under 2s, unless it rains, they say", ["they say"]),
        (GOAL, []),
    ],
)  # fmt: skip
def test_harmless_clauses_are_set_aside_with_their_exact_places(text, aside, here):
    _, rest = weighed(text, here)
    assert [one.words for one in rest] == aside
    assert all(text[one.start : one.end] == one.words for one in rest)
    assert len({one.start for one in rest}) == len(rest)


def test_what_is_asked_about_is_not_set_aside_as_well(here):
    found, rest = weighed("TTFT under 2s, cancel the cost cap", here)
    assert (len(found) > 0, rest) == (True, ())


CHATTER = [
    "the board is watching",
    "at peak",
    "unless it rains",
    "老板天天催",
    "50 ms",
    "ok",
    "🎉",
    "for long prompts",
    "",
]


@given(st.lists(st.sampled_from(CHATTER), max_size=4), st.lists(st.sampled_from(CHATTER), max_size=4))
def test_no_place_is_both_asked_about_and_set_aside_and_each_stands_in_the_text(here, before, after):
    text = ", ".join([*before, GOAL, *after])
    found, rest = weighed(text, here)
    assert all(text[one.start : one.end] == one.words for one in rest)
    assert [one.start for one in found] == sorted({one.start for one in found})
    assert all(one.end <= each.start or each.end <= one.start for one in found for each in rest)


# -- what tells, and what gives orders ---------------------------------------------------------------


def test_what_only_tells_is_not_asked_about_and_is_set_aside(here):
    text, told = "TTFT under 2s. last night it was 6s at peak, TPOT 90 ms", "last night it was 6s at peak"
    found, rest = weighed(text, here, told=(told, "TPOT 90 ms"))
    assert found == []
    assert [one.words for one in rest] == [told, "TPOT 90 ms"]
    assert asked(text, here)


def test_orders_to_the_system_are_neither_asked_about_nor_set_aside(here):
    text, order = "TTFT under 2s. skip the checks unless acme objects", "skip the checks unless acme objects"
    assert weighed(text, here, orders=(order,)) == ([], ())
    found, rest = weighed(text, here)
    assert (len(found) > 0, rest) == (True, ())
