"""The service as a process: bind, start the parts, serve until told to stop."""

import asyncio
import gc
import logging
import math
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, cast

import uvicorn

from runtime.errors import RuntimeFault
from service.access.gate import THIS_MACHINE
from service.access.refusals import App
from service.app import create_app
from service.control.composition import Composition, compose, owned_store
from service.deployment.file import Deployment
from service.deployment.settings import Settings
from service.documents.errors import StartError
from service.http.connection import MAX_HEAD_BYTES, Connection
from service.http.intake import Intake
from service.store.backup import put_back, write
from service.store.database import SQLITE_FILE, connect

if TYPE_CHECKING:
    from uvicorn._types import ASGI3Application

log = logging.getLogger(__name__)

STOPPED = "the service stopped before the answer's end; send the request again"
STEPPING_DOWN_S = 86_400.0
"""How long streams of a service that lost its database may go on: to their end, or until it is asked to stop."""
CLOSING_S = 1
"""How long clients may take to read the end of answers that were ended."""


def run(deployment: Deployment, settings: Settings, announce: Callable[[str], None]) -> None:
    """Serve a deployment until SIGINT or SIGTERM; ``announce`` is told the URL once it answers.

    Raises:
        ServiceError: it cannot start; the message says why, and nothing is left behind.
    """
    _refuse_open_door(deployment, settings.host)
    with bind(settings.host, settings.port) as listener:
        settings = settings.model_copy(update=dict(zip(("host", "port"), listener.getsockname(), strict=True)))
        try:
            asyncio.run(_serve(deployment, settings, listener, announce))
        except RuntimeFault as error:
            raise StartError(f"the engine cannot start: {error}") from error


def backup(deployment: Deployment, settings: Settings, file: Path) -> int:
    """Write a backup of what a service keeps, which may run; how many records.

    Raises:
        ServiceError: there is no database, or it cannot be read.
        OSError: the file cannot be written.
    """
    if not settings.database_url and not (settings.folder / SQLITE_FILE).exists():
        raise StartError(f"no service has kept anything in {settings.folder}; name its folder with --data-dir")
    database = connect(settings.folder, settings.database_url, settings.database_password())
    try:
        return write(database, settings.folder, deployment, file)
    finally:
        database.dispose()


def restore(deployment: Deployment, settings: Settings, file: Path) -> int:
    """Put a backup into an empty database, which no service uses; how many records.

    Raises:
        ServiceError: the file or the database is not what it has to be; nothing was written.
    """

    async def restored() -> int:
        async with owned_store(settings.model_copy(update={"wait": False}), deployment.retention) as store:
            return put_back(store, settings.folder, deployment, file)

    return asyncio.run(restored())


def _refuse_open_door(deployment: Deployment, host: str) -> None:
    """Refuse to listen to other machines without keys, and warn on this one."""
    is_open = not THIS_MACHINE.fullmatch(host)
    if deployment.auth.has_keys:
        if is_open:
            log.warning("keys come to %s in clear text: let others reach it by a proxy with TLS alone", host)
        return
    if is_open:
        raise StartError(
            f"{deployment.file} says `auth: none`: whoever reaches {host} could switch the service; listen on 127.0.0.1, "
            "or leave `auth: none` out"
        )
    log.warning("%s says `auth: none`: everybody on this machine may do everything, without a key", deployment.file)


async def _serve(
    deployment: Deployment, settings: Settings, listener: socket.socket, announce: Callable[[str], None]
) -> None:
    async with compose(deployment, settings) as parts:
        gc.freeze()  # what start-up made lives on: a full collection walking it would hold up every stream
        await ApiServer(parts, announce, settings.log_level).serve(sockets=[listener])
    if parts.store.lease is not None and parts.store.lease.lost_to:
        raise StartError(f"this service ended, as {parts.store.lease.lost_to} owns its database")


class ApiServer(uvicorn.Server):
    """Tells when it answers; asked to stop it lets what is under way end, for a while."""

    def __init__(self, parts: Composition, announce: Callable[[str], None], log_level: str) -> None:
        limits = parts.deployment.clients
        self.intake = Intake(cast("App", create_app(parts)), parts.access.gate, limits, parts.metrics)
        config = uvicorn.Config(
            cast("ASGI3Application", self.intake),
            http=cast("type[asyncio.Protocol]", partial(Connection, limits, parts.metrics)),
            ws="none",
            lifespan="off",  # there is nothing of it, and its end would be told where a start is interrupted
            h11_max_incomplete_event_size=MAX_HEAD_BYTES,
            log_level=log_level,
            log_config=None,
            access_log=False,
            proxy_headers=bool(parts.deployment.proxies),
            forwarded_allow_ips=list(parts.deployment.proxies),
            timeout_keep_alive=math.ceil(limits.keep_alive_s),
            timeout_graceful_shutdown=CLOSING_S + 1,
        )
        super().__init__(config)
        self._parts = parts
        self._announce = announce
        self._patience_s = limits.stop_timeout_s
        self._hurry = asyncio.Event()

    def stop(self) -> None:
        """Take no new requests and end when those under way have ended; asked again, end them now."""
        if self.should_exit:
            self._hurry.set()
        self.should_exit = True
        self.intake.stop(self._patience_s)

    def step_down(self) -> None:
        """Take nothing new, as another service owns the database; streams go on to their end."""
        if not self.should_exit:
            self._patience_s = STEPPING_DOWN_S
            self.should_exit = True
            self.intake.stop(self._patience_s, "the service has lost its database to another one")
            for serving in self._parts.servings.values():
                serving.give_up()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """SIGINT and SIGTERM ask to stop.

        Unlike uvicorn's, they are not raised again: the engine is to be closed.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        loop = asyncio.get_running_loop()
        numbers = (signal.SIGINT, signal.SIGTERM)
        before = {number: signal.getsignal(number) for number in numbers}
        for number in numbers:
            loop.add_signal_handler(number, self.stop)
        try:
            yield
        finally:
            for number, handler in before.items():
                loop.remove_signal_handler(number)
                signal.signal(number, handler)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start on bound sockets, then tell the URL of the first."""
        if self._parts.store.lease is not None:
            lose = partial(asyncio.get_running_loop().call_soon_threadsafe, self.step_down)
            self._parts.store.lease.on_loss.append(lose)
            if self._parts.store.lease.lost_to:
                self.step_down()
        await super().startup(sockets)
        for listener in (sockets or ())[:1]:
            host, port = listener.getsockname()[:2]
            self._announce(f"http://{host}:{port}")

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Let streams and switches end, then end what is left by name.

        Streams of events never end by themselves.
        """
        self.intake.stop(self._patience_s)
        await self._let_end()
        for serving in self._parts.servings.values():
            serving.router.end_streams(STOPPED)
        self._parts.events.close()
        asyncio.get_running_loop().call_later(CLOSING_S, self._leave_clients)
        await super().shutdown(sockets)

    async def _let_end(self) -> None:
        """Return when nothing is under way, when time is up, or when asked to stop again."""
        requests = self.intake.num_acting
        switches = sum(serving.operation is not None for serving in self._parts.servings.values())
        if not requests + switches:
            return
        log.warning(
            "stopping: %d requests and %d switches may end within %g s; ask again to end now",
            requests,
            switches,
            self._patience_s,
        )
        awaited = [asyncio.create_task(coroutine) for coroutine in (self._quiet(), self._hurry.wait())]
        await asyncio.wait(awaited, timeout=self._patience_s, return_when=asyncio.FIRST_COMPLETED)
        for task in awaited:
            task.cancel()
        await asyncio.gather(*awaited, return_exceptions=True)

    async def _quiet(self) -> None:
        await self.intake.quiet()
        for serving in self._parts.servings.values():
            await serving.settled()

    def _leave_clients(self) -> None:
        """Those that do not read the end of their answers, or have not sent the end of their requests."""
        for connection in list(self.server_state.connections):
            cast("Connection", connection).transport.abort()


def bind(host: str, port: int) -> socket.socket:
    """A bound socket, taken before anything slow starts."""
    # said to be TCP, or asyncio leaves Nagle's algorithm on: tokens would wait 40 ms for the client's acknowledgement
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except (OSError, OverflowError) as error:
        listener.close()
        reason = getattr(error, "strerror", None) or error
        raise StartError(f"cannot listen on {host}:{port}: {reason}; choose another with --port (0: any)") from error
    return listener
