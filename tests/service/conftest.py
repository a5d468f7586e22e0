"""Databases for the tests of the store."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from service.store import Store
from tests.service.postgres import MISSING, PostgresServer, folder_of_binaries


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A PostgreSQL server that runs while the tests do."""
    if (binaries := folder_of_binaries()) is None:
        pytest.skip(MISSING)
    with PostgresServer(binaries) as server:
        yield server


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty database of each kind."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'intentctl.sqlite'}"
    server: PostgresServer = request.getfixturevalue("postgres")
    return server.new_database()


@pytest.fixture
def store(tmp_path: Path, database: str) -> Iterator[Store]:
    """An empty store on each kind of database."""
    store = Store.open(tmp_path, database)
    yield store
    store.close()
