"""`intentctl keys`, `audit`, `approve` and `reject` against a service that asks for keys."""

import itertools
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from intentctl.credentials import key_for, served_here
from intentctl.status import CommandError
from service.store.lock import take_lock
from tests.rows import rows
from tests.service.scripted import DEPLOYMENT, ScriptedService

pytestmark = pytest.mark.slow

NUMBERS = itertools.count()


@pytest.fixture(scope="module")
def service(tmp_path_factory) -> Iterator[ScriptedService]:
    folder = tmp_path_factory.mktemp("service")
    with ScriptedService(folder, DEPLOYMENT.replace("auth: none", "tenants: [{name: gold}]")) as running:
        yield running


@pytest.fixture
def admin(service) -> Path:
    return service.deployment_file.parent / "admin.key"


@pytest.fixture
def ask(run, service):
    """The command line with somebody's key."""

    def asked(key: Path, *arguments: str) -> tuple[int, str, str]:
        return run("--server", service.url, "--key-file", key, *arguments)

    return asked


@pytest.fixture
def key(ask, admin, tmp_path):
    """Makes a key of a role, in a file."""

    def made(role: str, *more: str) -> Path:
        who = ("--person", f"the {role}", "--role", role)
        code, out, err = ask(admin, "keys", "create", f"{role}-{next(NUMBERS)}", *who, *more)
        assert code == 0, err
        file = tmp_path / role
        file.write_text(out)
        return file

    return made


def test_keys_are_made_listed_and_revoked(ask, admin, key):
    viewer = key("viewer", "--days", "2")
    prefix = viewer.read_text().split("_")[1]
    assert ask(viewer, "get")[0] == 0
    code, out, _ = ask(admin, "keys", "list")
    assert (
        code,
        " of the viewer, viewer; made" in out and prefix in out,
        "by this machine; until" in " ".join(out.split()),
    ) == (0, True, True)
    assert ask(admin, "keys", "revoke", prefix)[0] == 0
    code, _, err = ask(viewer, "get")
    assert (code, "was revoked" in err) == (9, True)


def test_whoever_asks_is_told_who_they_are_and_without_a_right_who_may(ask, key, run, service):
    code, out, _ = ask(key("operator"), "whoami")
    said = " ".join(out.split())
    assert (code, "the operator, operator, key" in said, "look, metrics, say, apply, infer" in said) == (
        0,
        True,
        True,
    )
    code, out, _ = ask(key("viewer"), "whoami", "-o", "json")
    assert (code, json.loads(out)["rights"]) == (0, ["look", "metrics"])
    code, _, err = ask(key("tenant", "--tenant", "gold"), "whoami")
    assert (code, "viewer" in err) == (9, True)
    code, _, err = ask(key("operator"), "keys", "list")
    assert (code, "a key of these roles may: admin" in err) == (9, True)
    code, _, err = run("get", "--server", service.url)
    assert (code, "--key-file FILE" in err) == (9, True)


@rows(
    ("arguments", "said"),
    [
        (("keys", "create", "x", "--role", "king"), "king"),
        (("keys", "create", "x/y", "--role", "viewer"), "is no name"),
        (("audit", "list", "--limit", "0"), "limit"),
    ],
)
def test_what_cannot_be_is_refused_before_anybody_is_asked(ask, admin, arguments, said):
    code, _, err = ask(admin, *arguments)
    assert (code, said in err) == (2, True)


def test_a_tenant_that_is_not_there_is_refused(ask, admin):
    code, _, err = ask(admin, "keys", "create", "x", "--role", "tenant", "--tenant", "lead")
    assert (code, "there are gold" in err) == (1, True)
    code, _, err = ask(admin, "keys", "create", "x", "--role", "tenant")
    assert (code, "a tenant is named for the role tenant" in err) == (1, True)


def test_the_audit_is_listed_and_verified_against_a_head(ask, admin):
    head = ask(admin, "audit", "head")[1].strip()
    ask(admin, "keys", "create", "later", "--role", "viewer", "--days", "1")
    code, out, err = ask(admin, "audit", "list", "--limit", "1")
    assert (code, "key.create" in out, "audit list --before" in err) == (0, True, True)
    assert re.search(r"role viewer; expires \d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ$", " ".join(out.split()))
    assert ask(admin, "audit", "verify", "--head", head)[0] == 0
    seq = head.partition(":")[0]
    code, out, err = ask(admin, "audit", "verify", "--head", f"{seq}:{'0' * 64}")
    assert (code, f"entry {seq}" in out, "1 flaw" in err) == (1, True, True)


def plan(ask, key: Path, text: str) -> dict[str, str]:
    found: dict[str, str] = json.loads(ask(key, "plan", text, "-o", "json")[1])["plan"]
    return found


def test_a_plan_is_approved_by_one_and_applied_by_another(ask, key):
    operator, approver = key("operator"), key("approver")
    made = plan(ask, operator, "run it with tp=2")
    code, _, err = ask(operator, "apply", made["id"], "--yes")
    assert (code, f"intentctl approve {made['id']}" in err) == (6, True)
    for refused in (("approve", made["id"]), ("approve", made["id"], "--yes")):
        code, out, err = ask(operator, *refused)
        why = "has the role operator and may not approve; a key of these roles may: approver, admin"
        assert (code, out, why in err, "certificate" in err) == (9, "", True, False)
    code, _, err = ask(key("viewer"), "apply", made["id"])
    assert (code, "may not apply; a key of these roles may: operator" in err) == (9, True)
    code, _, err = ask(approver, "approve", made["id"])
    assert (code, "was not approved: nobody can be asked" in err) == (6, True)
    code, out, _ = ask(approver, "approve", made["id"], "--yes", "--minutes", "5", "--note", "go")
    assert (code, "approved by the approver until" in " ".join(out.split())) == (0, True)
    code, _, err = ask(approver, "approve", made["id"])
    assert (code, f"{made['id']} was approved by the approver" in err, "certificate" in err) == (1, True, False)
    assert ask(operator, "apply", made["id"], "--yes")[0] == 0


def test_a_plan_that_was_rejected_stays_so(ask, key):
    approver = key("approver")
    made = plan(ask, approver, "run it with tp=4")
    assert ask(approver, "reject", made["id"], "--note", "not today")[0] == 0
    code, _, err = ask(approver, "apply", made["id"], "--yes")
    assert (code, "rejected by the approver: not today" in err) == (6, True)


def test_the_key_of_this_machine_goes_to_the_service_over_its_folder_alone(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("INTENTCTL_DATA_DIR", str(tmp_path))
    here = "http://127.0.0.1:8642"
    assert key_for(here, None) is None
    (tmp_path / "admin.key").write_text("ictl_mine\n")
    assert key_for(here, None) is None, "nobody serves here: whoever listens is somebody else"
    with take_lock(tmp_path, f"{here}/openai/v1"):
        assert key_for(here, None) == key_for(f"{here}/", None) == "ictl_mine"
        wrong = (
            "http://127.0.0.1:1",
            "http://127.0.0.1:864",
            "http://localhost:8642",
            "http://[::1]:8642",
            "http://a.b",
        )
        assert {key_for(url, None) for url in wrong} == {None}
        assert served_here() == here
    assert key_for(here, None) is None
    assert capsys.readouterr().err == ""


def test_whoever_names_this_machine_otherwise_is_told_the_name_that_its_key_goes_to(run, service, monkeypatch):
    folder = service.deployment_file.parent
    monkeypatch.setenv("INTENTCTL_DATA_DIR", str(folder))
    with take_lock(folder, f"{service.url}/openai/v1"):
        code, _, err = run("get", "--server", service.url.replace("127.0.0.1", "localhost"))
    assert code == 9
    assert f"; admin.key of this machine goes to --server {service.url} alone, by that name" in err


def test_a_key_goes_to_the_server_that_it_is_for_and_in_clear_text_not_without_a_word(tmp_path, monkeypatch, capsys):
    (tmp_path / "file").write_text("ictl_file")
    assert key_for("http://example.org:1", tmp_path / "file") == "ictl_file"
    assert "keys go to http://example.org:1 in clear text; use https://" in capsys.readouterr().err
    monkeypatch.setenv("INTENTCTL_KEY", "ictl_other")
    with pytest.raises(
        CommandError, match=r"INTENTCTL_KEY is for http://127.0.0.1:8642, and is not sent to https://a\.b"
    ):
        key_for("https://a.b", None)
    monkeypatch.setenv("INTENTCTL_SERVER", "https://a.b/")
    assert key_for("https://a.b", None) == "ictl_other"
    assert capsys.readouterr().err == ""


@rows(("text", "said"), [("", "has no key"), ("a b", "more than one")])
def test_a_file_without_one_key_is_named(tmp_path, text, said):
    (tmp_path / "file").write_text(text)
    with pytest.raises(CommandError, match=said):
        key_for("http://127.0.0.1:1", tmp_path / "file")
