"""Two hosts on one machine: eight streams, switches on host b, and its loss.

The service is here, its model on host b.

``python -m benchmarks.cluster`` (root; hosts are namespaces, as in ``tests/runtime/hosts/machines``) prints what streams saw:
tokens, the longest gap while the model switched, the gap of the loss, and where it serves then. ``make cluster-demo`` runs it.
"""

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice, pairwise
from pathlib import Path
from statistics import median
from typing import Any

import httpx
import yaml

from benchmarks.provenance import ROOT, provenance
from selector.profiles import fit_cpu
from tests.runtime.hosts.machines import Machine, machine, why_impossible
from tests.service.scripted import SAMPLES

STREAMS, TOKENS, TARGETS = 8, 900, ("CPU[2,3]", "CPU[2]")
DEPLOYMENT = """\
apiVersion: intentctl/v1
kind: Deployment
auth: none
cluster:
  nodes:
    - {{name: a, link: {link}, gpus: [{{kind: CPU, count: 2, memory_gb: 1}}]}}
    - {{name: b, link: {link}, gpus: [{{kind: CPU, count: 2, memory_gb: 1}}]}}
hosts: {{b: {{agent: "{agent}"}}}}
models: [{{name: counting, path: {checkpoint}, precision: fp32, start: "CPU[2]"}}]
workload:
  always: {{rate_rps: 0.5, input_tokens: {{mean: 20, p95: 20}}, output_tokens: {{mean: 900, p95: 900}}, concurrency: 8}}
approval: {{by: person}}
engine: torch
profiles: {{CPU: cpu.yaml}}
"""
LINK = "{kind: shared-memory, bandwidth_gb_s: 5, latency_us: 30}"
COMMAND = [sys.executable, "-m", "intentctl"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it and print the report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rate", default="1gbit", help="of the link, each way")
    parser.add_argument("--delay-ms", type=float, default=0.0, help="of the link, one way; it carries 200mbit then")
    parser.add_argument("--switches", type=int, default=2, help="on host b, before it is lost")
    parser.add_argument(
        "--hogs-s",
        type=float,
        default=0.0,
        help="first so long beside as many processes as cores that do nothing but work",
    )
    parser.add_argument("--json", type=Path, help="write the report there, too")
    options = parser.parse_args(arguments)
    if why := why_impossible():
        sys.exit(why)
    with tempfile.TemporaryDirectory() as folder:
        report = run(Path(folder), options)
    for name, value in report.items():
        print(f"{name:34} {value}")
    if options.json:
        options.json.write_text(json.dumps({"provenance": provenance(), "report": report}, indent=2) + "\n")
    return 0


def run(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """The whole story, from certificates to the host that takes over."""
    file = folder / "cluster.yaml"
    (folder / "cpu.yaml").write_text(yaml.safe_dump(fit_cpu(SAMPLES).to_mapping()))
    checkpoint = ROOT / "examples" / "counting"
    file.write_text(DEPLOYMENT.format(link=LINK, agent="127.0.0.1:7443", checkpoint=checkpoint))
    subprocess.run([*COMMAND, "hosts", "init", "--deployment", file], check=True, cwd=ROOT, stdout=subprocess.DEVNULL)
    with machine("b", folder / "cluster.hosts" / "b.pem", folder, options.delay_ms / 1000) as there:
        there.shape(options.rate)
        file.write_text(DEPLOYMENT.format(link=LINK, agent=f"{there.address}:7443", checkpoint=checkpoint))
        serve = [*COMMAND, "serve", "--port", "0", "--data-dir", str(folder / "data"), "--deployment", str(file)]
        environment = {**os.environ, "INTENTCTL_LOG_LEVEL": "error"}
        with subprocess.Popen(serve, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=environment) as service:
            try:
                assert service.stdout is not None
                return asyncio.run(story(service.stdout.readline().strip(), there, options))
            finally:
                service.terminate()


async def story(url: str, there: Machine, options: argparse.Namespace) -> dict[str, Any]:
    """Streams, switches on host b, its death, and the end of the streams.

    Every two switches have new streams.
    """
    pauses_ms, gaps_s, ends, switches = list[float](), list[float](), list[str](), options.switches
    async with httpx.AsyncClient(base_url=url, timeout=120) as http:
        crowded = await beside_hogs(http, options.hogs_s) if options.hogs_s else {}
        for number in range(0, switches, 2):
            arrivals: list[list[float]] = [[] for _ in range(STREAMS)]
            streams = asyncio.gather(*(listen(http, place, each) for place, each in enumerate(arrivals)))
            await spoken(arrivals, 40)
            began_s = time.monotonic()
            pauses_ms += [await switch(http, target) for target in islice(TARGETS, switches - number)]
            gaps_s.append(longest(arrivals, began_s, time.monotonic()))
            if number + 2 >= switches:
                await spoken(arrivals, max(map(len, arrivals)) + 40)
                there.kill()
            lost_s = time.monotonic()
            ends += await streams
        state = (await http.get("/v1/topology")).json()
        inside = f"{median(pauses_ms):.1f} ms inside in the median, {max(pauses_ms):.1f} at most"
        return crowded | {
            "streams that ended well": f"{ends.count('length') + ends.count('stop')} of {len(ends)}",
            "switches on host b": f"{switches}, {inside}",
            "longest gap while it switched": f"{max(gaps_s) * 1000:.0f} ms",
            "gap when host b was lost": f"{longest(arrivals, lost_s, time.monotonic()):.1f} s",
            "it serves now as": state["topology"]["text"],
        }


@contextmanager
def hogs() -> Iterator[None]:
    """As many processes as cores, that do nothing but work."""
    working = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(os.cpu_count() or 1)]
    try:
        yield
    finally:
        for hog in working:
            hog.kill()
            hog.wait()


async def beside_hogs(http: httpx.AsyncClient, seconds: float) -> dict[str, Any]:
    """Eight streams after eight streams while others work, too; was a device ever out?"""
    ends, waits_s, looks_out, end_s = list[str](), list[float](), 0, time.monotonic() + seconds
    with hogs():
        while time.monotonic() < end_s:
            arrivals: list[list[float]] = [[] for _ in range(STREAMS)]
            streams = asyncio.gather(*(listen(http, place, each) for place, each in enumerate(arrivals)))
            while not streams.done():
                devices = (await http.get("/v1/devices")).raise_for_status().json()["devices"]
                looks_out += any(device["out"] for device in devices)
                await asyncio.sleep(0.5)
            ends += await streams
            waits_s.append(longest(arrivals, 0.0, time.monotonic()))
    return {
        "minutes beside hogs": round(seconds / 60, 1),
        "looks that found a device out": looks_out,
        "streams beside hogs that ended well": f"{ends.count('length') + ends.count('stop')} of {len(ends)}",
        "longest wait beside hogs": f"{max(waits_s):.1f} s",
    }


async def listen(http: httpx.AsyncClient, number: int, arrivals: list[float]) -> str:
    """One stream to its end; how it ended."""
    asked = {
        "model": "counting",
        "prompt": f"count by {number + 2} from 11: 11 ",
        "max_tokens": TOKENS,
        "stream": True,
    }
    async with http.stream("POST", "/openai/v1/completions", json=asked | {"temperature": 0}) as answer:
        end = ""
        async for line in answer.aiter_lines():
            if line.startswith("data: {"):
                arrivals.append(time.monotonic())
                (choice,) = json.loads(line.removeprefix("data: "))["choices"]
                end = choice["finish_reason"] or end
    return end


async def spoken(arrivals: list[list[float]], tokens: int) -> None:
    """Return when every stream has said so much."""
    while min(map(len, arrivals)) < min(tokens, TOKENS - 100):  # noqa: ASYNC110 - another process brings it about
        await asyncio.sleep(0.01)


async def switch(http: httpx.AsyncClient, target: str) -> float:
    """Plan to a topology, apply it, wait for its end; milliseconds inside the cut."""
    plan = (await http.post("/v1/plans", json={"target": target})).raise_for_status().json()["plan"]
    apply = {"acknowledge": [one["code"] for one in plan["to_acknowledge"]]}
    operation = (await http.post(f"/v1/plans/{plan['id']}:apply", json=apply)).raise_for_status().json()
    while operation["phase"] not in {"done", "aborted"}:
        await asyncio.sleep(0.1)
        operation = (await http.get(f"/v1/operations/{operation['id']}")).raise_for_status().json()
    assert operation["phase"] == "done", operation
    return float(sum(operation["result"]["timings"].values()))


def longest(arrivals: list[list[float]], from_s: float, to_s: float) -> float:
    """The longest wait of any stream for its next token in a span, seconds."""
    waits = (after - before for each in arrivals for before, after in pairwise(each) if from_s <= after <= to_s)
    return max(waits, default=0.0)


if __name__ == "__main__":
    sys.exit(main())
