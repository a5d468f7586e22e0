"""Files and functions of the packages that run for one sentence: from ``intentctl "run it with tp=2" --yes`` to ``done``.

Every Python process of the service and of the command line notes each function that it calls in that time: its driver and its
workers too. What runs at import does not count, nor the start of the service and its end.
"""

import argparse
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("prompts", "intent", "validator", "selector", "runtime", "service", "intentctl")
BEFORE = "8a2fbcb"
"""The commit before the runtime's processes became rooms (decision 40)."""
SENTENCE = "run it with tp=2"
START_S, SWITCH_S = 180.0, 300.0

NOTING = """
import mmap, os, sys, threading
with open(os.environ["FILES_RUN_FLAG"], "r+b") as file:
    is_on = mmap.mmap(file.fileno(), 1)
root, folders, out = os.environ["FILES_RUN_ROOT"], tuple(os.environ["FILES_RUN_PACKAGES"].split()), os.environ["FILES_RUN_OUT"]
prefixes = tuple(os.path.join(root, name) + os.sep for name in folders)
seen = set()
def note(frame, event, _):
    code = frame.f_code
    if event == "call" and is_on[0] and code not in seen:
        seen.add(code)
        if code.co_filename.startswith(prefixes) and code.co_name != "<module>":
            line = f"{code.co_filename[len(root) + 1:]} {code.co_qualname}\\n".encode()
            handle = os.open(f"{out}/{os.getpid()}", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            os.write(handle, line)
            os.close(handle)
threading.setprofile(note)
sys.setprofile(note)
"""
"""``sitecustomize`` of every process; a forked one keeps its parent's profile function. Each function is written down when it
is first called: a process may be killed at any time."""


def noted(folder: Path) -> dict[str, set[str]]:
    """File to the functions of it that ran, over all processes."""
    found: dict[str, set[str]] = {}
    for process in folder.iterdir():
        for line in process.read_text().splitlines():
            file, _, function = line.partition(" ")
            found.setdefault(file, set()).add(function)
    return found


def run(tree: Path) -> dict[str, set[str]]:
    """Serve ``tree``'s laptop example, say the sentence, and return what ran.

    Raises:
        RuntimeError: the service did not start, or the switch was not done.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "site").mkdir()
        (folder / "out").mkdir()
        (folder / "site" / "sitecustomize.py").write_text(NOTING)
        (folder / "flag").write_bytes(b"\0")
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        environment = {
            **os.environ,
            "PYTHONPATH": f"{folder / 'site'}{os.pathsep}{tree}",
            "FILES_RUN_ROOT": str(tree),
            "FILES_RUN_PACKAGES": " ".join(PACKAGES),
            "FILES_RUN_OUT": str(folder / "out"),
            "FILES_RUN_FLAG": str(folder / "flag"),
            "INTENTCTL_DATA_DIR": str(folder / "data"),
            "INTENTCTL_SERVER": f"http://127.0.0.1:{port}",
        }
        intentctl = [sys.executable, "-m", "intentctl"]
        deployment = ["--deployment", str(tree / "examples" / "local-cpu.yaml")]
        with _serving([*intentctl, "serve", *deployment, "--port", str(port)], tree, environment, folder):
            _await_ready(port, folder)
            with (folder / "flag").open("r+b") as flag:  # not truncated: it is mapped
                flag.write(b"\1")
            said = subprocess.run(
                [*intentctl, SENTENCE, "--yes"],
                cwd=tree, env=environment, capture_output=True, text=True, timeout=SWITCH_S, check=False,
            )  # fmt: skip
            with (folder / "flag").open("r+b") as flag:
                flag.write(b"\0")
            if said.returncode or "done" not in said.stdout + said.stderr:
                raise RuntimeError(f"{tree}: {SENTENCE!r} ended with {said.returncode}:\n{said.stdout}{said.stderr}")
        return noted(folder / "out")


@contextlib.contextmanager
def _serving(command: Sequence[str], tree: Path, environment: dict[str, str], folder: Path) -> Iterator[None]:
    with (folder / "log").open("wb") as log:
        service = subprocess.Popen(command, cwd=tree, env=environment, stdout=log, stderr=log)
    try:
        yield
    finally:
        service.send_signal(signal.SIGINT)
        try:
            service.wait(60)
        except subprocess.TimeoutExpired:
            service.kill()
            service.wait()


def _await_ready(port: int, folder: Path) -> None:
    until_s = time.monotonic() + START_S
    while time.monotonic() < until_s:
        with contextlib.suppress(OSError):
            urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=2).close()
            return
        time.sleep(0.2)
    raise RuntimeError(f"the service did not start in {START_S:g} s:\n{(folder / 'log').read_text()}")


@contextlib.contextmanager
def checked_out(commit: str) -> Iterator[Path]:
    """A work tree of a commit, as long as it is needed."""
    with tempfile.TemporaryDirectory() as name:
        tree = Path(name) / commit
        git = ["git", "-C", str(ROOT), "worktree"]
        subprocess.run([*git, "add", "--detach", str(tree), commit], check=True, capture_output=True)
        try:
            yield tree
        finally:
            subprocess.run([*git, "remove", "--force", str(tree)], check=True, capture_output=True)


def lines(name: str, ran: dict[str, set[str]]) -> list[str]:
    """A tree's counts, in all and by package."""
    rows = [f"{name}: {len(ran)} files, {sum(map(len, ran.values()))} functions"]
    for package in PACKAGES:
        own = [functions for file, functions in ran.items() if file.startswith(f"{package}/")]
        rows.append(f"  {package:<10}{len(own):>4} files{sum(map(len, own)):>6} functions")
    return rows


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the counts of this tree, and of a commit beside it."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.files_run", description=__doc__)
    parser.add_argument("--beside", default=BEFORE, help="commit to count as well; empty: none (default: %(default)s)")
    parser.add_argument("--json", type=Path, help="file for the names of all that ran")
    options = parser.parse_args(arguments)
    counted = {"this tree": run(ROOT)}
    if options.beside:
        with checked_out(options.beside) as tree:
            counted[options.beside] = run(tree)
    for name, ran in counted.items():
        print(*lines(name, ran), sep="\n")
    if options.json:
        plain = {name: {file: sorted(ran[file]) for file in sorted(ran)} for name, ran in counted.items()}
        options.json.write_text(json.dumps(plain, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
