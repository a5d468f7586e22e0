"""What others do and what happens is pushed to every open page, and names the parts that are asked for anew.

What a browser makes of it stands in ``test_browser.py``; here are the messages, and what they find in the pages.
"""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC

import pytest

from intentctl.promises import agenda_rows
from runtime.models import Phase
from service import api
from service.documents.access import Role
from service.documents.plans import PlanRequest
from service.documents.promises import AgendaQuery
from service.server import bind
from tests.intentctl.console.place import KEYS, Signed
from tests.rows import rows
from tests.runtime.scripted import Script
from tests.service.scripted import ScriptedService

pytestmark = pytest.mark.slow

PART = re.compile(r'data-part="([^"]+)" data-on="([^"]+)"')


@contextmanager
def hearing(person: Signed) -> Iterator[Iterator[list[str]]]:
    """The messages that an open page of somebody gets, from when the service is heard on."""
    with person.client.stream("GET", "/live") as live:
        lines = live.iter_lines()
        messages = (json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: "))
        assert next(messages) == ["back"]
        yield messages


def told(messages: Iterator[list[str]], name: str) -> list[str]:
    """The first message about something."""
    return next(one for one in messages if name in one)


def refreshed(html: str, names: list[str]) -> set[str]:
    """The parts of a page that a message has asked for anew."""
    return {part for part, on in PART.findall(html) if {*on.split()} & {*names}}


def test_what_somebody_else_does_is_told_and_the_parts_it_concerns_show_it(place):
    made, bob, ada = place.plan(), place.http(Role.OPERATOR, "bob"), place.http(Role.APPROVER, "ada")
    plan, intent = f"/plans/{made.id}", f"/intents/{made.intent_id}"
    pages = {path: bob.get(path).text for path in ("/", plan, intent)}
    assert "awaiting approval" in pages[plan]
    with hearing(bob) as messages:
        ada.post(f"{plan}/approve", {"digest": made.digest})
        names = told(messages, "approval")
        assert refreshed(pages[plan], names) == {f"/parts{plan}"}
        assert refreshed(pages[intent], names) == {f"/parts{intent}"}
        assert "by ada" in bob.get(f"/parts{plan}").text
        assert "by ada" in bob.get(plan).text

        applied = ada.post(f"{plan}/apply", {"digest": made.digest, "keep": "yes"})
        operation = applied.headers["location"]
        names = told(messages, made.intent_id)
        assert refreshed(pages["/"], names) == {"/parts/strip", "/parts/overview"}
        assert f"/parts{plan}" in refreshed(pages[plan], names)
        page = bob.get(operation).text
        names = told(messages, operation.rpartition("/")[2])
        assert f"/parts{operation}" in refreshed(page, names)
        assert f"/parts{plan}" in refreshed(pages[plan], names)
        assert {"/parts/strip", "/parts/overview"} == refreshed(pages["/"], told(messages, "topology"))
        place.service.settle()
        assert made.target.shape in bob.get("/parts/strip").text
        assert operation in bob.get("/parts/strip").text

        ada.post("/control", {"paused": "yes"})
        assert refreshed(pages["/"], told(messages, "control")) == {"/parts/strip", "/parts/overview"}
        assert "paused" in bob.get("/parts/strip").text
    ada.post("/control", {"paused": "no"})
    ada.post(f"{intent}/retire")


@rows(
    ("said", "when", "lines", "kept"),
    [
        ({"mode": "recommend"}, "now, by a person", ["switch now"], ""),
        ({"pinned_s": "3600"}, "{ends}, by a person", ["switch fro"], "pinned what runs"),
        ({"paused": "yes"}, "by a person", [], "the controller is paused"),
    ],
)
def test_all_tell_the_same_of_what_comes_next(place, said, when, lines, kept):
    ada = place.http(Role.APPROVER, "ada")
    intent = place.admin(api.plans.make_plan, PlanRequest(text="use at most 1 GPU")).plans[0].intent_id
    place.admin(api.promises.activate, intent)
    ada.post("/control", said)
    agenda = place.admin(api.promises.agenda, AgendaQuery())
    shown = [
        ada.get("/").text.partition("<dt>Comes next")[2].partition("</div>")[0],
        ada.get("/parts/overview").text.partition("<h3>Comes next")[2].partition("</section>")[0],
        ada.get("/agenda").text.partition("<h1>")[2],
    ]
    switches = [line for _, line in agenda_rows(agenda) if line.startswith("switch")]
    pin = place.admin(api.promises.control).pin
    ends = f"{pin.until.astimezone(UTC):%Y-%m-%dT%H:%M}" if pin else ""
    for html in shown:
        said_of_it = re.sub('<time datetime="(.{16})[^/]*</time>', r"\1", html)
        assert (when.format(ends=ends) in said_of_it) is bool(switches)
        assert bool(re.search("→ 1x1|⇄", html)) is bool(switches)
    assert [line.partition(":")[0][:10] for line in switches] == lines
    assert kept in agenda.segments[0].kept
    ada.post("/control", {"paused": "no"})
    ada.post(f"/intents/{intent}/retire")


def test_a_service_that_goes_away_and_comes_back_is_told_and_its_parts_say_whether_they_may_be_old(
    new_place, tmp_path, monkeypatch
):
    place = new_place()
    port = int(place.service.url.rpartition(":")[2])
    monkeypatch.setattr("tests.service.scripted.bind", lambda host, _: bind(host, port))
    bob = place.http(Role.OPERATOR)
    page = bob.get("/").text
    assert "The service does not answer" in page  # what the page says once a part says so
    with hearing(bob) as messages:
        for _ in range(2):
            place.service.stop()
        place.service.ended()
        assert refreshed(page, told(messages, "away")) == {"/parts/strip"}
        assert bob.get("/parts/strip").status_code == 503
        with ScriptedService(tmp_path, KEYS):
            assert refreshed(page, told(messages, "back")) == {"/parts/strip", "/parts/overview"}
            assert "PP2" in bob.get("/parts/strip").text


def test_a_part_of_a_page_whose_key_was_revoked_is_refused(shared_place):
    mallory = shared_place.http(Role.OPERATOR, "mallory")
    assert mallory.get("/parts/strip").status_code == 200
    shared_place.revoke("mallory")
    with suppress(
        AssertionError
    ):  # the console hears of it with the first answer, or did before: then no page has a token
        mallory.post("/control", {"paused": "no"})
    assert mallory.get("/parts/strip").status_code == 401


def test_a_switch_that_never_ends_is_looked_at_again_and_can_be_cancelled(new_place):
    place = new_place(script=Script(silent_while=Phase.WARMING))
    applied = place.admin(api.plans.apply, place.admin(api.plans.make_plan, PlanRequest(target="tp2")).plans[0].id)
    place.service.reached("ready")
    oscar = place.http(Role.OPERATOR)
    page = oscar.get(f"/operations/{applied.id}").text
    assert 'data-every="1000"' in page
    assert re.search(r'class="[^"]*present[^"]*"[^>]*>\s*(<[^>]+>)*warming', page)
    assert f'action="/operations/{applied.id}/cancel"' in page
    assert oscar.post(f"/operations/{applied.id}/cancel").status_code == 303

    async def answer() -> None:
        place.service.engine.answer()

    place.service.call(answer())
    place.service.settle()
    part = oscar.get(f"/parts/operations/{applied.id}").text
    assert "cancelled" in part
    assert "present" not in part


def test_what_nothing_holds_says_why_outside_of_what_is_asked_for_anew_and_looking_plans_nothing(shared_place):
    person = shared_place.http(Role.OPERATOR)
    said = person.client.post(
        "/say",
        data={"token": person.token, "text": "keep P99 TTFT < 1 ms at peak"},
        headers={"Origin": shared_place.url},
        follow_redirects=True,
    )
    assert "Infeasible" in said.text
    problem, _, main = said.text.partition('id="problem"')[2].partition("data-part=")
    assert "Infeasible" in problem, "no part that is asked for anew takes it away"
    (intent,) = {part for part, _ in PART.findall(f"data-part={main}") if part.startswith("/parts/intents/")}
    assert refreshed(said.text, ["operation"]) == {intent, "/parts/strip"}
    before = shared_place.admin(api.audit.audit_head)
    looked = [person.get(intent).text for _ in range(2)]
    assert shared_place.admin(api.audit.audit_head) == before
    assert "data-auto" not in "".join([said.text, *looked])


# -- what the keyboard and the hand of somebody woken find ----------------------------------------------------------


BY_KEY = {"o": "/", "c": "/talk", "g": "/agenda", "h": "/history", "r": "/report", "u": "/audit", "s": "/settings"}


def test_keys_find_pages_words_entries_and_buttons_with_what_they_ask(place):
    person = place.http(Role.APPROVER)
    place.plan()
    made = place.admin(api.plans.make_plan, PlanRequest(target="tp2")).plans[0]
    plan, history = person.get(f"/plans/{made.id}").text, person.get("/history").text
    keys = re.findall(r'<a href="([^"]+)" data-key="(\w)"', history)
    assert {key: path for path, key in keys} == BY_KEY
    assert all(person.get(path).status_code == 200 for path in BY_KEY.values())
    assert re.search(r'<input id="words" name="text"', history)
    assert re.search(r'<a class="skip" href="#main">.*<main id="main" tabindex="-1">', history, re.DOTALL)
    assert re.search(r'<li>.*?<a href="/intents/', history.partition("<main")[2], re.DOTALL)
    (opens,) = re.findall(r'data-opens="([^"]+)"[^>]* data-key="a"', plan)
    assert set(re.findall(r'data-opens="([^"]+)"', plan)) <= set(re.findall(r'<dialog id="([^"]+)"', plan))
    dialog = plan.partition(f'<dialog id="{opens}"')[2].partition("</dialog>")[0]
    assert "Switch counting from PP2 to TP2?" in dialog
    assert f'action="/plans/{made.id}/apply"' in dialog
    assert 'class="primary" autofocus' in dialog


@pytest.fixture(scope="module")
def switched(switching_place):
    """Somebody where something is promised and something was switched, and the switch."""
    place = switching_place
    plan = place.admin(api.plans.make_plan, PlanRequest(text="use at most 1 GPU")).plans[0]
    ada = place.http(Role.APPROVER, "ada")
    applied = ada.post(f"/plans/{plan.id}/apply", {"digest": plan.digest, "keep": "yes"})
    place.service.settle()
    yield ada, applied.headers["location"]
    ada.post(f"/intents/{plan.intent_id}/retire")


QUESTIONS = {
    "what runs?": (r'href="(/#model-counting)"', "1x1"),
    "is a promise broken?": (r'href="(/#promises)"', "GPU"),
    "what changed last, and why?": (r'href="(/operations/op-[^"]+)"', "ada"),
    "what is about to change?": (r'href="(/agenda)"', "1x1"),
    "how do I stop it?": (r'action="(/control)"', "Pause the controller"),
}


@rows("start", ["/", "/talk", "/report", "/settings", "/explain"])
def test_the_questions_of_three_in_the_morning_are_one_click_away(switched, start):
    ada, operation = switched
    strip = ada.get(start).text.partition('id="strip"')[2].partition("<main")[0]
    assert operation in strip
    for click, said in QUESTIONS.values():
        (path,) = {*re.findall(click, strip)}
        page, _, place = path.partition("#")
        html = strip if page == "/control" else ada.get(page).text
        assert said in html
        assert not place or f'id="{place}"' in html


def test_a_browser_without_scripts_is_told_of_the_command_line(shared_place):
    person = shared_place.http(Role.VIEWER)
    for html in (person.get("/").text, person.get("/login").text):
        assert "intentctl get" in html.partition("<noscript>")[2].partition("</noscript>")[0]
