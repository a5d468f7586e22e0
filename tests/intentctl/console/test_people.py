"""Who sees which button, and what happens without one: roles, two people at once, forged and old requests."""

import re
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import httpx
import pytest

from runtime.capabilities import Batching
from service import api
from service import documents as docs
from service.documents.access import RIGHTS, Right, Role
from service.documents.plans import PlanRequest, sealed
from service.documents.state import PlansRequest
from tests.intentctl.console.place import WISH, ConsoleServer, Signed
from tests.rows import rows
from tests.service.scripted import DEPLOYMENT, TWO_MODELS, ScriptedService
from tests.service.test_drains import SET

pytestmark = pytest.mark.slow

PEOPLE = (Role.VIEWER, Role.OPERATOR, Role.APPROVER, Role.ADMIN)
ACTS = {
    "/say": (Right.SAY, {"text": WISH}),
    "/intents/{intent}/amend": (Right.SAY, {"text": "make that 1.5 s"}),
    "/intents/{intent}/plan": (Right.SAY, {}),
    "/intents/{intent}/retire": (Right.APPROVE, {}),
    "/plans/{plan}/approve": (Right.APPROVE, {"digest": "x"}),
    "/plans/{plan}/reject": (Right.APPROVE, {}),
    "/plans/{plan}/apply": (Right.APPLY, {"digest": "{digest}"}),
    "/operations/op-0/cancel": (Right.APPLY, {}),
    "/operations/op-0/undo": (Right.APPLY, {}),
    "/control": (Right.APPROVE, {"mode": "observe"}),
    "/drain": (Right.APPROVE, {"what": "gpu-3"}),
    "/undrain": (Right.APPROVE, {"what": "gpu-3"}),
}


@pytest.fixture(scope="module")
def plan(shared_place):
    return shared_place.plan()


def filled(text, plan):
    return text.format(intent=plan.intent_id, plan=plan.id, digest=plan.digest)


@rows("role", PEOPLE)
def test_what_a_role_lacks_is_absent_and_refused(shared_place, plan, role):
    person = shared_place.http(role)
    forms = {
        form
        for path in ("/", f"/intents/{plan.intent_id}", f"/plans/{plan.id}", "/settings", "/talk")
        for form in re.findall(r'<form method="post" action="([^"]+)"', person.get(path).text)
    } - {"/logout", "/preferences", "/say"}
    for pattern, (right, said) in ACTS.items():
        path = filled(pattern, plan)
        if right in RIGHTS[role]:
            continue
        assert path not in forms
        answer = person.post(path, {name: filled(value, plan) for name, value in said.items()})
        assert answer.status_code == 403, (path, answer.status_code)
        assert "Forbidden" in answer.text


def test_who_may_has_the_buttons_and_a_form_without_the_token_of_its_session_is_refused(shared_place, plan):
    said = shared_place.http(Role.APPROVER).get(f"/plans/{plan.id}").text
    assert all(f'action="/plans/{plan.id}/{act}"' in said for act in ("apply", "approve", "reject"))
    operator = shared_place.http(Role.OPERATOR).get(f"/plans/{plan.id}").text
    assert f'action="/plans/{plan.id}/apply"' in operator
    assert "/approve" not in operator
    person, other = shared_place.http(Role.ADMIN), shared_place.http(Role.APPROVER)
    for token in ("", other.token, person.token[:-1]):
        answer = person.post(f"/plans/{plan.id}/apply", {"digest": plan.digest, "token": token})
        assert answer.status_code == 403
    assert shared_place.admin(api.plans.standing, plan.id).applied_by is None


@rows("path", ["/plans/{plan}/apply", "/plans/{plan}/approve", "/control", "/say"])
def test_a_link_does_nothing(shared_place, plan, path):
    answer = shared_place.http(Role.ADMIN).get(filled(path, plan))
    assert answer.status_code == 405
    assert "Use the button" in answer.text


@rows(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Origin": "null"},
    ],
)
def test_a_form_of_another_site_is_refused(shared_place, plan, headers):
    person = shared_place.http(Role.ADMIN)
    for path in (f"/plans/{plan.id}/apply", "/control", "/preferences", "/login", "/logout"):
        assert person.post(path, {"digest": plan.digest, "mode": "act"}, **headers).status_code == 403


def test_nobody_acts_without_signing_in_or_by_another_name_and_the_cookie_is_out_of_reach(shared_place, plan):
    with httpx.Client(base_url=shared_place.url) as nobody:
        assert nobody.post(f"/plans/{plan.id}/apply", data={"digest": plan.digest}).status_code == 401
        assert "Sign in" in nobody.get("/plans/x").text
        assert nobody.get("/parts/strip").status_code == 401
        assert nobody.get("/live").status_code == 401
    answer = httpx.get(f"{shared_place.url}/healthz", headers={"Host": "evil.example"})
    assert answer.status_code == 400
    answer = httpx.post(f"{shared_place.url}/login", data={"key": shared_place.key(Role.VIEWER)})
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=lax" in cookie
    assert shared_place.key(Role.VIEWER) not in cookie


def test_words_approve_nothing_and_a_plan_is_applied_as_it_was_read(shared_place):
    place, made = shared_place, shared_place.plan()
    person = place.http(Role.ADMIN)
    for text in ("approved, go ahead", "apply {0}", "/apply {0}", "yes", "I approve {0}, switch now"):
        person.post("/say", {"text": text.format(made.id)})
    answer = person.post(f"/plans/{made.id}/apply", {"digest": "0" * 64})
    assert answer.status_code == 409
    assert "read it again" in answer.text
    assert place.admin(api.plans.standing, made.id).applied_by is None
    assert place.admin(api.state.topology).generation == made.generation


def test_a_plan_is_asked_about_where_it_is_shown(shared_place, plan):
    """Under the card, and in both fields that take words; what is wished there changes the intent."""
    person, page = shared_place.http(Role.OPERATOR), f"/intents/{plan.intent_id}"
    shown = person.get(page).text
    assert f'<form method="get" action="/plans/{plan.id}#answer"' in shown
    assert shown.count(f'name="plan" value="{plan.id}"') == 2
    for path in ("/say", f"{page}/amend"):
        answer = person.post(path, {"text": "what if load doubles?", "plan": plan.id, "version": "1"})
        assert answer.headers["location"] == f"/plans/{plan.id}?ask=what+if+load+doubles%3F#answer"


@rows("to", ["//evil.example", "https://evil.example", "/\\evil.example", "javascript:alert(1)", "/\x00"])
def test_signing_in_leads_nowhere_else(shared_place, to):
    answer = httpx.post(f"{shared_place.url}/login", data={"key": shared_place.key(Role.VIEWER), "to": to})
    assert answer.headers["location"] == "/"


def test_a_promise_is_kept_and_its_plan_applied_by_one_button(new_place):
    place = new_place()
    made = place.plan()
    person = place.http(Role.APPROVER, "ada")
    answer = person.post(f"/plans/{made.id}/apply", {"digest": made.digest, "keep": "yes"})
    assert answer.status_code == 303
    assert answer.headers["location"].startswith("/operations/op-")
    (promise,) = place.admin(api.promises.promises).promises
    assert (promise.intent_id, promise.state, promise.activated_by) == (made.intent_id, "active", "ada")
    again = person.post(f"/plans/{made.id}/apply", {"digest": made.digest})
    assert again.status_code == 409
    assert "was applied" in again.text or "already" in again.text


def test_what_is_planned_for_one_model_is_shown_with_why_another_has_no_plan(new_place):
    place = new_place(TWO_MODELS.replace("auth: none", "auth: {control_per_minute: 1000000}"))
    person = place.http(Role.OPERATOR)
    kept = place.admin(api.intents.create_intent, docs.TranslateRequest(text="keep P99 TTFT < 2s"))
    answer = person.post(f"/intents/{kept.id}/plan")
    assert answer.status_code == 422
    (plan,) = place.admin(api.plans.plans, PlansRequest()).plans
    assert f"/plans/{plan.id}" in answer.text
    (box,) = re.findall(r'id="problem">.*?</div>', answer.text, re.DOTALL)
    assert re.findall("<strong>([^<]+)</strong>", box) == ["Infeasible.", "busy"]
    assert "p99 TTFT &lt;= 2 s" in box


def test_two_people_approve_at_once_and_one_is_told_by_whom(place):
    ada, grace = place.http(Role.APPROVER, "ada"), place.http(Role.APPROVER, "grace")
    for turn in range(4):
        made = place.admin(api.plans.make_plan, PlanRequest(target="pp2" if turn % 2 else "tp2")).plans[0]

        def approve(person: Signed, plan_id: str = made.id, digest: str = made.digest) -> httpx.Response:
            return person.post(f"/plans/{plan_id}/apply", {"digest": digest})

        with ThreadPoolExecutor(2) as pool:
            answers = list(pool.map(approve, (ada, grace)))
        won, lost = sorted(answers, key=lambda one: one.status_code)
        assert (won.status_code, lost.status_code) == (303, 409)
        operation_id = won.headers["location"].rpartition("/")[2]
        done = place.admin(api.operations.operation, operation_id)
        assert done.applied_by == ("ada", "grace")[answers.index(won)]
        assert f"by {done.applied_by}" in lost.text
        place.service.settle()


def test_a_plan_says_that_another_was_applied_meanwhile(place):
    old = place.plan()
    operation = place.switch("tp2")
    person = place.http(Role.APPROVER, "linus")  # of whom the console remembers nothing
    card = person.get(f"/plans/{old.id}").text
    assert "another plan was applied meanwhile" in card
    assert operation.id in card
    assert f'action="/plans/{old.id}/apply"' not in card
    assert person.post(f"/plans/{old.id}/apply", {"digest": old.digest}).status_code == 409


def test_an_operator_applies_what_an_approver_approved_while_there_is_time_left(place, monkeypatch):
    monkeypatch.setattr("intentctl.console.upstream.UNHEARD_S", -1.0)
    made = place.plan()
    ada, bob = place.http(Role.APPROVER, "ada"), place.http(Role.OPERATOR, "bob")
    refused = bob.post(f"/plans/{made.id}/apply", {"digest": made.digest})
    assert refused.status_code == 403
    assert "an approver has to" in refused.text
    assert ada.post(f"/plans/{made.id}/approve", {"digest": made.digest, "minutes": "5"}).status_code == 303
    card = bob.get(f"/plans/{made.id}").text
    assert "by ada" in card
    assert "data-until=" in card
    assert bob.post(f"/plans/{made.id}/apply", {"digest": made.digest}).status_code == 303


def test_what_was_rejected_says_by_whom_and_why_and_has_no_buttons(shared_place):
    made = shared_place.plan()
    ada = shared_place.http(Role.APPROVER, "ada")
    assert ada.post(f"/plans/{made.id}/reject", {"note": "too close to the release"}).status_code == 303
    card = ada.get(f"/plans/{made.id}").text
    assert "by ada" in card
    assert "too close to the release" in card
    assert f'action="/plans/{made.id}/apply"' not in card


def test_without_keys_everybody_is_let_in_on_this_machine_alone(tmp_path):
    with ScriptedService(tmp_path, DEPLOYMENT) as service:
        with ConsoleServer(service.url) as console:
            assert "Overview" in httpx.get(console.url).text
        with ConsoleServer(service.url, ("*",), is_local=False) as console:
            answer = httpx.get(console.url)
            assert answer.status_code == 403
            assert "asks for no keys" in answer.text


def test_a_certificate_that_ends_soon_is_on_every_page(shared_place, monkeypatch):
    metrics = shared_place.service.parts.metrics
    monkeypatch.setattr(metrics, "certificate_ends", {"b.pem": time.time() + 5.2 * 86_400, "c.pem": time.time() + 1e8})
    warned = "the certificate b.pem ends in 5 days"
    viewer = shared_place.http(Role.VIEWER, "who watches certificates")
    for path in ("/", "/settings"):
        page = viewer.get(path).text
        assert (warned in page, "c.pem" in page) == (True, False)


def test_how_far_steps_are_filled_stands_beside_the_target(shared_place):
    asked = PlanRequest(target="pp2", batching=Batching(2, 64))
    made = shared_place.admin(api.plans.make_plan, asked).plans[0]
    page = shared_place.http(Role.VIEWER).get(f"/plans/{made.id}").text
    assert "PP2, 2 sequences at once, 64 tokens a step" in page
    now = made.now_batching
    assert now is not None
    assert f"PP2, {now}" in page


def test_an_outage_is_called_one(shared_place):
    """And neither a switch in which layers move nor one before which the old topology goes on."""
    made = shared_place.plan()
    store = shared_place.service.parts.store
    ends = replace(made.switch, strategy="restart", stop_s=95.0, stop_most_s=160.0)
    outage = sealed(replace(made, id="plan-outage", switch=ends))
    store.save_plan(store.intent(made.intent_id).intent, outage, "ada")
    page = shared_place.http(Role.VIEWER).get("/plans/plan-outage").text
    assert "restart: an outage" in page
    assert "the running engine ends first, and requests wait" in page
    assert "Requests stand still for about 95 s (160 s at most)" in page
    for false in ("layer by layer", "until the cut the old topology goes on"):
        assert false not in page


def test_a_node_is_drained_and_undrained_with_buttons_and_replicas_are_told_apart(new_place):
    place = new_place(SET.replace("auth: none", "auth: {control_per_minute: 1000000}"))
    person = place.http(Role.APPROVER)
    shown = person.get("/").text
    assert "replica counting/1" in shown
    assert re.search(r"counting/2 <span.*?CPU\[2,3\].*?serving", shown, re.DOTALL)
    assert '<option value="gpu-3">' in shown
    refused = person.post("/drain", {"what": "node:local"})
    assert (refused.status_code, "nothing could serve counting then" in refused.text) == (422, True)
    assert person.post("/drain", {"what": "counting/2", "by": "10m", "why": "fans"}).status_code == 303
    place.service.settle()
    shown = place.http(Role.APPROVER, "another").get("/").text
    assert "empty: safe to power off" in shown
    assert 'name="what" value="counting/2">Undrain' in shown
    assert person.post("/undrain", {"what": "counting/2"}).status_code == 303
    assert place.admin(api.state.drains).drains == ()
    assert "Undrain" not in person.get("/").text
