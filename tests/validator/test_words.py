from intent.models import Objective
from validator.words import Words


def test_a_finding_speaks_the_language_and_quotes_the_words():
    goal = Objective("ttft", "<=", "P99 < 0.1 ms", value=0.0001, unit="s")
    for language, phrase in (("en", "no hardware"), ("zh", "任何硬件")):
        found = Words(language).finding(
            "below_physical_floor", "/goals/0/value", goal, "at_least", floor="1 ms", least="1 ms"
        )
        assert phrase in found.message
        assert "P99 < 0.1 ms" in found.message
        assert found.evidence == "P99 < 0.1 ms"
        assert "1 ms" in found.suggestion
