"""The whole story in a browser: words, plan, approval, switch under streams, verdict; with a real service and engine."""

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.intentctl.console.place import has, say, watched

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


@pytest.fixture
def deployment(tmp_path):
    """The local example, whose controller gives its verdicts soon."""
    text = (ROOT / "examples/local-cpu.yaml").read_text()
    text = text.replace("path: counting", f"path: {ROOT}/examples/counting")
    file = tmp_path / "deployment.yaml"
    file.write_text(text + "\npromises: {tick_s: 1, lookback_s: 5, probation_s: 5, probation_requests: 5}\n")
    return file


def stream(url: str, key: str, number: int) -> list[str]:
    """The texts of one streamed answer, chunk by chunk."""
    body = {
        "model": "counting",
        "prompt": f"count by {number} from 3:",
        "max_tokens": 300,
        "stream": True,
        "temperature": 0,
    }
    request = urllib.request.Request(
        f"{url}/openai/v1/completions",
        json.dumps(body).encode(),
        {"Authorization": f"Bearer {key}", "Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=120) as answer:
        lines = [line.decode().removeprefix("data: ").strip() for line in answer if line.startswith(b"data: {")]
    return [json.loads(line)["choices"][0]["text"] for line in lines if '"text"' in line]


@pytest.fixture
def running(deployment, tmp_path):
    """A service and its console, each a process."""
    folder = tmp_path / "data"
    service = Process("serve", "--deployment", str(deployment), "--port", "0", folder=folder)
    console = Process("console", "--server", service.url, "--port", "0", folder=folder)
    yield service, console, (folder / "admin.key").read_text().strip()
    console.end()
    service.end()


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


VERDICT = re.compile("recovered|not known")


def test_from_words_to_verdict(running, browser, deployment, tmp_path):
    service, console, key = running
    numbers = (7, 9)
    before = [stream(service.url, key, number) for number in numbers]
    page = signed_in(browser, console.url, key)
    say_and_see(page)
    with ThreadPoolExecutor(2) as pool:
        streams = [pool.submit(stream, service.url, key, number) for number in numbers]
        approve(page)
        assert [one.result() for one in streams] == before

    second = watched(page.context)
    second.goto(page.url)
    has(second, ".card-head .chip", "done")
    has(page, ".verdict .chip", VERDICT)
    has(second, ".verdict .chip", VERDICT)
    with page.expect_navigation():
        page.locator("form[action$=undo] button").click()
    has(page, ".card-head", "1x1 → PP2")

    service.end()
    has(second, "#lost:not([hidden])", "does not answer")
    again = ("serve", "--deployment", str(deployment), "--port", service.url.rpartition(":")[2])
    service.start(*again, folder=tmp_path / "data")
    expect(second.locator("#strip")).to_contain_text("1x1", timeout=45_000)
    expect(second.locator("#lost")).to_be_hidden(timeout=45_000)
    page.goto(f"{console.url}/history?kind=verdicts")
    has(page, ".timeline", VERDICT)
    assert not page.faults
    assert not second.faults
