"""Engines in processes of their own that generate by turns, so that one is busy at a time.

Each side is a command that prints ``{}`` when its engine is up and answers a line ``FIRST COUNT`` with a line of JSON
``{"tokens": ..., "seconds": ...}``, as ``benchmarks.vllm_throughput`` and ``benchmarks.torch_throughput`` do.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

ENVIRONMENT = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "OMP_NUM_THREADS": "1",
    "VLLM_USE_FLASHINFER_SAMPLER": "0",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_LOGGING_LEVEL": "WARNING",
    "HF_HUB_OFFLINE": "1",
}


class EngineEndedError(Exception):
    """An engine's process ended; what it said is on stderr."""


@dataclass(frozen=True, slots=True)
class Side:
    """One engine."""

    name: str
    process: subprocess.Popen[str]

    def hear(self) -> dict[str, float]:
        """Wait for the next answer.

        Raises:
            EngineEndedError: there is none.
        """
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise EngineEndedError(f"the engine {self.name} ended; see what it said above")
        answer: dict[str, float] = json.loads(line)
        return answer

    def generate(self, first: int, count: int) -> float:
        """Output tokens per second over the prompts of ``count`` numbers."""
        assert self.process.stdin is not None
        print(first, count, file=self.process.stdin, flush=True)
        answer = self.hear()
        return answer["tokens"] / answer["seconds"]


@contextmanager
def side(name: str, module: str, arguments: Sequence[str]) -> Iterator[Side]:
    """A side that runs ``python -m MODULE ARGUMENTS``, with one thread per process; it ends with the context."""
    with subprocess.Popen(
        [sys.executable, "-m", module, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **ENVIRONMENT},
    ) as process:
        try:
            yield Side(name, process)
        finally:
            process.kill()  # what it started ends with it


def by_turns(sides: Sequence[Side], rounds: int, streams: int) -> dict[str, list[float]]:
    """Tokens per second of each side in each round; a round before them warms up.

    The order turns each round, so that a machine that drifts favours nobody, and prompts are new each round.

    Raises:
        EngineEndedError: an engine did not start or broke.
    """
    for one in sides:
        one.hear()
    rates: dict[str, list[float]] = {one.name: [] for one in sides}
    for number in range(rounds + 1):
        for one in sides[:: -1 if number % 2 else 1]:
            rate = one.generate(number * streams, streams)
            print(f"run {number} {one.name}: {rate:,.0f} tokens/s", file=sys.stderr)
            rates[one.name].append(rate)
    return {name: found[1:] for name, found in rates.items()}
