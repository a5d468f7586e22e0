import inspect
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from intentctl.arguments import MisspeltCommandError, route, spread

COMMANDS = ("say", "parse", "plan", "apply", "get", "serve", "demo", "doctor")


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_stays_what_it_is(command):
    assert route([command, "-o", "json"], COMMANDS) == [command, "-o", "json"]


@given(st.text("abc \u4f60", min_size=1).filter(lambda text: " " in text.strip()))
def test_words_are_an_intent(text):
    assert route([text, "--yes"], COMMANDS) == ["say", text, "--yes"]


def test_options_before_the_text_belong_to_the_intent():
    assert route(["-o", "json", "go faster"], COMMANDS) == ["say", "-o", "json", "go faster"]


@pytest.mark.parametrize("option", ["--help", "--version", "--install-completion", "--show-completion"])
def test_options_of_the_program_stay(option):
    assert route([option], COMMANDS) == [option]


def test_a_command_after_options_is_a_command():
    assert route(["--server", "http://h:1", "get", "--watch"], COMMANDS) == [
        "get",
        "--server",
        "http://h:1",
        "--watch",
    ]


def test_nothing_asks_for_help():
    assert route([], COMMANDS) == ["--help"]


@pytest.mark.parametrize(
    ("word", "meant"),
    [("prase", "parse"), ("plna", "plan"), ("aply", "apply"), ("Demo", "demo"), ("docter", "doctor")],
)
def test_a_single_word_close_to_a_command_names_the_command(word, meant):
    with pytest.raises(MisspeltCommandError, match=f"intentctl {meant}"):
        route([word], COMMANDS)


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("status", "intentctl get"),
        ("list", "intentctl get"),
        ("ps", "intentctl get"),
        ("topology", "intentctl get"),
        ("rollback", "intentctl undo"),
        ("undo", "intentctl undo"),
        (" Stop ", "intentctl cancel OPERATION"),
        ("preflight", "intentctl apply PLAN --dry-run"),
        ("help", "intentctl --help"),
    ],
)
@pytest.mark.parametrize("rest", [(), ("-o", "json"), ("op-1",)])
def test_a_word_of_another_tool_names_the_command_that_was_meant(word, meant, rest):
    with pytest.raises(MisspeltCommandError, match=f"did you mean `{meant}`"):
        route([word, *rest], COMMANDS)


def test_a_command_goes_before_what_it_may_mean_elsewhere():
    assert route(["undo"], (*COMMANDS, "undo")) == ["undo"]


@pytest.mark.parametrize("text", ["stop the switch", "list all devices", "rollback to tp=2"])
def test_words_that_begin_like_a_command_are_an_intent(text):
    assert route([text], COMMANDS) == ["say", text]


@pytest.mark.parametrize("word", ["faster", "\u4f60\u597d", "cheaper"])
def test_any_other_single_word_is_an_intent(word):
    assert route([word], COMMANDS) == ["say", word]


@dataclass
class Wall:
    width: int
    height: int = 2


def painted(colour: str, wall: Wall, coats: int = 1) -> None:
    PAINTED.append((colour, wall, coats))


PAINTED: list[tuple[str, Wall, int]] = []


def test_a_dataclass_is_an_option_for_each_of_its_fields_in_their_place():
    options = inspect.signature(spread(painted)).parameters
    assert [(one.name, one.annotation, one.default) for one in options.values()] == [
        ("colour", str, inspect.Parameter.empty),
        ("width", int, inspect.Parameter.empty),
        ("height", int, 2),
        ("coats", int, 1),
    ]


def test_the_command_gets_the_object():
    spread(painted)(colour="red", width=3, height=4, coats=2)
    assert PAINTED.pop() == ("red", Wall(3, 4), 2)


def test_a_command_of_a_group_comes_first_too():
    for typed in (
        ["--server", "x", "keys", "list", "-o", "json"],
        ["keys", "list", "--server", "x", "-o", "json"],
    ):
        found = route(typed, COMMANDS, ["keys"])
        assert (found[:2], sorted(found)) == (["keys", "list"], sorted(typed))
