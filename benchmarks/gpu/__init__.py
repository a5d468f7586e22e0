"""All that has to be seen on a GPU, in one go of a few minutes: ``python -m benchmarks.gpu --json FILE``."""

import os
from pathlib import Path

# drivers do not import from the working directory, and on a machine that is lent bare nothing is installed
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH")]))
