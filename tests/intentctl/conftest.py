"""A command line to type at, and services over a scripted engine to type for."""

import sys

import pytest

from intentctl import cli
from tests.service.scripted import ScriptedService, write_deployment


@pytest.fixture
def run(monkeypatch, capsys):
    """Exit code, stdout and stderr of a command line; one that fails never shows a traceback."""

    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["intentctl", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        out, err = capsys.readouterr()
        assert "Traceback" not in err
        return int(ended.value.code or 0), out, err

    return run


@pytest.fixture
def service(tmp_path):
    with ScriptedService(tmp_path) as running:
        yield running


@pytest.fixture
def at(service):
    return ("--server", service.url)


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """One service for every test that changes nothing."""
    with ScriptedService(tmp_path_factory.mktemp("service")) as running:
        yield running


@pytest.fixture
def deployment(tmp_path):
    return ("--deployment", write_deployment(tmp_path))
