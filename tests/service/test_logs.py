import json
import logging
import sys
from collections.abc import Iterator

import pytest

from service.access.keys import new_secret
from service.http.logs import REQUEST_ID, JsonLines, TextLines
from tests.rows import rows


def record(message: str, *arguments: object, **facts: object) -> logging.LogRecord:
    return logging.LogRecord("service.x", logging.WARNING, "x.py", 1, message, arguments, **{"exc_info": None, **facts})


@pytest.fixture
def of_a_request() -> Iterator[None]:
    token = REQUEST_ID.set("req-1")
    yield
    REQUEST_ID.reset(token)


def test_a_line_outside_of_any_request():
    assert TextLines().format(record("started")) == "WARNING service.x: started"


def test_a_line_of_a_request_for_people_and_for_programs(of_a_request):
    assert TextLines().format(record("%d streams", 3)) == "WARNING service.x [req-1]: 3 streams"
    found = json.loads(JsonLines().format(record("a\n%s", "b")))
    assert found.pop("at").endswith("+00:00")
    assert found == {"level": "warning", "logger": "service.x", "message": "a\nb", "request_id": "req-1"}


def failing(message: str) -> None:
    raise ValueError(message)


def test_a_traceback_stays_in_its_line():
    try:
        failing("x")
    except ValueError:
        line = JsonLines().format(record("failed", exc_info=sys.exc_info()))
    assert "\n" not in line
    assert "ValueError: x" in json.loads(line)["traceback"]


@rows("form", [TextLines, JsonLines])
def test_the_secret_of_a_key_is_in_no_line(form):
    whole, prefix = new_secret()
    try:
        failing(whole)
    except ValueError:
        line = form().format(record("sent %s", whole, exc_info=sys.exc_info()))
    assert whole.split("_", 2)[2] not in line.replace("…", "")
    assert line.count(f"ictl_{prefix}_") == 2
