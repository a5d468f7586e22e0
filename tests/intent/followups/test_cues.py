import re

from intent.followups.fragments import Way, _data, follow_up, say
from tests.intent.tables import table
from tests.rows import rows


@rows(("text", "way", "rest"), [("", "SAY", ""), *table("cues.txt")])
def test_a_cue_says_what_to_do_and_is_taken_out(text, way, rest):
    found = follow_up(text)
    assert (found.way, found.text) == (Way[way], rest)
    assert not found.replaces


@rows(
    "text",
    [
        "instead: TTFT < 1 s",
        "no, instead TTFT < 1 s",
        "forget that, TTFT < 1 s",
        "TTFT < 1 s instead",
        "全部改为 TTFT < 1 s",
    ],
)
def test_a_word_for_instead_replaces(text):
    found = follow_up(text)
    assert found.replaces
    assert found.text == "TTFT < 1 s"


@rows(
    ("text", "rest", "old"),
    [
        ("tp 4 instead of 2", "tp 4", "2"),
        ("p95 rather than p99", "p95", "p99"),
        ("tp 4 而不是 2", "tp 4", "2"),
    ],
)
def test_the_old_value_names_the_goal(text, rest, old):
    found = follow_up(text)
    assert (found.text, found.old, found.replaces) == (rest, old, False)


def test_words_stay_as_they_were_written():
    assert follow_up("Make That “ＴＴＦＴ” 1.5 S").text == "“ＴＴＦＴ” 1.5 S"


def test_every_message_has_the_same_facts_in_both_languages():
    for key, templates in _data()["messages"].items():
        fields = {language: set(re.findall(r"\{(\w+)", text)) for language, text in templates.items()}
        assert fields["en"] == fields["zh"], key


def test_a_message_is_filled_in():
    assert say("en", "option_unknown", number=7, count=3) == "There is no option 7; the question has 3."
