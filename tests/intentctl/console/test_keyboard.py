"""The keyboard, the five questions of 3 a.m., and what axe finds."""

import pytest
from playwright.sync_api import expect

from service.access.rights import Role
from service.documents.plans import PlanRequest
from service.documents.promises import ActivateRequest
from tests.intentctl.console.place import WISH, has, say

pytestmark = pytest.mark.slow

PAGES = (
    "/",
    "/talk",
    "/agenda",
    "/history",
    "/report",
    "/audit",
    "/settings",
    "/explain",
    "/explain?topic=metric",
    "/plans",
    "/login",
)


@pytest.fixture(scope="module")
def switched(shared_place):
    """A place where something is promised and something was switched."""
    admin = shared_place.admin
    plan = admin.plan(PlanRequest(text=WISH)).plans[0]
    admin.activate(plan.intent_id, ActivateRequest())
    operation = admin.apply(plan.id)
    while not admin.operation(operation.id).done:
        pass
    return shared_place, plan, operation


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
    assert place.admin.topology().topology.shape == "PP2"
    page.keyboard.press("a")
    with page.expect_navigation():
        page.keyboard.press("Enter")
    has(page, ".chip", "done")
    assert place.admin.topology().topology.shape == "TP2"


def test_pages_have_keys_and_arrows_go_from_entry_to_entry(switched, browser):
    shared_place, _, _ = switched
    page = shared_place.person(browser, Role.VIEWER)
    for key, path in zip(
        "cghrus", ("/talk", "/agenda", "/history", "/report", "/audit", "/settings"), strict=True
    ):
        with page.expect_navigation():
            page.keyboard.press(key)
        assert page.url == shared_place.url + path
    page.goto(f"{shared_place.url}/history")
    page.keyboard.press("ArrowDown")
    first = page.evaluate("document.activeElement.href")
    page.keyboard.press("ArrowDown")
    assert page.evaluate("document.activeElement.href") != first
    page.keyboard.press("ArrowUp")
    assert page.evaluate("document.activeElement.href") == first
    with page.expect_navigation():
        page.keyboard.press("Enter")
    assert page.url == first


def test_what_was_said_before_comes_back(shared_place, browser):
    page = shared_place.person(browser, Role.OPERATOR)
    say(page, "/agenda 7d")
    say(page, "/history")
    page.focus("#words")
    page.keyboard.press("ArrowUp")
    expect(page.locator("#words")).to_have_value("/history")
    page.keyboard.press("ArrowUp")
    expect(page.locator("#words")).to_have_value("/agenda 7d")
    page.keyboard.press("ArrowDown")
    expect(page.locator("#words")).to_have_value("/history")


def test_keys_do_nothing_while_somebody_writes(shared_place, browser):
    page = shared_place.person(browser, Role.OPERATOR)
    page.focus("#words")
    page.keyboard.type("a / history")
    expect(page.locator("#words")).to_have_value("a / history")
    page.keyboard.press("Escape")
    assert page.evaluate("document.activeElement.id") != "words"


def test_the_skip_link_is_the_first_stop(shared_place, browser):
    page = shared_place.person(browser, Role.VIEWER)
    page.keyboard.press("Tab")
    expect(page.locator("a.skip")).to_be_focused()


@pytest.mark.parametrize("start", ["/", "/talk", "/report", "/settings", "/explain"])
def test_the_questions_of_three_in_the_morning_are_two_clicks_away(switched, browser, start):
    shared_place, _, operation = switched
    page = shared_place.person(browser, Role.APPROVER)
    answers = {
        "what runs?": ([".strip a[href^='/#model']"], "#model-counting", "1x1"),
        "is a promise broken?": ([".strip a[href='/#promises']"], "section:has(#promises)", "TTFT"),
        "what changed last, and why?": ([".strip a[href^='/operations']"], "main", "applied by this machine"),
        "what is about to change?": ([".strip a[href='/agenda']"], "main", "1x1"),
        "how do I stop it?": ([".strip form[action='/control'] button"], "#controller ~ p", "paused"),
    }
    for clicks, where, said in answers.values():
        assert len(clicks) <= 2
        page.goto(shared_place.url + start)
        for click in clicks:
            page.locator(click).first.click()
        has(page, where, said)
        if "/control" in clicks[0]:
            page.locator(clicks[0]).click()
            has(page, "#controller ~ p", "recommend")
    assert operation.id in page.locator("#strip").inner_html()


@pytest.mark.parametrize(
    ("look", "some"),
    [({"theme": "light"}, 1), ({"theme": "dark"}, 3), ({"language": "zh"}, 5), ({"width": 390}, 4)],
    ids=str,
)
def test_axe_finds_nothing_serious(switched, browser, look, some):
    from axe_playwright_python.sync_playwright import Axe

    shared_place, plan, operation = switched
    page = shared_place.person(
        browser, Role.ADMIN, viewport={"width": look.get("width", 1280), "height": 900}
    )
    chosen = [{"name": name, "value": str(value), "url": shared_place.url} for name, value in look.items()]
    page.context.add_cookies(chosen)
    ours = (f"/plans/{plan.id}?ask=why", f"/intents/{plan.intent_id}", f"/operations/{operation.id}")
    for place, path in enumerate(("/", *ours, *PAGES[1:])):
        page.goto(shared_place.url + path)
        page.wait_for_selector("[data-lazy]:not([data-filled])", state="detached")
        assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 1, path
        if place % some:
            continue
        found = Axe().run(page).response["violations"]
        serious = [
            (one["id"], one["nodes"][0]["html"][:200])
            for one in found
            if one["impact"] in {"serious", "critical"}
        ]
        assert not serious, (path, serious)
