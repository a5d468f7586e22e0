"""The process that serves the console: tells when it answers, and lets browsers go when it ends."""

import asyncio
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import cast

import uvicorn
from starlette.applications import Starlette

from intentctl.console.sessions import Sessions

THREADS = 32
"""Calls of the service that may be under way at once: a slow one holds up nobody else."""


class WebServer(uvicorn.Server):
    """Serves until it is told to stop."""

    def __init__(self, app: Starlette, announce: Callable[[], None], log_level: str = "warning") -> None:
        """``announce`` is called once it answers."""
        config = uvicorn.Config(
            app,
            log_level=log_level,
            access_log=False,
            server_header=False,
            proxy_headers=bool(app.state.proxies),
            forwarded_allow_ips=app.state.proxies,
            timeout_keep_alive=60,  # longer than between two looks
            timeout_graceful_shutdown=2,
        )
        super().__init__(config)
        self._announce, self._sessions = announce, cast("Sessions", app.state.sessions)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to answer."""
        pool = ThreadPoolExecutor(THREADS, thread_name_prefix="service")
        asyncio.get_running_loop().set_default_executor(pool)
        await super().startup(sockets)
        self._announce()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End what is told to browsers, then the rest."""
        self._sessions.end()
        await super().shutdown(sockets)
