"""What the console adds: ``python -m benchmarks.console [--minutes 10] [--json FILE]``.

A real service with the built-in engine, 16 streams that never stop, a console and Chromium. How long from words to a
plan card beside the service's own time; how long from an event in the service to the screen; the first page; then 20
clients with open sockets and one browser for minutes: the console's memory, and what the service spends on them
beside a time without them.
"""

import argparse
import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import linear_regression, quantiles
from typing import Any

import httpx
from playwright.sync_api import Page, sync_playwright

from benchmarks.provenance import ROOT, provenance, stolen_now_s
from intentctl.client import Client
from service import api
from service import documents as docs
from service.documents.plans import PlanRequest
from service.documents.promises import ControlRequest

Document = dict[str, Any]
BARS = {"card_s": 1.5, "event_ms": 300.0, "first_page_s": 2.0, "mb_per_minute": 1.0, "service_core": 0.02}
STREAMS, CLIENTS = 16, 20
WISHES = (
    "keep P99 TTFT < {ms} ms at peak",
    "at most {ms} ms TPOT at P95",
    "P99 TTFT under {ms} ms and as cheap as possible",
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the command line says; the exit status is 1 where a bar is missed."""
    found = argparse.ArgumentParser("python -m benchmarks.console", description=__doc__)
    found.add_argument("--minutes", type=float, default=10)
    found.add_argument("--rounds", type=int, default=15)
    found.add_argument("--json", type=Path, metavar="FILE")
    options = found.parse_args(arguments)
    document: Document = {"benchmark": "console", **provenance()}
    with tempfile.TemporaryDirectory() as folder, _serving(Path(folder)) as (service, console, key):
        client = Client(service.url, key)
        document |= _cards(client, console.url, key, options.rounds)
        document |= _crowd(service, console, key, options.minutes * 60)
        document |= _screen(client, service.url, console.url, key, options.rounds)
    document |= {"bars": BARS, "stolen_after_s": stolen_now_s()}
    for name, bar in BARS.items():
        print(f"{name:16}{document[name]:10.3f}   bar {bar:g}")
    print(json.dumps({name: document[name] for name in document if name.endswith("_figures")}, indent=1))
    if options.json:
        options.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    return int(any(document[name] > bar for name, bar in BARS.items()))


class Started:
    """A command that serves, and prints its address."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        command = [sys.executable, "-m", "intentctl", *arguments]
        environment = {**os.environ, "INTENTCTL_DATA_DIR": str(folder), "OMP_NUM_THREADS": "1"}
        self._process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout
        self.url = self._process.stdout.readline().strip()

    @property
    def cpu_s(self) -> float:
        """CPU time of the process itself."""
        parts = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(parts[11]) + int(parts[12])) / os.sysconf("SC_CLK_TCK")

    @property
    def memory_mb(self) -> float:
        """Resident memory."""
        pages = int(Path(f"/proc/{self._process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 1e6

    def end(self) -> None:
        """Have it end."""
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(60)


@contextmanager
def _serving(folder: Path) -> Iterator[tuple[Started, Started, str]]:
    """A service with the local example, and its console."""
    service = Started(folder, "serve", "--deployment", "examples/local-cpu.yaml", "--port", "0")
    console = Started(folder, "console", "--server", service.url, "--port", "0")
    try:
        yield service, console, (folder / "admin.key").read_text().strip()
    finally:
        console.end()
        service.end()


@contextmanager
def _page(console: str, key: str) -> Iterator[Page]:
    """A browser whose person has signed in."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        page = browser.new_page()
        page.goto(console)
        page.fill("#key", key)
        page.click("button.primary")
        page.wait_for_selector("#strip")
        yield page
        browser.close()


@contextmanager
def _streaming(service: str, key: str, count: int) -> Iterator[None]:
    """Streams that begin anew when they end."""
    stop = threading.Event()

    def go_on(number: int) -> None:
        body = {
            "model": "counting",
            "prompt": f"count by {number} from 1:",
            "max_tokens": 900,
            "stream": True,
        }
        with httpx.Client(headers={"Authorization": f"Bearer {key}"}, timeout=60) as client:
            while not stop.is_set():
                with client.stream("POST", f"{service}/openai/v1/completions", json=body) as answer:
                    for _ in answer.iter_raw():
                        if stop.is_set():
                            break

    threads = [threading.Thread(target=go_on, args=[number + 2]) for number in range(count)]
    for one in threads:
        one.start()
    try:
        yield
    finally:
        stop.set()
        for one in threads:
            one.join()


def figures(values: Sequence[float]) -> Document:
    """Of several values: how they are spread."""
    cuts = quantiles(values, n=20, method="inclusive")
    return {"count": len(values), "p50": cuts[9], "p95": cuts[18], "max": max(values)}


def _cards(client: Client, console: str, key: str, rounds: int) -> Document:
    """From words to a plan card, less what the service takes for the same words; and the first page."""
    beside, first = list[float](), list[float]()
    with _page(console, key) as page:
        for turn in range(rounds):
            wish = WISHES[turn % len(WISHES)]
            began_s = time.perf_counter()
            client(
                api.plans.make_plan,
                PlanRequest(
                    intent_id=client(
                        api.intents.create_intent, docs.TranslateRequest(text=wish.format(ms=900 + 2 * turn))
                    ).id
                ),
            )
            own_s = time.perf_counter() - began_s
            page.fill("#words", wish.format(ms=901 + 2 * turn))
            began_s = time.perf_counter()
            page.press("#words", "Enter")
            page.wait_for_selector(".card .actions, .card .chip")
            beside.append(time.perf_counter() - began_s - own_s)
            began_s = time.perf_counter()
            page.goto(console)
            page.wait_for_selector("main .chart")
            first.append(time.perf_counter() - began_s)
    spread = {"card_s_figures": figures(beside), "first_page_s_figures": figures(first)}
    return {
        "card_s": spread["card_s_figures"]["p95"],
        "first_page_s": spread["first_page_s_figures"]["p95"],
        **spread,
    }


WATCH = """() => {
  window.seen = [];
  let last = '';
  new MutationObserver(() => {
    const now = /paused/.test(document.querySelector('#strip').textContent) ? 'paused' : 'going';
    if (now !== last) { last = now; requestAnimationFrame(() => window.seen.push([now, Date.now() / 1000])); }
  }).observe(document.querySelector('#strip'), {subtree: true, childList: true, characterData: true});
}"""


def _screen(client: Client, service: str, console: str, key: str, rounds: int) -> Document:
    """From what the service has to what the screen shows, while streams run: somebody else pauses the controller."""
    late_ms = list[float]()
    with _streaming(service, key, STREAMS), _page(console, key) as page:
        page.evaluate(WATCH)
        for turn in range(4 * rounds):
            before = page.evaluate("window.seen.length")
            client(api.promises.set_control, ControlRequest(paused=turn % 2 == 0))
            has_s = time.time()
            page.wait_for_function("count => window.seen.length > count", arg=before, timeout=10_000)
            late_ms.append((page.evaluate("window.seen.at(-1)[1]") - has_s) * 1000)
            page.wait_for_timeout(137)
    spread = figures(late_ms)
    return {"event_ms": spread["p95"], "event_ms_figures": spread}


def _crowd(service: Started, console: Started, key: str, seconds: float) -> Document:
    """Many clients and a browser for minutes: what the console's memory does, and what the service spends on them."""
    alone_s = min(60.0, seconds)
    before_s = service.cpu_s
    time.sleep(alone_s)
    alone = (service.cpu_s - before_s) / alone_s
    memory = list[tuple[float, float]]()
    with _page(console.url, key), _clients(console.url, key):
        before_s, began_s = service.cpu_s, time.monotonic()
        while (passed_s := time.monotonic() - began_s) < seconds:
            memory.append((passed_s / 60, console.memory_mb))
            time.sleep(5)
        together = (service.cpu_s - before_s) / passed_s
    late = [one for one in memory if one[0] >= seconds / 120]
    slope = linear_regression([at for at, _ in late], [mb for _, mb in late]).slope
    return {
        "mb_per_minute": slope,
        "service_core": together - alone,
        "service_core_alone": alone,
        "memory_mb": [round(mb, 1) for _, mb in memory][:: max(1, len(memory) // 20)],
        "minutes": seconds / 60,
    }


@contextmanager
def _clients(console: str, key: str) -> Iterator[None]:
    """Clients that do what an open overview does: listen, and ask for the parts that are out of date."""
    stop = threading.Event()

    async def one(client: httpx.AsyncClient) -> None:
        await client.post("/login", data={"key": key})
        async with client.stream("GET", "/live", timeout=None) as told:
            async for line in told.aiter_lines():
                if stop.is_set():
                    return
                if line.startswith("data:"):
                    for part in ("/parts/strip", "/parts/overview"):
                        (await client.get(part)).raise_for_status()

    async def all_of_them() -> None:
        clients = [
            httpx.AsyncClient(base_url=console, timeout=30, limits=httpx.Limits(keepalive_expiry=2))
            for _ in range(CLIENTS)
        ]
        try:
            await asyncio.gather(*(one(client) for client in clients))
        finally:
            for client in clients:
                await client.aclose()

    thread = threading.Thread(target=lambda: asyncio.run(all_of_them()))
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


if __name__ == "__main__":
    sys.exit(main())
