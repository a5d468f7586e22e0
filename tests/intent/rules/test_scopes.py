from dataclasses import replace

import pytest

from intent.models import FromNowWindow
from intent.rules.draft import Draft
from intent.rules.kinds import EVERYONE, Kind
from intent.rules.scopes import tenant, window
from intent.rules.tokens import TextToken
from tests.rows import rows


@pytest.fixture
def draft(catalogue):
    return Draft("TTFT < 2s overnight for frei", catalogue)


OVERNIGHT = TextToken(Kind.WINDOW, "overnight", 10, 19)
FREI = TextToken(Kind.TENANT, None, 24, 28)


def test_no_window_is_always_and_is_assumed(draft):
    assert window(draft, None) == "always"
    assert [one.pointer for one in draft.assumptions] == ["/goals/0/window"]


@rows("said", ["always", "overnight", "month_end", FromNowWindow(60.0)])
def test_a_window_that_is_defined_is_meant(draft, said):
    assert window(draft, replace(OVERNIGHT, value=said)) == said
    assert not draft.assumptions
    assert not draft.questions


def test_a_window_that_the_deployment_does_not_define_is_asked_about(draft):
    draft.catalogue = replace(draft.catalogue, windows=("always", "peak", "month_end"))
    assert window(draft, OVERNIGHT) is None
    assert draft.findings[0].code == "unknown_window"
    assert "peak, month_end" in draft.findings[0].message
    nothing = draft.say("nothing")
    assert draft.questions[0].options == (nothing, "at all times", "at peak", "in window month_end")
    assert draft.questions[0].texts == (
        nothing,
        "TTFT < 2s at all times for frei",
        "TTFT < 2s at peak for frei",
        "TTFT < 2s in window month_end for frei",
    )


def test_a_deployment_without_windows_still_has_always(draft):
    draft.catalogue = replace(draft.catalogue, windows=())
    assert window(draft, OVERNIGHT) is None
    assert draft.questions[0].options[1] == "at all times"
    assert draft.questions[0].stands_for(1) == "TTFT < 2s at all times for frei"


@rows(("value", "name"), [("acme", "acme"), (EVERYONE, None)])
def test_a_tenant_is_known_by_name_and_everyone_is_none(draft, value, name):
    assert tenant(draft, replace(FREI, value=value)) == name
    assert tenant(draft, None) is None
    assert not draft.questions


def test_a_tenant_that_nobody_is_called_is_asked_about_and_the_nearest_is_offered_first(draft):
    assert tenant(draft, FREI) is False
    assert draft.findings[0].code == "unknown_tenant"
    assert "acme, free, paid" in draft.findings[0].message
    assert draft.questions[0].options[1] == "free"
    assert draft.questions[0].stands_for(1) == "TTFT < 2s overnight for free"
    assert draft.questions[0].default == draft.questions[0].texts[0] == draft.say("nothing")
    assert len(draft.questions[0].options) == 4


def test_a_deployment_without_tenants_names_none(draft):
    draft.catalogue = replace(draft.catalogue, tenants=())
    assert tenant(draft, FREI) is False
    assert len(draft.questions[0].options) >= 2
