"""The whole story in a browser: words, plan, approval, switch under streams, verdict; with a real service and engine.

Here service and console are threads; as commands they are in the same story, among the exhaustive tests.
"""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.intentctl.console.place import ConsoleServer, has, refuse_harm, say, watched
from tests.intentctl.real import TorchService, real_text, write_real

ROOT = Path(__file__).parents[3]
pytestmark = pytest.mark.slow


class Process:
    """A command that serves, and prints its address."""

    def __init__(self, *arguments: str, folder: Path) -> None:
        self.start(*arguments, folder=folder)

    def start(self, *arguments: str, folder: Path) -> None:
        """Begin it, or begin it again."""
        command = [sys.executable, "-m", "intentctl", *arguments]
        environment = {**os.environ, "INTENTCTL_DATA_DIR": str(folder)}
        self.process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True)
        self.url = self.process.stdout.readline().strip()
        assert self.url.startswith("http://"), self.url

    def end(self, how: signal.Signals = signal.SIGTERM) -> None:
        """Have it end, and wait."""
        self.process.send_signal(how)
        self.process.wait(60)
        self.process.stdout.close()


PROMISES = "promises: {tick_s: 1, lookback_s: 5, probation_s: 5, probation_requests: 5}\n"
"""The controller gives its verdicts soon."""


MOST_TOKENS = 15_000
"""More than a switch lets pass: streams are left when it is over."""


def stream(url: str, key: str, number: int, is_over: Callable[[int], bool]) -> list[str]:
    """The texts of one streamed answer, chunk by chunk, until it is left; so many came."""
    body = {
        "model": "counting",
        "prompt": f"count by {number} from 3:",
        "max_tokens": MOST_TOKENS,
        "stream": True,
        "temperature": 0,
        "ignore_eos": True,
    }
    request = urllib.request.Request(
        f"{url}/openai/v1/completions",
        json.dumps(body).encode(),
        {"Authorization": f"Bearer {key}", "Content-Type": "application/json"},
    )
    texts = []
    with urllib.request.urlopen(request, timeout=200) as answer:
        for line in answer:
            if line.startswith(b"data: {") and b'"text"' in line:
                texts.append(json.loads(line.removeprefix(b"data: "))["choices"][0]["text"])
                if is_over(len(texts)):
                    return texts
    raise AssertionError("the stream ended before the switch")


def signed_in(browser, url: str, key: str):
    """A browser whose person showed their key."""
    page = watched(browser.new_context(viewport={"width": 1280, "height": 1000}))
    page.goto(url)
    page.fill("#key", key)
    page.click("button.primary")
    return page


def say_and_see(page) -> None:
    """Words, how they are understood, and the plan; the same after a reload."""
    say(page, "keep P99 TTFT < 2s at peak, as cheap as possible")
    has(page, ".readback", "P99 TTFT at most 2 s at peak")
    has(page, ".card-head", "PP2 → 1x1")
    page.reload()
    has(page, ".card-head", "PP2 → 1x1")
    has(page, ".ahead", "1x1")


HOSTILE = (
    "keep P99 TTFT < 3s <img src=x onerror=window.owned=1><script>window.owned=1</script>\u202e</p><base href=//evil>"
)


def say_something_hostile(page) -> None:
    """It is shown as words: none of it is executed, none becomes a part of the page."""
    say(page, HOSTILE)
    has(page, "main", "onerror=window.owned=1")
    refuse_harm(page)
    page.goto(page.url.partition("/intents")[0] + "/talk")
    has(page, "main", "onerror=window.owned=1")
    refuse_harm(page)


def approve(page) -> None:
    """By the keyboard; and the page is loaded again in the middle of the switch."""
    page.keyboard.press("a")
    has(page, "dialog[open]", "Activate this intent?")
    with page.expect_navigation():
        page.keyboard.press("Enter")
    assert re.search(r"/operations/op-\w+$", page.url)
    page.reload()
    has(page, ".card-head .chip", "done")
    has(page, ".phases .past", "committed")
    has(page, ".clients", "first token after the cut")
    has(page, "#strip", "1x1")


NUMBERS = (7, 9)
"""What the streams count by."""
VERDICT = re.compile("recovered|not known")


def from_words_to_verdict(page, service_url: str, key: str):
    """The story; the page that says what came of it, and another one."""
    say_something_hostile(page)
    say_and_see(page)
    with ThreadPoolExecutor(2) as pool:
        is_done = threading.Event()
        left = [pool.submit(stream, service_url, key, number, lambda _: is_done.is_set()) for number in NUMBERS]
        try:
            approve(page)
        finally:
            is_done.set()
        switched = [one.result() for one in left]
        same = [
            pool.submit(stream, service_url, key, number, len(said).__eq__)
            for number, said in zip(NUMBERS, switched, strict=True)
        ]
        assert switched == [one.result() for one in same]

    second = watched(page.context)
    second.goto(page.url)
    has(second, ".card-head .chip", "done")
    has(page, ".verdict .chip", VERDICT)
    has(second, ".verdict .chip", VERDICT)
    with page.expect_navigation():
        page.locator("form[action$=undo] button").click()
    has(page, ".card-head", "1x1 → PP2")
    return second


def test_from_words_to_verdict(browser, tmp_path):
    with TorchService(tmp_path, real_text(more=PROMISES)) as service, ConsoleServer(service.url) as console:
        page = signed_in(browser, console.url, service.admin_key)
        second = from_words_to_verdict(page, service.url, service.admin_key)
        page.goto(f"{console.url}/history?kind=verdicts")
        has(page, ".timeline", VERDICT)
        assert not page.faults
        assert not second.faults


@pytest.mark.exhaustive
def test_the_same_as_commands_and_the_service_ends_and_comes_back(browser, tmp_path):
    folder, deployment = tmp_path / "data", str(write_real(tmp_path, more=PROMISES))
    service = Process("serve", "--deployment", deployment, "--port", "0", folder=folder)
    console = Process("console", "--server", service.url, "--port", "0", folder=folder)
    key = (folder / "admin.key").read_text().strip()
    page = signed_in(browser, console.url, key)
    second = from_words_to_verdict(page, service.url, key)

    service.end()
    has(second, "#lost:not([hidden])", "does not answer")
    again = ("serve", "--deployment", deployment, "--port", service.url.rpartition(":")[2])
    service.start(*again, folder=folder)
    expect(second.locator("#strip")).to_contain_text("1x1", timeout=45_000)
    expect(second.locator("#lost")).to_be_hidden(timeout=45_000)
    page.goto(f"{console.url}/history?kind=verdicts")
    has(page, ".timeline", VERDICT)
    assert not page.faults
    assert not second.faults
    console.end()
    service.end()
