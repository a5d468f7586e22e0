import json

from hypothesis import given
from hypothesis import strategies as st

from runtime.engine import Finish
from runtime.stream import Delta, Usage
from service.openai.calls import CallReader
from service.openai.chunks import Choice, CompletionWriter, Labels, error_chunk
from tests.rows import rows

TEXT = st.text(max_size=12)


def delta(text="7", *, index=0, finish=None, token_id=5, alternatives=(), usage=None) -> Delta:
    return Delta(text, token_id, -0.25, tuple(alternatives), index, finish, "3-TP2", 0.0, usage)


def answer(
    kind="text_completion", *, logprobs=False, include_usage=False, choices=1, prompts=1, calls=False
) -> CompletionWriter:
    labels = Labels(lambda token_id: b"\xe2\x82" if token_id == 8 else f"<{token_id}>".encode())
    made = [Choice(index, CallReader() if calls else None) for index in range(choices)]
    labelled = labels if logprobs else None
    return CompletionWriter("cmpl-1", kind, 'a "model"', 1700000000, made, prompts, labelled, include_usage)


def parsed(event: bytes) -> dict:
    assert event.startswith(b"data: ")
    assert event.endswith(b"\n\n")
    assert event.count(b"\n") == 2
    return json.loads(event[len(b"data: ") :])


@given(TEXT)
def test_a_completion_chunk_is_one_event_of_valid_json(text):
    chunk = parsed(answer().chunk((0, delta(text))))

    assert chunk["choices"] == [{"index": 0, "text": text, "logprobs": None, "finish_reason": None}]
    assert chunk["model"] == 'a "model"'
    assert chunk["object"] == "text_completion"
    assert chunk["system_fingerprint"] == "3-TP2"
    assert "usage" not in chunk


def test_the_first_chat_chunk_brings_the_role():
    writing = answer("chat.completion")
    first, second = parsed(writing.chunk((0, delta("a")))), parsed(writing.chunk((0, delta("b"))))

    assert first["object"] == "chat.completion.chunk"
    assert first["choices"][0]["delta"] == {"role": "assistant", "content": "a"}
    assert second["choices"][0]["delta"] == {"content": "b"}


@rows(("finish", "reason"), [(Finish.STOP, "stop"), (Finish.LENGTH, "length"), (Finish.CANCELLED, "stop")])
def test_the_last_chunk_says_why(finish, reason):
    assert parsed(answer().chunk((0, delta(finish=finish))))["choices"][0]["finish_reason"] == reason


def test_completion_logprobs_tell_the_token_its_alternatives_and_its_place():
    writing = answer(logprobs=True)
    writing.chunk((0, delta("ab")))
    (choice,) = parsed(writing.chunk((0, delta("c", alternatives=[(5, -0.25), (6, -1.5)]))))["choices"]

    assert choice["logprobs"] == {
        "tokens": ["<5>"],
        "token_logprobs": [-0.25],
        "top_logprobs": [{"<5>": -0.25, "<6>": -1.5}],
        "text_offset": [2],
    }


def test_chat_logprobs_are_entries():
    chunk = parsed(answer("chat.completion", logprobs=True).chunk((0, delta(alternatives=[(6, -1.5)]))))

    (entry,) = chunk["choices"][0]["logprobs"]["content"]
    assert (entry["token"], entry["logprob"]) == ("<5>", -0.25)
    assert entry["top_logprobs"] == [{"token": "<6>", "logprob": -1.5, "bytes": [60, 54, 62]}]


def test_a_token_that_is_part_of_a_character_is_told_by_its_bytes():
    chat = parsed(answer("chat.completion", logprobs=True).chunk((0, delta("", token_id=8))))
    (entry,) = chat["choices"][0]["logprobs"]["content"]
    assert (entry["token"], entry["bytes"]) == (r"bytes:\xe2\x82", [0xE2, 0x82])

    text = parsed(answer(logprobs=True).chunk((0, delta("", token_id=8))))
    assert text["choices"][0]["logprobs"]["tokens"] == [r"bytes:\xe2\x82"]


def test_usage_is_null_until_the_chunk_that_tells_it():
    writing = answer(include_usage=True)

    assert parsed(writing.chunk((0, delta())))["usage"] is None
    writing.chunk((0, delta(finish=Finish.STOP, usage=Usage(4, 6))))
    last = parsed(writing.usage_chunk())
    assert last["choices"] == []
    assert last["usage"] == {"prompt_tokens": 4, "completion_tokens": 6, "total_tokens": 10}
    writing.chunk((0, delta(finish=Finish.STOP, usage=Usage(4, 6, cached_tokens=0))))
    cached = parsed(writing.usage_chunk())["usage"]
    assert cached == {**last["usage"], "prompt_tokens_details": {"cached_tokens": 0}}


def test_usage_counts_each_prompt_once_and_every_answer():
    """Of two prompts with two answers each; the second answer finds its prompt in the cache, which saves the client nothing."""
    writing = answer(choices=4, prompts=2)
    usages = [Usage(3, 5, 0), Usage(3, 6, 3), Usage(4, 7, 2), Usage(4, 8, 4)]
    deltas = [(index, delta(finish=Finish.STOP, usage=usage)) for index, usage in enumerate(usages)]

    usage = writing.whole(deltas)["usage"]
    assert usage.pop("prompt_tokens_details") == {"cached_tokens": 2}
    assert usage == {"prompt_tokens": 7, "completion_tokens": 26, "total_tokens": 33}


def test_choices_are_told_apart_by_their_index():
    writing = answer("chat.completion", choices=2, logprobs=True)
    chunks = [parsed(writing.chunk((index, delta(text)))) for index, text in ((1, "a"), (0, "b"), (1, "c"))]

    assert [chunk["choices"][0]["index"] for chunk in chunks] == [1, 0, 1]
    assert ["role" in chunk["choices"][0]["delta"] for chunk in chunks] == [True, True, False]

    end = {"finish": Finish.STOP, "usage": Usage(3, 2)}
    whole = answer(choices=2).whole([(1, delta("a")), (0, delta("b", **end)), (1, delta("c", **end))])
    assert [(choice["index"], choice["text"]) for choice in whole["choices"]] == [(0, "b"), (1, "ac")]


CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Bern"}}\n</tool_call>'


def test_calls_are_streamed_as_their_name_and_then_their_arguments():
    writing = answer("chat.completion", calls=True)
    pieces = ["So:" + CALL.partition("ty")[0], 'ty": "Be', 'rn"}}', "\n</tool_call>"]
    deltas = [delta(piece) for piece in pieces[:-1]] + [delta(pieces[-1], finish=Finish.STOP)]
    chunks = [parsed(writing.chunk((0, one)))["choices"][0] for one in deltas]

    first = chunks[0]["delta"]
    assert (first["role"], first["content"]) == ("assistant", "So:")
    (begun,) = first["tool_calls"]
    assert begun["id"].startswith("call_")
    assert begun | {"id": ""} == {
        "index": 0, "id": "", "type": "function", "function": {"name": "weather", "arguments": '{"ci'},
    }  # fmt: skip
    assert chunks[1]["delta"] == {"tool_calls": [{"index": 0, "function": {"arguments": 'ty": "Be'}}]}
    assert chunks[-1]["delta"] == {}
    assert [chunk["finish_reason"] for chunk in chunks] == [None, None, None, "tool_calls"]


def test_a_whole_answer_has_its_calls():
    end = {"finish": Finish.STOP, "usage": Usage(3, 2)}
    (choice,) = answer("chat.completion", calls=True).whole([(0, delta(CALL, **end))])["choices"]

    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["content"] is None
    (call,) = choice["message"]["tool_calls"]
    assert call["function"] == {"name": "weather", "arguments": '{"city": "Bern"}'}


def test_an_answer_that_calls_nothing_or_is_cut_off_says_so():
    end = {"finish": Finish.STOP, "usage": Usage(3, 2)}
    (choice,) = answer("chat.completion", calls=True).whole([(0, delta("no", **end))])["choices"]
    assert (choice["message"]["content"], choice["finish_reason"]) == ("no", "stop")
    assert "tool_calls" not in choice["message"]

    end["finish"] = Finish.LENGTH
    (choice,) = answer("chat.completion", calls=True).whole([(0, delta(CALL[:60], **end))])["choices"]
    assert choice["finish_reason"] == "length"


def test_a_whole_answer_joins_text_and_logprobs():
    deltas = [(0, delta("a")), (0, delta("b", index=1, finish=Finish.LENGTH, usage=Usage(3, 2)))]
    whole = answer(logprobs=True).whole(deltas)

    assert whole["choices"][0]["text"] == "ab"
    assert whole["choices"][0]["finish_reason"] == "length"
    assert whole["choices"][0]["logprobs"]["tokens"] == ["<5>", "<5>"]
    assert whole["choices"][0]["logprobs"]["text_offset"] == [0, 1]
    assert whole["usage"]["total_tokens"] == 5


def test_an_end_without_a_token_has_no_logprobs():
    chunk = parsed(answer(logprobs=True).chunk((0, delta("", token_id=None, finish=Finish.STOP))))

    assert chunk["choices"][0]["logprobs"] is None


def test_an_error_inside_a_stream_is_an_error_event():
    assert parsed(error_chunk("the engine ended", "server_error"))["error"]["message"] == "the engine ended"
