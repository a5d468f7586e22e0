"""The scripted service in a process of its own, to be killed: ``python -m tests.service.scripted_process FOLDER``."""

import sys
import threading
from pathlib import Path

from tests.service.scripted import DEPLOYMENT, ScriptedService

if __name__ == "__main__":
    with ScriptedService(Path(sys.argv[1]), DEPLOYMENT.replace("auth: none", "")) as service:
        sys.stdout.write(f"{service.url}\n")
        sys.stdout.flush()
        threading.Event().wait()
