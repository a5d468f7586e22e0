"""An agent and a host of the service, over loopback: processes are started, heard and ended there, and lost with it."""

import asyncio
import contextlib
import gc
import os
import random
import socket
import tracemalloc
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Self

import pytest

from runtime.errors import EngineLostError
from runtime.hosts import agent as agents
from runtime.hosts import certificates, messages, remote
from runtime.hosts.agent import Agent
from runtime.hosts.messages import Claim
from runtime.hosts.remote import RemoteHost
from runtime.hosts.tls import TlsChannel, connect, context
from runtime.process.channel import encode
from runtime.process.launcher import Process, Program
from runtime.process.messages import Beat, Fatal
from tests.runtime.process.test_frames import SEEDS, open_files, spoilt
from tests.runtime.process.test_frames import refused as why_refused

pytestmark = pytest.mark.slow

ECHO = "tests.runtime.hosts.echo"
PROGRAM = Program(ECHO, Beat | Fatal, 3)
MINE = Claim("d", 1, "http://a:1")


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("keys")
    certificates.write(folder, ("b",))
    return folder


class There:
    """An agent in this process, and what the service has of it."""

    def __init__(self, keys: Path, name: str = "b") -> None:
        self.keys, self.lost = keys, list[str]()
        self.idle = list[asyncio.StreamWriter]()
        self._sock = socket.create_server(("127.0.0.1", 0))
        self.address = self._sock.getsockname()
        self.agent = Agent(name, context(keys / f"{name}.pem", is_server=True), programs=frozenset({ECHO}))
        self.serving = asyncio.create_task(self.agent.serve(self._sock))

    async def host(self, *checkpoints: str, claim: Claim | None = MINE) -> RemoteHost:
        host = RemoteHost("b", 0, lambda _, why: self.lost.append(why))
        await host.open(self.address, self.keys / "service.pem", checkpoints, claim)
        return host

    async def close(self) -> None:
        for writer in self.idle:
            writer.close()
        self.serving.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self.serving
        self._sock.close()


@pytest.fixture
async def there(keys) -> AsyncIterator[There]:
    made = There(keys)
    yield made
    await made.close()


class Heard:
    def __init__(self, host: RemoteHost, program: Program = PROGRAM) -> None:
        self.messages: list[Any] = []
        self.ends: list[str] = []
        self._news = asyncio.Event()
        self.process: Process = host.start(program, self._hear, self._end)

    def _hear(self, message: Any) -> None:
        self.messages.append(message)
        self._news.set()

    def _end(self, why: str) -> None:
        self.ends.append(why)
        self._news.set()

    async def until(self, messages: int, ends: int = 0) -> None:
        async with asyncio.timeout(60):
            while len(self.messages) < messages or len(self.ends) < ends:
                self._news.clear()
                await self._news.wait()


def is_there(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


async def test_processes_of_a_host_are_started_heard_and_ended_with_all_they_started(there):
    host = await there.host()
    first, second = Heard(host), Heard(host, Program(ECHO, Beat | Fatal, has_folder=True))
    known = [heard.process.incarnation for heard in (first, second)]
    assert [(one.host, one.device, one.number) for one in known] == [("b", 3, 1), ("b", None, 2)]
    first.process.send(Beat(7.0))
    await first.until(1)
    assert first.messages == [Beat(7.0)]
    first.process.send(Beat(1.0))
    await first.until(2)
    child = int(first.messages[1].stalled_s)
    assert is_there(child)
    assert is_there(first.process.pid)
    first.process.end()
    await first.process.close()
    assert not is_there(child)
    assert not is_there(first.process.pid)
    second.process.send(Beat(0.0))  # ends by itself, and is told with its log
    await second.until(0, ends=1)
    assert second.process.log() == ["Error: asked to end"]
    second.process.end()
    await second.process.close()
    assert (first.ends, second.ends) == ([], [""])
    host.close()
    assert there.lost == []


async def test_what_cannot_be_started_or_is_no_program_is_told_as_its_end(there):
    host = await there.host()
    shell = Heard(host, Program("http.server", Beat))
    await shell.until(0, ends=1)
    assert shell.ends == ["no process can be started on host b: http.server is no program of an agent"]
    shell.process.end()
    await shell.process.close()
    dumb = Heard(host, Program(ECHO, list[int]))
    dumb.process.send(Beat(7.0))
    await dumb.until(0, ends=1)
    assert "a frame was refused (type)" in dumb.ends[0]
    dumb.process.end()
    await dumb.process.close()
    host.close()


async def test_who_floods_waits_in_its_turn_and_loses_nothing(there, monkeypatch):
    host = await there.host()
    loud = Heard(host)
    transport = host._channel._transport
    assert transport is not None
    loud.process.send(Beat(1.0))
    await loud.until(1)
    session = next(iter(there.agent._sessions))
    transport.pause_reading()
    loud.process.send(Beat(2.0))
    async with asyncio.timeout(20):
        while session._has_room:  # noqa: ASYNC110 - another process brings it about
            await asyncio.sleep(0.001)
    held = session.channel._transport
    assert held is not None
    assert held.get_write_buffer_size() < 4 << 20
    transport.resume_reading()
    await loud.until(201)
    assert [one.detail.split()[0] for one in loud.messages[1:]] == [str(number) for number in range(200)]
    host.close()


async def test_a_silent_agent_is_lost_with_all_that_runs_there_and_heard_no_more(there, monkeypatch):
    host = await there.host()
    heard = [Heard(host), Heard(host)]
    for one in heard:
        one.process.send(Beat(7.0))
        await one.until(1)
    session = next(iter(there.agent._sessions))
    monkeypatch.setattr(session.channel, "send", lambda _: None)
    for one in heard:
        await one.until(1, ends=1)
        assert one.ends[0].startswith("host b is lost: it was silent for 2.")
    assert len(there.lost) == 1
    with pytest.raises(ConnectionError, match="host b is lost"):
        Heard(host)
    with pytest.raises(EngineLostError, match="host b is lost"):
        await host.ask(messages.Inspect(()))
    for one in heard:
        await one.process.close()  # nobody waits for what is lost
    async with asyncio.timeout(20):
        while any(is_there(one.process.pid) for one in heard):  # noqa: ASYNC110 - the agent saw the connection's end
            await asyncio.sleep(0.01)
    again = Heard(await there.host())  # another incarnation
    again.process.send(Beat(7.0))
    await again.until(1)


async def test_what_a_silent_service_started_ends(there, monkeypatch):
    monkeypatch.setattr(agents, "ORPHAN_S", 0.6)
    host = await there.host()
    heard = Heard(host)
    heard.process.send(Beat(7.0))
    await heard.until(1)
    monkeypatch.setattr(host, "tell", lambda _: None)
    await heard.until(1, ends=1)
    assert heard.ends == ["host b is lost: the other end closed the connection"]
    async with asyncio.timeout(20):
        while is_there(heard.process.pid):  # noqa: ASYNC110 - the agent ends it
            await asyncio.sleep(0.01)


async def test_an_agent_that_is_stopped_takes_all_along(there):
    heard = Heard(await there.host())
    heard.process.send(Beat(7.0))
    await heard.until(1)
    await there.close()
    assert not is_there(heard.process.pid)
    await heard.until(1, ends=1)


async def test_a_host_says_what_it_has_and_memory_there_is_given_back(there, tmp_path):
    (tmp_path / "config.json").write_text("{}")
    host = await there.host(str(tmp_path), "/none")
    assert host.facts.cores == len(os.sched_getaffinity(0))
    assert [*host.facts.checkpoints[str(tmp_path)]] == ["config.json"]
    assert host.facts.checkpoints["/none"] == {}
    memory = await host.memory(4096)
    assert os.stat(memory.path).st_ino == memory.inode  # noqa: PTH116 - the loop waits for nothing there
    memory.close()
    other = await host.memory(1)
    host.close()
    async with asyncio.timeout(20):
        while any(map(os.path.exists, (memory.path, other.path))):  # noqa: ASYNC110 - the agent gives it back
            await asyncio.sleep(0.01)


async def test_a_peer_that_says_what_is_no_order_is_let_go(there):
    ends = list[str]()
    channel = TlsChannel(messages.FromAgent, lambda _: None, ends.append)
    await connect(there.address, "b", there.keys / "service.pem", channel)
    channel.send(Beat(1.0))
    async with asyncio.timeout(20):
        while not ends or there.agent._sessions:  # noqa: ASYNC110 - the other end
            await asyncio.sleep(0)


async def spoil(there: There, count: int, seed: int) -> int:
    """Send so many spoilt orders, each over a connection of its own; how many of them the agent refused by name."""
    chance, orders, refused = random.Random(seed), [*map(encode, SEEDS["service to an agent"])], 0
    for _ in range(count):
        order, over = spoilt(chance, chance.choice(orders)), asyncio.Event()
        channel = TlsChannel(messages.FromAgent, lambda _: None, lambda _, over=over: over.set())
        await connect(there.address, "b", there.keys / "service.pem", channel)
        assert channel._transport is not None
        channel._transport.write(order)
        if why_refused(messages.ToAgent, order):
            refused += 1
            await asyncio.wait_for(over.wait(), 20)
        channel.close()
        while there.agent._sessions:  # noqa: ASYNC110 - the other end
            await asyncio.sleep(0)
    return refused


@pytest.mark.parametrize("count", [40, pytest.param(10_000, marks=[pytest.mark.exhaustive, pytest.mark.timeout(1800)])])
async def test_spoilt_orders_end_their_connection_and_leave_nothing_behind(there, count, caplog):
    caplog.set_level("CRITICAL")  # a line each
    host = await there.host()
    await host.ask(messages.Inspect(()))  # what is loaded once
    host.close()
    await spoil(there, 30, 1)
    gc.collect()
    files = open_files()
    refused, grown = 0, list[int]()
    tracemalloc.start()
    try:
        for seed in (2, 3):  # what stays behind does so each time, and what else runs in this process takes memory once
            before_bytes = tracemalloc.get_traced_memory()[0]
            refused += await spoil(there, count, seed)
            async with asyncio.timeout(120):
                while open_files() > files:  # noqa: ASYNC110 - the last connections end
                    await asyncio.sleep(0.01)
            gc.collect()
            grown.append(tracemalloc.get_traced_memory()[0] - before_bytes)
    finally:
        tracemalloc.stop()
    assert min(grown) < 200_000
    assert refused > count
    assert there.lost == []
    await (await there.host()).ask(messages.Inspect(()))


async def test_an_agent_that_cannot_take_a_connection_takes_the_next(keys, monkeypatch):
    monkeypatch.setattr(agents, "ACCEPT_AGAIN_S", 0.0)
    loop = asyncio.get_running_loop()
    accept, failed = loop.sock_accept, list[str]()

    async def full(sock: socket.socket) -> Any:
        if not failed:
            failed.append("too many open files")
            raise OSError(24, failed[0])
        return await accept(sock)

    monkeypatch.setattr(loop, "sock_accept", full)
    there = There(keys)
    host = await there.host()
    assert failed
    host.close()
    await there.close()


async def idle(there: There, count: int, source: str = "127.0.0.1") -> list[asyncio.StreamReader]:
    """So many connections that say nothing, once the agent has taken them."""
    streams = [await asyncio.open_connection(*there.address, local_addr=(source, 0)) for _ in range(count)]
    there.idle += [writer for _, writer in streams]
    return [reader for reader, _ in streams]


async def test_whoever_says_nothing_keeps_no_service_out_and_fills_no_log(there, caplog):
    await idle(there, 80)
    host = await there.host()
    await host.ask(messages.Probe(b""))
    assert len(there.agent._handshakes) <= agents.MOST_OF_AN_ADDRESS
    assert [line for line in caplog.messages if "refused" in line] == [
        "a connection from 127.0.0.1 was refused: its handshake was the oldest of too many"
    ]
    host.close()


async def test_the_oldest_unfinished_handshake_gives_way_of_an_address_or_of_all(there, monkeypatch):
    monkeypatch.setattr(agents, "MOST_OF_AN_ADDRESS", 2)
    monkeypatch.setattr(agents, "MOST_HANDSHAKES", 4)
    first, second, third = await idle(there, 3, "127.0.0.2")
    async with asyncio.timeout(20):
        assert await first.read() == b""
        others = await idle(there, 2, "127.0.0.3")
        (last,) = await idle(there, 1, "127.0.0.4")
        assert await second.read() == b""
        while len(there.agent._handshakes) < 4:  # noqa: ASYNC110 - the agent takes the last one
            await asyncio.sleep(0)
    assert not any(reader.at_eof() for reader in (third, *others, last))
    assert [*there.agent._handshakes.values()] == ["127.0.0.2", "127.0.0.3", "127.0.0.3", "127.0.0.4"]


async def test_refusals_of_an_address_are_a_line_a_minute(there, monkeypatch, caplog):
    monkeypatch.setattr(agents, "MOST_ADDRESSES", 2)
    agent = there.agent
    for address in ("a", "b", "a", "c", "a", "d"):
        agent._refuse(address, "why")
    agent._tell_refusals("a")
    for address in ("a", "b"):
        agent._tell_refusals(address)  # a minute without any
    agent._refuse("a", "why")
    assert caplog.messages == [
        "a connection from a was refused: why",
        "a connection from b was refused: why",
        "a connection from c was refused: why",
        "2 more connections from a were refused in 60 s",
        "a connection from a was refused: why",
    ]


class SlowLink:
    """A link to an agent that carries some more bytes toward it each time it is told to, and all of them back."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._agent = address
        self._sock = socket.socket()
        self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 14)  # or it would take all at once
        self._sock.bind(("127.0.0.1", 0))
        self._sock.listen()
        self.address = self._sock.getsockname()
        self._more = asyncio.Event()
        self._carrying = list[asyncio.Future[None]]()
        self.is_slow = False

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._carry, sock=self._sock, limit=1 << 12)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        self.is_slow = False
        self._more.set()
        await asyncio.gather(*self._carrying)

    def carry_more(self) -> None:
        self._more.set()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        back, toward = await asyncio.open_connection(*self._agent)
        self._carrying += [
            asyncio.ensure_future(self._pass(reader, toward)),
            asyncio.ensure_future(self._pass(back, writer)),
        ]

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(CARRIED_BYTES):
                if self.is_slow and writer.get_extra_info("peername") == self._agent:
                    self._more.clear()
                    await self._more.wait()
                writer.write(data)
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


CARRIED_BYTES = 1 << 16


async def test_who_is_silent_behind_a_long_frame_on_a_slow_link_is_not_lost(there, monkeypatch):
    monkeypatch.setattr(agents, "ORPHAN_S", 1.0)
    monkeypatch.setattr(remote, "LOST_AFTER_S", 1.0)
    host = RemoteHost("b", 0, lambda _, why: there.lost.append(why))
    async with SlowLink(there.address) as link, asyncio.timeout(60):
        await host.open(link.address, there.keys / "service.pem", (), MINE)
        session = next(iter(there.agent._sessions))
        turn = session._turn
        turns = list[None]()

        def carry() -> None:
            turns.append(None)
            link.carry_more()
            turn()

        assert session._clock is not None
        session._clock._on_turn = carry
        link.is_slow = True
        size = 4 * CARRIED_BYTES
        assert await host.ask(messages.Probe(bytes(size))) == size
        assert there.lost == []
        assert len(turns) > 8, "the frame was no longer under way than silence is borne"
        host.close()
