"""A host of a test (``benchmarks.namespaces``), with what can happen to one; its link may be a relay that delays packets.

Its network is this test's alone; traffic over it goes to no other machine.
"""

import contextlib
import itertools
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.namespaces import ROOT, AgentHost, run, why_impossible

__all__ = ["Machine", "machine", "namespaces", "why_impossible"]
NOWHERE = ("lladdr", "02:00:00:00:00:01", "nud", "permanent")
_numbers = itertools.count()


@pytest.fixture(scope="session")
def namespaces() -> None:
    if why := why_impossible():
        pytest.skip(why)


class Machine(AgentHost):
    """A host whose agent listens."""

    def __init__(self, name: str, certificate: Path, log: Path, delay_s: float = 0.0) -> None:
        """``delay_s`` is one way; a link with one carries about 200 Mbit/s."""
        self._delay_s = delay_s
        self._relay: subprocess.Popen[bytes] | None = None
        super().__init__(name, certificate, log)

    def link(self) -> None:
        if not self._delay_s:
            super().link()
            return
        relay = [sys.executable, "-m", "tests.runtime.hosts.relay", str(self.init), str(self._delay_s)]
        self._relay = subprocess.Popen([*relay, self.ours, self.theirs], cwd=ROOT, stdout=subprocess.PIPE)
        assert self._relay.stdout is not None
        assert self._relay.stdout.readline() == b"carries\n"

    def shape(self, rate: str) -> None:
        """Both ways over the link, so many bits a second."""
        tbf = ("root", "tbf", "rate", rate, "burst", "256kb", "latency", "50ms")
        for inside, device in ((run, self.ours), (self.inside, self.theirs)):
            inside("tc", "qdisc", "replace", "dev", device, *tbf)

    def kill(self) -> None:
        """The host dies."""
        os.kill(self.init, signal.SIGKILL)

    def kill_agent(self) -> None:
        self.inside("sh", "-c", "kill -9 $(cat /tmp/agent.pid)")

    def start_agent(self) -> None:
        """Another one, as systemd would."""
        agent = f"{sys.executable} -m intentctl agent /tmp/{self.name}.pem --listen 0.0.0.0:7443"
        self.inside("sh", "-c", f"cd {ROOT}; {agent} >/tmp/again.log 2>&1 & echo $! > /tmp/agent.pid")

    def freeze(self) -> None:
        """Nothing of it moves on, and its connections stay."""
        self.inside("sh", "-c", "kill -STOP -1")
        os.kill(self.init, signal.SIGSTOP)

    def fall_silent(self) -> None:
        """What it says goes nowhere; what it is told still comes."""
        self.inside("ip", "neigh", "replace", self.near, *NOWHERE, "dev", self.theirs)

    def hear_nothing(self) -> None:
        """What it is told goes nowhere; what it says still comes."""
        run("ip", "neigh", "replace", self.address, *NOWHERE, "dev", self.ours)

    def cut_off(self) -> None:
        run("ip", "link", "set", self.ours, "down")

    def processes(self) -> list[str]:
        """What runs there, but for init and the agent."""
        told = self.inside("ps", "-eo", "args=").splitlines()
        return [line for line in told if "runtime." in line]

    def close(self) -> None:
        if self._relay is not None:
            self._relay.kill()
            self._relay.communicate()
        super().close()


@contextlib.contextmanager
def machine(name: str, certificate: Path, folder: Path, delay_s: float = 0.0) -> Iterator[Machine]:
    made = Machine(name, certificate, folder / f"{name}-{next(_numbers)}.log", delay_s)
    try:
        made.listens()
        yield made
    finally:
        made.close()
