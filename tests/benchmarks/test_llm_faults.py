import json
from dataclasses import replace

from benchmarks import llm_faults
from benchmarks.llm_faults import CATALOGUE, measure, outcome, table
from benchmarks.misbehaving_llm import FAULTS, TEXT, saying
from intent.models import Outcome, Question
from intent.translate import translate

RIGHT = translate(TEXT, CATALOGUE)


def test_each_fault_is_asked_for_real_and_its_end_is_named(tmp_path, capsys):
    file = tmp_path / "faults.json"
    chosen = ["well", "404", "prose", "a goal left out"]
    arguments = [part for name in chosen for part in ("--fault", name)]
    assert llm_faults.main([*arguments, "--deadline", "20", "--json", str(file)]) == 0
    document = json.loads(file.read_text())
    came = {one["fault"]: (one["came"], one["requests"]) for one in document["faults"]}
    assert came == {
        "well": ("ok", 1),
        "404": ("llm_not_found", 1),
        "prose": ("llm_not_json", 2),
        "a goal left out": ("clarify", 1),
    }
    assert "4 of 4 as they must" in capsys.readouterr().out


def test_what_ends_otherwise_or_takes_too_long_fails(monkeypatch, capsys):
    monkeypatch.setitem(FAULTS, "404", (saying("Sure!"), FAULTS["404"][1]))
    assert llm_faults.main(["--fault", "404", "--deadline", "20"]) == 1
    assert "FAILED" in capsys.readouterr().out
    monkeypatch.setattr(llm_faults, "GRACE_S", -20.0)
    assert measure("well", 20.0, RIGHT)["passed"] is False


def test_other_goals_are_wrong_and_the_table_names_the_slowest():
    assert outcome(RIGHT, RIGHT) == "ok"
    assert outcome(replace(RIGHT, goals=RIGHT.goals[:1]), RIGHT) == "wrong"
    asked = replace(RIGHT, questions=(Question("?", ("a", "b"), "a"),), outcome=Outcome.CLARIFY)
    assert outcome(asked, RIGHT) == "clarify"
    rows = [
        {"fault": name, "came": "ok", "expected": "ok", "requests": 1, "seconds": seconds, "passed": True}
        for name, seconds in (("well", 0.1), ("429", 1.25))
    ]
    assert table(rows).splitlines()[-1] == "2 of 2 as they must; slowest: 429, 1.250 s"
