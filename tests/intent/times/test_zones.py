from zoneinfo import available_timezones

from intent.times.clock import AMBIGUOUS, SEVERAL_PLACES, UNKNOWN, exists, resolve
from tests.rows import rows


def test_every_iana_name_is_known_in_lower_case():
    names = available_timezones() - {"EST", "MST", "localtime"}
    assert {name: resolve(name.lower(), "UTC") for name in names} == {name: name for name in names}


@rows(
    ("said", "name"),
    [
        ("utc+8", "Etc/GMT-8"),
        ("utc+08:00", "Etc/GMT-8"),
        ("gmt -5", "Etc/GMT+5"),
        ("utc+0", "UTC"),
        ("et", "America/New_York"),
        ("est", "America/New_York"),
        ("cest", "CET"),
        ("beijing time", "Asia/Shanghai"),
        ("北京时间", "Asia/Shanghai"),
        ("local time", "Asia/Tokyo"),
        ("本地时间", "Asia/Tokyo"),
    ],
)
def test_zones_are_known_by_what_people_call_them(said, name):
    assert resolve(said, "Asia/Tokyo") == name
    assert exists(name)


@rows("said", sorted(SEVERAL_PLACES))
def test_an_abbreviation_of_several_places_is_asked_about_unless_it_is_the_deployments_own(said):
    assert resolve(said, "UTC") == AMBIGUOUS
    assert resolve(said, said.upper()) == said.upper()


@rows("said", ["mars/olympus", "utc+15", "utc-13", "utc+5:30", "europe", "../etc/passwd", "", "/", "a" * 999])
def test_what_is_no_zone_is_unknown(said):
    assert resolve(said, "UTC") == UNKNOWN
