"""A browser, and a console to look at."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from service import api
from tests.intentctl.console.place import console_over

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
    """Makes a console over a service that nobody had before, or of another kind."""
    with ExitStack() as stack:
        yield lambda *text, **scripted: console_over(stack, tmp_path, *text, **scripted)


@pytest.fixture(scope="session")
def switching_place(tmp_path_factory):
    with ExitStack() as stack:
        yield console_over(stack, tmp_path_factory.mktemp("service"))


@pytest.fixture
def place(switching_place):
    """One console for every test that switches: the service runs PP2 when the test begins."""
    if switching_place.admin(api.state.topology).topology.shape != "PP2":
        switching_place.switch("pp2")
    return switching_place


@pytest.fixture(scope="session")
def shared_place(tmp_path_factory):
    """One console for every test that changes nothing that others see."""
    with ExitStack() as stack:
        yield console_over(stack, tmp_path_factory.mktemp("service"))
