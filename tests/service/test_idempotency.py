"""Requests that are sent again with their ``Idempotency-Key``: acted on once, answered the same."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import httpx
import pytest
from sqlalchemy import func, select

from service.access.audit import Audit
from service.api.context import ServiceContext
from service.app import control_api
from service.documents.errors import RefusedError, StoreError
from service.http.bodies import BoundedRoute
from service.http.idempotency import KEPT_S, KeyedRequest, StoredResponse, digest_of, key_of
from service.http.idempotency_store import IdempotencyStore
from service.http.repeatable import SECRET, RepeatableRoute
from service.store.store import Store
from service.store.tables import AnswerRow
from tests.rows import rows
from tests.service.asking import end_of, new_plan
from tests.service.scripted import ScriptedService

pytestmark = pytest.mark.slow

POSTS = [route for route in control_api().routes if isinstance(route, BoundedRoute) and "POST" in route.methods]
WORDS = {"text": "keep P99 TTFT < 2s at peak"}
KEY, AGAIN = "idempotency-key", "idempotency-replayed"

Post = Callable[..., httpx.Response]


@cache
def paths() -> dict[str, dict[str, dict]]:
    return control_api().openapi()["paths"]


def described(route: BoundedRoute) -> dict:
    """What the OpenAPI document says of a POST."""
    return paths()[route.path_format]["post"]


# --- what a key is, and which requests are the same ---


@rows("key", ["a", "deploy 2026-11-23", "~" * 255, '"6f1e"'])
def test_a_key_is_printable(key):
    assert key_of([key]) == key


@rows("sent", [[""], [" a"], ["a "], ["~" * 256], ["\xfc"], ["a\tb"], ["a\n"], ["a", "a"]])
def test_another_form_of_a_key_is_refused(sent):
    with pytest.raises(RefusedError, match="Idempotency-Key") as caught:
        key_of(sent)
    assert caught.value.errors[0].pointer == "/header/idempotency-key"


def test_any_part_makes_another_request():
    parts = [b"POST", b"/v1/plans", b"", b"{}"]
    others = [[*parts[:place], part + b"x", *parts[place + 1 :]] for place, part in enumerate(parts)]
    moved = [b"POST", b"/v1/plan", b"s", b"{}"]
    assert len({digest_of(*one) for one in [parts, moved, *others]}) == 6


# --- what is kept ---

FIRST = KeyedRequest("k3v90ab2", "key", "digest")
TOLD = StoredResponse(201, "application/json", "/v1/plans/plan-1", b"\x00{}")


@pytest.fixture
def answers(store: Store) -> IdempotencyStore:
    return IdempotencyStore(store)


def test_an_answer_is_kept_to_the_byte_and_the_first_one_stays(answers):
    assert answers.reserve(FIRST) is None
    answers.keep(FIRST, TOLD)
    answers.keep(FIRST, StoredResponse(404, None, None, b""))
    answers.free(FIRST)
    assert answers.reserve(FIRST) == TOLD


def test_keys_of_two_callers_are_apart(answers):
    assert answers.reserve(FIRST) is None
    assert answers.reserve(KeyedRequest("another0", "key", "digest")) is None


def test_another_request_and_one_without_an_answer_are_refused(answers):
    answers.reserve(FIRST)
    with pytest.raises(RefusedError, match="another method, path, query or body"):
        answers.reserve(KeyedRequest(FIRST.owner, FIRST.key, "other"))
    with pytest.raises(RefusedError, match="has no answer here"):
        answers.reserve(FIRST)


def test_what_was_freed_may_be_sent_again(answers):
    answers.reserve(FIRST)
    answers.free(FIRST)
    assert answers.reserve(FIRST) is None


def test_answers_are_forgotten_after_a_day(answers):
    other = KeyedRequest("k3v90ab2", "other", "digest")
    for asked in (FIRST, other):
        answers.reserve(asked, 1000.0)
        answers.keep(asked, TOLD)
    assert answers.reserve(FIRST, 1000.0 + KEPT_S) == TOLD
    assert answers.reserve(FIRST, 1001.0 + KEPT_S) is None
    assert num_kept(answers) == 1


def test_a_clock_that_jumps_breaks_nothing(answers):
    answers.reserve(FIRST, 1e9)
    answers.keep(FIRST, TOLD)
    assert answers.reserve(FIRST, 0.0) == TOLD
    forgetting = KeyedRequest("k3v90ab2", "later", "digest")
    assert answers.reserve(forgetting, 2e9) is None
    answers.keep(FIRST, TOLD)  # it is forgotten
    answers.free(FIRST)
    assert num_kept(answers) == 1


def test_of_several_services_on_a_database_one_may_act(tmp_path, database):
    stores = [Store.open(tmp_path, database) for _ in range(4)]
    start = threading.Barrier(len(stores))

    def reserve(store: Store) -> bool:
        start.wait()
        try:
            return IdempotencyStore(store).reserve(FIRST) is None
        except RefusedError:
            return False

    with ThreadPoolExecutor(len(stores)) as threads:
        assert sorted(threads.map(reserve, stores)) == [False, False, False, True]
    for store in stores:
        store.close()


def num_kept(answers: IdempotencyStore) -> int:
    with answers.store.transaction() as session:  # there is no other use for a count
        return session.scalar(select(func.count()).select_from(AnswerRow)) or 0


# --- over HTTP ---


@pytest.fixture
def post(admin, request) -> Post:
    """POSTs of words to be kept, with a key of this test alone."""

    def sent(path: str = "/v1/intents", body: object = WORDS, key: str = "") -> httpx.Response:
        headers = {KEY: f"{request.node.name}{key}", "Connection": "close"}  # a fault ends its connection
        return admin.post(path, json=body, headers=headers)

    return sent


def num_acts(service: ScriptedService) -> int:
    """All acts that have been done."""
    return service.parts.access.audit.head().seq


def same(first: httpx.Response, second: httpx.Response) -> None:
    """The second is the first once more."""
    assert AGAIN not in first.headers
    assert second.headers.get(AGAIN) == "true", second.text
    assert (first.status_code, first.content) == (second.status_code, second.content)
    for name in ("content-type", "location"):
        assert first.headers.get(name) == second.headers.get(name)


def refused(answer: httpx.Response, status: int, code: str) -> None:
    assert (answer.status_code, answer.json()["code"]) == (status, code), answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert AGAIN not in answer.headers


def test_what_was_made_is_answered_again_and_not_made_again(keyed, post):
    before = num_acts(keyed)
    first, second = post(), post()
    same(first, second)
    assert first.status_code == 201
    assert first.headers["location"] == f"/v1/intents/{first.json()['id']}?version=1"
    assert num_acts(keyed) == before + 1
    assert second.headers["x-request-id"] != first.headers["x-request-id"]
    assert post(key="another").json()["id"] != first.json()["id"]


def test_a_switch_that_was_started_is_answered_again(admin, post):
    plan = new_plan(admin)["id"]
    first, second = (post(f"/v1/plans/{plan}:apply", {}) for _ in range(2))
    same(first, second)
    assert (first.status_code, first.headers["location"]) == (202, f"/v1/operations/{first.json()['id']}")
    refused(post(f"/v1/plans/{plan}:apply", {}, "another"), 409, "already_applied")
    end_of(admin, first.json()["id"])


@rows("route", POSTS, ids=lambda route: route.path)
def test_every_post_takes_a_key_and_answers_a_refusal_again(admin, route):
    said = described(route)
    headers = [one["name"] for one in said.get("parameters", ()) if one["in"] == "header"]
    assert isinstance(route, RepeatableRoute)
    place = route.path_format.replace("{", "no-").replace("}", "")
    first, second = (
        admin.post(place, content=b"{", headers={KEY: route.path, "Content-Type": "application/json"}) for _ in range(2)
    )
    if SECRET in said:
        assert (route.path, headers) == ("/v1/keys", [])
        return
    same(first, second)
    assert first.status_code in {404, 422}
    assert headers == ["Idempotency-Key"]
    for status, code in [
        (422, "idempotency_key_reused"),
        (409, "idempotency_key_in_use"),
        (409, "outcome_unknown"),
    ]:
        assert f"`{code}`" in said["responses"][str(status)]["description"]


def test_no_post_streams():
    """A stream would be held back to its end."""
    said = [described(route) for route in POSTS]
    answers = [answer for one in said for answer in one["responses"].values()]
    kept = {kind for answer in answers for kind in answer.get("content", {})}
    assert kept == {"application/json", "application/problem+json"}


def test_the_answer_with_a_secret_is_never_kept(keyed, admin):
    before = num_acts(keyed)
    answer = admin.post("/v1/keys", json={"name": "x", "role": "viewer"}, headers={KEY: "secret"})
    refused(answer, 422, "invalid_request")
    assert answer.json()["errors"][0]["pointer"] == "/header/idempotency-key"
    assert (num_acts(keyed), kept_of(keyed, "secret")) == (before, 0)


def kept_of(service: ScriptedService, key: str) -> int:
    with service.parts.store.transaction() as session:
        return len(session.scalars(select(AnswerRow.owner).where(AnswerRow.key == key)).all())


def test_another_body_with_the_key_is_refused(keyed, post):
    first, before = post(), num_acts(keyed)
    refused(post(body={"text": "as cheap as possible"}), 422, "idempotency_key_reused")
    refused(post("/v1/intents:translate"), 422, "idempotency_key_reused")
    refused(post("/v1/intents?a=b"), 422, "idempotency_key_reused")
    assert num_acts(keyed) == before
    same(first, post())


@rows("key", [b"", b"~" * 256, "\xfc".encode("latin-1")])
def test_a_key_that_cannot_be_is_refused(keyed, admin, key):
    before = num_acts(keyed)
    answer = admin.post("/v1/intents", json=WORDS, headers=[(KEY.encode(), key)])
    refused(answer, 422, "invalid_request")
    assert "Idempotency-Key" in answer.json()["detail"]
    twice = admin.post("/v1/intents", json=WORDS, headers=[(KEY, "a"), (KEY, "b")])
    assert "2 of them" in twice.json()["detail"]
    assert num_acts(keyed) == before


def test_the_right_comes_before_the_key(keyed):
    with keyed.person("viewer") as viewer, keyed.person("operator") as operator:
        for key in ("theirs", "~" * 256):
            refused(viewer.post("/v1/intents", json=WORDS, headers={KEY: key}), 403, "forbidden")
        assert kept_of(keyed, "theirs") == 0
        refused(operator.post("/v1/keys", json={}, headers={KEY: "theirs"}), 403, "forbidden")
        headers = {KEY: "theirs", "Authorization": "Bearer nonsense"}
        refused(operator.post("/v1/intents", json=WORDS, headers=headers), 401, "unauthenticated")
        assert kept_of(keyed, "theirs") == 0


def test_callers_do_not_see_each_others_answers(keyed):
    with keyed.person("operator") as one, keyed.person("operator") as other:
        first, second = (who.post("/v1/intents", json=WORDS, headers={KEY: "shared"}) for who in (one, other))
        assert AGAIN not in second.headers
        assert first.json()["id"] != second.json()["id"]
        same(first, one.post("/v1/intents", json=WORDS, headers={KEY: "shared"}))


def test_a_get_and_the_inference_api_take_no_notice(keyed, admin):
    for _ in range(2):
        assert AGAIN not in admin.get("/v1/models", headers={KEY: "any"}).headers
        body = {"model": "counting", "prompt": "hi", "max_tokens": 2}
        answer = admin.post("/openai/v1/completions", json=body, headers={KEY: "any"})
        assert (answer.status_code, AGAIN in answer.headers) == (200, False)


def test_of_many_at_once_one_acts_and_the_others_are_told_to_wait(keyed, post, monkeypatch):
    acts, go_on = threading.Semaphore(0), threading.Event()
    translated, before = ServiceContext.translated, num_acts(keyed)

    def held(self: ServiceContext, text: str, now: str | None) -> object:
        acts.release()
        assert go_on.wait(timeout=30)
        return translated(self, text, now)

    monkeypatch.setattr(ServiceContext, "translated", held)
    with ThreadPoolExecutor() as threads:
        first = threads.submit(post)
        assert acts.acquire(timeout=30)
        others = list(threads.map(lambda _: post(), range(6)))
        other_body = post(body={"text": "as cheap as possible"})
        go_on.set()
    for answer in others:
        refused(answer, 409, "idempotency_key_in_use")
        assert answer.headers["retry-after"] == "1"
    refused(other_body, 422, "idempotency_key_reused")
    same(first.result(), post())
    assert num_acts(keyed) == before + 1
    assert not acts.acquire(blocking=False)


def failing(error: Exception) -> Callable[..., object]:
    def fail(*_: object, **__: object) -> object:
        raise error

    return fail


FULL = StoreError("the disk is full")
LATE = StoreError("it may be written all the same", is_unknown=True)


@rows(
    ("broken", "error", "status", "again", "acts"),
    [
        # what was not done for want of the store, or of a row, may be sent again
        ((Audit, "add"), FULL, 503, 201, 0),
        ((IdempotencyStore, "reserve"), FULL, 503, 201, 0),
        # what was done is told even if the answer cannot be kept
        ((IdempotencyStore, "keep"), FULL, 201, 409, 1),
        # after a fault nobody knows, and nothing is done again
        ((ServiceContext, "translated"), KeyError("a bug"), 500, 409, 0),
        # nor after a commit that was not answered, unless it was that of the key alone
        ((Audit, "add"), LATE, 503, 409, 0),
        ((IdempotencyStore, "reserve"), LATE, 503, 201, 0),
    ],
)
def test_what_fails_leaves_no_doubt_of_what_was_done(keyed, post, monkeypatch, broken, error, status, again, acts):
    before, key = num_acts(keyed), f"{broken[1]} {id(error)}"
    with monkeypatch.context() as patch:
        patch.setattr(*broken, failing(error))
        told = post(key=key)
    assert told.status_code == status
    if status != 201:
        refused(told, status, "store" if isinstance(error, StoreError) else "internal")
    assert num_acts(keyed) == before + acts
    second = post(key=key)
    if again == 201:
        same(second, post(key=key))
    else:
        refused(second, 409, "outcome_unknown")
    assert num_acts(keyed) == before + (acts or again == 201)


@rows("method", ["reserve", "free"])
def test_a_key_that_is_taken_though_nothing_was_done_may_be_sent_again(keyed, post, monkeypatch, method):
    """Its row was written, and the answer to that came too late; or it could not be freed."""
    before, call = num_acts(keyed), getattr(IdempotencyStore, method)

    def late(*arguments: object, **named: object) -> None:
        if method == "reserve":
            call(*arguments, **named)
        raise LATE

    with monkeypatch.context() as patch:
        patch.setattr(IdempotencyStore, method, late)
        if method == "free":
            patch.setattr(Audit, "add", failing(FULL))
        told = post(key=method)
    refused(told, 503, "store")
    assert "nothing was done" in told.json()["detail"] or method == "free"
    second = post(key=method)
    assert second.status_code == 201, second.text
    same(second, post(key=method))
    assert num_acts(keyed) == before + 1


def test_a_restart_knows_what_was_answered_and_what_was_not(tmp_path, monkeypatch):
    def sent(service: ScriptedService, key: str) -> httpx.Response:
        return httpx.post(f"{service.url}/v1/intents", json=WORDS, headers={KEY: key}, timeout=30, trust_env=False)

    with ScriptedService(tmp_path) as before:
        first = sent(before, "answered")
        monkeypatch.setattr(IdempotencyStore, "keep", lambda *_: None)  # as if it ended here
        sent(before, "cut off")
        monkeypatch.undo()
    with ScriptedService(tmp_path) as after:
        same(first, sent(after, "answered"))
        refused(sent(after, "cut off"), 409, "outcome_unknown")
        assert num_acts(after) == 2
