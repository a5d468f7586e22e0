import json

import pytest
from pydantic_core import PydanticCustomError

from runtime import grammar
from runtime.grammar import Matcher, Vocabulary
from service.openai.tools import Tool, ToolChoice, calls_grammar
from tests.rows import rows
from tests.service.scripted import character_tokenizer


def tool(name: str, **function: object) -> Tool:
    return Tool.model_validate({"type": "function", "function": {"name": name} | function})


WEATHER = tool("weather", parameters={"type": "object", "properties": {"city": {"type": "string"}}})
CLOCK = tool("clock", description="Tells the time")


def test_a_template_gets_a_tool_as_it_was_sent():
    assert CLOCK.rendered() == {
        "type": "function",
        "function": {
            "name": "clock",
            "description": "Tells the time",
            "parameters": {"type": "object", "properties": {}},
        },
    }
    assert "description" not in json.dumps(WEATHER.rendered())


def test_a_choice_may_be_a_mode_or_name_a_function():
    for mode in ("none", "auto", "required"):
        assert ToolChoice.read(mode) == ToolChoice(mode)
    assert ToolChoice.read({"type": "function", "function": {"name": "f"}}) == ToolChoice("required", "f")


@rows("said", ["any", 5, {}, {"type": "function"}, {"type": "allowed_tools"}])
def test_another_choice_is_refused(said):
    with pytest.raises(PydanticCustomError, match="is not served here; send none, auto"):
        ToolChoice.read(said)


def test_a_grammar_of_calls_has_a_rule_for_each_tool():
    text = calls_grammar([WEATHER, CLOCK], several=True)

    assert text.splitlines() == [
        "start: calls",
        'calls: call ("\\n" call)*',
        'call: "<tool_call>\\n" (call_0 | call_1) "\\n</tool_call>"',
        r'call_0: "{\"name\": \"weather\", \"arguments\": " arguments_0 "}"',
        f"arguments_0: %json {grammar.embedded(WEATHER.function.parameters)}",
        r'call_1: "{\"name\": \"clock\", \"arguments\": " arguments_1 "}"',
        f"arguments_1: %json {grammar.embedded(CLOCK.function.parameters)}",
    ]


def test_a_grammar_may_allow_one_call_or_an_answer():
    text = calls_grammar([CLOCK], several=False, answer={"type": "object"})

    assert "start: calls | answer\ncalls: call\n" in text
    assert 'answer: %json {"type": "object", "x-guidance": {"whitespace_flexible": false' in text


@pytest.fixture(scope="module")
def vocabulary() -> Vocabulary:
    return Vocabulary(character_tokenizer(), 98)


def call(name: str, arguments: str) -> str:
    return f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>'


REFERS = tool("refers", parameters={"type": "object", "properties": {"a": {"$ref": "#/$defs/n"}}, "required": ["a"],
                                    "$defs": {"n": {"type": "integer"}}, "additionalProperties": False})  # fmt: skip


@rows(
    ("text", "matches"),
    [
        (call("refers", '{"a": 5}'), True),
        (call("refers", '{"a": 5}') + "\n" + call("weather", '{"city": "Bern"}'), True),
        ('{"done": true}', True),
        (call("refers", '{"a": "5"}'), False),
        (call("fly", "{}"), False),
        ("of course", False),
    ],
)
def test_a_grammar_of_calls_holds_the_model_to_the_schemas(vocabulary, text, matches):
    written = calls_grammar([WEATHER, REFERS], several=True, answer={"type": "object"})
    matcher = Matcher(grammar.lark(written), vocabulary)
    tokens = (*character_tokenizer().encode(text), 0)

    assert matcher.advance(tokens) is matches
