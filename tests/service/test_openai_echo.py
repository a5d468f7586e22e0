"""``echo``: prompts that answers begin with, and the logprobs of their tokens."""

from dataclasses import replace

import numpy as np
import pytest

from runtime.grammar import Matcher, Vocabulary
from service.openai.declaration import ParameterError
from service.openai.echo import MAX_SCORED, scored
from tests.rows import rows
from tests.service.scripted import character_tokenizer, served

TOKENIZER = character_tokenizer()


def allowed(matcher: Matcher) -> list[int]:
    """The tokens that may come next."""
    return np.flatnonzero(np.unpackbits(matcher.mask().view(np.uint8), bitorder="little")).tolist()


def test_an_engine_can_say_nothing_but_a_scored_prompt_and_then_anything():
    prompt = scored((5, 5, 0, 7), ends=())
    matcher = Matcher(prompt.grammar, Vocabulary(TOKENIZER, 97))
    for token in (5, 0, 7):
        assert allowed(matcher) == [token]
        assert matcher.advance([token])
    assert allowed(matcher) == list(range(97))
    assert (prompt.tokens, prompt.num_scored) == ((5,), 3)


@rows(
    ("prompt", "said"),
    [((5,), "has 1 tokens"), ((5,) * (MAX_SCORED + 1), "for 2 to 4,000"), ((0, 5, 0), "token 0 ends an answer")],
)
def test_prompts_that_cannot_be_scored_are_refused(prompt, said):
    with pytest.raises(ParameterError, match=said):
        scored(prompt, ends=(0,))


def test_the_longest_prompt_is_still_a_grammar():
    prompt = scored((49_151,) * MAX_SCORED, ends=())
    assert Matcher(prompt.grammar, Vocabulary(TOKENIZER, 49_152)).mask().any()


def completed(http, **parameters) -> dict:
    answer = http.post("/openai/v1/completions", json={"model": "counting", "prompt": "aaa", **parameters})
    assert answer.status_code == 200, answer.text
    return answer.json()


# the scripted engine repeats what it is asked, whatever a grammar says
@pytest.mark.parametrize("num_tokens", [0, 2])
def test_an_answer_begins_with_its_prompt_and_its_logprobs(asked, num_tokens):
    found = completed(asked, echo=True, logprobs=1, max_tokens=num_tokens, n=2)

    for choice in found["choices"]:
        assert choice["text"] == "a" * (3 + num_tokens)
        assert choice["logprobs"] == {
            "tokens": ["a"] * (3 + num_tokens),
            "token_logprobs": [None] + [0.0] * (2 + num_tokens),
            "top_logprobs": [None] + [{"a": 0.0}] * (2 + num_tokens),
            "text_offset": list(range(3 + num_tokens)),
        }
    assert (found["usage"]["prompt_tokens"], found["usage"]["completion_tokens"]) == (3, 2 * num_tokens)


def test_an_engine_whose_logprobs_follow_its_grammar_scores_nothing(tmp_path):
    with served(tmp_path) as (service, http):
        service.engine.capabilities = replace(service.engine.capabilities, logprobs_ignore_grammar=False)
        body = {"model": "counting", "prompt": "aaa", "echo": True, "logprobs": 1}
        error = http.post("/openai/v1/completions", json=body).json()["error"]
        assert (error["param"], error["code"]) == ("echo", "invalid_value")
        assert completed(http, echo=True, max_tokens=1)["choices"][0]["text"] == "aaaa"


def test_a_prompt_is_told_without_logprobs_and_in_streams_too(asked):
    whole = completed(asked, prompt=["abc", "xy"], echo=True, max_tokens=3)
    with asked.stream(
        "POST",
        "/openai/v1/completions",
        json={"model": "counting", "prompt": "abc", "echo": True, "max_tokens": 1, "stream": True},
    ) as stream:
        lines = [line for line in stream.iter_lines() if '"text"' in line]

    assert [choice["text"] for choice in whole["choices"]] == ["abcabc", "xyxyx"]
    assert whole["usage"] == {"prompt_tokens": 5, "completion_tokens": 6, "total_tokens": 11}
    assert ['"text":"abc"' in lines[0], '"text":"a"' in lines[1], len(lines)] == [True, True, 2]
