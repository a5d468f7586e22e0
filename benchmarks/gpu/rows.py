"""How a part tells its results: a line of JSON on stdout for each, read by the campaign as it comes.

A row names its case and has figures, or says why it was ``skipped`` or what its ``problem`` is.
"""

import json
import math
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TextIO

from benchmarks.gpu.heard import ChangedError
from benchmarks.parameters import UsageError
from runtime.errors import RuntimeFault

Row = dict[str, Any]


class SkippedError(Exception):
    """A case cannot be run here; the message says why, with the figures."""


class Rows:
    """Where results go."""

    def __init__(self, out: TextIO) -> None:
        self._out = out

    def plan(self, cases: Iterable[str]) -> None:
        """Say which cases there are, before the first is run."""
        self._write({"planned": list(cases)})

    def say(self, case: str, row: Row) -> None:
        """Say what a case gave."""
        self._write({"case": case, **_plain(row)})

    def skip(self, cases: Iterable[str], reason: str) -> None:
        """Say of each that it cannot be run here."""
        for case in cases:
            self.say(case, {"skipped": reason})

    def take(self, case: str, run: Callable[[], Row]) -> None:
        """Run a case and say what it gave; one that breaks does not keep the others from running."""
        self.say(case, outcome(run))

    def take_each(self, cases: Mapping[str, Callable[[], Row]]) -> None:
        """Plan cases and run them one after the other."""
        self.plan(cases)
        for case, run in cases.items():
            self.take(case, run)

    def _write(self, document: Row) -> None:
        print(json.dumps(document, allow_nan=False), file=self._out, flush=True)


def outcome(run: Callable[[], Row]) -> Row:
    """What a case gave, or what kept it from giving anything."""
    try:
        return run()
    except SkippedError as reason:
        return {"skipped": str(reason)}
    except (RuntimeFault, UsageError, ChangedError) as problem:
        return {"problem": f"{type(problem).__name__}: {problem}"}
    except Exception as problem:  # noqa: BLE001 - whatever it is, the cases after it may go well
        traceback.print_exc(file=sys.stderr)
        return {"problem": f"{type(problem).__name__}: {problem}"}


def _plain(value: Any) -> Any:
    """The same without numbers that JSON has no word for."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
