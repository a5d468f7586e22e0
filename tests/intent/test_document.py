import json
from copy import deepcopy
from dataclasses import fields

import pytest

from intent.document import from_document, to_document, window_of
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
from tests.rows import rows


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
            Objective("ttft", "<=", "x", "p99", 2.0, "s", window=RecurringWindow(("mon",), "09:00", "17:00", "UTC")),
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
        "expectations", "questions", "findings", "readback", "translator", "ledger",
    ]  # fmt: skip
    assert next(iter(document["goals"][0])) == "type"
    assert {one.name for one in fields(Intent)} == set(document) - {"apiVersion", "kind"}


BROKEN = [
    ((), "tokens", 3, "/tokens: unknown key"),
    ((), "apiVersion", "intentctl/v2", "/apiVersion: must be 'intentctl/v1'"),
    ((), "goals", {}, "/goals: must be a valid array, not {}"),
    ((), "outcome", "fine", "/outcome: must be 'ok', 'clarify', "),
    ((), "windows", [], "/windows: must be an object"),
    (("goals", 0), "type", "wish", "/goals/0/type: must be one of 'objective', "),
    (("goals", 0), "type", ["objective"], "/goals/0/type: must be one of 'objective', "),
    (("goals",), 0, "wish", "/goals/0: must be an object, not 'wish'"),
    (("goals", 0), "metric", "vibes", "/goals/0/metric: must be 'ttft', 'tpot', "),
    (("goals", 0), "value", "2", "/goals/0/value: must be a valid number, not '2'"),
    (("goals", 0), "value", True, "/goals/0/value: must be a valid number, not True"),
    (("goals", 0), "valeu", 2, "/goals/0/valeu: unknown key"),
    (("goals", 0), "window", {"from": "then", "duration_s": 3}, "/goals/0/window/from: must be 'now'"),
    (("goals", 0), "window", 3, "/goals/0/window: must be a valid string, not 3"),
    ((), "windows", {"late": {"duration_s": 3}}, "/windows/late/days: is missing"),
    (("goals", 0), "window", {"days": ["mon"]}, "/goals/0/window/start: is missing"),
    (("goals", 0), "stat", {"p": 99}, "/goals/0/stat: must be 'p50', "),
    (("goals", 1), "value", 2.5, "/goals/1/value: must be a valid integer, not 2.5"),
    (("translator",), "name", "oracle", "/translator/name: must be 'rules' or 'llm', not 'oracle'"),
]


@rows(("path", "key", "value", "message"), BROKEN)
def test_a_wrong_document_names_the_place(document, path, key, value, message):
    place = document = deepcopy(document)
    for step in path:
        place = place[step]
    place[key] = value
    with pytest.raises(DocumentError) as caught:
        from_document(document)
    assert str(caught.value).startswith(message)


@rows("key", ["type", "evidence"])
def test_a_missing_key_is_named(document, key):
    document = deepcopy(document)
    del document["goals"][0][key]
    with pytest.raises(DocumentError, match=f"/goals/0/{key}: is missing"):
        from_document(document)


def test_what_has_a_default_may_be_left_out_and_a_whole_number_is_a_number():
    goal = {"type": "objective", "metric": "ttft", "op": "<=", "evidence": "x", "value": 2, "unit": "s"}
    said = {"text": "x", "language": "en", "goals": [goal], "translator": {"name": "rules"}}
    read = from_document({"apiVersion": "intentctl/v1", "kind": "Intent", **said})
    assert read.goals == (Objective("ttft", "<=", "x", value=2.0, unit="s"),)


def test_a_window_alone_is_read_as_strictly_under_its_own_pointer():
    said = {"from": "now", "duration_s": 3}
    assert window_of(said, "/here") == FromNowWindow(3.0)
    with pytest.raises(DocumentError, match="/here/tz: unknown key"):
        window_of(said | {"tz": "UTC"}, "/here")


def test_what_values_may_be_is_left_to_the_validator(document):
    document["goals"][0] |= {"evidence": "", "window": {"from": "now", "duration_s": -1}}
    assert from_document(document).goals[0].window == FromNowWindow(-1.0)


@rows("value", [None, [], "intent", 3])
def test_what_is_no_object_is_refused(value):
    with pytest.raises(DocumentError):
        from_document(value)


def test_a_whole_number_is_whole_however_it_is_written(document):
    document["goals"][1]["value"] = 2.0
    assert from_document(document) == from_document(json.loads(json.dumps(document).replace("2.0", "2")))
    document["goals"][1]["value"] = 2.5
    with pytest.raises(DocumentError, match="/goals/1/value"):
        from_document(document)
