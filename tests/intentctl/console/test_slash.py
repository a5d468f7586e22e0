"""Slash commands lead somewhere, and change nothing."""

from intentctl.console.slash import COMMANDS, destination, is_slash
from tests.rows import rows


@rows(
    ("text", "path"),
    [
        ("/agenda 7d", "/agenda?hours=168"),
        ("/agenda", "/agenda?hours=24"),
        ("/agenda nonsense", "/agenda?hours=24"),
        ("/report 30m", "/report?hours=0.5"),
        ("/get plan-1", "/plans/plan-1"),
        ("/apply plan-1", "/plans/plan-1"),
        ("/undo op-1", "/operations/op-1"),
        ("/get intent-1?x=/../", "/intents/intent-1%3Fx%3D%2F..%2F"),
        ("/get //evil.example", "/"),
        ("/PAUSE", "/settings#controller"),
        ("/explain metric", "/explain?topic=metric"),
        ("/nothing", None),
        ("/", None),
    ],
)
def test_a_command_leads_to_a_page(text, path):
    assert is_slash(text)
    assert destination(text) == path


def test_every_command_leads_to_a_page_of_this_console():
    for one in COMMANDS:
        for rest in ("", "plan-1", "//evil.example", "7d", "\\evil"):
            path = destination(f"/{one.name} {rest}")
            assert path.startswith("/")
            assert not path.startswith(("//", "/\\"))
