from dataclasses import replace

import pytest

from intent.messages import say
from intent.models import Config, Objective
from intent.rules.draft import Draft, Option
from intent.rules.phrasing import tokenize
from tests.rows import rows

NOTHING = say("intent", "en", "nothing")
EXAMPLE = "keep P99 TTFT < 2s at peak"


@pytest.fixture
def draft(catalogue):
    return Draft("keep tp=2.5 at peak, for vibes or such", catalogue)


def token(draft, words):
    (found,) = [one for one in tokenize(draft.text, draft.catalogue) if draft.said(one) == words]
    return found


def test_other_words_in_a_place_leave_the_rest_as_it_was(draft):
    assert draft.instead(token(draft, "2.5"), "2") == Option("2", "keep tp=2 at peak, for vibes or such")
    assert draft.before(token(draft, "2.5"), "at most") == Option(
        "at most 2.5", "keep tp=at most 2.5 at peak, for vibes or such"
    )
    assert draft.instead(token(draft, "="), "at most") == Option(
        "at most", "keep tp at most 2.5 at peak, for vibes or such"
    )


def test_leaving_words_out_leaves_no_preposition_and_no_comma_hanging(draft):
    words = [token(draft, "vibes"), token(draft, "or"), token(draft, "such")]
    assert draft.without(words) == Option("go on without 'vibes', 'or', 'such'", "keep tp=2.5 at peak")


def test_the_language_is_that_of_the_text(catalogue):
    assert Draft("keep TTFT < 2s", catalogue).language == "en"
    chinese = Draft("首字延迟", catalogue)
    assert chinese.language == "zh"
    assert chinese.say("nothing") == "保持现状"
    assert chinese.quoted(tokenize("首字延迟", catalogue)[0]) == "“首字延迟”"


def test_words_are_quoted_as_they_were_said(draft):
    assert draft.quoted(token(draft, "vibes")) == "'vibes'"


@rows(
    ("options", "offered"),
    [
        ((), (NOTHING, EXAMPLE)),
        (("a",), (NOTHING, "a")),
        (("a", "a", "b", ""), (NOTHING, "a", "b")),
        (tuple("abcde"), (NOTHING, *"abc")),
        ((NOTHING,), (NOTHING, EXAMPLE)),
    ],
)
def test_a_question_offers_two_to_four_answers_and_the_first_is_the_default(draft, options, offered):
    draft.ask("code", None, "Which?", options)
    assert draft.questions[-1].options == offered
    assert draft.questions[-1].default == offered[0] == draft.findings[-1].suggestion


def test_a_question_points_at_the_words_it_is_about(draft):
    draft.ask("code", token(draft, "vibes"), "Which?", ["a", "b"])
    (finding,) = draft.findings
    assert (finding.code, finding.pointer, finding.message, finding.evidence) == (
        "code",
        "/text",
        "Which?",
        "vibes",
    )


def test_an_assumption_points_at_the_goal_that_comes_next(draft):
    draft.assume("window", "assumed_window")
    draft.add(Config("tp", "==", 2, "tp=2"), (5, 9))
    draft.assume("stat", "assumed_stat", stat="P95")
    assert [one.pointer for one in draft.assumptions] == ["/goals/0/window", "/goals/1/stat"]
    assert "P95" in draft.assumptions[1].text


def test_a_goal_that_was_said_before_is_dropped_with_its_assumptions(draft):
    draft.assume("window", "assumed_window")
    draft.add(Config("tp", "==", 2, "tp=2"), (5, 9))
    draft.assume("window", "assumed_window")
    draft.add(Config("tp", "==", 2, "tp 2"), (12, 16))
    assert [goal.evidence for goal in draft.goals] == ["tp=2"]
    assert draft.places == [(5, 9)]
    assert [one.pointer for one in draft.assumptions] == ["/goals/0/window"]


def test_words_without_a_place_are_out_of_scope_alone_and_a_question_beside_goals(draft):
    vibes = token(draft, "vibes")
    draft.ask_about([vibes])
    assert (draft.findings[-1].code, draft.questions) == ("not_understood", [])
    assert "TTFT" in draft.findings[-1].message
    draft.goals.append(Config("tp", "==", 2, "tp=2"))
    draft.ask_about([vibes])
    assert (draft.findings[-1].code, draft.findings[-1].evidence) == ("words_not_understood", "vibes")
    assert draft.questions[0].options == ("go on without 'vibes'", NOTHING)
    assert draft.questions[0].texts == ("keep tp=2.5 at peak, for or such", NOTHING)


def test_nothing_left_over_beside_goals_is_no_question(draft):
    draft.goals.append(Config("tp", "==", 2, "tp=2"))
    draft.ask_about([])
    assert not draft.findings


def test_leftovers_beside_another_question_alone_stay_silent(draft):
    draft.ask("code", None, "Which?", ["a", "b"])
    draft.ask_about([token(draft, "vibes")])
    assert len(draft.findings) == 1


def test_a_long_text_is_shown_short(catalogue):
    draft = Draft("blah " * 40, catalogue)
    draft.ask_about([])
    shown, _, _ = draft.findings[0].message.partition(" names no goal")
    assert shown.endswith("...'")
    assert len(shown) <= 62


def test_either_of_two_is_asked_with_the_one_and_the_other_as_answers(catalogue):
    draft = Draft("TTFT < 2s, tp=2 or tp=4 at peak", catalogue)
    draft.goals += [Config("tp", "==", 2, "tp=2"), Config("tp", "==", 4, "tp=4 at peak")]
    draft.ask_about([token(draft, "or")])
    assert draft.questions[0].options == ("tp=2", "tp=4 at peak", NOTHING)
    assert draft.questions[0].texts == ("TTFT < 2s, tp=2", "TTFT < 2s, tp=4 at peak", NOTHING)


def test_an_or_between_anything_else_is_left_out(catalogue):
    draft = Draft("TTFT or so < 2s", catalogue)
    draft.goals.append(Objective("ttft", "<=", "TTFT or so < 2s"))
    draft.ask_about([replace(token(draft, "or so"), value="or")])
    assert draft.questions[0].options == (NOTHING, "go on without 'or so'")
    assert draft.questions[0].texts == (NOTHING, "TTFT < 2s")


def test_without_its_not_a_text_would_say_the_opposite_so_nothing_is_the_default(catalogue):
    draft = Draft("don't minimise cost", catalogue)
    draft.goals.append(Objective("cost", "minimize", "minimise cost"))
    draft.ask_about([tokenize(draft.text, catalogue)[0]])
    assert draft.questions[0].options == (NOTHING, 'go on without "don\'t"')
    assert draft.questions[0].texts == (NOTHING, "minimise cost")


def test_unknown_han_characters_are_shown_as_one_word(catalogue):
    draft = Draft("首字延迟2秒饕餮", catalogue)
    draft.goals.append(Objective("ttft", "<=", "2秒"))
    draft.ask_about(tokenize(draft.text, catalogue)[-2:])
    assert "“饕餮”" in draft.findings[0].message
