"""The tests marked ``gpu``, without the plugins that a bare machine lacks; a row for each."""

import os
from pathlib import Path

import pytest

from benchmarks.gpu.machine import Machine
from benchmarks.gpu.rows import Row, Rows
from benchmarks.provenance import ROOT

MARK = "pytest.mark.gpu"
MARKERS = ("slow", "gpu", "vllm", "alone", "exhaustive")


class NoTestsError(Exception):
    """pytest found none, or could not read them."""


class Teller:
    """A pytest plugin that says a row for each test."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self.problems: list[str] = []

    def pytest_configure(self, config: pytest.Config) -> None:
        """The marks of the project, whose configuration is not read: it has options of plugins."""
        for name in MARKERS:
            config.addinivalue_line("markers", name)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """A file that cannot be read has tests that would be missed."""
        if report.failed:
            self.problems.append(f"{report.nodeid}: {_last(report.longreprtext)}")

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """What there is."""
        self._rows.plan(item.nodeid for item in session.items)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A test that passed, or whatever kept it from that."""
        if report.when == "call" or report.outcome != "passed":
            self._rows.say(report.nodeid, row_of(report))


def row_of(report: pytest.TestReport) -> Row:
    """What a test gave."""
    row: Row = {"seconds": round(report.duration, 2)}
    if report.skipped:
        reason = report.longrepr[-1] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        return {**row, "skipped": str(reason).removeprefix("Skipped: ")}
    return {**row, "problem": _last(report.longreprtext)} if report.failed else row


def _last(text: str) -> str:
    """The line that says what was wrong."""
    lines = [line for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("E ")]
    return (errors or lines or ["it ended without a word"])[-1].removeprefix("E").strip()


def files(root: Path) -> list[str]:
    """Those with such tests."""
    found = (path for path in sorted(root.rglob("test_*.py")) if MARK in path.read_text(encoding="utf-8"))
    return [str(path) for path in found]


def run(_: Machine, rows: Rows) -> None:
    """Run them in this process.

    Raises:
        NoTestsError: naming what could not be read.
    """
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # the same here as where there are none
    teller = Teller(rows)
    options = ["-c", "/dev/null", "--rootdir", str(ROOT), "--import-mode=importlib", "-p", "no:cacheprovider"]
    asyncio = ["-p", "pytest_asyncio.plugin"]  # the one that some of these tests need
    status = pytest.main([*options, *asyncio, "-m", "gpu", *files(ROOT / "tests")], plugins=[teller])
    if teller.problems or status not in {pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED}:
        raise NoTestsError("; ".join(teller.problems) or f"pytest ended with {status!s}")
