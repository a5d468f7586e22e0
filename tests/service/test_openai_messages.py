from service.openai.messages import Message
from tests.rows import rows


def rendered(**said: object) -> dict:
    return Message.model_validate(said).rendered()


PARTS = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
TOLD = {"role": "tool", "content": "rain", "tool_call_id": "c", "name": "weather"}
UNSAID = dict.fromkeys(("refusal", "audio", "function_call", "tool_calls"))


@rows(
    ("said", "expected"),
    [
        ({"role": "user", "content": "ab"}, {"role": "user", "content": "ab"}),
        ({"role": "user", "content": PARTS}, {"role": "user", "content": "ab"}),
        # the answer of a tool says which call it answers
        (TOLD, TOLD),
        # an answer may be sent back as it came
        (
            {"role": "assistant", "content": "hi", "annotations": [], "parsed": {"a": 1}} | UNSAID,
            {"role": "assistant", "content": "hi"},
        ),
    ],
)
def test_a_template_gets_a_message_as_text(said, expected):
    assert rendered(**said) == expected


@rows(
    ("written", "arguments"),
    [('{"a": [1]}', {"a": [1]}), ("", ""), ("{broken", "{broken"), ("[" * 100_000, "[" * 100_000)],
)
def test_arguments_of_a_call_are_an_object_where_they_are_json(written, arguments):
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": written}}
    found = rendered(role="assistant", content=None, tool_calls=[call])

    assert found["content"] == ""
    assert found["tool_calls"] == [{"id": "c", "type": "function", "function": {"name": "f", "arguments": arguments}}]
