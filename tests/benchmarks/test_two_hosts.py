import os
import signal
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from benchmarks import namespaces
from benchmarks.two_hosts import main, with_links
from intentctl.demo import Switched
from tests.rows import rows
from tests.runtime.hosts.machines import namespaces as as_root
from tests.service.examples import plan

__all__ = ["as_root"]
COMMAND = [sys.executable, "-m", "benchmarks.two_hosts", "-o", "json"]


@rows(
    ("moved", "carried", "notes"),
    [
        (100, 100, []),
        (100, 99, ["'tp2': 100 bytes moved between hosts, and the link carried 99"]),
        (0, 99, ["'tp2': 0 bytes moved between hosts, and the link carried 99"]),
        (None, 99, []),
    ],
)
def test_what_moved_is_held_against_the_link(moved, carried, notes):
    switch = {} if moved is None else {"bytes_between_hosts": moved}
    document = with_links({"switches": [switch], "notes": ["first"]}, [Switched("tp2", plan(), None, carried)])
    assert document["notes"] == ["first", *notes]
    assert (document["hosts"], document["switches"][0]["link_bytes"]) == (["a", "b"], carried)


def test_without_root_or_a_tool_it_is_said_in_a_line(capsys, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert main([]) == 1
    assert capsys.readouterr().err == "error: hosts on one machine are made of namespaces, which takes root\n"
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(namespaces, "TOOLS", ("ip-of-nobody",))
    assert main([]) == 1
    assert "need ip-of-nobody: install util-linux and iproute2" in capsys.readouterr().err


def left(mark: str) -> list[int]:
    """Processes that carry the mark in their environment."""
    found = []
    for process in Path("/proc").iterdir():
        if process.name.isdecimal():
            try:
                has_mark = mark.encode() in (process / "environ").read_bytes()
            except OSError:
                continue
            found += [int(process.name)] if has_mark else []
    return found


@pytest.mark.exhaustive
@pytest.mark.timeout(300)
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_a_demo_that_is_interrupted_leaves_nothing(as_root, how):
    mark = uuid.uuid4().hex
    environment = {**os.environ, "INTENTCTL_TEST_MARK": mark}
    with subprocess.Popen(
        COMMAND, env=environment, start_new_session=True, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as demo:
        assert demo.stderr is not None
        assert "a service runs at" in demo.stderr.readline()
        assert len(left(mark)) > 4, "the command, two hosts and their processes"
        (os.killpg if how is signal.SIGINT else os.kill)(demo.pid, how)
        _, said = demo.communicate()
    assert demo.returncode not in {0, 1}
    assert "Traceback" not in said
    while left(mark):  # the kernel ends them
        pass
