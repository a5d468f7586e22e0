"""What a switch was good for."""

from dataclasses import replace

from service.deployment.policy import Rules
from service.promises.attainment import Tally
from service.promises.verdict import GoalComparison, judge
from tests.rows import rows

RULES = Rules(probation_requests=20, probation_s=60)
KEPT = GoalComparison("P99 TTFT <= 2 s", 0.99, before=Tally(10, 20), after=Tally(20, 20), measured=1.0, left=5.0)
MISSED = replace(KEPT, after=Tally(15, 20), measured=4.0)


WORSE = replace(MISSED, left=2.0)


@rows(
    ("said", "readings", "facts", "expected"),
    [
        ("goals that are kept", [KEPT], {}, "recovered"),
        ("at once", [KEPT], {"elapsed_s": 5}, "recovered"),
        ("it waits for requests", [replace(KEPT, after=Tally(10, 10))], {"elapsed_s": 5}, None),
        ("or for the end of probation", [replace(KEPT, after=Tally(10, 10))], {}, "recovered"),
        ("too few requests tell nothing", [replace(KEPT, after=Tally(4, 4))], {}, "unknown"),
        ("nor do none", [], {}, "unknown"),
        ("a goal that is still missed", [MISSED], {}, "not_recovered"),
        ("by a rescue too", [MISSED], {"cause": "rescue"}, "not_recovered"),
        ("slower than what was left is predicted to be", [WORSE], {}, "worse"),
        ("a load that nobody planned for is not the fault of the topology", [WORSE], {"load_by_planned": 1.5}, "not_recovered"),
        ("a rescue is held against what was measured before", [replace(MISSED, before=Tally(18, 20), left=None)],
          {"cause": "rescue"}, "worse"),
        ("not where what was left would be slower still", [replace(MISSED, before=Tally(18, 20))],
          {"cause": "rescue"}, "not_recovered"),
        ("within what chance explains", [replace(MISSED, before=Tally(16, 20))], {"cause": "rescue"}, "not_recovered"),
        ("what is worse need not wait for the end of probation", [replace(WORSE, after=Tally(2, 10))],
         {"elapsed_s": 3}, "worse"),
        ("nothing is worse while a queue shrinks", [WORSE], {"is_draining": True}, "not_recovered"),
        ("the way back is judged but never worse", [WORSE], {"cause": "roll_back"}, "not_recovered"),
    ],
    ids=str,
)  # fmt: skip
def test_a_switch_is_judged(
    said: str, readings: list[GoalComparison], facts: dict[str, object], expected: str | None
) -> None:
    found = judge(readings, **{"cause": "window", "elapsed_s": 61, "load_by_planned": 1.0, "rules": RULES} | facts)
    assert (found.verdict if found else None) == expected
