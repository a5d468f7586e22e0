import pytest

from service.openai_messages import Message


def rendered(**said: object) -> dict:
    return Message.model_validate(said).rendered()


def test_content_is_text_or_its_parts():
    assert rendered(role="user", content="ab") == {"role": "user", "content": "ab"}
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert rendered(role="user", content=parts) == {"role": "user", "content": "ab"}


@pytest.mark.parametrize(
    ("written", "arguments"),
    [('{"a": [1]}', {"a": [1]}), ("", ""), ("{broken", "{broken"), ("[" * 100_000, "[" * 100_000)],
)
def test_arguments_of_a_call_are_an_object_where_they_are_json(written, arguments):
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": written}}
    found = rendered(role="assistant", content=None, tool_calls=[call])

    assert found["content"] == ""
    assert found["tool_calls"] == [
        {"id": "c", "type": "function", "function": {"name": "f", "arguments": arguments}}
    ]


def test_the_answer_of_a_tool_says_which_call_it_answers():
    found = rendered(role="tool", content="rain", tool_call_id="c", name="weather")
    assert found == {"role": "tool", "content": "rain", "tool_call_id": "c", "name": "weather"}


def test_an_answer_may_be_sent_back_as_it_came():
    said = {"role": "assistant", "content": "hi", "refusal": None, "annotations": [], "audio": None,
            "function_call": None, "tool_calls": None, "parsed": {"a": 1}}  # fmt: skip
    assert rendered(**said) == {"role": "assistant", "content": "hi"}
