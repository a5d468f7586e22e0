"""A host of a test: namespaces of network, PID, mount, IPC and UTS with /tmp and /dev/shm of its own.

It is joined by a veth pair, or by a relay that delays packets.

The death of its init is its death. Its network is this test's alone; traffic over it goes to no other machine.
"""

import contextlib
import itertools
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
TOOLS = ("unshare", "nsenter", "ip", "tc")
SPACES = ("--net", "--pid", "--mount", "--ipc", "--uts")
NOWHERE = ("lladdr", "02:00:00:00:00:01", "nud", "permanent")
_numbers = itertools.count()

# the agent is a child of init, so that it can be killed without the host; UCX looks in /sys for devices of the network
INIT = """
mount -t tmpfs tmpfs /mnt
for kept in {kept}; do mkdir -p /mnt$kept; mount --bind $kept /mnt$kept; done
mount -t tmpfs tmpfs /tmp; mount -t tmpfs tmpfs /dev/shm; mount -t sysfs sysfs /sys; hostname {name}; ip link set lo up
for kept in {kept}; do mkdir -p $kept; mount --bind /mnt$kept $kept; done
cd {root}
cat > /tmp/{name}.pem
{python} -m intentctl agent /tmp/{name}.pem --listen 0.0.0.0:7443 &
echo $! > /tmp/agent.pid
wait; exec sleep infinity
"""


def why_impossible() -> str:
    """Why no such host can be made here; empty: it can."""
    if os.geteuid():
        return "a host of a test is made of namespaces, which takes root"
    if missing := [name for name in TOOLS if shutil.which(name) is None]:
        return f"a host of a test needs {', '.join(missing)}"
    tried = subprocess.run(["unshare", *SPACES, "--fork", "true"], check=False, capture_output=True, text=True)
    return f"namespaces are refused here: {tried.stderr.strip()}" if tried.returncode else ""


@pytest.fixture(scope="session")
def namespaces() -> None:
    if why := why_impossible():
        pytest.skip(why)


class Machine:
    """A host whose agent listens."""

    def __init__(self, name: str, certificate: Path, log: Path, delay_s: float = 0.0) -> None:
        """``delay_s`` is one way; a link with one carries about 200 Mbit/s."""
        number = (os.getpid() * 16 + next(_numbers)) % 16000
        self.name, self.log, self._delay_s = name, log, delay_s
        self._relay: subprocess.Popen[bytes] | None = None
        self._ours, self._theirs = f"ic{number}a", f"ic{number}b"
        net, last = f"10.213.{number // 64}", number % 64 * 4
        self._net, self._near, self.address = f"{net}.{last}/30", f"{net}.{last + 1}", f"{net}.{last + 2}"
        # a checkout in /tmp stays where it is
        kept = [str(path) for path in (ROOT, Path(sys.prefix)) if path.is_relative_to("/tmp")]
        script = INIT.format(name=name, python=sys.executable, root=ROOT, kept=" ".join(kept))
        with log.open("wb") as output:
            self._unshare = subprocess.Popen(
                ["unshare", *SPACES, "--fork", "--kill-child", "--mount-proc", "sh", "-c", script],
                cwd=ROOT, stdin=subprocess.PIPE, stdout=output, stderr=output, env={**os.environ, "PYTHONUNBUFFERED": "1"},
            )  # fmt: skip
        self.init = self._child_of(self._unshare.pid)
        try:
            self._join(certificate)
        except BaseException:
            self.close()
            raise

    def _join(self, certificate: Path) -> None:
        # when its end of the link is gone, nothing that is meant for it leaves this machine
        run("ip", "route", "replace", "unreachable", self._net, "metric", "4000")
        if self._delay_s:
            self._carry()
        else:
            far = ("peer", "name", self._theirs, "netns", str(self.init))
            run("ip", "link", "add", self._ours, "type", "veth", *far)
        run("ip", "addr", "add", f"{self._near}/30", "dev", self._ours)
        run("ip", "link", "set", self._ours, "up")
        self.inside("ip", "addr", "add", f"{self.address}/30", "dev", self._theirs)
        self.inside("ip", "link", "set", self._theirs, "up")
        assert self._unshare.stdin is not None
        self._unshare.stdin.write(certificate.read_bytes())
        self._unshare.stdin.close()

    def _carry(self) -> None:
        relay = [sys.executable, "-m", "tests.runtime.hosts.relay", str(self.init), str(self._delay_s)]
        self._relay = subprocess.Popen([*relay, self._ours, self._theirs], cwd=ROOT, stdout=subprocess.PIPE)
        assert self._relay.stdout is not None
        assert self._relay.stdout.readline() == b"carries\n"

    def inside(self, *command: str) -> str:
        return run("nsenter", "-t", str(self.init), *SPACES, *command)

    def listens(self) -> None:
        """Return when the agent does."""
        until_s = time.monotonic() + 60
        while b":7443" not in self.log.read_bytes():
            assert time.monotonic() < until_s, self.log.read_text()
            time.sleep(0.02)

    def shape(self, rate: str) -> None:
        """Both ways over the link, so many bits a second."""
        tbf = ("root", "tbf", "rate", rate, "burst", "256kb", "latency", "50ms")
        for inside, device in ((run, self._ours), (self.inside, self._theirs)):
            inside("tc", "qdisc", "replace", "dev", device, *tbf)

    def carried_bytes(self) -> int:
        """What came from there over the link so far."""
        return int(Path(f"/sys/class/net/{self._ours}/statistics/rx_bytes").read_text())

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
        self.inside("ip", "neigh", "replace", self._near, *NOWHERE, "dev", self._theirs)

    def hear_nothing(self) -> None:
        """What it is told goes nowhere; what it says still comes."""
        run("ip", "neigh", "replace", self.address, *NOWHERE, "dev", self._ours)

    def cut_off(self) -> None:
        run("ip", "link", "set", self._ours, "down")

    def processes(self) -> list[str]:
        """What runs there, but for init and the agent."""
        told = self.inside("ps", "-eo", "args=").splitlines()
        return [line for line in told if "runtime." in line]

    def close(self) -> None:
        if self._relay is not None:
            self._relay.kill()
            self._relay.communicate()
        for pid in (self.init, self._unshare.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._unshare.wait()
        for made in (
            ("link", "del", self._ours),
            ("route", "del", "unreachable", self._net, "metric", "4000"),
        ):
            subprocess.run(["ip", *made], check=False, capture_output=True)

    @staticmethod
    def _child_of(pid: int) -> int:
        children = Path(f"/proc/{pid}/task/{pid}/children")
        until_s = time.monotonic() + 20
        while not (found := children.read_text().split()):
            assert time.monotonic() < until_s
            time.sleep(0.005)
        return int(found[0])


def run(*command: str) -> str:
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}"
    return done.stdout


@contextlib.contextmanager
def machine(name: str, certificate: Path, folder: Path, delay_s: float = 0.0) -> Iterator[Machine]:
    made = Machine(name, certificate, folder / f"{name}-{next(_numbers)}.log", delay_s)
    try:
        made.listens()
        yield made
    finally:
        made.close()
