"""Every parameter: what is taken, and what is refused in words of whom."""

import json

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from service.openai.api import openai_app
from service.openai.declaration import ParameterError
from service.openai.echo import EnginePrompt
from service.openai.requests import ChatRequest, CompletionRequest
from tests.rows import rows
from tests.service.open_door import behind_open_door

TOOL = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}
HELLO = {"role": "user", "content": "hello"}


@pytest.fixture(scope="module")
def app() -> FastAPI:
    """Requests are checked before a model is looked for."""
    return openai_app({})


def refused(app: FastAPI, path: str, body: dict) -> dict:
    answer = TestClient(behind_open_door(app), "http://localhost").post(path, json=body)
    assert answer.status_code == 400, answer.text
    return answer.json()["error"]


def completion(**parameters) -> CompletionRequest:
    return CompletionRequest.model_validate({"model": "m", "prompt": "a"} | parameters)


def chat(**parameters) -> ChatRequest:
    return ChatRequest.model_validate({"model": "m", "messages": [HELLO]} | parameters)


def test_what_nobody_asks_for_is_as_the_engines_have_it():
    (params,) = completion().generations(5, EnginePrompt((1,)))

    sampling = params.sampling
    assert (sampling.temperature, sampling.top_p, sampling.top_k, sampling.min_p) == (1.0, 1.0, 0, 0.0)
    assert (sampling.seed, sampling.logit_bias, sampling.grammar, sampling.num_logprobs) == (None, (), "", 0)
    assert sampling.repetition_penalty == 1.0
    assert (params.stop, params.ignore_eos, sampling.max_tokens) == ((), False, 5)


def test_every_parameter_reaches_the_engine():
    asked = {"min_p": 0.1, "presence_penalty": 1, "frequency_penalty": -2, "repetition_penalty": 1.5, "top_k": -1,
             "logit_bias": {"5": -100, "7": 2.5}, "stop": "x", "stop_token_ids": [3], "logprobs": 2, "ignore_eos": True,
             "temperature": 0, "top_p": 0.5}  # fmt: skip
    (params,) = completion(**asked).generations(5, EnginePrompt((1,), "G"))

    sampling = params.sampling
    assert (sampling.min_p, sampling.presence_penalty, sampling.frequency_penalty) == (0.1, 1.0, -2.0)
    assert (sampling.repetition_penalty, sampling.top_k) == (1.5, 0)
    assert (sampling.temperature, sampling.top_p) == (0.0, 0.5)
    assert sampling.logit_bias == ((5, -100.0), (7, 2.5))
    assert (sampling.stop_token_ids, sampling.num_logprobs, sampling.grammar) == ((3,), 2, "G")
    assert (params.stop, params.ignore_eos) == (("x",), True)


def test_seeds_of_siblings_follow_one_another_and_stay_in_their_range():
    def seeds(**parameters) -> list[int | None]:
        return [params.sampling.seed for params in completion(n=3, **parameters).generations(5, EnginePrompt((1,)))]

    assert seeds() == [None] * 3
    assert seeds(seed=7) == [7, 8, 9]
    assert seeds(seed=2**63 - 1) == [2**63 - 1, -(2**63), -(2**63) + 1]


@rows(
    ("prompt", "prompts"),
    [
        ("ab", ("ab",)),
        (["ab"], ("ab",)),
        (["a", ""], ("a", "")),
        ([1, 2], ((1, 2),)),
        ([[1, 2], [3]], ((1, 2), (3,))),
        (["a", [3]], ("a", (3,))),
    ],
)
def test_prompts_are_texts_or_token_ids_one_or_several(prompt, prompts):
    assert completion(prompt=prompt).prompt == prompts


def test_nulls_and_what_frameworks_send_by_habit_change_nothing():
    nulls = dict.fromkeys(set(ChatRequest.model_fields) - {"model", "messages"})
    assert chat(**nulls) == chat()
    habits = {"user": "me", "metadata": {"a": "b"}, "store": True, "service_tier": "auto", "prompt_cache_key": "k",
              "safety_identifier": "s", "parallel_tool_calls": True, "stream_options": {"include_obfuscation": True}}  # fmt: skip
    assert chat(**habits).generations(5, EnginePrompt((1,))) == chat().generations(5, EnginePrompt((1,)))


def test_the_limit_of_chat_has_two_names():
    assert chat().asked_tokens == ("max_tokens", None)
    assert chat(max_tokens=3).asked_tokens == ("max_tokens", 3)
    assert chat(max_tokens=3, max_completion_tokens=4).asked_tokens == ("max_completion_tokens", 4)


def test_tools_that_may_not_be_called_are_not_told_and_one_call_ends_the_answer_where_only_one_may_be_made():
    assert [tool.function.name for tool in chat(tools=[TOOL]).offered] == ["weather"]
    assert chat(tools=[TOOL], tool_choice="none").offered == []
    assert chat(tools=[TOOL], stop=["x"]).stops == ("x",)
    assert chat(tools=[TOOL], stop=["x"], parallel_tool_calls=False).stops == ("x", "</tool_call>")


@rows(
    ("parameters", "has_grammar"),
    [
        ({}, False),
        ({"tool_choice": "none"}, False),
        ({"tool_choice": "auto"}, False),
        ({"tool_choice": "required"}, True),
        ({"tool_choice": {"type": "function", "function": {"name": "weather"}}}, True),
        ({"response_format": {"type": "text"}}, False),
        ({"response_format": {"type": "json_object"}}, True),
        ({"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {}}}}, True),
        ({"tool_choice": "none", "structured_outputs": {"choice": ["a"]}}, True),
    ],
)
def test_a_grammar_holds_only_what_was_asked_for(parameters, has_grammar):
    assert bool(chat(tools=[TOOL], **parameters).grammar()[1]) is has_grammar


@rows(
    ("parameters", "param", "said"),
    [
        ({"prompt": 5}, "prompt", "a text, a list of texts"),
        ({"prompt": []}, "prompt", "1 to 128"),
        ({"prompt": ["a"] * 129}, "prompt", "1 to 128"),
        ({"prompt": [True]}, "prompt", "a text, a list"),
        ({"prompt": [-1]}, "prompt", "a text, a list"),
        ({"prompt": ["a"] * 43, "n": 3}, "n", "more than 128"),
        ({"n": 0}, "n", "greater"),
        ({"n": 129}, "n", "less"),
        ({"n": "2"}, "n", "integer"),
        ({"best_of": 3}, "best_of", "send n"),
        ({"echo": True, "logprobs": 0, "stop": "x"}, "echo", "not served beside stop"),
        ({"echo": True, "logprobs": 0, "presence_penalty": 1}, "echo", "beside presence_penalty"),
        ({"echo": 1}, "echo", "boolean"),
        ({"suffix": "x"}, "suffix", "not served"),
        ({"max_tokens": -1}, "max_tokens", "greater"),
        ({"max_tokens": 0}, "max_tokens", "echo and logprobs"),
        ({"max_tokens": 0, "echo": True}, "max_tokens", "echo and logprobs"),
        ({"temperature": -1}, "temperature", "greater"),
        ({"temperature": "0.5"}, "temperature", "number"),
        ({"temperature": True}, "temperature", "number"),
        ({"top_p": 2}, "top_p", "less"),
        ({"min_p": 1.5}, "min_p", "less"),
        ({"presence_penalty": 3}, "presence_penalty", "less"),
        ({"frequency_penalty": -3}, "frequency_penalty", "greater"),
        ({"repetition_penalty": 0}, "repetition_penalty", "greater"),
        ({"seed": 2**63}, "seed", "less"),
        ({"logprobs": 21}, "logprobs", "less"),
        ({"logit_bias": [1]}, "logit_bias", "object"),
        ({"logit_bias": {"x": 1}}, "logit_bias", "'x' is no token id"),
        ({"logit_bias": {"5": 101}}, "logit_bias", "token 5"),
        ({"logit_bias": {"5": "1"}}, "logit_bias", "token 5"),
        ({"logit_bias": {str(n): 1 for n in range(1025)}}, "logit_bias", "1024"),
        ({"stop": ["a"] * 1000}, "stop", "at most 16"),
        ({"stop": "a" * 257}, "stop[0]", "at most 256"),
        ({"stop": [""]}, "stop[0]", "at least 1"),
        ({"stop": [5]}, "stop[0]", "string"),
        ({"stop_token_ids": [-1]}, "stop_token_ids[0]", "greater"),
        ({"stream_options": {"x": 1}}, "stream_options.x", "not a parameter"),
        ({"stream_options": 5}, "stream_options", "object"),
        ({"response_format": {"type": "xml"}}, "response_format.type", "'xml' is not served here"),
        ({"response_format": {"type": "json_schema"}}, "response_format", "json_schema comes with"),
        ({"structured_outputs": {}}, "structured_outputs", "exactly one"),
        ({"structured_outputs": {"regex": "a", "choice": ["a"]}}, "structured_outputs", "exactly one"),
        ({"structured_outputs": {"structural_tag": "x"}}, "structured_outputs.structural_tag", "not served"),
        (
            {"structured_outputs": {"regex": "a"}, "response_format": {"type": "text"}},
            "structured_outputs",
            "beside response_format",
        ),
        ({"guided_json": {}}, "guided_json", 'send structured_outputs: {"json": …}'),
        ({"guided_choice": ["a"]}, "guided_choice", "send structured_outputs"),
        ({"use_beam_search": True}, "use_beam_search", "not served"),
        ({"beam_width": 4}, "beam_width", "not a parameter"),
    ],
)  # fmt: skip
def test_what_a_completion_cannot_have_is_refused_by_name(app, parameters, param, said):
    error = refused(app, "/completions", {"model": "m", "prompt": "a"} | parameters)

    assert error["param"] == param
    assert error["message"].startswith(f"{param}: ")
    assert said in error["message"]
    assert error["type"] == "invalid_request_error"


def message(**parts) -> dict:
    return {"messages": [HELLO, {"role": "user", "content": "x"} | parts]}


@rows(
    ("parameters", "param", "said"),
    [
        ({"messages": []}, "messages", "at least 1"),
        ({"messages": "hi"}, "messages", "list"),
        ({"messages": [5]}, "messages[0]", "object"),
        (message(role="function"), "messages[1].role", "'function' is not served here"),
        (message(content=5), "messages[1].content", "should be a text, or a list of parts"),
        (message(content=None), "messages[1]", "no content"),
        (
            message(content=[{"type": "image_url", "image_url": {"url": "x"}}]),
            "messages[1].content[0].type",
            "'image_url' is not served here; send 'text'",
        ),
        (message(audio={"id": "x"}), "messages[1].audio", "not served"),
        (message(function_call={}), "messages[1].function_call", "send tool_calls"),
        (message(tool_calls=[{"function": {"name": "f"}}]), "messages[1]", "the role user cannot have"),
        ({"tools": [{"type": "web_search"}]}, "tools[0].type", "'web_search' is not served here"),
        ({"tools": [{"type": "function"}]}, "tools[0].function", "missing"),
        ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "tools[0].function.name", "pattern"),
        ({"tools": [TOOL, TOOL]}, "tools", "same name"),
        ({"tools": [TOOL] * 129}, "tools", "at most 128"),
        ({"tools": [TOOL], "tool_choice": "any"}, "tool_choice", '"any" is not served here'),
        ({"tools": [TOOL], "tool_choice": {"type": "allowed_tools"}}, "tool_choice", "not served here"),
        ({"tool_choice": "required"}, "tool_choice", "there are no tools"),
        (
            {"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "fly"}}},
            "tool_choice",
            "no tool 'fly'; there are weather",
        ),
        ({"tools": [TOOL], "structured_outputs": {"regex": "a"}}, "structured_outputs", "beside tools"),
        ({"functions": [{"name": "f"}]}, "functions", "send tools"),
        ({"top_logprobs": 2}, "top_logprobs", "needs logprobs"),
        ({"logprobs": 3}, "logprobs", "boolean"),
        ({"modalities": ["text", "audio"]}, "modalities", "answers are text"),
        ({"reasoning_effort": "high"}, "reasoning_effort", "not served"),
        ({"web_search_options": {}}, "web_search_options", "not served"),
    ],
)
def test_what_chat_cannot_have_is_refused_by_name(app, parameters, param, said):
    error = refused(app, "/chat/completions", {"model": "m", "messages": [HELLO]} | parameters)

    assert error["param"] == param
    assert error["message"].startswith(f"{param}: ")
    assert said in error["message"]


@rows("body", ["[]", "5", "null", "{", ""])
def test_a_body_that_is_no_object_is_refused(app, body):
    answer = TestClient(behind_open_door(app), "http://localhost").post(
        "/completions", content=body, headers={"content-type": "application/json"}
    )

    assert answer.status_code == 400
    assert json.loads(answer.text)["error"]["param"] is None


@rows(
    ("parameters", "param"),
    [({"logit_bias": {"98": 1}}, "logit_bias"), ({"stop_token_ids": [3, 98]}, "stop_token_ids"),
     ({"prompt": [1, 98]}, "prompt"), ({"prompt": [[1], [98, 2]]}, "prompt")],
)  # fmt: skip
def test_tokens_that_do_not_exist_are_refused(parameters, param):
    body = completion(**parameters)
    body.check_tokens(99)
    with pytest.raises(ParameterError, match="token 98 is not in the vocabulary of 98 tokens") as caught:
        body.check_tokens(98)
    assert caught.value.parameter == param


@rows(
    ("parameters", "goes_on"),
    [
        ({}, False),
        ({"max_tokens": 1}, False),
        ({"echo": True, "logprobs": 1}, False),
        ({"echo": True, "logprobs": 1, "max_tokens": 1}, True),
        ({"ignore_eos": True}, True),
    ],
)
def test_an_end_token_of_a_prompt_that_is_only_scored_ends_nothing(parameters, goes_on):
    (params,) = completion(**parameters).generations(5, EnginePrompt((1,)))
    assert params.ignore_eos is goes_on
