"""A switch or a lost engine in the middle of an answer changes nothing of what is made of its tokens."""

import asyncio
import json
import re
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from opentelemetry.trace import Tracer

from runtime.router import Router
from service.openai.api import Endpoint, openai_app
from tests.rows import rows
from tests.runtime.scripted import Script, ScriptedEngine, topology
from tests.service.open_door import behind_open_door
from tests.service.scripted import HERMES, character_tokenizer

pytestmark = pytest.mark.slow

CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Bern", "days": [1, 2]}}\n</tool_call>'
TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
SAYS = f"Let me see, of course.\n{CALL}\n{CALL}"
TOOL = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}
CHAT = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "stream": True}
TEXT = {"model": "m", "prompt": "hi", "max_tokens": 200, "stream": True}


async def chunks_of(
    path: str, body: dict, cut_after: int | None, *, is_lost: bool = False, tracer: Tracer | None = None
) -> list[dict]:
    """Chunks of a stream; the engine switches after so many tokens of all choices, or is lost until clients heard of it."""
    tokenizer = character_tokenizer(HERMES)
    script = Script(says=(*tokenizer.encode(SAYS), 0))
    engine = ScriptedEngine(topology(1, 1), script, max_tokens=1000)
    async with Router(engine, tokenizer) as router:
        app = behind_open_door(openai_app({"m": Endpoint(router, 900, 98, tracer=tracer)}))
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            engine.hold()
            asking = asyncio.create_task(client.post(path, json=body, headers={"traceparent": TRACEPARENT}))
            await loop_until(lambda: len(engine.requests) == choices_of(body))
            while engine.requests and router.counts.accepted < (cut_after or 0):
                engine.turn()
                await asyncio.sleep(0)
            if is_lost and engine.requests:
                engine.is_away = True
                engine.fail("the driver was killed", is_lost=True)
                await loop_until(lambda: any(map(pauses, router._streams.values())))
                engine.is_away = False
            elif cut_after is not None:
                engine.move(router.announce(topology(2)), topology(2))
            engine.resume()
            answer = await asking
        assert router.counts.lost == 0
    await engine.close()
    lines = [line for line in answer.text.split("\n") if line]
    comments = [line for line in lines if line.startswith(": the engine was lost")]
    *events, done = [line.removeprefix("data: ") for line in lines if line not in comments]
    assert done == "[DONE]"
    assert bool(comments) or not is_lost or len(events) <= (cut_after or 0)
    return list(map(json.loads, events))


def pauses(stream: Any) -> bool:
    """A pause is on its way to its client."""
    return any(arrival.token.token_id is None for arrival in stream.arrivals)


async def loop_until(is_so: Callable[[], bool]) -> None:
    while not is_so():  # noqa: ASYNC110 - what is waited for happens in this loop
        await asyncio.sleep(0)


def choices_of(body: dict) -> int:
    prompts = body.get("prompt")
    return body.get("n", 1) * (len(prompts) if isinstance(prompts, list) else 1)


def by_choice(chunks: list[dict]) -> list[dict]:
    return sorted(chunks, key=lambda chunk: chunk["choices"][0]["index"])


def plain(chunks: list[dict]) -> list[str]:
    """Chunks without what differs from answer to answer."""
    kept = [{key: chunk[key] for key in ("object", "choices", "usage") if key in chunk} for chunk in chunks]
    return [re.sub(r"call_\w+", "call", json.dumps(chunk)) for chunk in kept]


@rows(
    ("path", "body"),
    [
        ("/completions", TEXT),
        ("/completions", TEXT | {"stop": ["of course"], "logprobs": 1}),
        ("/completions", TEXT | {"prompt": ["a", "bc"], "n": 2, "stream_options": {"include_usage": True}}),
        ("/chat/completions", CHAT | {"tools": [TOOL], "logprobs": True, "top_logprobs": 1}),
        ("/chat/completions", CHAT | {"tools": [TOOL], "n": 2}),
        ("/chat/completions", CHAT | {"tools": [TOOL], "parallel_tool_calls": False}),
    ],
)  # fmt: skip
async def test_what_is_made_of_tokens_is_the_same_through_a_switch(path, body):
    quiet = await chunks_of(path, body, None)
    assert {chunk["system_fingerprint"] for chunk in quiet} == {"0-PP2"}
    for cut_after in (0, 1, 13, 60, 90, 110):
        switched = await chunks_of(path, body, cut_after)
        assert plain(switched) == plain(quiet), cut_after
        fingerprints = {chunk["system_fingerprint"] for chunk in switched}
        is_cut = 0 < cut_after < len(quiet) - 1
        assert fingerprints == ({"0-PP2", "1-TP2"} if is_cut else {"1-TP2"} if cut_after == 0 else {"0-PP2"})


async def test_what_is_made_of_tokens_is_the_same_where_the_engine_is_lost(monkeypatch):
    monkeypatch.setattr("runtime.recovery.PAUSE_TOLD_S", 0.0)
    for path, body in [("/completions", TEXT), ("/chat/completions", CHAT | {"tools": [TOOL], "n": 2})]:
        quiet = await chunks_of(path, body, None)
        for lost_after in (1, 13, 60):
            broken = await chunks_of(path, body, lost_after, is_lost=True)
            assert plain(by_choice(broken)) == plain(by_choice(quiet)), lost_after
            assert {chunk["system_fingerprint"] for chunk in broken} == {"0-PP2", "1-PP2"}


async def test_calls_come_whole_out_of_a_stream():
    chunks = await chunks_of("/chat/completions", CHAT | {"tools": [TOOL]}, None)
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
    calls = [call for delta in deltas for call in delta.get("tool_calls", ())]

    assert "".join(delta.get("content", "") for delta in deltas) == "Let me see, of course."
    assert [call["index"] for call in calls if "id" in call] == [0, 1]
    for number in (0, 1):
        arguments = "".join(call["function"]["arguments"] for call in calls if call["index"] == number)
        assert json.loads(arguments) == {"city": "Bern", "days": [1, 2]}
    assert chunks[-1]["choices"][0]["finish_reason"] == "tool_calls"


async def test_one_call_where_only_one_may_be_made():
    chunks = await chunks_of("/chat/completions", CHAT | {"tools": [TOOL], "parallel_tool_calls": False}, None)
    calls = [call for chunk in chunks for call in chunk["choices"][0]["delta"].get("tool_calls", ())]

    assert {call["index"] for call in calls} == {0}
    assert chunks[-1]["choices"][0]["finish_reason"] == "tool_calls"
