"""The service as a process: bind, start the parts, serve until told to stop."""

import asyncio
import gc
import logging
import socket
from collections.abc import Callable
from pathlib import Path

import uvicorn

from runtime.errors import RuntimeFault
from service.app import create_app
from service.composition import compose
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
        try:
            asyncio.run(_serve(deployment, settings, listener, announce))
        except RuntimeFault as error:
            raise StartError(f"the engine cannot start: {error}") from error


async def _serve(
    deployment: Deployment, settings: Settings, listener: socket.socket, announce: Callable[[str], None]
) -> None:
    host, port = listener.getsockname()[:2]
    async with compose(deployment, settings) as parts:
        gc.freeze()  # what start-up made lives on: a full collection walking it would hold up every stream
        config = uvicorn.Config(
            create_app(parts), log_level=settings.log_level, access_log=False, timeout_graceful_shutdown=2
        )
        await AnnouncedServer(config, lambda: announce(f"http://{host}:{port}")).serve(sockets=[listener])


class AnnouncedServer(uvicorn.Server):
    """Tells when it answers."""

    def __init__(self, config: uvicorn.Config, on_started: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_started = on_started

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, then tell."""
        await super().startup(sockets)
        self._on_started()


def bind(host: str, port: int) -> socket.socket:
    """A bound socket, taken before anything slow starts."""
    listener = socket.socket()
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
