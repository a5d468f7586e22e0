"""The service as a process: bind, start the parts, serve until told to stop."""

import asyncio
import gc
import logging
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import uvicorn

from runtime.errors import RuntimeFault
from service.app import create_app
from service.composition import Composition, compose
from service.deployment import Deployment, load
from service.errors import StartError
from service.settings import Settings


def run(deployment_file: Path, settings: Settings, announce: Callable[[str], None]) -> None:
    """Serve a deployment until SIGINT or SIGTERM; ``announce`` is told the URL once it answers.

    Raises:
        ServiceError: it cannot start; the message says why, and nothing is left behind.
    """
    logging.basicConfig(level=settings.log_level.upper(), format="%(levelname)s %(name)s: %(message)s")
    deployment = load(deployment_file)
    with bind(settings.host, settings.port) as listener:
        settings = settings.model_copy(update={"port": listener.getsockname()[1]})
        try:
            asyncio.run(_serve(deployment, settings, listener, announce))
        except RuntimeFault as error:
            raise StartError(f"the engine cannot start: {error}") from error


async def _serve(
    deployment: Deployment, settings: Settings, listener: socket.socket, announce: Callable[[str], None]
) -> None:
    async with compose(deployment, settings) as parts:
        gc.freeze()  # what start-up made lives on: a full collection walking it would hold up every stream
        await Server(parts, announce, settings.log_level).serve(sockets=[listener])


class Server(uvicorn.Server):
    """Tells when it answers, and ends the streams of events before it waits for its connections."""

    def __init__(self, parts: Composition, announce: Callable[[str], None], log_level: str) -> None:
        app = create_app(parts)
        super().__init__(
            uvicorn.Config(app, log_level=log_level, access_log=False, timeout_graceful_shutdown=2)
        )
        self._parts, self._announce = parts, announce

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """SIGINT and SIGTERM ask to stop; unlike uvicorn's, they are not raised again: the engine is to be closed."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {
            number: signal.signal(number, self.handle_exit) for number in (signal.SIGINT, signal.SIGTERM)
        }
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start on bound sockets, then tell the URL of the first."""
        await super().startup(sockets)
        for listener in (sockets or ())[:1]:
            host, port = listener.getsockname()[:2]
            self._announce(f"http://{host}:{port}")

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End the streams of events, which would never end by themselves, and those of tokens, then the rest."""
        self._parts.events.close()
        for serving in self._parts.servings.values():
            serving.router.end_streams("the service is stopping; send the request again")
        await super().shutdown(sockets)


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
        raise StartError(
            f"cannot listen on {host}:{port}: {reason}; choose another with --port (0: any)"
        ) from error
    return listener
