import itertools
from dataclasses import replace
from pathlib import Path

from service.access.keys import Key, KeyFault, Keyring, digest_of, new_secret, redacted
from service.documents.access import RIGHTS, Right, Role, roles_with
from tests.rows import rows


def made(**facts: object) -> tuple[str, Key]:
    whole, prefix = new_secret()
    return whole, replace(Key(prefix, digest_of(whole), "ada", "ada", Role.VIEWER, None, 1.0, "test"), **facts)


def test_a_key_is_found_by_the_whole_of_it_alone():
    whole, key = made()
    ring = Keyring([key, made()[1]])
    assert ring.find(whole, 2.0) is key
    other_end = "A" if whole[-1] != "A" else "B"
    wrong = [
        whole[:-1] + other_end,
        whole[:-1],
        whole + "A",
        whole.upper(),
        f" {whole}",
        "",
        "ictl_",
        made()[0],
    ]
    assert {ring.find(one, 2.0) for one in wrong} == {KeyFault.UNKNOWN}
    assert (ring.opens(key.prefix, 2.0), ring.opens("nobody-s", 2.0)) == (True, False)
    ring.put([replace(key, revoked_s=2.0)])
    assert ring.find(whole, 2.0) is KeyFault.REVOKED
    assert not ring.opens(key.prefix, 2.0)


@rows(
    ("facts", "now_s", "wrong"),
    [
        ({"expires_s": 5.0}, 4.9, None),
        ({"expires_s": 5.0}, 5.0, KeyFault.EXPIRED),
        ({"revoked_s": 3.0}, 9.0, KeyFault.REVOKED),
        ({"revoked_s": 3.0, "expires_s": 2.0}, 9.0, KeyFault.REVOKED),
    ],
)
def test_a_key_opens_nothing_when_it_is_revoked_or_over(facts, now_s, wrong):
    whole, key = made(**facts)
    assert Keyring([key]).find(whole, now_s) == (wrong or key)


def test_secrets_differ_and_are_long():
    wholes = {new_secret()[0] for _ in range(200)}
    assert len(wholes) == 200
    assert {len(whole) for whole in wholes} == {5 + 8 + 1 + 43}


def test_a_text_is_shown_without_the_secrets_in_it():
    whole, key = made()
    assert redacted(f"use {whole}, it is mine") == f"use ictl_{key.prefix}_…, it is mine"
    assert redacted("no key here") == "no key here"


def test_every_role_has_rights_and_more_of_them_upwards():
    assert set(RIGHTS) == set(Role)
    upward = [RIGHTS[role] for role in (Role.VIEWER, Role.OPERATOR, Role.APPROVER, Role.ADMIN)]
    assert all(lower < upper for lower, upper in itertools.pairwise(upward))
    assert upward[-1] == frozenset(Right)
    assert RIGHTS[Role.TENANT] == RIGHTS[Role.GATEWAY] == {Right.INFER}
    assert RIGHTS[Role.METRICS] == {Right.METRICS}
    assert roles_with(Right.APPROVE) == (Role.APPROVER, Role.ADMIN)


def test_the_table_of_the_docs_is_the_table_of_the_code():
    page = (Path(__file__).parents[3] / "docs" / "access.md").read_text(encoding="utf-8")
    for role, rights in RIGHTS.items():
        said = ", ".join(right for right in Right if right in rights)
        assert f"| `{role}` | {said} |" in page
