"""``intentctl`` and ``python -m intentctl``: nothing is imported before an interrupt ends it in words."""

import os
import sys
from contextlib import suppress

INTERRUPTED = 130
"""The exit code of shells for it, and of typer."""


def main() -> None:
    """Run the command line; an interrupt at any moment ends it in a line."""
    try:
        from intentctl.cli import main as run

        run()
    except (KeyboardInterrupt, SystemExit) as left:
        if isinstance(left, SystemExit) and left.code != INTERRUPTED:
            raise
        print("intentctl: interrupted", file=sys.stderr)
        with suppress(OSError):
            print(end="", flush=True)
        # by sys.exit the signal would end it, not the code, where it came while Python ran an `exec`
        os._exit(INTERRUPTED)


if __name__ == "__main__":
    if not sys.flags.safe_path:
        del sys.path[0]  # the working directory: whatever lies there is not ours to run
    main()
