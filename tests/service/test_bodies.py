"""JSON within bounds: what is nested or branches too far is refused, in the form of its path, before it is checked."""

import asyncio
import json
import threading

import httpx
import pytest
from fastapi import HTTPException
from pydantic import ValidationError

from service import bodies
from service.app import control_api
from service.bodies import BULKY_BYTES, MAX_DEPTH, MAX_VALUES, refuse_outlandish
from service.openai_api import openai_app
from service.openai_requests import ChatRequest
from tests.rows import rows
from tests.service.open_door import behind_open_door

pytestmark = pytest.mark.slow


def nested(levels: int) -> object:
    document: object = 1
    for level in range(levels):
        document = [document] if level % 2 else {"a": document}
    return document


@rows(
    "document",
    [1, "a", None, nested(MAX_DEPTH), list(range(MAX_VALUES * 2)), {str(n): 1 for n in range(MAX_VALUES)}],
)
def test_what_is_usual_passes(document):
    refuse_outlandish(document)


@rows(
    ("document", "said"),
    [
        (nested(MAX_DEPTH + 1), "more than 64 levels"),
        ({str(n): 1 for n in range(MAX_VALUES + 1)}, "more than 20000 values"),
        ([{}] * (MAX_VALUES + 1), "more than 20000 values"),
        ([["a"] * 100] * MAX_VALUES, "more than 20000 values"),
        ([True] * (MAX_VALUES + 1), "more than 20000 values"),
    ],
)
def test_what_is_too_deep_or_too_wide_is_refused(document, said):
    with pytest.raises(HTTPException, match=said):
        refuse_outlandish(document)


DEEP = b'{"a":' + b"[" * 100 + b"]" * 100 + b"}"
DEEPER = b"[" * 100_000


@rows("path", ["/v1/intents:translate", "/openai/v1/chat/completions"])
@rows(("body", "said"), [(DEEP, "64 levels"), (DEEPER, "64 levels"), (b'{"a": "\xff"}', "not UTF-8")])
async def test_both_interfaces_refuse_it_in_their_own_form(path, body, said):
    app = control_api()
    app.mount("/openai/v1", openai_app({}))
    transport = httpx.ASGITransport(behind_open_door(app))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        answer = await client.post(path, content=body, headers={"Content-Type": "application/json"})

    document = answer.json()
    assert answer.status_code == 400
    assert said in (document["error"]["message"] if "openai" in path else document["detail"])


@rows("wrong", [[1] * 50, [{"role": "user", "content": [1] * 50}]])
def test_a_list_of_wrong_things_is_refused_for_the_first(wrong):
    with pytest.raises(ValidationError) as caught:
        ChatRequest.model_validate(json.loads(json.dumps({"model": "m", "messages": wrong})))
    assert caught.value.error_count() == 1


PADDING = b" " * BULKY_BYTES
CHAT = b'{"model": "counting", "messages": [{"role": "user", "content": "a"}]}'


@rows(
    ("path", "body"),
    [
        ("/openai/v1/chat/completions", CHAT),
        ("/openai/v1/chat/completions", CHAT.replace(b"user", b"nobody")),
        ("/openai/v1/chat/completions", b"[1]"),
        ("/openai/v1/chat/completions", b'{"model"'),
        ("/openai/v1/chat/completions", DEEP),
        ("/v1/intents:translate", b'{"text": 1, "more": 2}'),
        ("/v1/plans/p:apply", b'{"acknowledge": 1}'),
    ],
)
async def test_a_bulky_body_is_answered_as_a_small_one_is(path, body):
    app = control_api()
    app.state.operator_for = lambda _: None
    app.mount("/openai/v1", openai_app({}))
    transport = httpx.ASGITransport(behind_open_door(app))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        sent = {"headers": {"Content-Type": "application/json"}}
        small, bulky = [await client.post(path, content=one, **sent) for one in (body, body + PADDING)]
    assert (bulky.status_code, bulky.json()) == (small.status_code, small.json())


async def test_bulky_bodies_are_checked_in_threads_and_beside_each_other(monkeypatch):
    both, where = threading.Barrier(2, timeout=20), list[str]()

    def meet(_: object) -> None:
        where.append(threading.current_thread().name)
        both.wait()

    monkeypatch.setattr(bodies, "refuse_outlandish", meet)
    transport = httpx.ASGITransport(behind_open_door(openai_app({})))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        sent = {"content": CHAT + PADDING, "headers": {"Content-Type": "application/json"}}
        answers = await asyncio.gather(*(client.post("/chat/completions", **sent) for _ in range(2)))
    assert [one.status_code for one in answers] == [404, 404]
    assert all(name.startswith("body") for name in where)


def test_a_thread_that_checked_a_body_rests_three_times_as_long(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(bodies, "time", clock)
    monkeypatch.setattr(bodies, "_RESTING", threading.local())
    for took_s in (0.5, 0.25, 0.0):
        bodies._after_rest(lambda took_s=took_s: clock.work(took_s))
    assert clock.slept_s == [0.0, 1.5, 0.75]


class Clock:
    """What the module asks of ``time``."""

    def __init__(self) -> None:
        self.now_s, self.worked_s = 100.0, 0.0
        self.slept_s = list[float]()

    def monotonic(self) -> float:
        return self.now_s

    def thread_time(self) -> float:
        return self.worked_s

    def sleep(self, seconds: float) -> None:
        self.slept_s.append(seconds)
        self.now_s += seconds

    def work(self, seconds: float) -> None:
        self.now_s += seconds
        self.worked_s += seconds
