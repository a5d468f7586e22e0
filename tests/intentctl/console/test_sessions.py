"""Who is signed in."""

from dataclasses import dataclass
from types import SimpleNamespace

import pytest

from intentctl.console.sessions import IDLE_S, LASTS_S, MOST, Sessions
from service.documents.access import RIGHTS, MeDocument, Role

ADA = MeDocument(
    name="ada",
    role=Role.APPROVER,
    key="k",
    rights=tuple(RIGHTS[Role.APPROVER]),
    timezone="UTC",
    now_s=0,
    version="1",
)


@dataclass
class Clock:
    now_s: float = 1000.0

    def __call__(self):
        return self.now_s


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def sessions(clock):
    return Sessions(lambda key: SimpleNamespace(key=key), clock)


def signed_in(sessions, key="key"):
    return sessions.open(ADA, sessions.upstream(key))


def test_a_cookie_is_random_finds_its_session_and_is_kept_by_no_secret(sessions):
    one, two = signed_in(sessions), signed_in(sessions)
    assert one != two
    assert len(one) >= 40
    assert sessions.of(one).me is ADA
    assert sessions.of(one).token != sessions.of(two).token
    assert sessions.of("") is None
    assert sessions.of(one[:-1]) is None
    cookie = signed_in(sessions, "the-key")
    kept = [*vars(sessions)["_sessions"], *vars(sessions)["_upstreams"]]
    assert cookie not in kept
    assert "the-key" not in kept


def test_browsers_with_the_same_key_share_what_was_said_and_each_has_its_token(sessions):
    one, two, other = signed_in(sessions, "a"), signed_in(sessions, "a"), signed_in(sessions, "b")
    assert sessions.of(one).upstream is sessions.of(two).upstream
    assert sessions.of(one).upstream is not sessions.of(other).upstream
    session = sessions.of(signed_in(sessions))
    assert session.has_token(session.token)
    for wrong in ("", session.token[:-1], "ü", "\udc80"):
        assert not session.has_token(wrong)


def test_a_session_ends_by_signing_out_or_when_nobody_was_there_for_long(sessions, clock):
    cookie = signed_in(sessions)
    clock.now_s += IDLE_S - 1
    assert sessions.of(cookie)
    clock.now_s += LASTS_S - IDLE_S - 1
    assert sessions.of(cookie)
    clock.now_s += IDLE_S + 1
    assert sessions.of(cookie) is None
    cookie = signed_in(sessions)
    for _ in range(13):
        clock.now_s += 3600
        seen = sessions.of(cookie, is_click=False)
    assert seen is None, "what a page asks for by itself is no click"
    cookie = signed_in(sessions)
    for _ in range(24):
        assert sessions.of(cookie)
        clock.now_s += 3601
    assert sessions.of(cookie) is None, "a day after signing in it ends, clicks or not"
    cookie = signed_in(sessions)
    sessions.close(cookie)
    assert sessions.of(cookie) is None
    assert not vars(sessions)["_upstreams"]


def test_there_are_only_so_many(sessions, clock):
    first = signed_in(sessions)
    for _ in range(MOST):
        clock.now_s += 0.001
        signed_in(sessions)
    assert sessions.of(first) is None
    assert len(vars(sessions)["_sessions"]) == MOST
