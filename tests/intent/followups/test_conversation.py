from dataclasses import replace

from intent.followups.conversation import AMBIGUOUS, NOT_UNDERSTOOD, Conversation, entries_of
from intent.followups.fragments import follow_up
from intent.models import Outcome
from intent.readback import render
from intent.translate import translate
from tests.intent.followups.shared import CATALOGUE
from tests.rows import rows


def talk(text="p99 TTFT < 2 s; cost under $40/h", said="make that 3", read_back=render) -> Conversation:
    previous = translate(text, CATALOGUE)
    return Conversation(previous, said, follow_up(said), CATALOGUE, read_back, entries_of(previous))


@rows(
    ("words", "named"),
    [
        ("cost", [False, True]),
        ("the latency", [True, False]),
        ("p99", [True, False]),
        ("2", [True, False]),
        ("2 s", [True, False]),
        ("2000 ms", [False, False]),
        ("40", [False, True]),
        ("", [True, True]),
        ("cost wibble", [False, False]),
        ("成本", [False, True]),
    ],
)
def test_a_goal_is_named_by_what_it_says(words, named):
    about = talk()
    assert [about.names(goal, words) for goal in about.previous.goals] == named


def test_a_question_offers_whole_texts_that_read_as_they_should():
    about = talk()
    asked = about.asked([about.entries[:1], about.entries[1:]], ())
    (question,) = asked.intent.questions
    assert question.texts == ("P99 TTFT at most 2 s at all times.", "Cost at most 40 USD/h at all times.")
    assert question.options == question.texts  # with nothing new in it, a version says itself
    assert [finding.code for finding in asked.intent.findings] == [AMBIGUOUS]


def test_one_option_is_offered_beside_leaving_all_as_it_is():
    about = talk()
    (question,) = about.asked([about.entries[:1]], ()).intent.questions
    assert len(question.options) == len(question.texts) == 2
    assert question.texts[1] == render(replace(about.previous, assumptions=()))
    assert question.options[1] == "leave everything as it is"


def test_an_option_that_would_be_read_otherwise_is_not_offered():
    about = talk(read_back=lambda _: "p50 E2E under 1 s")
    lost = about.asked([about.entries[:1], about.entries[1:]], ())
    assert lost.intent.outcome is Outcome.OUT_OF_SCOPE
    assert [finding.code for finding in lost.intent.findings] == [NOT_UNDERSTOOD]


def test_a_question_that_waits_is_answered_first():
    about = talk("p90 TPOT under 50 ms. keep latency under 2 s")
    assert about.waits
    refused = about.asked([about.entries, []], ())
    assert about.previous.questions[0].text in refused.intent.findings[0].message
