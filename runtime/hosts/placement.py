"""Where the agents of hosts listen; Ray starts those that nobody started by hand.

Ray is imported in a process of its own, which ends when the agent listens: the loss of Ray's head would end it.
"""

import asyncio
import json
import os
import signal
import socket
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from subprocess import DEVNULL, PIPE, run
from tempfile import NamedTemporaryFile

from runtime.errors import EngineStartError
from runtime.hosts.tls import CONNECT_S, words

PORT = 7443
"""Of agents that Ray starts."""
ASK_S = 40.0
"""How long Ray may take to start an agent; without its head it would never answer."""
LISTEN_S = 25.0
"""How long a started agent may take until it listens; then it is ended, for another one is started later."""
ASK_AGAIN_S = 30.0
"""After Ray was asked for a host, until it is asked for the same one again."""
TOKENS = "agents start only under Ray with token authentication (RAY_AUTH_MODE=token, one token everywhere)"


class AgentPlacement:
    """Knows the address of each agent, and asks Ray to start those that have none."""

    def __init__(self, agents: Mapping[str, tuple[str, int] | None], ray: str) -> None:
        self._agents = agents
        self._ray = ray
        self._answers: dict[str, tuple[str, int] | Exception] = {}
        self._asked_s: dict[str, float] = {}

    async def address(self, host: str) -> tuple[str, int]:
        """Where the agent of a host listens that the service wants to reach.

        Raises:
            ConnectionError: Ray does not have the host yet.
            EngineStartError: Ray cannot be used, or the agent does not start.
        """
        if known := self._agents[host]:
            return known
        now_s = time.monotonic()
        if now_s - self._asked_s.get(host, -ASK_AGAIN_S) >= ASK_AGAIN_S:
            self._asked_s[host] = now_s
            try:
                self._answers[host] = await ask(self._ray, host, PORT), PORT
            except (ConnectionError, EngineStartError) as error:
                if not isinstance(self._answers.get(host), tuple):  # else its agent may still be there
                    self._answers[host] = error
        if isinstance(answer := self._answers[host], Exception):
            raise answer
        return answer


async def ask(ray: str, host: str, port: int) -> str:
    """Have Ray start the agent of a host unless it listens; returns its address.

    Raises:
        ConnectionError: Ray does not have the host yet.
        EngineStartError: Ray cannot be used, or the agent does not start.
    """
    head, _, head_port = ray.rpartition(":")
    command = [sys.executable, "-P", "-m", "runtime.hosts.placement", ray, host, str(port)]
    asker = None
    try:
        async with asyncio.timeout(CONNECT_S):
            (await asyncio.open_connection(head.strip("[]"), int(head_port)))[1].close()
        asker = await asyncio.create_subprocess_exec(*command, stdin=DEVNULL, stdout=PIPE, stderr=PIPE)
        async with asyncio.timeout(ASK_S):
            output, log = await asker.communicate()
    except OSError as error:
        by_hand = f"where an agent runs already, write `hosts: {{{host}: {{agent: HOST:PORT}}}}`"
        raise EngineStartError(f"Ray cannot be reached at {ray}: {words(error)}; {by_hand}") from error
    finally:
        if asker is not None and asker.returncode is None:
            asker.kill()
            await asker.wait()
    if asker.returncode:
        last = f"code {asker.returncode}\n{log.decode(errors='replace').strip()}".splitlines()[-1]
        raise EngineStartError(f"Ray at {ray} cannot be asked for host {host}: {last}")
    kind, detail = json.loads(output.splitlines()[-1])
    if kind != "listens":
        raise {"waits": ConnectionError, "refused": EngineStartError}[kind](detail)
    return str(detail)


class Starter:
    """The actor on the host's node. Ray copies it there by value."""

    def start(self, host: str, address: str, port: int) -> tuple[str, str]:
        """Start the agent in a session of its own, as nobody's child; it stays when this actor and Ray end.

        One that never listens leaves nothing behind: it is tried again and again.
        """
        # of Ray's own process there: actors see fewer threads, and may see no GPUs
        entries = Path(f"/proc/{os.getppid()}/environ").read_text(errors="surrogateescape").split("\0")
        node = dict(entry.split("=", 1) for entry in entries if "=" in entry)
        if node.get("RAY_AUTH_MODE", "").lower() != "token":
            return "refused", f"host {host}: {TOKENS}"
        if listens(address, port):
            return "listens", address
        file = Path(node.get("INTENTCTL_CERTIFICATES", "/etc/intentctl")) / f"{host}.pem"
        if not os.access(file, os.R_OK):
            return "refused", f"host {host}: {file} cannot be read; copy {host}.pem of `intentctl hosts init` there"
        with NamedTemporaryFile(prefix=f"intentctl-agent-{host}-", suffix=".log", delete=False) as log:
            agent = [sys.executable, "-P", "-m", "intentctl", "agent", str(file), "--listen", f"{address}:{port}"]
        shell = ["/bin/sh", "-c", '"$@" </dev/null >>"$0" 2>&1 & echo $!', log.name, *agent]
        own = {key: value for key, value in node.items() if not key.startswith("RAY_")}
        pid = int(run(shell, check=True, cwd="/", start_new_session=True, stdout=PIPE, env=own).stdout)
        until_s = time.monotonic() + LISTEN_S
        while not listens(address, port):
            is_there = Path(f"/proc/{pid}/exe").exists()
            if is_there and time.monotonic() < until_s:
                time.sleep(0.05)
                continue
            if is_there:
                os.kill(pid, signal.SIGKILL)
            last = f"it said nothing\n{Path(log.name).read_text(errors='replace').strip()}".splitlines()[-1]
            Path(log.name).unlink()
            took = f" within {LISTEN_S:g} s" if is_there else ""
            return "refused", f"host {host}: the agent that was started does not listen{took}: {last}"
        return "listens", address


def listens(address: str, port: int) -> bool:
    """Whether something does."""
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as tried:
        tried.settimeout(1.0)
        return tried.connect_ex((address, port)) == 0


def start(address: str, host: str, port: int) -> tuple[str, str]:
    """Find a host's node and start its agent there; "listens" and where, or "waits" or "refused" and why."""
    try:
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        ray.init(address=address, log_to_driver=False, logging_level="error")
        nodes = [node for node in ray.nodes() if node["Alive"]]
        found = [node for node in nodes if node["NodeName"] == host]
        if len(found) != 1:
            names = ", ".join(sorted(f"{node['NodeName']} ({node['NodeManagerAddress']})" for node in nodes))
            what = f"Ray at {address} has {len(found)} nodes named {host}, not one, among {names}"
            return "refused" if found else "waits", f"{what}; `ray start --node-name {host}` names one"
        there = NodeAffinitySchedulingStrategy(found[0]["NodeID"], soft=False)
        starter = ray.remote(Starter).options(num_cpus=0, scheduling_strategy=there).remote()
        answer: tuple[str, str] = ray.get(starter.start.remote(host, found[0]["NodeManagerAddress"], port))
    except ImportError:
        return "refused", "Ray is not installed where the service runs: pip install 'intentctl[cluster]'"
    except Exception as error:  # noqa: BLE001 - whatever Ray raises is told
        why = f"{error}\n".partition("\n")[0].split(". ")[0].rstrip(".")
        return "refused", f"Ray at {address} cannot start the agent of host {host}: {why}; {TOKENS}"
    return answer


if __name__ == "__main__":
    os.environ["RAY_AUTH_MODE"] = "token"  # for Ray: it refuses to go on without a token
    print(json.dumps(start(sys.argv[1], sys.argv[2], int(sys.argv[3]))))  # noqa: T201 - for the process that asks
