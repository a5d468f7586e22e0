"""One part of the campaign as a process: ``python -m benchmarks.gpu.part NAME MACHINE``, the machine as JSON.

Rows go to stdout, a line of JSON each. Whatever else is printed, here or by processes that it starts, goes to stderr.
"""

import importlib
import json
import os
import sys

from benchmarks.gpu.machine import Machine
from benchmarks.gpu.rows import Rows


def main() -> None:
    """Run the part that is named."""
    name, machine = sys.argv[1:]
    rows = Rows(os.fdopen(os.dup(1), "w", encoding="utf-8"))
    os.dup2(2, 1)
    module = importlib.import_module(f"benchmarks.gpu.parts.{name.replace('-', '_')}")
    module.run(Machine(**json.loads(machine)), rows)


if __name__ == "__main__":
    main()
