import inspect
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from intentctl.arguments import route, spread
from intentctl.status import CommandError
from tests.rows import rows

COMMANDS = ("say", "parse", "plan", "apply", "get", "serve", "demo", "doctor")


@rows(
    ("typed", "routed"),
    [
        *(([command, "-o", "json"], [command, "-o", "json"]) for command in COMMANDS),
        (["-o", "json", "go faster"], ["say", "-o", "json", "go faster"]),
        *(([one], [one]) for one in ("--help", "--version", "--install-completion", "--show-completion")),
        (["--server", "http://h:1", "get", "--watch"], ["get", "--server", "http://h:1", "--watch"]),
        ([], ["--help"]),
        (["stop the switch"], ["say", "stop the switch"]),
        (["list all devices"], ["say", "list all devices"]),
        (["rollback to tp=2"], ["say", "rollback to tp=2"]),
        (["faster"], ["say", "faster"]),
        (["\u4f60\u597d"], ["say", "\u4f60\u597d"]),
        (["cheaper"], ["say", "cheaper"]),
    ],
)
def test_a_command_comes_first_and_anything_else_is_an_intent(typed, routed):
    assert route(typed, COMMANDS) == routed


@given(st.text("abc \u4f60", min_size=1).filter(lambda text: " " in text.strip()))
def test_words_are_an_intent(text):
    assert route([text, "--yes"], COMMANDS) == ["say", text, "--yes"]


@rows(
    ("word", "meant"),
    [("prase", "parse"), ("plna", "plan"), ("aply", "apply"), ("Demo", "demo"), ("docter", "doctor")],
)
def test_a_single_word_close_to_a_command_names_the_command(word, meant):
    with pytest.raises(CommandError, match=f"intentctl {meant}"):
        route([word], COMMANDS)


@rows(
    ("words", "meant"),
    [
        (("status", "list", "ps", "topology"), "intentctl get"),
        (("rollback", "undo"), "intentctl undo"),
        ((" Stop ",), "intentctl cancel OPERATION"),
        (("preflight",), "intentctl apply PLAN --dry-run"),
        (("help",), "intentctl --help"),
    ],
)
@rows("rest", [(), ("-o", "json"), ("op-1",)])
def test_a_word_of_another_tool_names_the_command_that_was_meant(words, meant, rest):
    for word in words:
        with pytest.raises(CommandError, match=f"did you mean `{meant}`"):
            route([word, *rest], COMMANDS)


def test_a_command_goes_before_what_it_may_mean_elsewhere_and_one_of_a_group_comes_first_too():
    assert route(["undo"], (*COMMANDS, "undo")) == ["undo"]
    for typed in ("--server x keys list -o json", "keys list --server x -o json"):
        found = route(typed.split(), COMMANDS, ["keys"])
        assert (found[:2], sorted(found)) == (["keys", "list"], sorted(typed.split()))


@dataclass
class Wall:
    width: int
    height: int = 2


def painted(colour: str, wall: Wall, coats: int = 1) -> None:
    PAINTED.append((colour, wall, coats))


PAINTED: list[tuple[str, Wall, int]] = []


def test_a_dataclass_is_an_option_for_each_of_its_fields_in_their_place_and_the_command_gets_it():
    options = inspect.signature(spread(painted)).parameters
    assert [(one.name, one.annotation, one.default) for one in options.values()] == [
        ("colour", str, inspect.Parameter.empty),
        ("width", int, inspect.Parameter.empty),
        ("height", int, 2),
        ("coats", int, 1),
    ]
    spread(painted)(colour="red", width=3, height=4, coats=2)
    assert PAINTED.pop() == ("red", Wall(3, 4), 2)
