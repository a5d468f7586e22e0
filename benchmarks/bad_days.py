"""Bad days: sixteen streams over two hosts, and random switches, kills, stops and a hanging database.

``python -m benchmarks.bad_days`` (root; host b is a namespace, as in ``benchmarks.cluster``) lives ``--schedules`` of four
interruptions each, waits after each until every stream goes on, and prints what came of it: streams that said something else
than without interruption, tokens lost or said twice, requests without a stream, processes left. ``--seed`` makes it again.
"""

import argparse
import asyncio
import contextlib
import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import yaml
from prometheus_client.parser import text_string_to_metric_families

from benchmarks.cluster import COMMAND, DEPLOYMENT, LINK
from benchmarks.provenance import ROOT, provenance
from selector.profiles import fit_cpu
from tests.runtime.hosts.machines import Machine, machine, why_impossible
from tests.service.scripted import SAMPLES

STREAMS, TOKENS = 16, 300
TARGETS = ("CPU[0]", "CPU[0,1]", "CPU[2]", "CPU[2,3]")
MORE = """
clients: {recovery_timeout_s: 600}
torch: {stall_after_s: 2, lost_after_s: 4}
"""
AN_INTERRUPTION = ("switch", "switch", "cancel", "kill", "stop", "hang")
PATIENCE_S = 300.0
MODULES = (b"runtime.torch_engine", b"runtime.kv.carrier")
MARK = "INTENTCTL_BAD_DAYS"


@dataclass
class Tally:
    """What came of it."""

    ends: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    """What streams said that they should not have, and errors that they ended with."""
    switches: Counter[str] = field(default_factory=Counter)
    interruptions: Counter[str] = field(default_factory=Counter)
    most_without_a_stream: int = 0
    """Requests that ran for longer than a moment and had no stream."""
    longest_wait_s: float = 0.0
    """Until every stream went on after a schedule."""


class Streams:
    """So many at any time: when one ends the next begins."""

    def __init__(self, http: httpx.AsyncClient, tally: Tally) -> None:
        self._http, self._tally = http, tally
        self._right: dict[int, str] = {}
        self.said = [""] * STREAMS
        self.tasks: list[asyncio.Task[None]] = []
        self._is_over = False

    async def begin(self) -> None:
        """Hear what each says when nothing happens, and start them."""
        texts = await asyncio.gather(*(self._listen(slot) for slot in range(STREAMS)))
        self._right = {slot: text for slot, (text, _) in enumerate(texts)}
        self.tasks = [asyncio.create_task(self._run(slot)) for slot in range(STREAMS)]

    def cancel(self, slot: int) -> None:
        """Its client leaves, and another comes."""
        self.tasks[slot].cancel()
        self._tally.ends["cancelled"] += 1
        self._hear(slot, self.said[slot])
        self.tasks[slot] = asyncio.create_task(self._run(slot))

    async def end(self) -> None:
        """Each comes to its end, and none begins."""
        self._is_over = True
        await asyncio.gather(*self.tasks)

    async def _run(self, slot: int) -> None:
        while not self._is_over:
            try:
                text, finish = await self._listen(slot)
            except (httpx.HTTPError, ValueError) as error:
                self._tally.wrong.append(f"stream {slot}: {error!r}")
                await asyncio.sleep(1)
                continue
            self._tally.ends[finish] += 1
            if text != self._right[slot]:
                self._tally.wrong.append(f"stream {slot} ended with {finish!r}: {text[-60:]!r}")

    def _hear(self, slot: int, text: str) -> None:
        if not self._right[slot].startswith(text):
            self._tally.wrong.append(f"stream {slot} said {text[-60:]!r} before it was cancelled")

    async def _listen(self, slot: int) -> tuple[str, str]:
        asked = {"model": "counting", "prompt": f"count by {slot + 2} from 11: 11 ", "max_tokens": TOKENS}
        asked |= {"stream": True, "temperature": 0, "ignore_eos": True}
        self.said[slot] = finish = ""
        async with self._http.stream("POST", "/openai/v1/completions", json=asked) as answer:
            answer.raise_for_status()
            async for line in answer.aiter_lines():
                if not line.startswith("data: {"):
                    continue
                event = json.loads(line.removeprefix("data: "))
                if "error" in event:
                    raise ValueError(event["error"])
                for choice in event["choices"]:
                    self.said[slot] += choice["text"]
                    finish = choice["finish_reason"] or finish
        return self.said[slot], finish


class Days:
    """What is done to a service and its hosts."""

    def __init__(
        self, http: httpx.AsyncClient, there: Machine, service: int, database: Path, chance: random.Random
    ) -> None:
        self._http, self._there, self._service, self._database, self._chance = http, there, service, database, chance
        self.tally = Tally()
        self.streams = Streams(http, self.tally)
        self._beside: set[asyncio.Task[Any]] = set()
        self._switching: asyncio.Task[None] | None = None

    async def live(self, schedules: int) -> None:
        await self.streams.begin()
        for number in range(schedules):
            await self._schedule()
            print(
                f"{number + 1} of {schedules}: {dict(self.tally.ends)}, wrong {len(self.tally.wrong)}", file=sys.stderr
            )
            if self.tally.wrong:
                print(*self.tally.wrong[-3:], sep="\n", file=sys.stderr)
        await self.streams.end()
        await self._no_request_without_a_stream()

    async def _schedule(self) -> None:
        chosen = self._chance.sample(AN_INTERRUPTION, 4)
        for name in chosen:
            self.tally.interruptions[name] += 1
            self._interrupt(name)
            await asyncio.sleep(self._chance.uniform(0, 0.6))
        before_s = time.monotonic()
        await asyncio.gather(*self._beside, return_exceptions=True)
        before = [*self.streams.said]
        async with asyncio.timeout(PATIENCE_S):
            while any(map(str.__eq__, before, self.streams.said)):  # noqa: ASYNC110 - another process brings it about
                await asyncio.sleep(0.05)
        self.tally.longest_wait_s = max(self.tally.longest_wait_s, time.monotonic() - before_s)
        await self._no_request_without_a_stream()

    def _interrupt(self, name: str) -> None:
        match name:
            case "switch":
                self._switch()
            case "cancel":
                self._cancel()
            case "hang":
                self._spawn(asyncio.to_thread(lock, self._database, self._chance.uniform(0.5, 6.0)))
            case _:
                self._signal(signal.SIGKILL if name == "kill" else signal.SIGSTOP)

    def _spawn(self, work: Any) -> asyncio.Task[Any]:
        task = asyncio.create_task(work)
        self._beside.add(task)
        task.add_done_callback(self._beside.discard)
        return task

    def _switch(self) -> None:
        if self._switching is None or self._switching.done():
            self._switching = self._spawn(self._switched(self._chance.choice(TARGETS)))

    async def _switched(self, target: str) -> None:
        try:
            self.tally.switches[await self._outcome(target)] += 1
        except httpx.HTTPStatusError as error:
            self.tally.switches[f"refused: {error.response.json().get('code', error.response.status_code)}"] += 1

    async def _outcome(self, target: str) -> str:
        plan = (await self._http.post("/v1/plans", json={"target": target})).raise_for_status().json()["plan"]
        if plan is None:
            return "no plan"
        apply = {"acknowledge": [one["code"] for one in plan["to_acknowledge"]]}
        operation = (await self._http.post(f"/v1/plans/{plan['id']}:apply", json=apply)).raise_for_status().json()
        while operation["phase"] not in {"done", "aborted"}:
            await asyncio.sleep(0.2)
            operation = (await self._http.get(f"/v1/operations/{operation['id']}")).raise_for_status().json()
        return str((operation.get("result") or {}).get("reason") or operation["phase"])

    def _cancel(self) -> None:
        for slot in self._chance.sample(range(STREAMS), 4):
            self.streams.cancel(slot)

    def _signal(self, which: signal.Signals) -> None:
        """To a driver, a rank or a carrier of either host."""
        if victims := sorted({*below(self._service), *below(self._there.init)}):
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._chance.choice(victims), which)

    async def _no_request_without_a_stream(self) -> None:
        """For longer than a cancelled request takes to end."""
        excess = 0
        for _ in range(100):
            text = (await self._http.get("/metrics")).raise_for_status().text
            told = {
                sample.name: sample.value
                for family in text_string_to_metric_families(text)
                for sample in family.samples
            }
            run = told["intentctl_running_requests"] + told["intentctl_waiting_requests"]
            excess = int(run - told["intentctl_open_streams"])
            if excess <= 0:
                return
            await asyncio.sleep(0.1)
        self.tally.most_without_a_stream = max(self.tally.most_without_a_stream, excess)


def lock(database: Path, seconds: float) -> None:
    """Nobody else writes for so long."""
    with contextlib.closing(sqlite3.connect(database, timeout=30)) as other:
        other.execute("BEGIN EXCLUSIVE")
        time.sleep(seconds)
        other.rollback()


def below(ancestor: int) -> list[int]:
    """Processes of engines among its descendants."""
    parents = dict(each for path in Path("/proc").glob("[0-9]*") if (each := _parent(path)))
    return [pid for pid in parents if _descends(pid, ancestor, parents) and _is_an_engines(pid)]


def _parent(path: Path) -> tuple[int, int] | None:
    try:
        return int(path.name), int((path / "stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return None


def _descends(pid: int, ancestor: int, parents: dict[int, int]) -> bool:
    while pid in parents:
        pid = parents[pid]
        if pid == ancestor:
            return True
    return False


def _is_an_engines(pid: int) -> bool:
    with contextlib.suppress(OSError):
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
        return any(module in command for module in MODULES)
    return False


def left(mark: str) -> list[int]:
    """Processes that carry the mark, but for this one."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if int(process.name) != os.getpid() and mark.encode() in (process / "environ").read_bytes():
                found.append(int(process.name))
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Live them and print the report; 1 if anything was wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--schedules", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path, help="write the report there, too")
    parser.add_argument("--log", type=Path, help="of the service")
    options = parser.parse_args(arguments)
    if why := why_impossible():
        sys.exit(why)
    mark = os.environ[MARK] = uuid.uuid4().hex
    with tempfile.TemporaryDirectory() as folder:
        report = run(Path(folder), options)
    gone_s = time.monotonic() + 20
    while (remaining := left(mark)) and time.monotonic() < gone_s:
        time.sleep(0.2)
    report["processes left"] = len(remaining)
    for name, value in report.items():
        print(f"{name:34} {value}")
    if options.json:
        document = {"provenance": provenance(), "schedules": options.schedules, "seed": options.seed, "report": report}
        options.json.write_text(json.dumps(document, indent=2) + "\n")
    clean = ("wrong", "tokens lost", "tokens said twice", "requests without a stream", "processes left")
    return int(any(report[name] for name in clean))


def run(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """From certificates to the end of the last stream."""
    file = folder / "cluster.yaml"
    (folder / "cpu.yaml").write_text(yaml.safe_dump(fit_cpu(SAMPLES).to_mapping()))

    def write(agent: str) -> None:
        checkpoint = ROOT / "examples" / "counting"
        text = DEPLOYMENT.format(link=LINK, agent=agent, checkpoint=checkpoint).replace('"CPU[2]"', '"CPU[0]"')
        file.write_text(text + MORE)

    write("127.0.0.1:7443")
    subprocess.run([*COMMAND, "hosts", "init", "--deployment", file], check=True, cwd=ROOT, stdout=subprocess.DEVNULL)
    with contextlib.ExitStack() as stack:
        there = stack.enter_context(machine("b", folder / "cluster.hosts" / "b.pem", folder))
        write(f"{there.address}:7443")
        serve = [*COMMAND, "serve", "--port", "0", "--data-dir", str(folder / "data"), "--deployment", str(file)]
        log = stack.enter_context((options.log or folder / "log").open("w"))
        service = stack.enter_context(subprocess.Popen(serve, stdout=subprocess.PIPE, stderr=log, text=True, cwd=ROOT))
        stack.callback(service.terminate)
        assert service.stdout is not None
        url = service.stdout.readline().strip()
        (database,) = (folder / "data").glob("*.sqlite")
        return asyncio.run(
            _lived(url, lambda http: Days(http, there, service.pid, database, random.Random(options.seed)), options)
        )


async def _lived(url: str, made: Callable[[httpx.AsyncClient], Days], options: argparse.Namespace) -> dict[str, Any]:
    began_s = time.monotonic()
    limits = httpx.Limits(max_connections=64)
    async with httpx.AsyncClient(base_url=url, timeout=httpx.Timeout(PATIENCE_S), limits=limits) as http:
        days = made(http)
        await days.live(options.schedules)
        counts = (await http.get("/v1/topology")).raise_for_status().json()["tokens"]
    tally = days.tally
    return {
        "streams by their ends": dict(tally.ends),
        "wrong": len(tally.wrong),
        "what was wrong": tally.wrong[:20],
        "tokens": counts["accepted"],
        "tokens lost": counts["lost"],
        "tokens said twice": counts["duplicates"],
        "requests without a stream": tally.most_without_a_stream,
        "interruptions": dict(tally.interruptions),
        "switches": dict(tally.switches),
        "longest wait for all to go on": f"{tally.longest_wait_s:.0f} s",
        "minutes": round((time.monotonic() - began_s) / 60, 1),
    }


if __name__ == "__main__":
    sys.exit(main())
