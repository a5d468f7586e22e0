"""What keys and the audit cost: an audited POST beside one without its entry, by turns, and the CPU time of looking at a key."""

import argparse
import json
import statistics
import sys
import tempfile
import time
import timeit
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import httpx

from benchmarks.provenance import provenance, stolen_now_s
from service.access.audit import Audit
from service.access.gate import Gate
from tests.service.scripted import DEPLOYMENT, ScriptedService

Document = dict[str, Any]
TEXT = "as cheap as possible"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the command line says; the exit status is 1 where a bar is missed."""
    found = argparse.ArgumentParser("python -m benchmarks.access_cost", description=__doc__)
    found.add_argument("--rounds", type=int, default=200, help="POSTs of each kind, by turns")
    found.add_argument("--json", type=Path, metavar="FILE")
    options = found.parse_args(arguments)
    document: Document = {"benchmark": "access_cost", **provenance(), "rounds": options.rounds}
    document |= measure(options.rounds) | {"stolen_after_s": stolen_now_s()}
    print(
        "\n".join(f"{name:28}{document[name]:10.3f}" for name in ("audited_ms", "unaudited_ms", "ratio", "key_cpu_ms"))
    )
    if options.json:
        options.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    return int(document["ratio"] > 2 or document["key_cpu_ms"] > 0.3)


def measure(rounds: int) -> Document:
    """Medians of both kinds, their ratio, and what a key costs."""
    with (
        tempfile.TemporaryDirectory() as folder,
        ScriptedService(
            Path(folder), DEPLOYMENT.replace("auth: none", "auth: {control_per_minute: 1000000}")
        ) as service,
    ):
        key = (Path(folder) / "admin.key").read_text().strip()
        headers = {"Authorization": f"Bearer {key}"}
        with httpx.Client(base_url=service.url, headers=headers, trust_env=False) as http:
            times = by_turns(rounds, lambda: took_ms(http))
        cpu_ms = key_cpu_ms(service.parts.access.gate, key)
    medians = {name: round(statistics.median(values), 3) for name, values in times.items()}
    return {
        **medians,
        "ratio": round(medians["audited_ms"] / medians["unaudited_ms"], 3),
        "key_cpu_ms": cpu_ms,
        "times_ms": times,
    }


def by_turns(rounds: int, ask: Callable[[], float]) -> dict[str, list[float]]:
    """One with its entry in the audit and one without, so often; the order turns."""
    times: dict[str, list[float]] = {"audited_ms": [], "unaudited_ms": []}
    add = Audit.add
    ask()
    for number in range(rounds):
        for name in list(times)[:: -1 if number % 2 else 1]:
            if name == "unaudited_ms":
                Audit.add = lambda *_, **__: None  # type: ignore[method-assign,assignment]
            try:
                times[name].append(ask())
            finally:
                Audit.add = add  # type: ignore[method-assign]
    return times


def took_ms(http: httpx.Client) -> float:
    """How long it takes to keep an intent."""
    began_s = time.perf_counter()
    answer = http.post("/v1/intents", json={"text": TEXT})
    took_s = time.perf_counter() - began_s
    assert answer.status_code == 201, answer.text
    return took_s * 1000


def key_cpu_ms(gate: Gate, key: str, count: int = 2000) -> float:
    """CPU time of finding out whose key a request has."""
    headers = [(b"host", b"localhost"), (b"authorization", f"Bearer {key}".encode())]
    scope: dict[str, object] = {"path": "/v1/models", "headers": headers, "client": ("127.0.0.1", 1)}
    took_s = min(timeit.repeat(lambda: gate.admit(scope), timer=time.process_time, number=count, repeat=5))
    return round(took_s / count * 1000, 5)


if __name__ == "__main__":
    sys.exit(main())
