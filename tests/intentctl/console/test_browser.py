"""What people see and do at a browser: the keyboard, the five questions of 3 a.m., what others did, and what axe finds.

What of it can be seen without one stands in ``test_live.py``.
"""

import re
from contextlib import ExitStack

import pytest
from playwright.sync_api import expect

from intentctl.commands import follow
from runtime.models import Phase
from service import api
from service.documents.access import Role
from service.documents.plans import PlanRequest
from service.documents.promises import ActivateRequest
from tests.intentctl.console.place import console_over, has, say, watched
from tests.runtime.scripted import Script

pytestmark = [pytest.mark.slow, pytest.mark.exhaustive]

PAGES = (
    "/",
    "/talk",
    "/agenda",
    "/history",
    "/report",
    "/audit",
    "/settings",
    "/explain",
    "/plans",
    "/login",
)


@pytest.fixture(scope="module")
def switched(tmp_path_factory):
    """A place where something is promised and something was switched."""
    with ExitStack() as stack:
        place = console_over(stack, tmp_path_factory.mktemp("service"))
        plan = place.plan()
        place.admin(api.promises.activate, plan.intent_id, ActivateRequest())
        *_, operation = follow(place.admin, place.admin(api.plans.apply, plan.id).id, timeout_s=30)
        yield place, plan, operation


def test_a_wish_is_said_planned_and_approved_without_a_mouse(place, browser):
    page = place.person(browser, Role.APPROVER)
    page.keyboard.press("/")
    expect(page.locator("#words")).to_be_focused()
    page.keyboard.type("run it with tp=2")
    with page.expect_navigation():
        page.keyboard.press("Enter")
    has(page, ".card-head", "PP2 → TP2")
    page.keyboard.press("a")
    expect(page.locator("dialog[open]")).to_contain_text("Switch counting from PP2 to TP2?")
    page.keyboard.press("Escape")
    expect(page.locator("dialog[open]")).to_have_count(0)
    assert place.admin(api.state.topology).topology.shape == "PP2"
    page.keyboard.press("a")
    with page.expect_navigation():
        page.keyboard.press("Enter")
    has(page, ".chip", "done")
    assert place.admin(api.state.topology).topology.shape == "TP2"


def test_pages_have_keys_and_arrows_go_from_entry_to_entry(switched, browser):
    place, _, _ = switched
    page = place.person(browser, Role.VIEWER)
    for key, path in zip("cghrus", ("/talk", "/agenda", "/history", "/report", "/audit", "/settings"), strict=True):
        with page.expect_navigation():
            page.keyboard.press(key)
        assert page.url == place.url + path
    page.goto(f"{place.url}/history")
    page.keyboard.press("ArrowDown")
    first = page.evaluate("document.activeElement.href")
    page.keyboard.press("ArrowDown")
    assert page.evaluate("document.activeElement.href") != first
    page.keyboard.press("ArrowUp")
    assert page.evaluate("document.activeElement.href") == first
    with page.expect_navigation():
        page.keyboard.press("Enter")
    assert page.url == first


def test_what_was_said_before_comes_back_and_keys_do_nothing_while_somebody_writes(shared_place, browser):
    page = shared_place.person(browser, Role.OPERATOR)
    page.keyboard.press("Tab")
    expect(page.locator("a.skip")).to_be_focused()
    say(page, "/agenda 7d")
    say(page, "/history")
    page.focus("#words")
    for key, said in (("ArrowUp", "/history"), ("ArrowUp", "/agenda 7d"), ("ArrowDown", "/history")):
        page.keyboard.press(key)
        expect(page.locator("#words")).to_have_value(said)
    page.fill("#words", "")
    page.keyboard.type("a / history")
    expect(page.locator("#words")).to_have_value("a / history")
    page.keyboard.press("Escape")
    assert page.evaluate("document.activeElement.id") != "words"


QUESTIONS = {
    "what runs?": (".strip a[href^='/#model']", "#model-counting", "1x1"),
    "is a promise broken?": (".strip a[href='/#promises']", "section:has(#promises)", "TTFT"),
    "what changed last, and why?": (".strip a[href^='/operations']", "main", "applied by this machine"),
    "what is about to change?": (".strip a[href='/agenda']", "main", "1x1"),
    "how do I stop it?": (".strip form[action='/control'] button", "#controller ~ p", "paused"),
}


def test_the_questions_of_three_in_the_morning_are_one_click_away(switched, browser):
    place, _, operation = switched
    page = place.person(browser, Role.APPROVER)
    for start in ("/", "/talk", "/report", "/settings", "/explain"):
        for click, where, said in QUESTIONS.values():
            page.goto(place.url + start)
            page.locator(click).first.click()
            has(page, where, said)
            if "/control" in click:
                page.locator(click).click()
                has(page, "#controller ~ p", "recommend")
        assert operation.id in page.locator("#strip").inner_html()


@pytest.mark.parametrize(
    ("look", "some"),
    [
        ({"theme": "light"}, 1),
        pytest.param({"theme": "dark"}, 3, marks=pytest.mark.exhaustive),
        pytest.param({"language": "zh"}, 5, marks=pytest.mark.exhaustive),
        ({"width": 390}, 4),
    ],
    ids=str,
)
def test_axe_finds_nothing_serious(switched, browser, look, some):
    from axe_playwright_python.sync_playwright import Axe

    place, plan, operation = switched
    page = place.person(browser, Role.ADMIN, viewport={"width": look.get("width", 1280), "height": 900})
    chosen = [{"name": name, "value": str(value), "url": place.url} for name, value in look.items()]
    page.context.add_cookies(chosen)
    ours = (f"/plans/{plan.id}?ask=why", f"/intents/{plan.intent_id}", f"/operations/{operation.id}")
    for number, path in enumerate(("/", *ours, *PAGES[1:], "/explain?topic=metric")):
        page.goto(place.url + path)
        page.wait_for_selector("[data-lazy]:not([data-filled])", state="detached")
        assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 1, path
        if number % some:
            continue
        found = Axe().run(page).response["violations"]
        serious = [
            (one["id"], one["nodes"][0]["html"][:200]) for one in found if one["impact"] in {"serious", "critical"}
        ]
        assert not serious, (path, serious)


# -- what others did, and a service that is away -----------------------------------------------------


def test_a_page_goes_on_when_its_service_comes_back(new_place, browser):
    place = new_place()
    page = place.person(browser, Role.OPERATOR)
    expect(page.locator("#strip")).to_contain_text("PP2")
    for _ in range(2):
        place.service.stop()
    place.service.ended()
    has(page, "#lost:not([hidden])", re.compile("does not answer"))
    assert not page.faults


def test_a_page_left_open_says_that_its_key_was_revoked(shared_place, browser):
    page = shared_place.person(browser, Role.OPERATOR, "mallory")
    shared_place.revoke("mallory")
    page.evaluate("changed(['look'])")
    has(page, "#lost:not([hidden])", "signed out")
    assert page.locator("button:enabled").count() == 0


def test_a_switch_that_never_ends_can_be_cancelled(new_place, browser):
    place = new_place(script=Script(silent_while=Phase.WARMING))
    operation = place.admin(api.plans.apply, place.admin(api.plans.make_plan, PlanRequest(target="tp2")).plans[0].id)
    page = place.person(browser, Role.OPERATOR)
    page.goto(f"{place.url}/operations/{operation.id}")
    has(page, ".phases .present", "warming")
    page.reload()
    has(page, ".phases .present", "warming")
    page.locator("main form[action$=cancel] button").click()

    async def answer() -> None:
        place.service.engine.answer()

    place.service.call(answer())
    has(page, ".chip", "cancelled")


def test_a_browser_without_scripts_is_told_of_the_command_line(shared_place, browser):
    page = watched(browser.new_context(java_script_enabled=False))
    page.goto(f"{shared_place.url}/login")
    assert "intentctl get" in page.locator("body").inner_text()
    page.fill("#key", shared_place.key(Role.VIEWER))
    page.click("button.primary")
    assert "use the command line" in page.locator("body").inner_text()
    has(page, "#strip", "counting")


def test_what_nothing_holds_says_why_and_is_not_asked_for_again_and_again(shared_place, browser):
    page = shared_place.person(browser, Role.OPERATOR)
    say(page, "keep P99 TTFT < 1 ms at peak")
    has(page, "#problem", "Infeasible")
    sent = []
    page.on("request", lambda request: sent.append(request.url) if request.method == "POST" else None)
    with page.expect_response("**/parts/intents/*"):
        page.evaluate("changed(['operation'])")
    page.evaluate("changed(['operation'])")
    has(page, "#problem", "Infeasible")
    assert not sent


def test_what_somebody_else_says_is_seen_without_a_reload(shared_place, browser):
    made = shared_place.plan()
    page = shared_place.person(browser, Role.OPERATOR, "bob")
    page.goto(f"{shared_place.url}/plans/{made.id}")
    has(page, ".chip", "awaiting approval")
    shared_place.http(Role.APPROVER, "ada").post(f"/plans/{made.id}/approve", {"digest": made.digest})
    has(page, ".card-head", "by ada")
    page.reload()
    has(page, ".card-head", "by ada")
