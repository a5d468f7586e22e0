import json
from dataclasses import fields

import pytest

from intent.document import from_document, to_document
from intent.errors import DocumentError
from intent.models import (
    DatedWindow,
    FromNowWindow,
    Intent,
    Objective,
    Priority,
    RecurringWindow,
    TenantException,
    TranslatorInfo,
)
from intent.translate import translate


@pytest.fixture
def document(catalogue):
    return to_document(translate("keep P99 TTFT < 2s at peak, run it with tp=2", catalogue))


def test_a_document_and_its_intent_are_one(catalogue):
    for text in ("keep P99 TTFT < 2s at peak, run it with tp=2", "keep latency under 2s", "hello"):
        intent = translate(text, catalogue)
        assert from_document(json.loads(json.dumps(to_document(intent)))) == intent


def test_every_kind_of_window_and_goal_survives():
    intent = Intent(
        text="x",
        language="en",
        translator=TranslatorInfo(name="llm", model="m", prompt_version="v1"),
        goals=(
            Objective(
                "ttft", "<=", "x", "p99", 2.0, "s", window=RecurringWindow(("mon",), "09:00", "17:00", "UTC")
            ),
            TenantException(
                "acme",
                "ttft",
                "x",
                limit=3.0,
                unit="s",
                window=DatedWindow("2026-11-27", "00:00", "24:00", "UTC"),
            ),
            Priority("latency", "x", lower="cost", window=FromNowWindow(3600.0)),
        ),
        windows={"late": RecurringWindow(("fri", "sat"), "22:00", "06:00", "UTC")},
    )
    assert from_document(json.loads(json.dumps(to_document(intent)))) == intent


def test_a_document_has_the_keys_of_the_design_in_order(document):
    assert list(document) == [
        "apiVersion", "kind", "text", "language", "outcome", "goals", "windows", "assumptions", "set_aside",
        "expectations", "questions", "findings", "readback", "translator",
    ]  # fmt: skip
    assert next(iter(document["goals"][0])) == "type"
    assert {one.name for one in fields(Intent)} == set(document) - {"apiVersion", "kind"}


BROKEN = [
    ((), "tokens", 3, "/tokens: unknown key"),
    ((), "apiVersion", "intentctl/v2", "/apiVersion: must be 'intentctl/v1'"),
    ((), "goals", {}, "/goals: must be a list"),
    ((), "outcome", "fine", "/outcome: must be one of ok, clarify"),
    ((), "windows", [], "/windows: must be an object"),
    (("goals", 0), "type", "wish", "/goals/0/type: must be one of objective"),
    (("goals", 0), "metric", "vibes", "/goals/0/metric: must be one of 'ttft'"),
    (("goals", 0), "value", "2", "/goals/0/value: must be a number or null, not '2'"),
    (("goals", 0), "value", True, "/goals/0/value: must be a number or null"),
    (("goals", 0), "valeu", 2, "/goals/0/valeu: unknown key"),
    (("goals", 0), "window", {"from": "then", "duration_s": 3}, "/goals/0/window/from: must be 'now'"),
    (("goals", 0), "window", {"days": ["mon"]}, "/goals/0/window/start: is missing"),
    (("goals", 0), "stat", {"p": 99}, "/goals/0/stat: must be a plain value"),
    (("goals", 1), "value", 2.5, "/goals/1/value: must be a whole number"),
    (("translator",), "name", "oracle", "/translator/name: must be one of 'rules', 'llm'"),
]


@pytest.mark.parametrize(("path", "key", "value", "message"), BROKEN)
def test_a_wrong_document_names_the_place(document, path, key, value, message):
    place = document
    for step in path:
        place = place[step]
    place[key] = value
    with pytest.raises(DocumentError) as caught:
        from_document(document)
    assert str(caught.value).startswith(message)


def test_a_missing_key_is_named(document):
    del document["goals"][0]["evidence"]
    with pytest.raises(DocumentError, match="/goals/0/evidence: is missing"):
        from_document(document)


@pytest.mark.parametrize("value", [None, [], "intent", 3])
def test_what_is_no_object_is_refused(value):
    with pytest.raises(DocumentError):
        from_document(value)
