"""A browser, and a console to look at."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.service.scripted import ScriptedService

CHROMIUM = Path("/usr/bin/chromium")


@pytest.fixture(scope="module")
def browser() -> Iterator[object]:
    """Debian's Chromium."""
    if not CHROMIUM.exists():
        pytest.skip("Chromium is not installed: apt-get install chromium fonts-noto-cjk")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=str(CHROMIUM), args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture
def new_place(tmp_path):
    """Makes a console over a service of its own."""
    from contextlib import ExitStack

    from tests.intentctl.console.place import KEYS, ConsoleServer, Place

    with ExitStack() as stack:

        def make(text: str = KEYS, **scripted: object) -> Place:
            service = stack.enter_context(ScriptedService(tmp_path, text, **scripted))
            return Place(service, stack.enter_context(ConsoleServer(service.url)))

        yield make


@pytest.fixture
def place(new_place):
    """A console over a service of its own."""
    return new_place()


@pytest.fixture(scope="module")
def shared_place(tmp_path_factory):
    """One console for every test that changes nothing that others see."""
    from tests.intentctl.console.place import KEYS, ConsoleServer, Place

    with (
        ScriptedService(tmp_path_factory.mktemp("service"), KEYS) as service,
        ConsoleServer(service.url) as console,
    ):
        yield Place(service, console)
