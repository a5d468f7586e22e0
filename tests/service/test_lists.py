"""Lists over HTTP and on the command line: newest first, in pages, filtered."""

from collections.abc import Iterator

import httpx
import pytest

from service.documents.state import Cursor, Page, PageRequest, cursor_text
from tests.rows import rows
from tests.service.asking import apply, end_of, plan_for
from tests.service.scripted import served

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def http(tmp_path_factory) -> Iterator[httpx.Client]:
    with served(tmp_path_factory.mktemp("service")) as (_, client):
        for _ in range(3):
            client.post("/v1/intents", json={"text": "as cheap as possible"})
        plan = plan_for(client, "run it with tp=2")
        plan_for(client, "run it with pp=4")
        end_of(client, apply(client, plan))
        yield client


@rows(("kind", "count"), [("intents", 5), ("plans", 2), ("operations", 1)])
def test_pages_have_each_item_once_newest_first(http, kind, count):
    found, after = [], {}
    while True:
        answer = http.get(f"/v1/{kind}", params={"limit": 2, **after})
        assert answer.status_code == 200, answer.text
        page = answer.json()
        found += page[kind]
        if page["next"] is None:
            break
        assert len(page[kind]) == 2
        after = {"after": page["next"]}
    ids = [one["id"] for one in found]
    assert len(ids) == len(set(ids)) == count
    made = [one["created_s"] for one in found if "created_s" in one]
    assert made == sorted(made, reverse=True)


def test_filters_hold(http):
    plans = http.get("/v1/plans").json()["plans"]
    assert [one["applied_by"] is not None for one in plans] == [False, True]
    assert http.get("/v1/plans", params={"model": "other"}).json() == {"next": None, "plans": []}
    assert http.get("/v1/operations", params={"done": False}).json()["operations"] == []
    assert len(http.get("/v1/operations", params={"done": True, "model": "counting"}).json()["operations"]) == 1


@rows("wrong", [{"limit": 0}, {"limit": 201}, {"after": "yesterday"}, {"after": ""}, {"colour": "red"}])
def test_what_is_no_page_is_refused(http, wrong):
    answer = http.get("/v1/plans", params=wrong)
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_request")


@rows("created_s", [1795436254.0, 1795436254.2158618, 12.5])
def test_a_place_is_read_as_it_is_written(created_s):
    cursor = Cursor(created_s, "plan-0123456789ab")
    assert PageRequest(limit=3, after=cursor_text(cursor)).page == Page(3, cursor)
    assert cursor_text(None) is None
