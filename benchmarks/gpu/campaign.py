"""Parts one after the other, each a process of its own: what one found stays when one breaks or hangs.

A part says rows on its stdout (``benchmarks.gpu.rows``); each is in the file as soon as it is said. A part may use its share of
what is left of the time, and what it does not use the later ones have.
"""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any, Literal

from benchmarks.gpu.machine import Machine
from benchmarks.provenance import ROOT

Document = dict[str, Any]
Status = Literal["running", "done", "skipped", "failed", "out of time", "not reached"]
FINE: tuple[Status, ...] = ("done", "skipped")

LAST_WORDS = 60
"""Lines that are kept of what a part wrote that went wrong."""
MOST_OF_A_LINE = 500
LEAST_S = 1.0
"""With less time a part is not begun."""
ENDING_S = 10
"""For processes that were killed to be gone."""


class NotWritableError(Exception):
    """Results cannot be kept where they shall be; the message says why."""


@dataclass(frozen=True, slots=True)
class Part:
    """Something that is measured by a process."""

    name: str
    share_s: float
    """Of the time, in proportion to the others': seconds of nine minutes."""
    command: tuple[str, ...]


SHARES_S = {
    "vllm-gates": 40,
    "vllm-switch": 330,
    "vllm-cost": 70,
    "logits": 65,
    "tests": 75,
    "walk": 65,
    "formats": 40,
    "kv-copy": 20,
    "cutover": 135,
    "resize": 50,
    "overhead": 45,
    "profile": 45,
}
"""Most valuable first."""


def parts_here(*, has_vllm: bool) -> list[str]:
    """The names of the parts that a machine is for."""
    return [name for name in SHARES_S if has_vllm or not name.startswith("vllm")]


def parts_on(machine: Machine, names: Sequence[str]) -> list[Part]:
    """The parts of these names, in the order in which they are run."""
    described = json.dumps(asdict(machine))
    return [
        Part(name, share_s, (sys.executable, "-m", "benchmarks.gpu.part", name, described))
        for name, share_s in SHARES_S.items()
        if name in names
    ]


@dataclass(slots=True)
class Result:
    """What a part gave so far."""

    part: str
    date: str | None = None
    """When it began."""
    commit: str | None = None
    """Of the code."""
    status: Status = "not reached"
    reason: str | None = None
    seconds: float = 0.0
    not_reached: list[str] = field(default_factory=list)
    """Cases that it planned and said nothing of."""
    rows: list[Document] = field(default_factory=list)
    last_words: list[str] = field(default_factory=list)
    """Of what it wrote to stderr, where something went wrong."""

    def hear(self, line: str) -> bool:
        """Take a line that the part said; whether it is one of ours."""
        try:
            said = json.loads(line)
        except ValueError:
            return False
        match said:
            case {"planned": list(names)}:
                self.not_reached = [str(name) for name in names]
            case {"case": str(name)}:
                self.rows.append(said)
                self.not_reached = [other for other in self.not_reached if other != name]
            case _:
                return False
        return True

    @property
    def problems(self) -> list[str]:
        """Of its rows."""
        return [f"{row['case']}: {row['problem']}" for row in self.rows if row.get("problem")]

    def ended(self, status: int, is_late: bool, words: Sequence[str]) -> None:
        """Judge it by how it ended and what it said on the way."""
        last = last_error(words)
        if is_late:
            self.status, self.reason = "out of time", f"ended after {self.seconds:.0f} s, its share"
        elif status < 0:
            name = signal.Signals(-status).name
            self.status, self.reason = "failed", f"ended by {name}: {last}".removesuffix(": ")
        elif status:
            self.status, self.reason = "failed", last or f"ended with status {status}"
        elif self.problems:
            self.status, self.reason = "failed", self.problems[0]
        elif not self.rows:
            self.status, self.reason = "failed", "it said nothing"
        elif all(row.get("skipped") for row in self.rows):
            self.status, self.reason = "skipped", str(self.rows[0]["skipped"])
        else:
            self.status, self.reason = "done", None
        self.last_words = [] if self.status in FINE else list(words[-LAST_WORDS:])


class Campaign:
    """Runs parts and keeps what they say in a file."""

    def __init__(self, file: Path, document: Document, hear: Callable[[str], None]) -> None:
        """``document`` is what stands before the parts; ``hear`` gets a line for people at a time."""
        self._file, self._document, self._hear = file, document, hear
        self._earlier = earlier_parts(file, document)
        self.results: list[Result] = []

    def save(self) -> None:
        """Replace the file by all that is known; nobody sees half of it.

        Raises:
            NotWritableError: it cannot be written.
        """
        now = {result.part: asdict(result) for result in self.results}
        kept = {name: part for name, part in self._earlier.items() if name not in now}
        write(self._file, json.dumps({**self._document, "parts": [*kept.values(), *now.values()]}, indent=1))

    def add(self, **more: Any) -> None:
        """Put more beside the parts."""
        self._document |= more
        self.save()

    def run(self, parts: Sequence[Part], seconds: float) -> None:
        """Run all of them within so many seconds."""
        end_s = time.monotonic() + seconds
        self.results = [Result(part.name) for part in parts]
        for number, (part, result) in enumerate(zip(parts, self.results, strict=True)):
            share_s = share_of(end_s - time.monotonic(), parts[number:])
            if share_s < LEAST_S:
                result.reason = "no time was left"
                self.save()
            else:
                self._hear(f"{part.name}: at most {share_s:.0f} s")
                self._run(part, result, share_s)
            self._hear(f"{part.name}: {result.status} after {result.seconds:.1f} s{_why(result)}")

    def _run(self, part: Part, result: Result, share_s: float) -> None:
        result.status, began_s = "running", time.monotonic()
        result.commit = self._document.get("commit")
        result.date = datetime.now(UTC).isoformat(timespec="seconds")
        with TemporaryFile("w+", encoding="utf-8", errors="replace") as words:
            running = _Running(part, words, share_s)
            try:
                for line in running.lines():
                    if result.hear(line):
                        self._tell(result)
                        result.seconds = round(time.monotonic() - began_s, 2)
                        self.save()
            except BaseException:
                running.kill()
                raise
            finally:
                status = running.end()
                result.seconds = round(time.monotonic() - began_s, 2)
                result.ended(status, running.is_late, lines_of(words))
                self.save()

    def _tell(self, result: Result) -> None:
        if result.rows and result.rows[-1]["case"] not in result.not_reached:
            row = result.rows[-1]
            said = row.get("problem") or (f"skipped: {row['skipped']}" if row.get("skipped") else "done")
            self._hear(f"  {row['case']}: {said}")


class _Running:
    """A part's process and all that it started: they share a session, whatever groups they make."""

    def __init__(self, part: Part, words: IO[str], share_s: float) -> None:
        self.is_late = False
        self._process = subprocess.Popen(
            part.command, cwd=ROOT, stdout=subprocess.PIPE, stderr=words, start_new_session=True
        )
        self._timer = threading.Timer(share_s, self._be_late)
        self._timer.start()

    def lines(self) -> Iterator[str]:
        """What it says, until it says no more."""
        assert self._process.stdout is not None, "it was asked for"
        for line in self._process.stdout:
            yield line.decode("utf-8", "replace")

    def _be_late(self) -> None:
        self.is_late = True
        self.kill()

    def kill(self) -> None:
        """End it and all that it started."""
        end_session(self._process.pid)

    def end(self) -> int:
        """Wait for it and end what it left behind; its exit status."""
        status = self._process.wait()
        self._timer.cancel()
        self.kill()
        if self._process.stdout is not None:
            self._process.stdout.close()
        return status


def share_of(left_s: float, parts: Sequence[Part]) -> float:
    """Seconds that the first of these parts may use of those that are left."""
    return left_s * parts[0].share_s / sum(part.share_s for part in parts)


def end_session(session: int) -> None:
    """Kill every process of a session; wait until they and what they had of the device are gone."""
    until_s = time.monotonic() + ENDING_S
    while (left := list(members(session))) and time.monotonic() < until_s:
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)


def members(session: int) -> Iterator[int]:
    """The processes of a session that have not ended."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, _, its_session, *_ = path.read_text(encoding="utf-8").rpartition(")")[2].split()
        except (OSError, ValueError):
            continue  # it is gone
        if int(its_session) == session and state != "Z":
            yield int(path.parent.name)


def last_error(words: Sequence[str]) -> str:
    """The last line that names an error: CUDA's have advice after it. The last line where none does."""
    named = [line for line in words if re.match(r"[\w.]+(Error|Exception|Interrupt)\b", line)]
    return ([*words[-1:], *named[-1:]] or [""])[-1]


def lines_of(words: IO[str]) -> list[str]:
    """What a process wrote to stderr, without empty lines."""
    words.seek(0)
    return [line.rstrip()[:MOST_OF_A_LINE] for line in words if line.strip()]


def earlier_parts(file: Path, document: Document) -> Document:
    """Parts that an earlier call left in the file, by name, of any commit; of a device of the same kind."""
    try:
        before = json.loads(file.read_text(encoding="utf-8"))
        alike = all(before[name] == document[name] for name in ("benchmark", "kind"))
        return {part["part"]: part for part in before["parts"]} if alike else {}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def write(file: Path, text: str) -> None:
    """Replace a file at once; nobody sees half of it.

    Raises:
        NotWritableError: it cannot be written.
    """
    beside = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        beside.write_text(text + "\n", encoding="utf-8")
        beside.replace(file)
    except OSError as error:
        with contextlib.suppress(OSError):
            beside.unlink(missing_ok=True)
        raise NotWritableError(f"{file} cannot be written: {error.strerror}") from error


def check_writable(file: Path) -> None:
    """Refuse a file before anything runs; what it holds stays.

    Raises:
        NotWritableError: it cannot be written.
    """
    if file.is_dir():
        raise NotWritableError(f"{file} cannot be written: it is a folder")
    beside = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        beside.touch()
        beside.unlink()
    except OSError as error:
        raise NotWritableError(f"{file} cannot be written: {error.strerror}") from error


def _why(result: Result) -> str:
    missing = f"; not reached: {', '.join(result.not_reached)}" if result.not_reached else ""
    return f" ({result.reason}){missing}" if result.reason else missing
