import re

import pytest

from intent.followups.cues import Way, _data, follow_up, say


@pytest.mark.parametrize(
    ("text", "way", "rest"),
    [
        ("make that 1.5 s", Way.CHANGE, "1.5 s"),
        ("please relax it to 3 s", Way.CHANGE, "3 s"),
        ("I meant TTFT", Way.CHANGE, "TTFT"),
        ("use p95", Way.CHANGE, "p95"),
        ("换成 p95", Way.CHANGE, "p95"),
        ("改为 1.5 秒", Way.CHANGE, "1.5 秒"),
        ("change the TTFT goal to 1.5 s", Way.EDIT, "TTFT goal to 1.5 s"),
        ("make TTFT 1.5 s", Way.EDIT, "TTFT 1.5 s"),
        ("把首字延迟改成 1.5 秒", Way.EDIT, "首字延迟 1.5 秒"),
        ("same for free users, 4 s", Way.SAME, "for free users, 4 s"),
        ("free 用户也一样, 4 秒", Way.SAME, "free 用户 , 4 秒"),
        ("and the same at night", Way.SAME, "at night"),
        ("also at night", Way.ALSO, "at night"),
        ("and for free users too", Way.ALSO, "for free users"),
        ("另外成本最低", Way.ALSO, "成本最低"),
        ("drop the cost goal", Way.DROP, "the cost goal"),
        ("去掉成本限制", Way.DROP, "成本限制"),
        ("把成本限制去掉吧", Way.DROP, "成本限制"),
        ("make sure TTFT < 2 s", Way.SAY, "make sure TTFT < 2 s"),
        ("use 4 GPUs", Way.SAY, "use 4 GPUs"),
        ("p95", Way.SAY, "p95"),
        ("", Way.SAY, ""),
    ],
)
def test_a_cue_says_what_to_do_and_is_taken_out(text, way, rest):
    found = follow_up(text)

    assert (found.way, found.text) == (way, rest)
    assert not found.replaces


@pytest.mark.parametrize(
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


@pytest.mark.parametrize(
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
