import pytest

from intent.models import Config
from intent.rules.draft import NOTHING, Draft
from intent.rules.tokens import tokenize


@pytest.fixture
def draft(catalogue):
    return Draft("keep tp=2.5 at peak, for gold customers", catalogue)


def token(draft, words):
    (found,) = [one for one in tokenize(draft.text, draft.catalogue) if draft.said(one) == words]
    return found


def test_other_words_in_a_place_leave_the_rest_as_it_was(draft):
    assert draft.instead(token(draft, "2.5"), "2") == "keep tp=2 at peak, for gold customers"
    assert draft.before(token(draft, "2.5"), "at most") == "keep tp=at most 2.5 at peak, for gold customers"
    assert draft.instead(token(draft, "="), "at most") == "keep tp at most 2.5 at peak, for gold customers"


def test_leaving_words_out_leaves_no_preposition_hanging(draft):
    assert draft.without([token(draft, "gold"), token(draft, "customers")]) == "keep tp=2.5 at peak"


def test_a_question_offers_two_to_four_answers_and_the_first_is_the_default(draft):
    for options, offered in (
        ((), (NOTHING,)),
        (("a",), ("a", NOTHING)),
        (("a", "a", "b"), ("a", "b")),
        (tuple("abcde"), tuple("abcd")),
    ):
        draft.ask("code", None, "Which?", options)
        assert draft.questions[-1].options == offered
        assert draft.questions[-1].default == offered[0]


def test_words_without_a_place_are_out_of_scope_alone_and_a_question_beside_goals(draft):
    gold = token(draft, "gold")
    draft.ask_about([gold])
    assert draft.findings[-1].code == "not_understood"
    draft.goals.append(Config("tp", "==", 2, "tp=2"))
    draft.ask_about([gold])
    assert draft.findings[-1].code == "words_not_understood"
    assert draft.findings[-1].evidence == "gold"
