"""JSON within bounds: what is nested or branches too far is refused, in the form of its path, before it is checked."""

import asyncio
import json
import sys
import threading
from functools import partial

import httpx
import pytest
from fastapi import HTTPException
from pydantic import ValidationError

from service.app import control_api
from service.http import bodies
from service.http.bodies import BULKY_BYTES, BULKY_MARKS, MAX_DEPTH, MAX_VALUES, is_bulky, refuse_outlandish
from service.openai.api import openai_app
from service.openai.requests import ChatRequest
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


PADDING = b" " * 1000
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
async def test_a_bulky_body_is_answered_as_a_small_one_is(path, body, monkeypatch):
    monkeypatch.setattr(bodies, "BULKY_BYTES", len(PADDING))
    app = control_api()
    app.state.context_for = lambda _: None
    app.mount("/openai/v1", openai_app({}))
    transport = httpx.ASGITransport(behind_open_door(app))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        sent = {"headers": {"Content-Type": "application/json"}}
        small, bulky = [await client.post(path, content=one, **sent) for one in (body, body + PADDING)]
    assert (bulky.status_code, bulky.json()) == (small.status_code, small.json())


async def test_bulky_bodies_are_checked_in_threads_and_beside_each_other(monkeypatch):
    monkeypatch.setattr(bodies, "BULKY_BYTES", len(PADDING))
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


def chat(num_messages: int = 1, **more: object) -> bytes:
    messages = [{"role": "user", "content": "a"}] * num_messages
    return json.dumps({"model": "counting", "messages": messages, **more}).encode()


LARGE = {
    "blanks behind": CHAT + b" " * 40_000,
    "blanks before": b" " * 40_000 + CHAT,
    "blanks between": CHAT.replace(b",", b"," + b" " * 40_000, 1),
    "a long text": chat(metadata={"note": "x, " * 300 + "x" * 40_000}),
    "a text in many words": chat(user="\n" * 20_000),
}


@rows(
    ("body", "bulky"),
    [
        *((body, False) for body in LARGE.values()),
        (chat(BULKY_MARKS // 2), True),
        (chat(metadata=[1] * BULKY_MARKS), True),
        (b"[" * (BULKY_MARKS + 1), True),
        (b'{"a":' * (BULKY_MARKS + 1), True),
        (CHAT + b" " * BULKY_BYTES, True),
    ],
)
def test_a_body_is_bulky_by_the_values_that_it_may_have(body, bulky):
    assert is_bulky(body) is bulky


async def test_a_hundred_large_bodies_at_once_wait_for_no_thread_and_no_rest(monkeypatch):
    monkeypatch.setattr(bodies, "_after_rest", lambda work: pytest.fail("it waited for its turn"))
    transport = httpx.ASGITransport(behind_open_door(openai_app({})))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        asked = [*LARGE.values()] * 20
        sent = [
            client.post("/chat/completions", content=body, headers={"Content-Type": "application/json"})
            for body in asked
        ]
        assert {answer.status_code for answer in await asyncio.gather(*sent)} == {404}


def calls_to_check(body: bytes) -> int:
    """Calls of functions, of Python and of C, that it takes."""
    (field,) = (route.body_field for route in openai_app({}).routes if getattr(route, "path", "") == CHATS)
    count = 0

    def note(_frame: object, happened: str, _of: object) -> None:
        nonlocal count
        count += happened in {"call", "c_call"}

    sys.setprofile(note)
    try:
        bodies._read(body, partial(field.validate, loc=("body",)))
    finally:
        sys.setprofile(None)
    return count


CHATS = "/chat/completions"


def test_the_check_of_a_body_is_linear_in_its_values_and_blanks_and_texts_take_nothing():
    small = calls_to_check(CHAT)
    assert {name: calls_to_check(body) for name, body in LARGE.items() if "blanks" in name} == {
        name: small for name in LARGE if "blanks" in name
    }
    assert calls_to_check(LARGE["a long text"]) <= small + 20
    few, many = calls_to_check(chat(200)), calls_to_check(chat(2000))
    assert many <= 10 * few, (small, few, many)


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
