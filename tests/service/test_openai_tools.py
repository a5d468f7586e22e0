import json

import pytest
from pydantic_core import PydanticCustomError

from service.openai_tools import Tool, ToolChoice, calls_grammar


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


@pytest.mark.parametrize("mode", ["none", "auto", "required"])
def test_a_choice_may_be_a_mode(mode):
    assert ToolChoice.read(mode) == ToolChoice(mode)


def test_a_choice_may_name_a_function():
    assert ToolChoice.read({"type": "function", "function": {"name": "f"}}) == ToolChoice("required", "f")


@pytest.mark.parametrize("said", ["any", 5, {}, {"type": "function"}, {"type": "allowed_tools"}])
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
        'arguments_0: %json {"type": "object", "properties": {"city": {"type": "string"}}}',
        r'call_1: "{\"name\": \"clock\", \"arguments\": " arguments_1 "}"',
        'arguments_1: %json {"type": "object", "properties": {}}',
    ]


def test_a_grammar_may_allow_one_call_or_an_answer():
    text = calls_grammar([CLOCK], several=False, answer={"type": "object"})

    assert "start: calls | answer\ncalls: call\n" in text
    assert 'answer: %json {"type": "object"}' in text
