"""`intentctl console` by hand."""

import signal
import socket
import subprocess
import sys

import httpx
import pytest

from intentctl.console.command import _names
from intentctl.credentials import is_loopback
from tests.rows import rows


def test_a_port_that_is_taken_is_named(run):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        code, out, err = run("console", "--port", taken.getsockname()[1])
    assert (code, out) == (1, "")
    assert "cannot listen on 127.0.0.1 port" in err


@rows("server", ["nowhere", "ftp://x", ""])
def test_an_address_that_is_none_is_refused(run, server):
    code, _, err = run("console", "--server", server)
    assert code == 1
    assert "is no http:// or https:// address" in err


def test_a_proxy_that_is_none_is_refused(run):
    code, _, err = run("console", "--proxy", "gateway")
    assert (code, "--proxy" in err, "gateway" in err) == (2, True, True)


def test_by_which_names_it_may_be_called():
    assert _names(None, is_local=True) == ["localhost", "127.0.0.1", "[::1]"]
    assert _names(["ops.example"], is_local=False)[0] == "ops.example"
    assert _names(None, is_local=False) == ["*"]


@rows(
    ("host", "is_local"),
    [("127.0.0.1", True), ("localhost", True), ("::1", True), ("0.0.0.0", False), ("ops", False)],
)
def test_what_is_reached_from_this_machine_alone(host, is_local):
    assert is_loopback(host) is is_local


@pytest.mark.slow
def test_the_command_says_where_it_serves_and_ends_when_it_is_told(shared):
    command = [sys.executable, "-m", "intentctl", "console", "--server", shared.url, "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        url = process.stdout.readline().strip()
        assert "Overview" in httpx.get(url).text
        process.send_signal(signal.SIGTERM)
    assert process.returncode in {0, -signal.SIGTERM}
