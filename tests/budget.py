"""What the tests cost: CPU by module, in multiples of a fixed calculation that runs between them.

Machines differ and are shared, so that seconds say little: what a test takes is divided by what the calculation takes beside it.
``python -m tests.budget`` holds the last run to ``tests/data/budget.json``; ``--record`` writes that file anew.

Counted are all processes that a test starts, whoever started them: with root rights each process of the test run is in a control
group of its own. Elsewhere those whose parent ended before them are missing.
"""

import gc
import json
import os
import resource
import statistics
import sys
import time
from collections import Counter
from collections.abc import Generator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
RECORD = ROOT / "tests" / "data" / "budget.json"
LAST = "intentctl/cpu"
"""Where pytest's cache keeps the last run."""
MARGIN = 1.15
"""What a run may take more than what was recorded: runs of the same tests differ by so much."""
EVERY_S = 5.0
"""CPU seconds between two calculations."""
COLLECTING = "collecting"
"""Stands for a module: what is spent before the first test, most of it on imports."""
BETWEEN = "between tests"
"""The same: what no test was charged with."""
GROUPS = Path("/sys/fs/cgroup/cpuacct")
TICKS = os.sysconf("SC_CLK_TCK")


def calculation() -> float:
    """CPU seconds of the fixed calculation, here and now."""
    gc.disable()  # or it would walk all that the tests have made
    began_s = time.thread_time()
    text = json.dumps({str(number): [number, number**2, {"words": "of it" * (number % 7)}] for number in range(4_000)})
    for _ in range(2):
        text = json.dumps(json.loads(text), sort_keys=True)
    gc.enable()
    return time.thread_time() - began_s


def steal_s() -> float:
    """CPU seconds that the host took from this machine since it started."""
    fields = Path("/proc/stat").read_text(encoding="ascii").split("\n", 1)[0].split()
    return int(fields[8]) / TICKS


class Group:
    """This process and all that comes of it."""

    def __init__(self) -> None:
        self._folder = GROUPS / f"tests-{os.getpid()}"
        self._is_counted = False
        self._before_s = self._own_s()
        with suppress(OSError):
            self._folder.mkdir()
            (self._folder / "tasks").write_text(str(os.getpid()), encoding="ascii")
            self._is_counted = True

    def spent_s(self) -> float:
        """CPU seconds so far."""
        if self._is_counted:
            return self._before_s + int((self._folder / "cpuacct.usage").read_text(encoding="ascii")) / 1e9
        return self._own_s()

    def close(self) -> None:
        """Leave it; it stays where others are still in it."""
        with suppress(OSError):
            (GROUPS / "tasks").write_text(str(os.getpid()), encoding="ascii")
            self._folder.rmdir()

    def _own_s(self) -> float:
        """Of this process and of those of its children that it waited for."""
        parts = [resource.getrusage(which) for which in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        return sum(part.ru_utime + part.ru_stime for part in parts)


@dataclass
class Meter:
    """One process of a test run."""

    group: Group = field(default_factory=Group)
    modules: Counter[str] = field(default_factory=Counter)
    """CPU seconds by module."""
    calculations: list[float] = field(default_factory=lambda: [calculation()])
    _since_s: float = 0.0

    def note(self, module: str, seconds: float) -> None:
        """A module took so long; now and then the calculation runs too."""
        self.modules[module] += seconds
        self._since_s += seconds
        if self._since_s > EVERY_S:
            self._since_s = 0.0
            self.calculations.append(calculation())

    def close(self) -> dict[str, Any]:
        """All of it, with what no module had."""
        left_s = self.group.spent_s() - sum(self.modules.values()) - sum(self.calculations)
        self.group.close()
        return {"modules": {**self.modules, BETWEEN: max(0.0, left_s)}, "calculations": self.calculations}


@dataclass(frozen=True)
class Cost:
    """A whole run."""

    modules: Mapping[str, float]
    """CPU seconds by module."""
    unit_s: float
    """CPU seconds of the calculation: the median of all that ran."""

    @classmethod
    def of(cls, meters: list[dict[str, Any]]) -> "Cost":
        """That of several processes."""
        modules = Counter[str]()
        for meter in meters:
            modules.update(meter["modules"])
        return cls(modules, statistics.median(seconds for meter in meters for seconds in meter["calculations"]))

    @property
    def units(self) -> dict[str, float]:
        """Multiples of the calculation by module."""
        return {module: round(seconds / self.unit_s, 1) for module, seconds in self.modules.items()}

    @property
    def summary(self) -> str:
        seconds = sum(self.modules.values())
        unit = f"the fixed calculation ({1000 * self.unit_s:.1f} ms here)"
        return f"CPU {seconds:.0f} s, {seconds / self.unit_s:.0f} times {unit}"


def overrun(units: Mapping[str, float], recorded: Mapping[str, float]) -> list[str]:
    """Nothing while the whole is within the budget; else that it is not, and the ten modules that grew most."""
    whole = sum(units.values())
    most = MARGIN * sum(recorded.values())
    if whole <= most:
        return []
    grown = {module: count - recorded.get(module, 0.0) for module, count in units.items()}
    worst = [module for module in sorted(grown, key=lambda module: -grown[module])[:10] if grown[module] > 0]
    return [
        f"the tests take {whole:.0f} times the fixed calculation, and {most:.0f} is the most. What grew:",
        *(f"  {module}: {recorded.get(module, 0.0):.0f} -> {units[module]:.0f}" for module in worst),
        "make them cheaper, or others: tests/README.md says how. What a change adds is paid for with that change",
    ]


class Budget:
    """The plugin: measures in each process of a run, adds up in the first."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._meter = Meter()
        self._closed: list[dict[str, Any]] = []
        self._stolen_s = steal_s()

    def pytest_collection_finish(self) -> None:
        """Imports are behind us."""
        self._meter.note(COLLECTING, self._meter.group.spent_s())

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Charge a test with its fixtures and what ran meanwhile."""
        before_s = self._meter.group.spent_s()
        try:
            return (yield)
        finally:
            self._meter.note(item.nodeid.partition("::")[0], self._meter.group.spent_s() - before_s)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Hear of another process of the run."""
        self._closed += [node.workeroutput["cpu"]] if "cpu" in getattr(node, "workeroutput", {}) else []

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self) -> None:
        """Tell the first process, or add up."""
        closed = self._meter.close()
        if hasattr(self._config, "workeroutput"):
            self._config.workeroutput["cpu"] = closed
        else:
            self._closed.append(closed)

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Say and keep it."""
        cost = Cost.of(self._closed)
        if self._config.pluginmanager.hasplugin("cacheprovider"):  # the kit for GPUs runs without
            assert self._config.cache is not None
            self._config.cache.set(LAST, {"modules": cost.modules, "unit_s": cost.unit_s})
        terminalreporter.write_line(f"{cost.summary}; steal {steal_s() - self._stolen_s:.0f} s")


def main() -> int:
    """Hold the last run to what was recorded, or record it."""
    last = ROOT / ".pytest_cache" / "v" / LAST
    if not last.exists():
        sys.stderr.write("there is no run to look at: `make test` first\n")
        return 2
    cost = Cost(**json.loads(last.read_text(encoding="utf-8")))
    if sys.argv[1:] == ["--record"]:
        RECORD.write_text(json.dumps(dict(sorted(cost.units.items())), indent=1) + "\n", encoding="utf-8")
        return 0
    found = overrun(cost.units, json.loads(RECORD.read_text(encoding="utf-8")))
    sys.stdout.write("\n".join([cost.summary, *found]) + "\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
