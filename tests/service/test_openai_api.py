"""The stock client against the real server."""

import asyncio
import json

import httpx
import openai
import pytest
from openai import AsyncOpenAI, DefaultAsyncHttpxClient

from tests.rows import rows
from tests.service.scripted import DEPLOYMENT, ScriptedService

pytestmark = pytest.mark.slow


@pytest.fixture
async def client(shared):
    async with client_of(shared) as client:
        yield client


def client_of(service: ScriptedService) -> AsyncOpenAI:
    http = DefaultAsyncHttpxClient(trust_env=False)
    return AsyncOpenAI(base_url=f"{service.url}/openai/v1", api_key="none", http_client=http, max_retries=0)


async def streamed(client: AsyncOpenAI, **request) -> list:
    chunks = await client.completions.create(**({"model": "counting", "stream": True} | request))
    return [chunk async for chunk in chunks]


async def test_models_are_listed(client):
    assert [model.id async for model in client.models.list()] == ["counting"]
    assert (await client.models.retrieve("counting")).id == "counting"


async def test_a_completion_has_text_usage_and_a_finish_reason(client):
    answer = await client.completions.create(model="counting", prompt="abc", max_tokens=5)

    assert answer.choices[0].text == "abcab"
    assert answer.choices[0].finish_reason == "length"
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (3, 5)


async def test_a_stream_has_one_chunk_per_token_and_its_topology(client):
    chunks = await streamed(client, prompt="abc", max_tokens=7)

    assert [chunk.choices[0].text for chunk in chunks] == list("abcabca")
    assert {chunk.system_fingerprint for chunk in chunks} == {"0-PP2"}
    assert [chunk.choices[0].finish_reason for chunk in chunks] == [None] * 6 + ["length"]
    assert all(chunk.usage is None for chunk in chunks)


async def test_logprobs_come_with_each_token(client):
    chunks = await streamed(client, prompt="abc", max_tokens=2, logprobs=1)

    assert [chunk.choices[0].logprobs.tokens for chunk in chunks] == [["a"], ["b"]]
    assert chunks[0].choices[0].logprobs.token_logprobs == [0.0]
    assert chunks[0].choices[0].logprobs.top_logprobs == [{"a": 0.0}]
    assert [chunk.choices[0].logprobs.text_offset for chunk in chunks] == [[0], [1]]


async def test_a_stop_string_ends_the_text_before_it(client):
    answer = await client.completions.create(model="counting", prompt="count 1 2", max_tokens=50, stop=["1"])

    assert answer.choices[0].text == "count "
    assert answer.choices[0].finish_reason == "stop"


async def test_chat_goes_through_the_template(client):
    answer = await client.chat.completions.create(
        model="counting",
        messages=[{"role": "user", "content": "hello"}],
        max_tokens=5,
        logprobs=True,
        top_logprobs=1,
    )

    assert answer.choices[0].message.content == "hello"
    assert [entry.token for entry in answer.choices[0].logprobs.content] == list("hello")
    assert answer.choices[0].logprobs.content[0].top_logprobs[0].token == "h"


async def test_chat_streams_deltas(client):
    chunks = await client.chat.completions.create(
        model="counting", messages=[{"role": "user", "content": "hi"}], max_completion_tokens=3, stream=True
    )
    received = [chunk async for chunk in chunks]

    assert received[0].choices[0].delta.role == "assistant"
    assert "".join(chunk.choices[0].delta.content for chunk in received) == "hih"
    assert received[-1].choices[0].finish_reason == "length"


async def test_prompts_may_be_token_ids_and_a_list_of_one(client):
    for prompt in ([66, 67], ["ab"], [[66, 67]]):
        assert (await client.completions.create(model="counting", prompt=prompt, max_tokens=2)).choices[0].text == "ab"


async def test_leaving_before_the_first_token_ends_the_request(service):
    async with client_of(service) as client:
        service.do(service.engine.hold)
        asking = asyncio.create_task(client.completions.create(model="counting", prompt="abc", max_tokens=5))
        await asyncio.wait_for(_until(lambda: service.engine.requests), timeout=10)
        asking.cancel()
        await asyncio.wait_for(_until(lambda: not service.engine.requests), timeout=10)


async def _until(condition) -> None:
    while not condition():  # noqa: ASYNC110 - the engine runs in another thread
        await asyncio.sleep(0)


@rows(
    ("request_", "param", "said"),
    [
        ({"best_of": 3}, "best_of", "not served"),
        ({"temperature": -1}, "temperature", "greater"),
        ({"logit_bias": {"98": 1}}, "logit_bias", "not in the vocabulary"),
        ({"prompt": [1, 98]}, "prompt", "not in the vocabulary"),
        ({"prompt": "a" * 20_000}, "prompt", "maximum context length is 16384"),
        ({"extra_body": {"beam_width": 4}}, "beam_width", "not a parameter"),
    ],
)
async def test_what_is_not_served_is_refused_by_name(client, request_, param, said):
    with pytest.raises(openai.BadRequestError) as caught:
        await client.completions.create(**({"model": "counting", "prompt": "a"} | request_))

    assert caught.value.body["param"] == param
    assert said in caught.value.body["message"]
    assert caught.value.body["type"] == "invalid_request_error"


PLAIN = {"model": "counting", "prompt": "abc", "max_tokens": 2}


@rows(
    ("path", "headers", "body", "status", "code", "said"),
    [
        (
            "completions",
            {},
            {**PLAIN, "prompt": "a" * 20_000},
            400,
            "context_length_exceeded",
            "this model's maximum context length is 16384",
        ),
        ("completions", {}, {"model": "counting"}, 400, "missing_required_parameter", "prompt: is missing"),
        ("completions", {}, {**PLAIN, "mood": 1}, 400, "unknown_parameter", "mood: is not a parameter"),
        ("completions", {}, {**PLAIN, "n": 0}, 400, "invalid_value", "n: "),
        ("completions", {}, {**PLAIN, "suffix": "x"}, 400, "unsupported_value", "suffix: is not served here"),
        (
            "completions",
            {"Content-Type": "text/plain"},
            PLAIN,
            400,
            "invalid_value",
            "(text/plain); send Content-Type: application/json",
        ),
        (
            "completions",
            {"Content-Type": ""},
            PLAIN,
            400,
            "invalid_value",
            "(no Content-Type); send Content-Type: application/json",
        ),
        ("completions", {}, {**PLAIN, "max_tokens": 0}, 400, "invalid_value", "echo and logprobs"),
        (
            "completions",
            {},
            {**PLAIN, "logit_bias": {"99": 1}},
            400,
            "invalid_value",
            "token 99 is not in the vocabulary",
        ),
        ("completions", {}, {**PLAIN, "model": "gpt-9"}, 404, "model_not_found", "'gpt-9' is not served here"),
    ],
)
def test_errors_have_the_codes_that_gateways_look_for(shared, path, headers, body, status, code, said):
    answer = httpx.post(
        f"{shared.url}/openai/v1/{path}",
        content=json.dumps(body),
        headers={"Content-Type": "application/json", **headers},
        trust_env=False,
    )
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (status, code), error
    assert said in error["message"]


def test_proxies_are_told_to_hold_no_stream_back(shared):
    with httpx.stream(
        "POST", f"{shared.url}/openai/v1/completions", json={**PLAIN, "stream": True}, trust_env=False
    ) as answer:
        assert (answer.headers["x-accel-buffering"], answer.headers["cache-control"]) == ("no", "no-cache")
        answer.read()


@rows("path", ["chat/completions", "completions", "embeddings"])
def test_who_asks_at_the_usual_place_is_told_ours(shared, path):
    answer = httpx.post(f"{shared.url}/v1/{path}", json=PLAIN, trust_env=False)
    assert answer.status_code == 404
    assert "the OpenAI API is at /openai/v1" in answer.json()["detail"]


@rows("path", ["health", "openai/health", "healthz"])
def test_load_generators_find_the_service_alive(shared, path):
    assert httpx.get(f"{shared.url}/{path}", trust_env=False).json() == {"status": "ok"}


async def test_an_unknown_model_names_the_one_that_is_served(client):
    with pytest.raises(openai.NotFoundError, match="'counting' is"):
        await client.completions.create(model="gpt-9", prompt="a")


async def test_an_engine_that_ends_breaks_its_streams_with_a_clear_error(service):
    async with client_of(service) as client:
        begun = await client.completions.create(model="counting", prompt="abc", max_tokens=12_000, stream=True)
        await anext(aiter(begun))
        service.do(service.engine.hold)
        asking = asyncio.create_task(streamed(client, prompt="abc", max_tokens=100))
        await asyncio.wait_for(_until(lambda: len(service.engine.requests) == 2), timeout=10)
        service.do(service.engine.lose, "rank 1 was lost")

        with pytest.raises(openai.APIError, match="rank 1 was lost"):
            await asking
        with pytest.raises(openai.APIError, match="rank 1 was lost"):
            async for _ in begun:
                pass
        with pytest.raises(openai.InternalServerError, match="rank 1 was lost"):
            await client.completions.create(model="counting", prompt="a")


async def test_several_prompts_and_answers_are_numbered_prompt_by_prompt(client):
    answer = await client.completions.create(model="counting", prompt=["abc", "xy"], n=2, max_tokens=4)

    assert [(one.index, one.text) for one in answer.choices] == [
        (0, "abca"), (1, "abca"), (2, "xyxy"), (3, "xyxy"),
    ]  # fmt: skip
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (5, 16)


async def test_choices_stream_side_by_side(client):
    chunks = await streamed(client, prompt="abc", n=3, max_tokens=4, stream_options={"include_usage": True})

    texts = dict.fromkeys(range(3), "")
    for chunk in chunks[:-1]:
        texts[chunk.choices[0].index] += chunk.choices[0].text
    assert set(texts.values()) == {"abca"}
    assert [chunk.choices[0].index for chunk in chunks[:3]] == [0, 1, 2]
    assert (chunks[-1].usage.prompt_tokens, chunks[-1].usage.completion_tokens) == (3, 12)


async def test_one_prompt_of_several_that_is_too_long_refuses_them_all(client, shared):
    with pytest.raises(openai.BadRequestError, match="tokens in all"):
        await streamed(client, prompt=["abc", "a" * 12_000], max_tokens=1000)
    await asyncio.wait_for(_until(lambda: not shared.engine.requests), timeout=10)


async def test_leaving_a_stream_of_several_ends_them_all(client, shared):
    chunks = await client.completions.create(model="counting", prompt="abc", n=3, max_tokens=3000, stream=True)
    await anext(aiter(chunks))
    assert len(shared.engine.requests) == 3
    await chunks.close()
    await asyncio.wait_for(_until(lambda: not shared.engine.requests), timeout=10)


async def test_tools_need_a_chat_template_that_knows_them(client):
    with pytest.raises(openai.BadRequestError, match="no place for tools") as caught:
        await client.chat.completions.create(
            model="counting",
            messages=[{"role": "user", "content": "hi"}],
            tools=[{"type": "function", "function": {"name": "f"}}],
        )
    assert caught.value.body["param"] == "tools"


async def test_chat_without_a_limit_ends_where_deployment_checkpoint_or_context_say(tmp_path):
    said = {"model": "counting", "messages": [{"role": "user", "content": "hello"}]}
    text = DEPLOYMENT.replace("limits: {", "limits: {max_output_tokens: 9, ")
    with ScriptedService(tmp_path, text) as service:
        tokenizer = service.parts.servings["counting"].router.tokenizer
        async with client_of(service) as client:
            for usual, length in ((None, 9), (7, 7), (20, 9)):
                tokenizer.max_new_tokens = usual
                answer = await client.chat.completions.create(**said)
                assert len(answer.choices[0].message.content) == length
            with pytest.raises(openai.BadRequestError, match="10 are more than the 9") as caught:
                await client.chat.completions.create(**said, max_completion_tokens=10)
            assert caught.value.body["param"] == "max_completion_tokens"
