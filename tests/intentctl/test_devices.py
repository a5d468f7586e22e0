"""`intentctl devices`: what there is, what is used, and what is out."""

import pytest
from typer.testing import CliRunner

from intentctl.cli import app
from tests.rows import rows
from tests.service.scripted import served

pytestmark = pytest.mark.slow


def run(url: str, *arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["devices", *arguments, "--server", url])
    return done.exit_code, done.output


def test_devices_are_listed_taken_out_and_in_again(tmp_path):
    with served(tmp_path) as (service, _):
        code, listed = run(service.url)
        assert code == 0
        assert "device 0  CPU of local, counting; used" in listed
        assert "device 3  CPU of local, counting; free" in listed
        _, said = run(service.url, "out", "0", "--why", "new fans")
        assert "device 0  CPU of local, counting; out, by anybody: new fans, still used" in said
        assert "counting runs on it until it is switched" in said
        assert "new fans" in run(service.url)[1]
        assert run(service.url, "in", "0")[1].strip() == "device 0  CPU of local, counting; used"
        code, said = run(service.url, "out", "7")
        assert code != 0


@rows("arguments", [["out"], ["3"], ["in", "3", "--why", "x"], ["--why", "x"]])
def test_what_is_no_order_is_refused_before_anybody_is_asked(arguments):
    code, said = run("http://127.0.0.1:1", *arguments)
    assert code == 2, said
