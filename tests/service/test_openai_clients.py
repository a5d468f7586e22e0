"""The stock clients, unchanged, against the real server: what they send by habit, and what they make of answers."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace

import httpx
import openai
import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from openai import AsyncOpenAI, DefaultAsyncHttpxClient, DefaultHttpxClient, OpenAI
from pydantic import BaseModel

from tests.rows import rows
from tests.service.scripted import DEPLOYMENT, HERMES, ScriptedService, character_tokenizer

pytestmark = pytest.mark.slow

CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Bern"}}\n</tool_call>'
PLACE = '{"city": "Bern", "country": "CH"}'
CHAT = {"model": "counting", "messages": [{"role": "user", "content": "where?"}]}


class Place(BaseModel):
    """A place."""

    city: str
    country: str


class City(BaseModel):
    """A city."""

    city: str


@tool
def weather(city: str) -> str:
    """Tells the weather in a city."""
    return f"rain in {city}"


@pytest.fixture(scope="module")
def service(tmp_path_factory) -> Iterator[ScriptedService]:
    text = DEPLOYMENT.replace("limits: {", "limits: {max_output_tokens: 500, ")
    with ScriptedService(tmp_path_factory.mktemp("service"), text, template=HERMES) as running:
        yield running


def say(service: ScriptedService, text: str) -> None:
    """What the model answers from now on."""
    says = (*character_tokenizer().encode(text), 0)
    service.engine.script = replace(service.engine.script, says=says)


@pytest.fixture
def client(service) -> Iterator[OpenAI]:
    http = DefaultHttpxClient(trust_env=False)
    with OpenAI(base_url=f"{service.url}/openai/v1", api_key="none", http_client=http) as client:
        yield client


@pytest.fixture
async def waiting(service) -> AsyncIterator[AsyncOpenAI]:
    """A client that soon gives up, while the engine makes no steps until it has asked twice."""
    asked = 0

    async def count(_: httpx.Request) -> None:
        nonlocal asked
        asked += 1
        if asked == 2:
            service.do(service.engine.resume)

    service.do(service.engine.hold)
    http = DefaultAsyncHttpxClient(trust_env=False, event_hooks={"request": [count]})
    url = f"{service.url}/openai/v1"
    async with AsyncOpenAI(base_url=url, api_key="none", http_client=http, timeout=0.5) as client:
        yield client
    service.do(service.engine.resume)


@pytest.fixture
async def model(service) -> AsyncIterator[ChatOpenAI]:
    async with httpx.AsyncClient(timeout=60, trust_env=False) as later:
        with httpx.Client(timeout=60, trust_env=False) as http:
            clients = {"http_client": http, "http_async_client": later}
            yield ChatOpenAI(model="counting", base_url=f"{service.url}/openai/v1", api_key="none", **clients)


# --- openai ---


def test_openai_streams_chat(client, service):
    say(service, "in Bern")
    chunks = list(client.chat.completions.create(**CHAT, stream=True, stream_options={"include_usage": True}))

    assert "".join(chunk.choices[0].delta.content for chunk in chunks[:-1]) == "in Bern"
    assert chunks[-1].usage.completion_tokens == 8


def test_openai_parses_an_answer_into_a_model(client, service):
    say(service, PLACE)
    answer = client.chat.completions.parse(**CHAT, response_format=Place)

    assert answer.choices[0].message.parsed == Place(city="Bern", country="CH")


def test_openai_streams_a_model(client, service):
    say(service, PLACE)
    with client.chat.completions.stream(**CHAT, response_format=Place) as stream:
        for _ in stream:
            pass
        answer = stream.get_final_completion()
    assert answer.choices[0].message.parsed == Place(city="Bern", country="CH")


def test_openai_calls_tools_and_hands_their_results_back(client, service):
    tools = [openai.pydantic_function_tool(City, name="weather")]
    say(service, f"I look.\n{CALL}\n{CALL}")
    first = client.chat.completions.create(**CHAT, tools=tools)

    said = first.choices[0].message
    assert (said.content, first.choices[0].finish_reason) == ("I look.", "tool_calls")
    assert [json.loads(call.function.arguments) for call in said.tool_calls] == [{"city": "Bern"}] * 2
    assert len({call.id for call in said.tool_calls}) == 2

    say(service, "rain")
    results = [{"role": "tool", "tool_call_id": call.id, "content": "rain"} for call in said.tool_calls]
    messages = [*CHAT["messages"], said, *results]
    second = client.chat.completions.create(model="counting", messages=messages, tools=tools)
    assert second.choices[0].message.content == "rain"


def test_openai_streams_calls(client, service):
    tools = [openai.pydantic_function_tool(City, name="weather")]
    say(service, f"{CALL}\n{CALL}")
    with client.chat.completions.stream(**CHAT, tools=tools) as stream:
        kinds = {event.type for event in stream}
        answer = stream.get_final_completion()

    assert "tool_calls.function.arguments.delta" in kinds
    calls = answer.choices[0].message.tool_calls
    assert [call.function.name for call in calls] == ["weather", "weather"]
    assert [json.loads(call.function.arguments) for call in calls] == [{"city": "Bern"}] * 2


async def test_openai_tries_again_when_no_answer_came_in_time(waiting, service):
    say(service, "late")
    answer = await waiting.with_options(max_retries=3).chat.completions.create(**CHAT)

    assert answer.choices[0].message.content == "late"


async def test_openai_gives_up_after_its_time_and_nothing_is_left_behind(waiting, service):
    with pytest.raises(openai.APITimeoutError):
        await waiting.with_options(max_retries=0).chat.completions.create(**CHAT)

    while service.engine.requests:  # noqa: ASYNC110 - the engine runs in another thread
        await asyncio.sleep(0)


# --- langchain-openai ---


def test_langchain_invokes_and_streams(model, service):
    say(service, "in Bern")
    answer = model.invoke("where?")
    assert answer.content == "in Bern"
    assert answer.usage_metadata["output_tokens"] == 8
    assert "".join(chunk.content for chunk in model.stream("where?")) == "in Bern"


async def test_langchain_invokes_and_streams_asynchronously(model, service):
    say(service, "in Bern")
    assert (await model.ainvoke("where?")).content == "in Bern"
    assert "".join([chunk.content async for chunk in model.astream("where?")]) == "in Bern"


@rows(
    ("method", "text"),
    [
        ("json_schema", PLACE),
        ("json_mode", PLACE),
        ("function_calling", f'<tool_call>\n{{"name": "Place", "arguments": {PLACE}}}\n</tool_call>'),
    ],
)
def test_langchain_has_structured_output(model, service, method, text):
    say(service, text)
    assert model.with_structured_output(Place, method=method).invoke("where?") == Place(city="Bern", country="CH")


def test_langchain_calls_tools(model, service):
    say(service, CALL)
    model = model.bind_tools([weather])
    said = model.invoke("where?")
    assert [(call["name"], call["args"]) for call in said.tool_calls] == [("weather", {"city": "Bern"})]
    streamed = list(model.stream("where?"))
    assert sum(streamed[1:], streamed[0]).tool_calls[0]["args"] == {"city": "Bern"}

    say(service, "rain")
    result = ToolMessage(weather.invoke(said.tool_calls[0]["args"]), tool_call_id=said.tool_calls[0]["id"])
    answer = model.invoke([HumanMessage("where?"), said, result])
    assert isinstance(answer, AIMessage)
    assert answer.content == "rain"


def test_langchain_forces_a_tool(model, service):
    say(service, CALL)
    for choice in ("any", "weather"):
        said = model.bind_tools([weather], tool_choice=choice, strict=True).invoke("where?")
        assert said.tool_calls[0]["name"] == "weather"


# --- grammars ---


NO_TYPE = {"type": "nothing"}


@rows(
    ("asked", "param"),
    [
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": NO_TYPE}}},
            "response_format",
        ),
        ({"extra_body": {"structured_outputs": {"regex": "("}}}, "structured_outputs"),
        ({"extra_body": {"structured_outputs": {"choice": []}}}, "structured_outputs"),
        ({"extra_body": {"structured_outputs": {"grammar": "start: x"}}}, "structured_outputs"),
        (
            {
                "tool_choice": "required",
                "tools": [{"type": "function", "function": {"name": "f", "parameters": NO_TYPE}}],
            },
            "tools",
        ),
    ],
)
def test_openai_is_told_what_cannot_be_kept_to(client, asked, param):
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(**CHAT, **asked)
    assert caught.value.body["param"] == param
    assert caught.value.body["message"].startswith(f"{param}: ")
