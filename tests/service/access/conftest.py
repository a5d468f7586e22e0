"""People of the service that asks for keys."""

from collections.abc import Iterator

import httpx
import pytest

from tests.service.scripted import ScriptedService


@pytest.fixture(scope="session")
def ada(keyed: ScriptedService) -> Iterator[httpx.Client]:
    """An operator."""
    with keyed.person("operator", "ada") as client:
        yield client


@pytest.fixture(scope="session")
def grace(keyed: ScriptedService) -> Iterator[httpx.Client]:
    """An approver."""
    with keyed.person("approver", "grace") as client:
        yield client
