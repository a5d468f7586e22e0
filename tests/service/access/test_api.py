"""Keys, roles and the audit over HTTP: who may do what, and what is left behind."""

import itertools
import json
import random
import sqlite3
import stat
import string
from collections.abc import Iterator, Mapping
from dataclasses import replace

import httpx
import pytest
from fastapi import FastAPI
from sqlalchemy import update

from service.app import control_api
from service.documents.access import RIGHTS, Right, Role
from service.documents.errors import StoreError
from service.http.bodies import BoundedRoute
from service.openai.api import openai_app
from service.store.tables import KeyRow
from tests.rows import rows
from tests.service.scripted import KEYS, ScriptedService

pytestmark = pytest.mark.slow


def routes(app: FastAPI) -> list[tuple[str, str, Right | None]]:
    """Path, method and right of each."""
    found = [route for route in app.routes if isinstance(route, BoundedRoute)]
    return [(route.path, method, route.right) for route in found for method in sorted(route.methods)]


ROUTES, INFERENCE = routes(control_api()), routes(openai_app({}))
CHAT = {"model": "counting", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 2}


NUMBERS = itertools.count()


def new_key(admin: httpx.Client, **asked: object) -> dict[str, str]:
    made = admin.post("/v1/keys", json={"name": f"key-{next(NUMBERS)}", **asked})
    assert made.status_code == 201, made.text
    found: dict[str, str] = made.json()
    return found


@pytest.fixture(scope="module")
def by_role(keyed) -> Iterator[Mapping[Role, httpx.Client]]:
    opened = {role: keyed.person(role, tenant="gold" if role is Role.TENANT else None) for role in Role}
    opened[Role.GATEWAY].headers["x-intentctl-tenant"] = "free"
    yield opened
    for one in opened.values():
        one.close()


def entries(admin: httpx.Client, act: str) -> list[dict[str, object]]:
    found: list[dict[str, object]] = admin.get("/v1/audit", params={"act": act, "limit": 500}).json()["entries"]
    return found


def test_every_route_but_health_names_a_right():
    open_to_all = [path for path, _, right in ROUTES + INFERENCE if right is None]
    assert sorted(open_to_all) == ["/health", "/healthz", "/openai/health", "/readyz"]
    assert {right for _, _, right in ROUTES + INFERENCE} == {*Right, None}


@rows("role", Role)
@rows(("path", "method", "right"), [one for one in ROUTES if one[0] != "/v1/events"])
def test_each_role_may_do_what_the_table_says_and_nothing_else(by_role, role, path, method, right):
    place = path.replace("{model:path}", "nothing").replace(":id}", "}").replace("{", "no-").replace("}", "")
    answer = by_role[role].request(method, place, content=b"{" if method == "POST" else None)
    may = right is None or right in RIGHTS[role]
    assert (answer.status_code == 403) is not may, answer.text
    if not may:
        problem = answer.json()
        assert (problem["code"], role.value in problem["detail"]) == ("forbidden", True)


@rows("role", Role)
def test_each_role_generates_or_is_refused_in_the_form_of_openai(by_role, role):
    answer = by_role[role].post("/openai/v1/chat/completions", json=CHAT)
    if Right.INFER in RIGHTS[role]:
        assert answer.status_code == 200, answer.text
    else:
        assert (answer.status_code, answer.json()["error"]["type"]) == (403, "permission_error")


@rows("path", ["/v1/models", "/metrics", "/v1/events", "/nowhere", "/openai/v1/models"])
def test_without_a_key_nothing_is_answered(keyed, path):
    with keyed.client() as nobody:
        answer = nobody.get(path)
    assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
    body = answer.json()
    if path.startswith("/openai"):
        assert (body["error"]["type"], body["error"]["code"]) == ("authentication_error", "invalid_api_key")
    else:
        assert (body["code"], "Authorization: Bearer KEY" in body["detail"]) == ("unauthenticated", True)


def test_health_needs_no_key(keyed):
    with keyed.client() as nobody:
        assert nobody.get("/healthz").json() == {"status": "ok"}
        assert nobody.get("/readyz").status_code == 200
        assert nobody.get("/openapi.json").status_code == 200


@rows(
    ("headers", "said"),
    [
        ({"Authorization": "Bearer ictl_aaaaaaaa_" + "A" * 43}, "not known here"),
        ({"Authorization": "Bearer nonsense"}, "not known here"),
        ({"Authorization": "Basic eDp5"}, "no bearer key"),
        ({"X-Api-Key": "ictl_aaaaaaaa_" + "A" * 43}, "x-api-key is not read"),
        ({"Authorization": "Bearer"}, "no bearer key"),
    ],
)
def test_wrong_keys_are_told_what_is_wrong_with_them(keyed, headers, said):
    with keyed.client(**headers) as nobody:
        answer = nobody.get("/v1/models")
    assert (answer.status_code, said in answer.json()["detail"]) == (401, True), answer.text


def test_a_revoked_key_opens_nothing_at_once(keyed, admin):
    made = new_key(admin, role="operator")
    with keyed.client(made["key"]) as theirs:
        assert theirs.get("/v1/models").status_code == 200
        gone = admin.post(f"/v1/keys/{made['prefix']}:revoke").json()
        assert gone["revoked_s"] is not None
        answer = theirs.get("/v1/models")
    assert (answer.status_code, "was revoked" in answer.json()["detail"]) == (401, True)
    assert admin.post(f"/v1/keys/{made['prefix']}:revoke").json()["revoked_s"] == gone["revoked_s"]


def test_the_last_administrator_stays(keyed, admin):
    listed = admin.get("/v1/keys").json()["keys"]
    admins = [one for one in listed if one["role"] == "admin" and one["revoked_s"] is None]
    mine = next(one for one in admins if one["name"] == "this machine")
    for other in admins:
        if other is not mine:
            admin.post(f"/v1/keys/{other['prefix']}:revoke")
    answer = admin.post(f"/v1/keys/{mine['prefix']}:revoke")
    assert (answer.status_code, answer.json()["code"]) == (409, "conflict")
    assert admin.get("/v1/models").status_code == 200


def test_a_key_is_shown_once_and_nothing_has_its_secret(keyed, admin):
    made = new_key(admin, role="viewer", name="told once")
    secret = made["key"].split("_", 2)[2]  # it may have more of them
    with keyed.client(made["key"]) as theirs:
        theirs.get("/v1/models")
    admin.post("/v1/intents", json={"text": f"the key is {made['key']}"})
    said = [admin.get(path).text for path in ("/v1/keys", "/v1/audit?limit=500", "/metrics")]
    assert not any(secret in text for text in said)
    listed = next(one for one in json.loads(said[0])["keys"] if one["name"] == "told once")
    shown = "prefix name person role tenant created_s created_by expires_s revoked_s"
    assert set(listed) == set(shown.split())


def test_the_administrators_key_is_for_this_user_alone(keyed):
    mode = stat.S_IMODE((keyed.deployment_file.parent / "admin.key").stat().st_mode)
    assert mode == 0o600


@rows(
    ("asked", "said"),
    [
        ({"name": "x", "role": "tenant"}, "a tenant is named"),
        ({"name": "x", "role": "viewer", "tenant": "gold"}, "a tenant is named"),
        ({"name": "x", "role": "tenant", "tenant": "lead"}, "no tenant 'lead' here; there are gold, free"),
        ({"name": "x", "role": "king"}, "viewer"),
        ({"name": "", "role": "viewer"}, "'' is no name"),
        ({"name": "x", "role": "viewer", "person": " "}, "/person: ' ' is no name: it has letters"),
        ({"name": "The  Controller", "role": "viewer"}, "is a name of the service's own"),
        ({"name": "x", "role": "viewer", "person": "ＰＯＬＩＣＹ"}, "is a name of the service's own"),
        ({"name": "x", "role": "viewer", "days": 0}, "greater than 0"),
    ],
)
def test_a_key_that_cannot_be_is_refused(admin, asked, said):
    answer = admin.post("/v1/keys", json=asked)
    assert (answer.status_code, said in answer.json()["detail"]) == (422, True), answer.text


def test_a_gateway_says_whose_request_it_is_and_nobody_else_does(keyed, admin):
    gateway, tenant = new_key(admin, role="gateway"), new_key(admin, role="tenant", tenant="gold")
    for key, headers, status in [
        (gateway, {}, 403),
        (gateway, {"x-intentctl-tenant": "lead"}, 403),
        (gateway, {"x-intentctl-tenant": "gold"}, 200),
        (tenant, {"x-intentctl-tenant": "free"}, 403),
        (tenant, {"x-intentctl-tenant": "gold"}, 200),
    ]:
        with keyed.client(key["key"], **headers) as theirs:
            assert theirs.post("/openai/v1/chat/completions", json=CHAT).status_code == status


def test_requests_of_a_tenant_are_counted_as_theirs(keyed, admin):
    made = new_key(admin, role="tenant", tenant="gold", name="counted")

    def counted() -> float:
        wanted = 'intentctl_tokens_total{kind="completion",model_name="counting",tenant="gold"} '
        lines = admin.get("/metrics").text.splitlines()
        return sum(float(line.removeprefix(wanted)) for line in lines if line.startswith(wanted))

    before = counted()
    with keyed.client(made["key"]) as theirs:
        assert theirs.post("/openai/v1/chat/completions", json=CHAT).status_code == 200
    assert counted() == before + 2


def test_requests_over_the_rate_are_refused_for_a_while(keyed, admin):
    made = new_key(admin, role="tenant", tenant="free", name="often")
    with keyed.client(made["key"]) as theirs:
        answers = [theirs.post("/openai/v1/chat/completions", json=CHAT) for _ in range(5)]
    refused = [answer for answer in answers if answer.status_code == 429]
    assert 1 <= len(refused) <= 4  # a minute may begin meanwhile
    assert 1 <= int(refused[0].headers["retry-after"]) <= 60
    assert refused[0].json()["error"]["type"] == "rate_limit_error"


def test_acts_are_in_the_audit_with_who_and_from_where(admin, keyed):
    made = new_key(admin, role="operator", name="ops")
    with keyed.client(made["key"], **{"X-Request-Id": "from-ops-1"}) as ops:
        answer = ops.post("/v1/plans", json={"text": "as cheap as possible"})
        assert (answer.status_code, answer.headers["x-request-id"]) == (201, "from-ops-1")
    plan = answer.json()["plan"]["id"]
    entry = next(one for one in entries(admin, "plan.create") if one["subject"] == plan)
    assert (entry["who"], entry["role"], entry["key"]) == ("ops", "operator", made["prefix"])
    assert (entry["origin"], entry["request_id"]) == ("127.0.0.1", "from-ops-1")
    made_entry = next(one for one in entries(admin, "key.create") if one["subject"] == made["prefix"])
    assert made_entry["who"] == "this machine"
    assert admin.get("/v1/audit/verdict").json()["is_whole"] is True


def test_the_first_entry_is_the_administrators_key(admin, keyed):
    (first,) = admin.get("/v1/audit", params={"before": 2}).json()["entries"]
    file = keyed.deployment_file.parent / "admin.key"
    assert (first["act"], first["after"]["file"]) == ("key.create", str(file))
    assert file.read_text().startswith(f"ictl_{first['subject']}_")


def test_an_administrators_key_that_was_lost_is_replaced_as_the_docs_say(tmp_path):
    with ScriptedService(tmp_path, KEYS) as first:
        lost, viewer = first.admin_key, first.new_key("viewer")
    with sqlite3.connect(tmp_path / "intentctl.sqlite") as database:
        database.execute("DELETE FROM keys WHERE role = 'admin'")
    with ScriptedService(tmp_path, KEYS) as second:
        for key, status in ((lost, 401), (viewer, 403), (second.admin_key, 200)):
            with second.client(key) as theirs:
                assert theirs.get("/v1/keys").status_code == status


@rows("act", ["intent.create", "intent.amend", "plan.create", "key.create"])
def test_what_the_audit_cannot_keep_is_not_done(admin, keyed, monkeypatch, act):
    made = admin.post("/v1/intents", json={"text": "keep P99 TTFT < 2s at peak"}).json()["id"]
    posts = {
        "intent.create": ("/v1/intents", {"text": "keep P99 TTFT < 3s"}),
        "intent.amend": (f"/v1/intents/{made}:amend", {"text": "make that 1 s"}),
        "plan.create": ("/v1/plans", {"text": "run it with tp=2"}),
        "key.create": ("/v1/keys", {"name": "ann", "role": "viewer"}),
    }
    lists = ["/v1/intents", "/v1/plans", "/v1/keys", f"/v1/intents/{made}"]
    before = [admin.get(path).json() for path in lists]
    audit = keyed.parts.access.audit
    with monkeypatch.context() as patch:
        patch.setattr(audit, "add", lambda *_, **__: fail("the disk is full"))
        path, body = posts[act]
        answer = admin.post(path, json=body)
    assert (answer.status_code, answer.json()["code"]) == (503, "store")
    assert [admin.get(path).json() for path in lists] == before


def fail(why: str) -> None:
    raise StoreError(why)


@pytest.mark.parametrize("count", [100, pytest.param(10_000, marks=pytest.mark.exhaustive)])
def test_a_flood_of_wrong_keys_opens_nothing_and_is_in_the_audit_in_few_lines(keyed, admin, count):
    revoked, expired, golden = (new_key(admin, **asked) for asked in (VIEWER, VIEWER, TENANT))
    admin.post(f"/v1/keys/{revoked['prefix']}:revoke")
    expire(keyed, expired["prefix"])
    dice, before = random.Random(count), len(entries(admin, "key.refused"))
    sent = [
        lambda: ("GET", "/v1/models", bearer("ictl_" + "".join(dice.choices(LETTERS, k=52)))),
        lambda: ("GET", "/v1/models", bearer(nearly(golden["key"], dice))),
        lambda: ("GET", "/v1/models", bearer(revoked["key"])),
        lambda: ("GET", "/v1/models", bearer(expired["key"])),
        lambda: ("GET", "/v1/models", bearer(golden["key"])),
        lambda: ("GET", "/v1/keys", {"X-Api-Key": golden["key"]}),
        lambda: ("POST", "/openai/v1/chat/completions", bearer(nearly(golden["key"], dice))),
        lambda: ("GET", "/v1/models", bearer(golden["key"]) | {"X-Intentctl-Tenant": "free"}),
    ]
    with keyed.client() as nobody:
        for number in range(count):
            method, path, headers = sent[number % len(sent)]()
            answer = nobody.request(method, path, headers=headers)
            assert answer.status_code in {401, 403}, (method, path, headers, answer.text)
    told = entries(admin, "key.refused")
    assert {"unknown key", "revoked key", "expired key"} <= {one["subject"] for one in told}
    assert len(told) - before <= 4 * (1 + count // 2000), "thinned: a minute and kind has one"
    assert float(turned_away(admin)) >= count / 2


VIEWER, TENANT = {"role": "viewer"}, {"role": "tenant", "tenant": "gold"}
LETTERS = string.ascii_letters + string.digits + "_-"


def nearly(key: str, dice: random.Random) -> str:
    """A key with another character somewhere in its secret."""
    place = dice.randrange(len("ictl_aaaaaaaa_"), len(key))
    return key[:place] + dice.choice(LETTERS.replace(key[place], "")) + key[place + 1 :]


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


def expire(keyed: ScriptedService, prefix: str) -> None:
    keys = keyed.parts.access.keys
    with keys.change() as (session, changed):
        session.execute(update(KeyRow).where(KeyRow.prefix == prefix).values(expires_s=1.0))
        changed += [replace(one, expires_s=1.0) for one in keys.kept() if one.prefix == prefix]


def turned_away(admin: httpx.Client) -> str:
    lines = admin.get("/metrics").text.splitlines()
    return next(line for line in lines if 'turned_away_total{reason="key"}' in line).rsplit(" ", 1)[1]


def test_the_audit_is_read_by_pages(admin):
    for _ in range(4):
        admin.post("/v1/intents", json={"text": "as cheap as possible"})
    first = admin.get("/v1/audit", params={"limit": 2}).json()
    second = admin.get("/v1/audit", params={"limit": 2, "before": first["next"]}).json()
    numbers = [entry["seq"] for page in (first, second) for entry in page["entries"]]
    assert numbers == sorted(numbers, reverse=True) == list(range(numbers[0], numbers[0] - 4, -1))


@rows("number", [0, 2**53 + 1, 30264714522204663808])
def test_a_number_that_no_database_has_is_refused(admin, number):
    assert admin.get("/v1/audit", params={"before": number}).status_code == 422
    if number:
        assert admin.get("/v1/events", headers={"Last-Event-ID": str(number)}).status_code == 422
        head = admin.get("/v1/audit/verdict", params={"head": f"{number}:{'0' * 64}"})
        assert (head.status_code, head.json().get("is_whole")) in {(200, False), (422, None)}


def test_a_head_that_was_kept_is_verified(admin):
    head = admin.get("/v1/audit/head").json()["head"]
    admin.post("/v1/intents", json={"text": "as cheap as possible"})
    assert admin.get("/v1/audit/verdict", params={"head": head}).json()["is_whole"] is True
    seq, _, _ = head.partition(":")
    forged = admin.get("/v1/audit/verdict", params={"head": f"{seq}:{'0' * 64}"}).json()
    assert [flaw["seq"] for flaw in forged["flaws"]] == [int(seq)]
    assert admin.get("/v1/audit/verdict", params={"head": "yesterday"}).status_code == 422
