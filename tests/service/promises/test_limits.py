"""ActiveGoal limits on reconfiguration."""

from datetime import UTC, datetime

from intent.models import ReconfigRule
from service.promises.agenda import ActiveGoal
from service.promises.limits import barred
from tests.rows import rows

NOW = datetime(2026, 1, 5, 12, tzinfo=UTC)
NOW_S = NOW.timestamp()


FREEZE = ReconfigRule("forbid", "no changes")
TWO_AN_HOUR, ONE_A_DAY = (
    ReconfigRule("limit", "2 an hour", 2, "1/h"),
    ReconfigRule("limit", "once a day", 1, "1/day"),
)


@rows(
    ("rule", "ago_s", "said"),
    [
        (FREEZE, [], "a promise forbids switches ('no changes', intent-7)"),
        (TWO_AN_HOUR, [3601, 10], ""),
        (TWO_AN_HOUR, [3599, 10], "2 switches were made in the last hour, and 2 are"),
        (ONE_A_DAY, [86_401], ""),
        (ONE_A_DAY, [80_000], "1 switches were made in the last day, and 1 are"),
    ],
)
def test_a_limit_counts_what_was_switched_in_its_time_and_says_whose_it_is(
    rule: ReconfigRule, ago_s: list[float], said: str
) -> None:
    found = barred([ActiveGoal("intent-7", rule, NOW)], [NOW_S - one for one in ago_s], NOW)
    assert found.startswith(said)
    assert bool(found) is bool(said)
