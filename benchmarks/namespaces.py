"""Hosts on this machine: namespaces, with /tmp, /dev/shm and /sys of their own.

The death of a host's first process is the host's: Linux ends all that runs there, and what was made there is gone.
"""

import contextlib
import itertools
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from intentctl.status import failure

ROOT = Path(__file__).parents[1]
TOOLS = ("setpriv", "unshare", "nsenter", "ip", "mount")
SPACES = ("--net", "--pid", "--mount", "--ipc", "--uts")
PORT = 7443
START_S = 60.0
_numbers = itertools.count()

SETUP = """
mount -t tmpfs tmpfs /mnt
for kept in {kept}; do mkdir -p /mnt$kept; mount --bind $kept /mnt$kept; done
mount -t tmpfs tmpfs /tmp; mount -t tmpfs tmpfs /dev/shm; mount -t sysfs sysfs /sys; hostname {name}; ip link set lo up
for kept in {kept}; do mkdir -p $kept; mount --bind /mnt$kept $kept; done
cd {root}
"""
# the agent is a child of the first process, so that it can be killed without the host; UCX reads names of interfaces in /sys
AGENT = """
cat > /tmp/{name}.pem
PYTHONUNBUFFERED=1 {python} -P -m intentctl agent /tmp/{name}.pem --listen 0.0.0.0:{port} &
echo $! > /tmp/agent.pid
wait; exec sleep infinity
"""


def why_impossible() -> str:
    """Why no host can be made here; empty: it can."""
    if os.geteuid():
        return "hosts on one machine are made of namespaces, which takes root"
    if missing := [name for name in TOOLS if shutil.which(name) is None]:
        return f"hosts on one machine need {', '.join(missing)}: install util-linux and iproute2"
    tried = subprocess.run(["unshare", *SPACES, "--fork", "true"], check=False, capture_output=True, text=True)  # noqa: S607 - the one of the path
    return f"namespaces are refused here: {tried.stderr.strip()}" if tried.returncode else ""


def on_host(name: str, script: str) -> list[str]:
    """The command that runs a shell script as the first process of a host of its own.

    The host ends with the command, and that with the thread that started it. A checkout in /tmp stays where it is there.
    """
    kept = " ".join(str(path) for path in (ROOT, Path(sys.prefix)) if path.is_relative_to("/tmp"))  # noqa: S108 - see above
    whole = SETUP.format(kept=kept, name=name, root=shlex.quote(str(ROOT))) + script
    return [
        "setpriv",
        "--pdeathsig",
        "KILL",
        "unshare",
        *SPACES,
        "--fork",
        "--kill-child",
        "--mount-proc",
        "sh",
        "-c",
        whole,
    ]


class AgentHost:
    """A host whose agent listens, joined to the present network namespace by a veth pair."""

    def __init__(self, name: str, certificate: Path, log: Path) -> None:
        """Make it.

        Raises:
            CommandError: it cannot be made; nothing of it is left.
        """
        number = (os.getpid() * 16 + next(_numbers)) % 16000
        self.name = name
        self.log = log
        self.ours = f"ic{number}a"
        """This end of the link."""
        self.theirs = f"ic{number}b"
        """Its end of the link."""
        net = f"10.213.{number // 64}"
        last = number % 64 * 4
        self._net = f"{net}.{last}/30"
        self.near = f"{net}.{last + 1}"
        self.address = f"{net}.{last + 2}"
        script = AGENT.format(name=name, python=shlex.quote(sys.executable), port=PORT)
        with log.open("wb") as output:
            self._unshare = subprocess.Popen(
                on_host(name, script), cwd=ROOT, stdin=subprocess.PIPE, stdout=output, stderr=output
            )
        self.init = 0
        try:
            self.init = self._first_process()
            self._join(certificate)
        except BaseException:
            self.close()
            raise

    def link(self) -> None:
        """Make the two ends of the link, each in its namespace."""
        run("ip", "link", "add", self.ours, "type", "veth", "peer", "name", self.theirs, "netns", str(self.init))

    def _join(self, certificate: Path) -> None:
        # when its end of the link is gone, nothing that is meant for it leaves this machine
        run("ip", "route", "replace", "unreachable", self._net, "metric", "4000")
        self.link()
        run("ip", "addr", "add", f"{self.near}/30", "dev", self.ours)
        run("ip", "link", "set", self.ours, "up")
        self.inside("ip", "addr", "add", f"{self.address}/30", "dev", self.theirs)
        self.inside("ip", "link", "set", self.theirs, "up")
        assert self._unshare.stdin is not None
        self._unshare.stdin.write(certificate.read_bytes())
        self._unshare.stdin.close()

    def inside(self, *command: str) -> str:
        """What a command says there."""
        return run("nsenter", "-t", str(self.init), *SPACES, *command)

    def listens(self) -> None:
        """Return when the agent does.

        Raises:
            CommandError: it does not; the message has what it said.
        """
        until_s = time.monotonic() + START_S
        while f":{PORT}".encode() not in self.log.read_bytes():
            if time.monotonic() > until_s or self._unshare.poll() is not None:
                raise failure("error", f"the agent of host {self.name} did not start: {self.log.read_text().strip()}")
            time.sleep(0.02)

    def carried_bytes(self, *, sent: bool = False) -> int:
        """What came from there over the link so far, or was sent there."""
        (link,) = json.loads(run("ip", "-json", "-statistics", "link", "show", "dev", self.ours))
        return int(link["stats64"]["tx" if sent else "rx"]["bytes"])

    def close(self) -> None:
        """End the host and the link. Idempotent."""
        for pid in filter(None, (self.init, self._unshare.pid)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._unshare.communicate()
        for made in (("link", "del", self.ours), ("route", "del", "unreachable", self._net, "metric", "4000")):
            subprocess.run(["ip", *made], check=False, capture_output=True)  # noqa: S607 - as above

    def _first_process(self) -> int:
        children = Path(f"/proc/{self._unshare.pid}/task/{self._unshare.pid}/children")
        until_s = time.monotonic() + START_S
        while not (found := children.read_text().split()):
            if time.monotonic() > until_s or self._unshare.poll() is not None:
                raise failure("error", f"host {self.name} did not start: {self.log.read_text().strip()}")
            time.sleep(0.005)
        return int(found[0])


def run(*command: str) -> str:
    """What a command says.

    Raises:
        CommandError: it failed.
    """
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        raise failure("error", f"`{' '.join(command)}` failed: {done.stderr.strip()}")
    return done.stdout


@contextlib.contextmanager
def agent_host(name: str, certificate: Path, folder: Path) -> Iterator[AgentHost]:
    """A host whose agent listens, until the end."""
    made = AgentHost(name, certificate, folder / f"{name}.log")
    try:
        made.listens()
        yield made
    finally:
        made.close()
