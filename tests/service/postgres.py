"""A PostgreSQL server of the tests' own, on a socket in a folder of its own."""

import os
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path
from typing import Self

import psycopg

MISSING = "no PostgreSQL server on this machine; install one (apt-get install postgresql)"


def folder_of_binaries() -> Path | None:
    """Where ``initdb`` is: on the path, or where Debian puts it."""
    if found := shutil.which("initdb"):
        return Path(found).resolve().parent
    return max(Path("/usr/lib/postgresql").glob("*/bin/"), default=None)


class PostgresServer:
    """A server, started and stopped at will. Use as a context manager."""

    def __init__(self, binaries: Path) -> None:
        self._binaries = binaries
        self._folder = Path(tempfile.mkdtemp(prefix="intentctl-postgres-"))  # short: it holds a socket
        self._user = None if os.geteuid() else "nobody"  # the server refuses to run as root
        self._num_databases = 0

    def __enter__(self) -> Self:
        if self._user:
            shutil.chown(self._folder, self._user)
        options = ("--username=postgres", "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync")
        self._run("initdb", "--pgdata", self._data, *options)
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        shutil.rmtree(self._folder)

    @property
    def _data(self) -> Path:
        return self._folder / "data"

    def start(self) -> None:
        """Return when it takes connections; nothing where it runs."""
        if not (self._data / "postmaster.pid").exists():
            log = self._folder / "log"
            options = f"-F -k {self._folder} -c listen_addresses="
            self._run("pg_ctl", "start", "--wait", "--pgdata", self._data, "--log", log, "--options", options)

    def stop(self) -> None:
        """End it as a crash would; nothing where it does not run."""
        if (self._data / "postmaster.pid").exists():
            self._run("pg_ctl", "stop", "--wait", "--pgdata", self._data, "--mode", "immediate")

    def stop_commits(self, is_so: bool = True) -> None:
        """Have every commit wait for a standby that is not there, or for none."""
        name = "gone" if is_so else ""
        with psycopg.connect(host=str(self._folder), user="postgres", autocommit=True) as connection:
            connection.execute(f"ALTER SYSTEM SET synchronous_standby_names = '{name}'".encode())
            connection.execute("SELECT pg_reload_conf()")

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to each process of the server, as SIGSTOP, which has them answer nothing."""
        first = (self._data / "postmaster.pid").read_text().split()[0]
        others = Path(f"/proc/{first}/task/{first}/children").read_text().split()
        for process in (first, *others):
            os.kill(int(process), number)

    def new_database(self) -> str:
        """The URL of an empty database."""
        self._num_databases += 1
        name = f"test_{self._num_databases}"
        with psycopg.connect(host=str(self._folder), user="postgres", autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}".encode())
        return f"postgresql://postgres@/{name}?host={self._folder}"

    def _run(self, program: str, *arguments: object) -> None:
        command = [str(self._binaries / program), *map(str, arguments)]
        done = subprocess.run(
            command,
            user=self._user,
            cwd=self._folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{program}: {done.stderr}"
