"""Ray starts an agent: it stays when the actor and Ray's head are gone; what cannot be is refused in a line."""

import asyncio
import contextlib
import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from runtime.engine import SamplingParams
from runtime.errors import EngineStartError
from runtime.hosts import certificates, placement
from runtime.hosts.cluster import Expected, Hosts
from runtime.hosts.look import Seen, look
from runtime.hosts.placement import AgentPlacement
from runtime.models import Cluster, Gpu, Link, Node
from runtime.notation import parse_topology
from runtime.router import Router
from runtime.stream import GenerationParams
from runtime.torch_engine.engine import TorchEngine
from runtime.torch_engine.models import EngineSettings
from tests.runtime.torch_engine.driver.test_sampling_tasks import CHECKPOINT, TOKENIZER

ROOT = Path(__file__).parents[3]
TOKEN = "5e" * 32
CLUSTER = Cluster((Node("b", (Gpu(0, "CPU", 1 << 30),), Link("shared-memory", 5e9, 3e-5)),))
ON = parse_topology("CPU[0]", CLUSTER, 8, "fp32")
RAY = shutil.which("ray", path=str(Path(sys.executable).parent))
needs_ray = pytest.mark.skipif(
    RAY is None or importlib.util.find_spec("ray") is None,
    reason="Ray is not installed: pip install 'intentctl[cluster]'",
)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        port: int = found.getsockname()[1]
        return port


class Head:
    """Ray on this machine alone, all of whose processes name its folder."""

    def __init__(self, certificates: Path, mode: str) -> None:
        self._folder = tempfile.mkdtemp(prefix="ray-")  # sockets have short paths
        self.port = free_port()
        self._env = {key: value for key, value in os.environ.items() if not key.startswith("RAY_")} | {
            "RAY_AUTH_MODE": mode, "RAY_AUTH_TOKEN": TOKEN, "INTENTCTL_CERTIFICATES": str(certificates),
            "PYTHONPATH": str(ROOT), "TMPDIR": self._folder, "OMP_NUM_THREADS": "2",
        }  # fmt: skip
        self.start("--head", f"--port={self.port}", "--include-dashboard=false", f"--temp-dir={self._folder}")
        self.address = f"{_own_address()}:{self.port}"

    def start(self, *options: str) -> None:
        """A node named b."""
        assert RAY is not None
        command = [RAY, "start", "--node-name=b", "--num-cpus=1", "--object-store-memory=80000000", *options]
        done = subprocess.run(
            [*command, "--disable-usage-stats"], env=self._env, check=False, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout + done.stderr

    def processes(self) -> list[int]:
        found = list[int]()
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if self._folder.encode() in (folder / "cmdline").read_bytes():
                    found.append(int(folder.name))
        return found

    def kill(self) -> None:
        until_s = time.monotonic() + 20
        while found := self.processes():
            assert time.monotonic() < until_s
            for pid in found:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.02)

    def close(self) -> None:
        self.kill()
        shutil.rmtree(self._folder, ignore_errors=True)


def _own_address() -> str:
    """What Ray makes of this machine's loopback."""
    code = "import ray; print(ray.util.get_node_ip_address())"
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.strip()


def agents(port: int) -> list[int]:
    found = list[int]()
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if (folder / "cmdline").read_bytes().endswith(f":{port}\0".encode()):
                found.append(int(folder.name))
    return found


def told(pid: int, file: str) -> str:
    return Path(f"/proc/{pid}/{file}").read_text()


@pytest.fixture
def port(monkeypatch) -> Iterator[int]:
    """Of the agent, which ends with the test."""
    monkeypatch.setenv("RAY_AUTH_TOKEN", TOKEN)
    free = free_port()
    yield free
    for pid in agents(free):
        os.kill(pid, signal.SIGTERM)


@contextlib.contextmanager
def head(certificates: Path, mode: str = "token") -> Iterator[Head]:
    made = Head(certificates, mode)
    try:
        yield made
    finally:
        made.close()


async def counted(router: Router) -> list[int | None]:
    params = GenerationParams(SamplingParams(max_tokens=40))
    return [delta.token_id async for delta in router.generate("count by 3 from 11: 11 ", params)]


async def refusals(ray: Head, port: int, folder: Path) -> None:
    with pytest.raises(ConnectionError, match=r"has 0 nodes named c, not one, among b \(.*--node-name c` names one"):
        await placement.ask(ray.address, "c", port)
    with pytest.raises(EngineStartError, match=r"host b: .*b.pem cannot be read; copy b.pem of `intentctl hosts init`"):
        await placement.ask(ray.address, "b", port)
    (folder / "b.pem").write_text("nothing")
    with pytest.raises(
        EngineStartError, match=r"host b: the agent that was started does not listen: .*is no file of `intentctl"
    ):
        await placement.ask(ray.address, "b", port)


@needs_ray
@pytest.mark.exhaustive
@pytest.mark.parametrize("after_s", [0, 90])
async def test_what_serves_outlives_the_actor_and_the_head(tmp_path, port, monkeypatch, after_s):
    monkeypatch.setattr(placement, "PORT", port)
    with head(tmp_path) as ray:
        await refusals(ray, port, tmp_path)
        (tmp_path / "b.pem").unlink()
        certificates.write(tmp_path, ("b",))
        expected = Expected(CLUSTER, {"b": None}, (str(CHECKPOINT),), needs_vllm=False, visible="", ray=ray.address)
        hosts = Hosts(expected, tmp_path / "service.pem")
        await hosts.open()
        async with contextlib.AsyncExitStack() as stack:
            stack.push_async_callback(hosts.close)
            assert hosts.lost == {}
            (agent,) = agents(port)
            assert os.getsid(agent) != os.getsid(0)
            parent = int(told(agent, "stat").rpartition(")")[2].split()[1])
            assert not told(parent, "comm").startswith(("ray", "python"))  # neither the actor nor its raylet
            assert "\0OMP_NUM_THREADS=2\0" in told(agent, "environ")  # Ray gives actors one
            assert TOKEN not in told(agent, "environ")
            assert await placement.ask(ray.address, "b", port) == ray.address.rpartition(":")[0]
            assert agents(port) == [agent]  # one that listens is enough
            engine = await TorchEngine.start(CHECKPOINT, ON, CLUSTER, EngineSettings(num_blocks=64), launchers=hosts)
            stack.push_async_callback(engine.close)
            async with Router(engine, TOKENIZER) as router:
                before = await counted(router)
                through = asyncio.create_task(counted(router))
                ray.kill()
                assert await through == before
                until_s = time.monotonic() + after_s
                while time.monotonic() < until_s:
                    assert await counted(router) == before
                assert agents(port) == [agent]
                assert hosts.lost == {}
        with pytest.raises(EngineStartError, match=r"Ray cannot be reached at .*; where an agent runs already, write"):
            await placement.ask(ray.address, "b", port)


@needs_ray
@pytest.mark.exhaustive
async def test_no_agent_starts_under_ray_without_tokens(tmp_path, port):
    certificates.write(tmp_path, ("b",))
    with head(tmp_path, "disabled") as ray:
        with pytest.raises(EngineStartError, match=r"agents start only under Ray with token authentication"):
            await placement.ask(ray.address, "b", port)
        assert agents(port) == []


@needs_ray
@pytest.mark.exhaustive
async def test_a_head_that_says_nothing_is_waited_for_until_a_deadline(port, monkeypatch):
    monkeypatch.setattr(placement, "ASK_S", 1.0)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(
            EngineStartError, match=r"Ray cannot be reached at 127.0.0.1:.*: no answer in time; where an agent"
        ):
            await placement.ask(address, "b", port)


def test_a_node_without_tokens_starts_no_agent():
    code = "from runtime.hosts.placement import Starter; print(Starter().start('b', '127.0.0.1', 1))"
    shell = ["env", "-u", "RAY_AUTH_MODE", "sh", "-c", '"$0" -c "$1"; true', sys.executable, code]  # sh is its parent
    said = subprocess.run(shell, check=True, capture_output=True, text=True, cwd=ROOT)
    assert said.stdout.startswith("('refused', 'host b: agents start only under Ray with token authentication")


NEVER = """\
import sys
from runtime.hosts import placement
placement.sys.executable, placement.LISTEN_S = sys.argv[1], float(sys.argv[3])
print(placement.Starter().start("b", "127.0.0.1", int(sys.argv[2])))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "listen_s", "why"),
    [
        (
            "print('no certificate')",
            60,
            "('refused', 'host b: the agent that was started does not listen: no certificate",
        ),
        ("time.sleep(600)", 0, "('refused', 'host b: the agent that was started does not listen within 0 s: "),
    ],
    ids=["ends", "hangs"],
)
def test_an_agent_that_never_listens_leaves_no_process_and_no_file(tmp_path, port, program, listen_s, why):
    (tmp_path / "b.pem").write_text("")
    (tmp_path / "temporary").mkdir()
    agent = tmp_path / "agent"
    agent.write_text(f"#!{sys.executable}\nimport time\n{program}\n")
    agent.chmod(0o700)
    own = {"RAY_AUTH_MODE": "token", "INTENTCTL_CERTIFICATES": str(tmp_path), "TMPDIR": str(tmp_path / "temporary")}
    shell = ["sh", "-c", '"$0" -c "$1" "$2" "$3" "$4"; true', sys.executable, NEVER]  # as its parent
    shell += [str(agent), str(port), str(listen_s)]
    said = subprocess.run(shell, check=True, capture_output=True, text=True, cwd=ROOT, env=os.environ | own)
    assert said.stdout.startswith(why), said.stdout + said.stderr
    assert [*(tmp_path / "temporary").iterdir()] == []
    until_s = time.monotonic() + 20
    while agents(port):
        assert time.monotonic() < until_s
        time.sleep(0.01)


def test_without_ray_the_message_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    said = "Ray is not installed where the service runs: pip install 'intentctl[cluster]'"
    assert placement.start("b:6379", "b", 1) == ("refused", said)


def test_two_nodes_of_one_name_are_refused(monkeypatch):
    nodes = [{"Alive": here != "3", "NodeName": "b", "NodeManagerAddress": f"10.0.0.{here}"} for here in "123"]
    found = SimpleNamespace(init=lambda **_: None, nodes=lambda: nodes)
    monkeypatch.setitem(sys.modules, "ray", found)
    monkeypatch.setitem(sys.modules, "ray.exceptions", SimpleNamespace(RayError=ValueError))
    strategies = SimpleNamespace(NodeAffinitySchedulingStrategy=None)
    monkeypatch.setitem(sys.modules, "ray.util", SimpleNamespace(scheduling_strategies=strategies))
    monkeypatch.setitem(sys.modules, "ray.util.scheduling_strategies", strategies)
    said = (
        "Ray at h:1 has 2 nodes named b, not one, among b (10.0.0.1), b (10.0.0.2); `ray start --node-name b` names one"
    )
    assert placement.start("h:1", "b", 1) == ("refused", said)


async def test_a_look_says_what_ray_said(monkeypatch, tmp_path):
    async def ask(*_: object) -> str:
        raise EngineStartError("no head")

    monkeypatch.setattr(placement, "ask", ask)
    expected = Expected(CLUSTER, {"b": None}, (), needs_vllm=False, visible="", ray="h:1")
    assert await look(expected, tmp_path) == [Seen("b", "its agent: no head", "")]


async def test_ray_is_asked_for_a_lost_host_now_and_then(monkeypatch):
    asked = list[str]()
    answers: list[str | Exception] = ["10.0.0.2", EngineStartError("no head"), ConnectionError("no node c")]

    async def ask(_ray: str, host: str, _port: int) -> str:
        asked.append(host)
        if isinstance(answer := answers.pop(0), Exception):
            raise answer
        return answer

    monkeypatch.setattr(placement, "ask", ask)
    known = AgentPlacement({"a": ("10.0.0.1", 7), "b": None, "c": None}, "h:1")
    assert await known.address("a") == ("10.0.0.1", 7)
    assert [await known.address("b") for _ in range(2)] == [("10.0.0.2", 7443)] * 2
    monkeypatch.setattr(placement, "ASK_AGAIN_S", 0.0)
    assert await known.address("b") == ("10.0.0.2", 7443)  # where it was: Ray's head may be gone, and the agent not
    monkeypatch.setattr(placement, "ASK_AGAIN_S", 30.0)
    for _ in range(2):
        with pytest.raises(ConnectionError, match="no node c"):
            await known.address("c")
    assert asked == ["b", "b", "c"]
