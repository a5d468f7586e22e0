from intent.times.spans import are_hours, follows_a_bound, is_counted
from tests.rows import rows


@rows("noun", ["%", " %", " gpus", " replicas", " ms", "s", " tok/s", "个", "万", " requests", "x"])
def test_a_number_with_a_unit_or_a_noun_is_counted(noun):
    assert is_counted(f"9{noun} more", 1)


@rows("behind", ["", ", keep", " on weekdays", " keep", "点", " cet", ":00", " s3"])
def test_a_number_with_anything_else_is_not(behind):
    assert not is_counted(f"9{behind}", 1)


@rows("before", ["< ", "at most ", "tp=", "tp ", "$", "under ", "gpu-"])
def test_a_number_behind_a_bound_or_a_name_is_its_value(before):
    assert follows_a_bound(f"{before}9 to 17", len(before))


@rows(
    ("before", "is_marked", "hours"),
    [
        ("", False, True),
        ("p99 ttft < 2 s ", False, True),
        ("keep 2 gpus ", False, True),
        ("no int4 ", False, True),
        ("replicas ", False, False),
        ("ttft ", False, False),
        ("ttft ", True, True),
        ("tp ", True, False),
        ("with 2 replicas raise tp ", True, False),
        ("把副本", False, False),
        ("scale ", False, False),
        ("2 gpus, tp ", False, False),
    ],
)
def test_numbers_that_a_clause_waits_for_are_no_hours(before, is_marked, hours):
    text = f"{before}from 9 to 17"
    assert are_hours(text, len(before), len(text), is_marked) is hours


def test_what_is_not_known_to_follow_hours_makes_them_doubtful():
    assert not are_hours("from 9 to 17 shards", 0, 12, is_marked=False)
