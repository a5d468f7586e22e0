"""`intentctl devices` and `drain`: what there is, what is used, what is out, and what is being emptied."""

import pytest
from typer.testing import CliRunner

from intentctl.cli import app
from tests.rows import rows
from tests.service.scripted import served
from tests.service.test_drains import SET

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


def test_a_replica_is_shown_drained_listed_and_undrained(tmp_path):
    with served(tmp_path, SET) as (service, _):

        def typed(*arguments: str) -> str:
            done = CliRunner().invoke(app, [*arguments, "--server", service.url])
            assert done.exit_code == 0, done.output
            return done.output

        assert "counting/2  CPU[2,3]:0-8@fp32: serving, 0 running, 0 waiting, 0% taken" in typed("get")
        begun = typed("drain", "counting/2", "--by", "10m", "--why", "new fans")
        assert "devices 2, 3, by anybody since " in begun
        service.settle()
        listed = typed("drain")
        assert "counting/2  empty: safe to power off; devices 2, 3" in listed
        assert "why         new fans" in listed
        assert "counting/" not in typed("get")
        assert typed("undrain", "counting/2") == "undrained  counting/2\n"
        assert typed("drain") == ""
