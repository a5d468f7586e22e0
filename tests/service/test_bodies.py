"""JSON within bounds: what is nested or branches too far is refused, in the form of its path, before it is checked."""

import json

import httpx
import pytest
from fastapi import HTTPException
from pydantic import ValidationError

from service.app import control_api
from service.bodies import MAX_DEPTH, MAX_VALUES, refuse_outlandish
from service.openai_api import openai_app
from service.openai_requests import ChatRequest
from tests.rows import rows
from tests.service.open_door import behind_open_door


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
    async with httpx.AsyncClient(transport=transport, base_url="http://here") as client:
        answer = await client.post(path, content=body, headers={"Content-Type": "application/json"})

    document = answer.json()
    assert answer.status_code == 400
    assert said in (document["error"]["message"] if "openai" in path else document["detail"])


@rows("wrong", [[1] * 50, [{"role": "user", "content": [1] * 50}]])
def test_a_list_of_wrong_things_is_refused_for_the_first(wrong):
    with pytest.raises(ValidationError) as caught:
        ChatRequest.model_validate(json.loads(json.dumps({"model": "m", "messages": wrong})))
    assert caught.value.error_count() == 1
