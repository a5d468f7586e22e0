from hypothesis import given
from hypothesis import strategies as st

from intent.followups.conversation import GoalEntry, entries_of, version
from intent.models import Assumption, Config, Intent, TranslatorInfo
from tests.intent.followups.shared import applied


def goals(count: int) -> tuple[Config, ...]:
    return tuple(Config("tp", "==", n + 1, f"tp {n + 1}") for n in range(count))


def intent_of(count: int, *assumptions: Assumption) -> Intent:
    return Intent("text", "en", goals(count), TranslatorInfo("rules"), assumptions=assumptions)


@given(st.integers(0, 6), st.data())
def test_a_diff_applied_to_the_goals_before_gives_those_after(count, data):
    before = intent_of(count)
    kept = data.draw(st.lists(st.sampled_from(range(count)), unique=True) if count else st.just([]))
    changed = data.draw(st.lists(st.booleans(), min_size=len(kept), max_size=len(kept)))
    entries = [
        GoalEntry(Config("pp", "==", n, "pp") if other else before.goals[n], origin=n)
        for n, other in zip(kept, changed, strict=True)
    ]
    entries += [GoalEntry(Config("replicas", "==", n, "more")) for n in range(data.draw(st.integers(0, 3)))]
    after = version(before, entries, before, "merge")
    assert applied(after.diff, before.goals) == after.intent.goals
    assert len(after.diff) == count - len(kept) + sum(changed) + len(entries) - len(kept)


def test_assumptions_go_where_their_goal_goes():
    before = intent_of(
        2,
        Assumption("/goals/0/window", "first"),
        Assumption("/goals/1/window", "second"),
        Assumption("/goals/9/x", "lost"),
    )
    first, second = entries_of(before)
    after = version(before, [second], before, "merge").intent
    assert first.notes == (("window", "first"),)
    assert after.assumptions == (Assumption("/goals/0/window", "second"),)


def test_other_words_for_the_same_are_no_change():
    before = intent_of(1)
    same = GoalEntry(Config("tp", "==", 1, "tensor parallel one"), origin=0)
    assert version(before, [same], before, "answer").diff == ()
