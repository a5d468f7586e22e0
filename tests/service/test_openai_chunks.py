import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.engine import Finish
from runtime.router import Delta, Usage
from service.openai_chunks import Answer, error_chunk

TEXT = st.text(max_size=12)


def delta(text="7", *, index=0, finish=None, token_id=5, alternatives=(), usage=None) -> Delta:
    return Delta(text, token_id, -0.25, tuple(alternatives), index, finish, "3-TP2", 0.0, usage)


def answer(kind="text_completion", *, logprobs=False, include_usage=False) -> Answer:
    return Answer(
        "cmpl-1", kind, 'a "model"', 1700000000, lambda token_id: f"<{token_id}>", logprobs, include_usage
    )


def parsed(event: bytes) -> dict:
    assert event.startswith(b"data: ")
    assert event.endswith(b"\n\n")
    assert event.count(b"\n") == 2
    return json.loads(event[len(b"data: ") :])


@given(TEXT)
def test_a_completion_chunk_is_one_event_of_valid_json(text):
    chunk = parsed(answer().chunk(delta(text)))

    assert chunk["choices"] == [{"index": 0, "text": text, "logprobs": None, "finish_reason": None}]
    assert chunk["model"] == 'a "model"'
    assert chunk["object"] == "text_completion"
    assert chunk["system_fingerprint"] == "3-TP2"
    assert "usage" not in chunk


def test_the_first_chat_chunk_brings_the_role():
    writing = answer("chat.completion")
    first, second = parsed(writing.chunk(delta("a"))), parsed(writing.chunk(delta("b")))

    assert first["object"] == "chat.completion.chunk"
    assert first["choices"][0]["delta"] == {"role": "assistant", "content": "a"}
    assert second["choices"][0]["delta"] == {"content": "b"}


@pytest.mark.parametrize(
    ("finish", "reason"), [(Finish.STOP, "stop"), (Finish.LENGTH, "length"), (Finish.CANCELLED, "stop")]
)
def test_the_last_chunk_says_why(finish, reason):
    assert parsed(answer().chunk(delta(finish=finish)))["choices"][0]["finish_reason"] == reason


def test_completion_logprobs_tell_the_token_its_alternatives_and_its_place():
    writing = answer(logprobs=True)
    writing.chunk(delta("ab"))
    found = parsed(writing.chunk(delta("c", alternatives=[(5, -0.25), (6, -1.5)])))["choices"][0]["logprobs"]

    assert found == {
        "tokens": ["<5>"],
        "token_logprobs": [-0.25],
        "top_logprobs": [{"<5>": -0.25, "<6>": -1.5}],
        "text_offset": [2],
    }


def test_chat_logprobs_are_entries():
    found = parsed(answer("chat.completion", logprobs=True).chunk(delta(alternatives=[(6, -1.5)])))[
        "choices"
    ][0]["logprobs"]

    (entry,) = found["content"]
    assert (entry["token"], entry["logprob"]) == ("<5>", -0.25)
    assert entry["top_logprobs"] == [{"token": "<6>", "logprob": -1.5, "bytes": [60, 54, 62]}]


def test_usage_is_null_until_the_chunk_that_tells_it():
    writing = answer(include_usage=True)

    assert parsed(writing.chunk(delta()))["usage"] is None
    last = parsed(writing.usage_chunk(Usage(4, 6), "3-TP2"))
    assert last["choices"] == []
    assert last["usage"] == {"prompt_tokens": 4, "completion_tokens": 6, "total_tokens": 10}
    cached = parsed(writing.usage_chunk(Usage(4, 6, cached_tokens=0), "3-TP2"))["usage"]
    assert cached == {**last["usage"], "prompt_tokens_details": {"cached_tokens": 0}}


def test_a_whole_answer_joins_text_and_logprobs():
    deltas = [delta("a"), delta("b", index=1, finish=Finish.LENGTH, usage=Usage(3, 2))]
    whole = answer(logprobs=True).whole(deltas)

    assert whole["choices"][0]["text"] == "ab"
    assert whole["choices"][0]["finish_reason"] == "length"
    assert whole["choices"][0]["logprobs"]["tokens"] == ["<5>", "<5>"]
    assert whole["choices"][0]["logprobs"]["text_offset"] == [0, 1]
    assert whole["usage"]["total_tokens"] == 5


def test_an_end_without_a_token_has_no_logprobs():
    chunk = parsed(answer(logprobs=True).chunk(delta("", token_id=None, finish=Finish.STOP)))

    assert chunk["choices"][0]["logprobs"] is None


def test_an_error_inside_a_stream_is_an_error_event():
    assert parsed(error_chunk("the engine ended", "server_error"))["error"]["message"] == "the engine ended"
