"""Hostile text as intents, notes, tenants and errors: nothing is a part of a page, nothing is unreadable.

Here as the console sends it, and in a real browser (one such text is in the story of ``test_story.py``, too).
"""

import json
import random
from contextlib import suppress
from html.parser import HTMLParser
from pathlib import Path

import pytest

from intent.models import MAX_CHARACTERS
from intentctl.console.app import POLICY
from service import api
from service import documents as docs
from service.documents.access import Role
from service.documents.errors import ServiceError
from service.documents.operations import RejectRequest
from tests.intentctl.console.place import KEYS, STEERING, WISH, Place, refuse_harm

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
REFUSED = (*SEEDS[:14], "/<script>window.owned=1</script>", "x" * (MAX_CHARACTERS + 1))
ADDRESSES = (
    "/plans/<script>window.owned=1</script>",
    "/explain?topic=<img src=x onerror=window.owned=1>",
    '/audit?act="><script>window.owned=1</script>',
)
DEPLOYMENT = KEYS.replace("name: gold", "name: \"<b id='tenant-owned'>gold</b>\"")


def strings(count: int) -> list[str]:
    """Seeds, and mixtures of them with a wish."""
    random.seed(23)
    mixed = [" ".join(random.choices([*SEEDS, WISH], k=3))[:12_000] for _ in range(count - len(SEEDS))]
    return SEEDS + mixed


def hostile_pages(place: Place, texts: list[str]) -> list[str]:
    """Addresses of pages that show hostile words of each kind."""
    kept = []
    for text in texts:
        with suppress(ServiceError):  # no goal at all: the words come back with the reason
            kept.append(place.admin(api.intents.create_intent, docs.TranslateRequest(text=f"{text[:1900]} {WISH}")).id)
    assert len(kept) > len(texts) / 3
    plan = place.plan()
    place.admin(api.plans.reject, plan.id, RejectRequest(note=SEEDS[0] + SEEDS[19] + SEEDS[22]))
    return ["/talk", "/history", f"/plans/{plan.id}", "/audit", "/", *(f"/intents/{one}" for one in kept[::9])]


# -- what is sent -----------------------------------------------------------------------------------------------------


class Sent(HTMLParser):
    """A page: what it is made of, and its words."""

    OURS = frozenset({"script", "link", "meta"})
    """Of these there is what each page has."""
    FOREIGN = frozenset({"style", "iframe", "img", "base", "object", "embed", "math", "marquee"})

    def __init__(self, html: str) -> None:
        super().__init__()
        self.words = ""
        self.ours = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag not in self.FOREIGN, self.get_starttag_text()
        if tag in self.OURS:
            self.ours.append(self.get_starttag_text())
        for name, value in attrs:
            assert not name.startswith("on"), self.get_starttag_text()
            assert name not in {"style", "srcdoc", "formaction", "http-equiv"}, self.get_starttag_text()
            if name in {"href", "action", "src"}:
                assert value.startswith(("/", "#")), self.get_starttag_text()
                assert not value.startswith("//"), self.get_starttag_text()
            assert (name, value) != ("id", "tenant-owned")
            assert not (tag == "dialog" and name == "open")

    def handle_comment(self, data: str) -> None:
        raise AssertionError(f"a comment: {data}")

    def handle_data(self, data: str) -> None:
        self.words += data


def refuse_harm_in(answer) -> Sent:
    """Nothing of what others wrote is markup, and nothing of it steers the reader; scripts of others are forbidden."""
    assert answer.headers["Content-Security-Policy"] == POLICY
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    sent = Sent(answer.text)
    assert not set(answer.text) & STEERING
    return sent


@pytest.fixture(scope="module")
def usual(shared_place):
    """What each page has of what hostile words could add."""
    return refuse_harm_in(shared_place.http(Role.ADMIN).get("/explain")).ours


def test_hostile_words_are_sent_as_words(new_place, usual):
    assert "script-src 'self'" in POLICY
    assert "unsafe" not in POLICY
    place = new_place(DEPLOYMENT)
    person = place.http(Role.ADMIN)
    words = ""
    for path in hostile_pages(place, SEEDS[::2]):
        sent = refuse_harm_in(person.get(path))
        assert sent.ours == usual, path
        words += sent.words
    for seed in (SEEDS[0], SEEDS[2], SEEDS[4]):
        assert seed in words


def test_hostile_words_that_are_refused_are_sent_back_as_words(shared_place, usual):
    person = shared_place.http(Role.ADMIN)
    for text in REFUSED:
        answer = person.post("/say", {"text": text})
        while answer.is_redirect:
            answer = person.get(answer.headers["location"])
        assert refuse_harm_in(answer).ours == usual, text
    for path in ADDRESSES:
        assert refuse_harm_in(person.get(path)).ours == usual, path


# -- what a browser makes of it ---------------------------------------------------------------------------------------


@pytest.mark.exhaustive
def test_hostile_words_are_shown_and_nothing_is_executed(new_place, browser):
    place = new_place(DEPLOYMENT)
    page = place.person(browser, Role.ADMIN)
    for path in hostile_pages(place, strings(70)):
        page.goto(place.url + path)
        refuse_harm(page)
    assert not page.faults, page.faults[:3]


@pytest.mark.exhaustive
def test_hostile_words_that_are_refused_come_back_as_words(shared_place, browser):
    page = shared_place.person(browser, Role.ADMIN)
    for text in REFUSED:
        page.fill("#words", text)
        with page.expect_navigation():
            page.press("#words", "Enter")
        refuse_harm(page)
    for path in ADDRESSES:
        page.goto(shared_place.url + path)
        refuse_harm(page)
    assert not page.faults, page.faults[:3]
