"""A command line to type at, and services over a scripted engine to type for."""

import io
import sys
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from openai import AsyncOpenAI, DefaultAsyncHttpxClient

from intentctl import cli
from intentctl.client import Client
from intentctl.commands import follow
from service import api
from service.documents.plans import PlanRequest
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
def typed(monkeypatch):
    """Bytes on standard input."""
    return lambda data: monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data)))


@pytest.fixture
def new_service(tmp_path):
    """Starts a service for a test that needs one nobody had before, or of another kind."""
    with ExitStack() as stack:
        yield lambda *kind, **scripted: stack.enter_context(ScriptedService(tmp_path, *kind, **scripted))


@pytest.fixture(scope="session")
def shared(tmp_path_factory) -> Iterator[ScriptedService]:
    """One service for every test that changes nothing."""
    with ScriptedService(tmp_path_factory.mktemp("service")) as running:
        yield running


@pytest.fixture(scope="session")
def switching(tmp_path_factory) -> Iterator[ScriptedService]:
    with ScriptedService(tmp_path_factory.mktemp("service")) as running:
        yield running


@pytest.fixture
def service(switching):
    """One service for every test that switches: it runs PP2 when the test begins."""
    client = Client(switching.url)
    if client(api.state.topology).topology.shape != "PP2":
        back = client(api.plans.apply, client(api.plans.make_plan, PlanRequest(target="pp2")).plan.id)
        assert [*follow(client, back.id, timeout_s=30)][-1].result.phase == "done"
    return switching


@pytest.fixture
def at(service):
    return ("--server", service.url)


@pytest.fixture
def there(shared):
    """Where nothing is changed."""
    return ("--server", shared.url)


@pytest.fixture(params=["service", "deployment"])
def place(request, shared):
    """Who answers: a service, or a deployment file in this process."""
    if request.param == "service":
        return ("--server", shared.url)
    return ("--deployment", shared.deployment_file)


@pytest.fixture
def deployment(tmp_path):
    return ("--deployment", write_deployment(tmp_path))


@pytest.fixture
def openai_at():
    """Makes the OpenAI client of a service."""
    return lambda url, key="none": AsyncOpenAI(
        base_url=f"{url}/openai/v1", api_key=key, http_client=DefaultAsyncHttpxClient(trust_env=False)
    )
