"""The agent of a host: starts, watches and ends its drivers for a service on another host.

Whatever a connection started ends with it; an agent that is killed takes all along, for its processes see their ends closed.
"""

import asyncio
import contextlib
import logging
import os
import signal
import socket
import ssl
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any, cast

from runtime.errors import EngineStartError, RuntimeFault
from runtime.hosts import messages
from runtime.hosts.tls import HANDSHAKE_S, TlsChannel, context, words
from runtime.process import messages as wire
from runtime.process.channel import Ends, Hears
from runtime.process.facts import gather
from runtime.process.launcher import SHARED_MEMORY, LocalLauncher, MemoryHere, Process, Program
from runtime.process.liveness import AwakeClock
from runtime.process.supervised import begin

log = logging.getLogger(__name__)

PROGRAMS = frozenset(
    f"runtime.{name}" for name in ("torch_engine.driver.loop", "torch_engine.driver.spare", "vllm_engine.driver.boot")
)
"""All that an agent starts."""
ORPHAN_S = 10.0
"""After so long without a heartbeat of its service a connection is over, and all that it started is ended."""
LOG_LINES = 200
"""Of an ended process, which the service gets."""
ACCEPT_AGAIN_S = 1.0
"""After a connection that could not be taken."""
MOST_HANDSHAKES = 256
"""Beside each other; one more drops the oldest, for a service needs milliseconds."""
MOST_OF_AN_ADDRESS = 32
"""The same for one address."""
QUIET_S = 60.0
"""Refusals of one address take one line of the log in so long."""
MOST_ADDRESSES = 64
"""Whose refusals are told apart."""
OTHERS = "other addresses"


class Agent:
    """Takes connections of the service's certificate."""

    def __init__(self, host: str, tls: ssl.SSLContext, visible: str = "", programs: frozenset[str] = PROGRAMS) -> None:
        self.host = host
        self.visible = visible
        self._programs = programs
        self._launcher = LocalLauncher(host)
        self._tls = tls
        self._handshakes = dict[asyncio.Task[None], str]()
        """Those that have not ended, the oldest first, with their addresses."""
        self._refusals = dict[str, int]()
        """How many there were since the last line of the log, of each address that had one within the minute."""
        self._sessions = set[ServiceSession]()
        self.owner: ServiceSession | None = None
        """The one that claimed the host last: it alone starts processes."""
        self._claiming = asyncio.Lock()
        self._background = set[asyncio.Task[None]]()

    async def serve(self, sock: socket.socket) -> None:
        """Take connections of a listening socket until cancelled; ends what they started."""
        sock.setblocking(False)
        try:
            while True:
                try:
                    connection, address = await asyncio.get_running_loop().sock_accept(sock)
                except OSError as error:  # too many open files, most likely
                    self._refuse("anybody", words(error))
                    await asyncio.sleep(ACCEPT_AGAIN_S)
                    continue
                self._make_room(address[0])
                self._handshakes[self.spawn(self._admit(connection, address[0]))] = address[0]
                await asyncio.sleep(0)  # it begins, whoever comes next
        finally:
            for handshake in self._handshakes:
                handshake.cancel()
            for session in [*self._sessions]:
                session.channel.lose("the agent was stopped")
            await asyncio.gather(*self._background, return_exceptions=True)

    def start(self, session: "ServiceSession", program: Program, on_message: Hears, on_end: Ends) -> Process:
        """Start one of the agent's programs for a session.

        Raises:
            EngineStartError: it is none, or the session is not the owner.
            OSError: no process can be started.
        """
        if self.owner is not session:
            raise EngineStartError("the service has not claimed it")
        if program.module not in self._programs:
            raise EngineStartError(f"{program.module} is no program of an agent")
        return self._launcher.start(program, on_message, on_end)

    async def own(self, session: "ServiceSession", claim: messages.Claim) -> None:
        """Make a session the owner, once nothing is left of what the one before it started.

        Raises:
            RuntimeFault: another service has the host, and this one is no later owner of its database.
        """
        async with self._claiming:
            if (earlier := self.owner) and earlier is not session:
                if not earlier.channel.is_over:
                    self._refuse_unless_later(claim, earlier.claim)
                    earlier.channel.lose(f"{claim.holder} owns its database now")
                await earlier.gone()
            self.owner = session
            session.claim = claim

    def _refuse_unless_later(self, claim: messages.Claim, earlier: messages.Claim) -> None:
        if claim.database != earlier.database:
            raise RuntimeFault(
                f"the service {earlier.holder} has host {self.host}, and a host has one service: stop that one, or give each "
                "its own hosts"
            )
        if claim.fence < earlier.fence:
            raise RuntimeFault(f"{earlier.holder} owns the database now, and with it host {self.host}")

    def spawn(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        """Do it in the background."""
        return begin("agent", work, self._background)

    def _make_room(self, address: str) -> None:
        """Drop the oldest handshake where one more is too many: of this address, or of all."""
        near = [handshake for handshake, known in self._handshakes.items() if known == address]
        crowd = near if len(near) >= MOST_OF_AN_ADDRESS else [*self._handshakes]
        if crowd is near or len(crowd) >= MOST_HANDSHAKES:
            self._refuse(self._handshakes.pop(crowd[0]), "its handshake was the oldest of too many")
            crowd[0].cancel()

    async def _admit(self, connection: socket.socket, address: str) -> None:
        session = ServiceSession(self, self._sessions.discard)
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: session.channel, connection, ssl=self._tls, ssl_handshake_timeout=HANDSHAKE_S
            )
        except OSError as error:
            self._refuse(address, words(error))
            connection.close()
        except asyncio.CancelledError:
            connection.close()
            raise
        else:
            if session.begin():
                self._sessions.add(session)
                log.info("a service is connected from %s", address)
        finally:
            self._handshakes.pop(cast("asyncio.Task[None]", asyncio.current_task()), None)

    def _refuse(self, address: str, why: str) -> None:
        """Have it in the log: of each address the first, and each minute how many came since."""
        known = address if address in self._refusals or len(self._refusals) < MOST_ADDRESSES else OTHERS
        if known in self._refusals:
            self._refusals[known] += 1
            return
        log.warning("a connection from %s was refused: %s", address, why)
        self._count_refusals(known)

    def _count_refusals(self, address: str) -> None:
        self._refusals[address] = 0
        asyncio.get_running_loop().call_later(QUIET_S, self._tell_refusals, address)

    def _tell_refusals(self, address: str) -> None:
        if count := self._refusals.pop(address):
            log.warning("%d more connections from %s were refused in %g s", count, address, QUIET_S)
            self._count_refusals(address)


class ServiceSession:
    """One connection of a service, and what it started."""

    def __init__(self, agent: Agent, on_over: Callable[["ServiceSession"], None]) -> None:
        self._agent = agent
        self._on_over = on_over
        self.channel = TlsChannel(messages.ToAgent, self._hear, self._over, self._give_room)
        self._processes: dict[int, Process] = {}
        self._memory: dict[messages.MemoryFile, MemoryHere] = {}
        self._ending = set[asyncio.Task[None]]()
        self.claim = messages.NOBODY
        self._clock: AwakeClock | None = None
        self._heard_s = 0.0
        self._has_room = True

    def begin(self) -> bool:
        """Expect heartbeats from now on; whether the connection is still there."""
        if not self.channel.is_over:
            self._clock = AwakeClock(self._turn)
        return not self.channel.is_over

    async def gone(self) -> None:
        """Wait until no process that it started is there."""
        await asyncio.gather(*self._ending)

    def _turn(self) -> None:
        assert self._clock is not None
        if self.channel.has_moved():
            self._heard_s = self._clock.now_s
        silent_s = self._clock.now_s - self._heard_s
        if silent_s > ORPHAN_S:
            self.channel.lose(f"the service was silent for {silent_s:.0f} s")

    def _hear(self, message: Any) -> None:
        match message:
            case messages.Relay(number, data):
                if process := self._processes.get(number):
                    process.send_encoded(data)
            case messages.Heartbeat():
                self.channel.send(message)
            case messages.Launch():
                self._launch(message)
            case messages.Terminate(number, litter):
                if process := self._processes.get(number):
                    process.litter |= {path for path in litter if path.startswith(SHARED_MEMORY) and ".." not in path}
                    process.kill()
                else:
                    self.channel.send(messages.Removed(number))
            case wire.Call(call_id, command):
                self._agent.spawn(self._answer(call_id, command))

    def _launch(self, order: messages.Launch) -> None:
        program = Program(order.module, bytes, order.device, has_folder=order.has_folder)
        try:
            process = self._agent.start(
                self,
                program,
                on_message=partial(self._relay, order.number),
                on_end=partial(self._ended, order.number),
            )
        except (OSError, EngineStartError) as error:
            why = f"no process can be started on host {self._agent.host}: {error}"
            self.channel.send(messages.Ended(order.number, why, ()))
            self.channel.send(messages.Removed(order.number))
            return
        self._processes[order.number] = process
        process.hold(not self._has_room)
        self.channel.send(messages.Launched(order.number, process.pid))

    def _relay(self, number: int, data: bytes) -> None:
        self.channel.send(messages.Relay(number, data))

    def _give_room(self, has_room: bool) -> None:
        """Hear nothing of processes while the service does not read: they wait in their turn."""
        self._has_room = has_room
        for process in self._processes.values():
            process.hold(not has_room)

    def _ended(self, number: int, why: str) -> None:
        process = self._processes.pop(number)
        self.channel.send(messages.Ended(number, why, tuple(process.log()[-LOG_LINES:])))
        self._end(number, process)

    def _end(self, number: int, process: Process) -> None:
        process.end()
        ending = self._agent.spawn(self._remove(number, process))
        self._ending.add(ending)
        ending.add_done_callback(self._ending.discard)

    async def _remove(self, number: int, process: Process) -> None:
        await process.close()
        self.channel.send(messages.Removed(number))

    async def _answer(self, call_id: int, command: wire.Command[Any]) -> None:
        try:
            value = await self._do(command)
        except Exception as error:  # noqa: BLE001 - the service must hear of it, whatever it is
            self.channel.send(wire.Reply(call_id, trouble=wire.Trouble.of(error)))
        else:
            self.channel.send(wire.reply(call_id, value))

    async def _do(self, command: wire.Command[Any]) -> object:
        if self.channel.is_over:
            return None  # nobody would give it back
        match command:
            case messages.Inspect(checkpoints):
                return await asyncio.to_thread(gather, checkpoints, self._agent.visible)
            case messages.Claim():
                await self._agent.own(self, command)
            case messages.Probe(data):
                return len(data)
            case messages.MakeMemory(size):
                made = MemoryHere(size)
                memory = messages.MemoryFile(made.path, made.inode)
                self._memory[memory] = made
                return memory
            case messages.FreeMemory(memory):
                if known := self._memory.pop(memory, None):
                    known.close()
        return None

    def _over(self, why: str) -> None:
        """The service is gone: so is all that it had here."""
        log.warning("the connection of the service is over (%s); %d processes end", why, len(self._processes))
        if self._clock:
            self._clock.stop()
        for number, process in self._processes.items():
            self._end(number, process)
        self._processes.clear()
        for memory in self._memory.values():
            memory.close()
        self._memory.clear()
        self._on_over(self)


def run(certificate: Path, address: tuple[str, int], visible: str, announce: Callable[[str], None]) -> None:
    """Be the agent of the host that a certificate names, until SIGINT or SIGTERM.

    ``announce`` is told the address.

    Raises:
        EngineStartError: the file is none.
        OSError: the address cannot be listened on.
    """
    tls = context(certificate, is_server=True)
    os.environ["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"  # for the drivers: the order of nvidia-smi
    with socket.create_server(address, backlog=MOST_HANDSHAKES) as listener:
        host, port = listener.getsockname()[:2]
        announce(f"{host}:{port}")
        asyncio.run(_until_told(Agent(certificate.stem, tls, visible), listener))


async def _until_told(agent: Agent, listener: socket.socket) -> None:
    serving = asyncio.create_task(agent.serve(listener))
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, serving.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        await serving
