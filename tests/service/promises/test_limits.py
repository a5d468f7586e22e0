"""Promised limits on reconfiguration."""

from datetime import UTC, datetime

from intent.models import ReconfigRule
from service.promises.agenda import Promised
from service.promises.limits import barred

NOW = datetime(2026, 1, 5, 12, tzinfo=UTC)
NOW_S = NOW.timestamp()


def promised(goal: ReconfigRule) -> list[Promised]:
    return [Promised("intent-7", goal, NOW)]


def test_a_freeze_forbids_every_switch_and_says_whose_it_is() -> None:
    why = barred(promised(ReconfigRule("forbid", "no changes")), [], NOW)
    assert why == "a promise forbids switches ('no changes', intent-7)"


def test_so_many_an_hour_counts_those_of_the_last_hour() -> None:
    limit = promised(ReconfigRule("limit", "2 an hour", 2, "1/h"))
    assert barred(limit, [NOW_S - 3601, NOW_S - 10], NOW) == ""
    assert barred(limit, [NOW_S - 3599, NOW_S - 10], NOW).startswith(
        "2 switches were made in the last hour, and 2 are"
    )


def test_so_many_a_day_counts_those_of_the_last_day() -> None:
    limit = promised(ReconfigRule("limit", "once a day", 1, "1/day"))
    assert barred(limit, [NOW_S - 86_401], NOW) == ""
    assert "in the last day" in barred(limit, [NOW_S - 80_000], NOW)
