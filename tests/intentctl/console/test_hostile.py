"""Hostile text as intents, notes, tenants and errors: nothing is executed, nothing is unreadable, in a real browser."""

import json
import random
from contextlib import suppress
from pathlib import Path

import pytest

from intent.models import MAX_CHARACTERS
from service.access.rights import Role
from service.documents.operations import RejectRequest
from service.errors import ServiceError
from tests.intentctl.console.place import KEYS, WISH

pytestmark = pytest.mark.slow

FILE = Path(__file__).parents[2] / "data" / "hostile.jsonl"
SEEDS = [json.loads(line) for line in FILE.read_text(encoding="utf-8").splitlines()]
SEEDS += [
    "Z\u0351\u036b\u0343a\u0363lgo" * 20,
    "👩‍👩‍👧‍👦" * 30,
    "ا" * 300,
    "ﷺ" * 100,
    "A" * 10_000,
    "字" * 3_000,
]


OWNED = "#tenant-owned, main script, main style, main iframe, main img, base, main meta, main form[action*=evil]"


def strings(count: int) -> list[str]:
    """Seeds, and mixtures of them with a wish."""
    random.seed(23)
    mixed = [" ".join(random.choices([*SEEDS, WISH], k=3))[:12_000] for _ in range(count - len(SEEDS))]
    return SEEDS + mixed


def test_hostile_words_are_shown_and_nothing_is_executed(new_place, browser):
    place = new_place(KEYS.replace("name: gold", "name: \"<b id='tenant-owned'>gold</b>\""))
    page = place.person(browser, Role.ADMIN)
    kept = []
    for text in strings(70):
        with suppress(ServiceError):  # no goal at all: the words come back with the reason
            kept.append(place.admin.keep(f"{text[:1900]} {WISH}").id)
    assert len(kept) > 30
    plan = place.plan()
    place.admin.reject(plan.id, RejectRequest(note=SEEDS[0] + SEEDS[19] + SEEDS[22]))
    intents = (f"/intents/{one}" for one in kept[::9])
    for path in ("/talk", "/history", f"/plans/{plan.id}", "/audit", "/", *intents):
        page.goto(place.url + path)
        check(page)
    assert not page.faults, page.faults[:3]


def test_hostile_words_that_are_refused_come_back_as_words(shared_place, browser):
    page = shared_place.person(browser, Role.ADMIN)
    for text in (*SEEDS[:14], "/<script>window.owned=1</script>", "x" * (MAX_CHARACTERS + 1)):
        page.fill("#words", text)
        with page.expect_navigation():
            page.press("#words", "Enter")
        check(page)
    for path in (
        "/plans/<script>window.owned=1</script>",
        "/explain?topic=<img src=x onerror=window.owned=1>",
        '/audit?act="><script>window.owned=1</script>',
    ):
        page.goto(shared_place.url + path)
        check(page)
    assert not page.faults, page.faults[:3]


def check(page) -> None:
    """Nothing of a text became a part of the page."""
    assert page.evaluate("window.owned") is None
    assert page.locator(OWNED).count() == 0
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 1
    shown = page.locator("main").inner_text()
    assert not set(shown) & set("\u202e\u202a\u2066\u2067\u2068\x00\x1b\x07\u200f"), shown
