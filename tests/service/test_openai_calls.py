import itertools
import json

from hypothesis import given
from hypothesis import strategies as st

from service.openai.calls import CallReader
from tests.rows import rows

WEATHER = '<tool_call>\n{"name": "weather", "arguments": {"city": "Bern"}}\n</tool_call>'


def read(pieces) -> tuple[str, list[tuple[str, str]]]:
    """Content, and name and arguments of each call; every part is checked to come in order."""
    reader, content, calls = CallReader(), "", []
    for said in [*map(reader.add, pieces), reader.end()]:
        content += said.content
        assert len({part.index for part in said.calls}) == len(said.calls)
        for part in said.calls:
            if part.name is not None:
                assert part.index == len(calls)
                calls.append([part.name, ""])
            calls[part.index][1] += part.arguments
    assert reader.num_calls == len(calls)
    return content, [tuple(call) for call in calls]


def cut(text, places) -> list[str]:
    bounds = [0, *sorted({place % (len(text) + 1) for place in places}), len(text)]
    return [text[start:end] for start, end in itertools.pairwise(bounds)]


@rows(
    ("text", "content", "calls"),
    [
        ("no call here\n", "no call here\n", []),
        (WEATHER, "", [("weather", '{"city": "Bern"}')]),
        (f"Let me see.\n\n{WEATHER}", "Let me see.", [("weather", '{"city": "Bern"}')]),
        (f"{WEATHER}\n{WEATHER}\n", "", [("weather", '{"city": "Bern"}')] * 2),
        (f"a {WEATHER} b", "a b", [("weather", '{"city": "Bern"}')]),
        # what comes last may lack its marker, for a stop string or the model's end token came first
        (WEATHER.removesuffix("\n</tool_call>"), "", [("weather", '{"city": "Bern"}')]),
        # markers, braces and quotes inside of strings
        (
            '<tool_call>{"name":"say","arguments":{"it":"}</tool_call>\\"{","n":[{}]}}</tool_call>',
            "",
            [("say", '{"it":"}</tool_call>\\"{","n":[{}]}')],
        ),
        # another order, no arguments, arguments as text, more keys
        ('<tool_call>{"arguments": {"a": "ü"}, "name": "f"}</tool_call>', "", [("f", '{"a": "ü"}')]),
        ('<tool_call>{"name": "f"}</tool_call>', "", [("f", "{}")]),
        ('<tool_call>{"name": "f", "arguments": "{}"}</tool_call>', "", [("f", "{}")]),
        ('<tool_call>{"name": "f", "arguments": {}, "id": 3}</tool_call>x', "x", [("f", "{}")]),
        # a brace too few, and one too many
        ('<tool_call>{"name": "f", "arguments": {"a": 1}</tool_call>x', "x", [("f", '{"a": 1}')]),
        ('<tool_call>{"name": "f", "arguments": {"a": 1\n</tool_call>x', "x", [("f", '{"a": 1\n')]),
        ('<tool_call>{"name": "f", "arguments": {}}}</tool_call>', "", [("f", "{}")]),
        # cut off by the limit
        ('<tool_call>{"name": "f", "arguments": {"a": "b', "", [("f", '{"a": "b')]),
        ('<tool_call>{"name": "f', '<tool_call>{"name": "f', []),
        # no calls
        ("a <tool_call>call me</tool_call> b", "a<tool_call>call me</tool_call> b", []),
        ('<tool_call>{"name": 5}</tool_call>', '<tool_call>{"name": 5}</tool_call>', []),
        ("<tool_call>[1]</tool_call>", "<tool_call>[1]</tool_call>", []),
        ("a <tool", "a <tool", []),
        ('{"name": "f", "arguments": {}}', '{"name": "f", "arguments": {}}', []),
    ],
)
@given(st.lists(st.integers(0, 200), max_size=12))
def test_content_and_calls_are_the_same_however_the_text_is_cut(text, content, calls, places):
    assert read(cut(text, places)) == (content, calls)
    assert read(list(text)) == (content, calls)


def test_arguments_go_out_as_they_come():
    reader = CallReader()
    head = reader.add('<tool_call>\n{"name": "weather", "arguments": ')
    assert (head.content, head.calls) == ("", [])
    begun = reader.add('{"ci')
    assert [(part.index, part.name, part.arguments) for part in begun.calls] == [(0, "weather", '{"ci')]
    more = reader.add('ty": "Bern"}}')
    assert [(part.index, part.name, part.arguments) for part in more.calls] == [(0, None, 'ty": "Bern"}')]
    assert reader.add("\n</tool_call>").calls == reader.end().calls == []


@given(st.text(max_size=80))
def test_text_that_is_no_call_is_whole(text):
    assert read(list(text)) == (text, [])


@given(st.dictionaries(st.text(), st.recursive(st.text() | st.integers(), st.lists, max_leaves=9)))
def test_any_arguments_come_through(arguments):
    written = json.dumps(arguments)
    said = read(list(f'<tool_call>{{"name": "f", "arguments": {written}}}</tool_call>'))
    assert said == ("", [("f", written)])
