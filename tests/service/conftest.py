"""Databases for the tests of the store, and services that tests share."""

import itertools
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import httpx
import pytest

from service.store.store import Store
from tests.service.postgres import MISSING, PostgresServer, folder_of_binaries
from tests.service.scripted import KEYS, ScriptedService, open_store


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A PostgreSQL server that runs while the tests do."""
    if (binaries := folder_of_binaries()) is None:
        pytest.skip(MISSING)
    with PostgresServer(binaries) as server:
        yield server


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.exhaustive)])
def new_database(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], str]:
    """Makes empty databases of each kind, and tells their URL."""
    if request.param == "sqlite":
        numbers = itertools.count()
        return lambda: f"sqlite:///{tmp_path / f'{next(numbers)}.sqlite'}"
    server: PostgresServer = request.getfixturevalue("postgres")
    return server.new_database


@pytest.fixture
def database(new_database: Callable[[], str]) -> str:
    """The URL of an empty database of each kind."""
    return new_database()


@pytest.fixture
def new_store(tmp_path: Path, new_database: Callable[[], str]) -> Iterator[Callable[[], Store]]:
    """Opens empty stores on each kind of database; the tables of files are copied."""
    with ExitStack() as stack:
        yield lambda: stack.enter_context(closing(open_store(tmp_path, new_database())))


@pytest.fixture
def store(new_store: Callable[[], Store]) -> Store:
    """An empty store on each kind of database."""
    return new_store()


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ScriptedService]:
    """A service for all tests that switch nothing and count nothing."""
    with ScriptedService(tmp_path_factory.mktemp("shared")) as running:
        yield running


@pytest.fixture(scope="session")
def asked(shared: ScriptedService) -> Iterator[httpx.Client]:
    """A client of the shared service."""
    with shared.client() as client:
        yield client


@pytest.fixture(scope="session")
def keyed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ScriptedService]:
    """A service that asks for keys, for all tests that count what they add alone; some of them switch."""
    with ScriptedService(tmp_path_factory.mktemp("keyed"), KEYS) as running:
        yield running


@pytest.fixture(scope="session")
def admin(keyed: ScriptedService) -> Iterator[httpx.Client]:
    """An administrator of the service that asks for keys."""
    with keyed.client(keyed.admin_key) as client:
        yield client


@pytest.fixture
def service(tmp_path: Path) -> Iterator[ScriptedService]:
    """A service of one test, which may break it."""
    with ScriptedService(tmp_path) as running:
        yield running


@pytest.fixture
def http(service: ScriptedService) -> Iterator[httpx.Client]:
    """A client of the service of one test."""
    with service.client() as client:
        yield client
