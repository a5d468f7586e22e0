"""``python -m intentctl``."""

import sys

if not sys.flags.safe_path:
    del sys.path[0]  # the working directory: whatever lies there is not ours to run

from intentctl.cli import main

if __name__ == "__main__":
    main()
