import pytest

from intentctl.visible import visible, visible_lines


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("p99 首字延迟 🚀 é", "p99 首字延迟 🚀 é"),
        ("\x1b[31mred", "\\x1b[31mred"),
        ("a\u202eb\x9bc\x07", "a\\u202eb\\x9bc\\x07"),
        ("a\nb\rc", "a\\nb\\rc"),
    ],
)
def test_what_would_steer_a_terminal_is_shown_as_its_code(text, shown):
    assert visible(text) == shown


def test_lines_of_a_message_stay_lines():
    assert visible_lines("one\n\x1btwo\r") == "one\n\\x1btwo\\r"
