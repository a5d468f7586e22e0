import json

import pytest

from benchmarks.intents import answer_of, main
from intent.models import Finding, Intent, Objective, Outcome, Question, TranslatorInfo

GOAL = {
    "type": "objective",
    "metric": "ttft",
    "stat": "p99",
    "op": "<=",
    "value": 2,
    "unit": "s",
    "window": "peak",
}
LINES = (
    {"id": "good", "text": "keep P99 TTFT < 2s at peak", "outcome": "ok", "goals": [GOAL]},
    {"id": "asked", "text": "latency under 2s", "outcome": "clarify", "goals": []},
    {"id": "wrong", "text": "keep P99 TTFT < 2s at peak!", "outcome": "ok", "goals": [GOAL | {"value": 3}]},
)


@pytest.fixture
def utterances(tmp_path):
    file = tmp_path / "some.jsonl"
    lines = [json.dumps(line | {"language": "en", "tags": ["latency"]}) for line in LINES]
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return file


def test_a_set_is_run_printed_and_written(utterances, tmp_path, capsys):
    out = tmp_path / "out.json"
    assert main(["--set", str(utterances), "--misses", "--json", str(out)]) == 0
    printed = capsys.readouterr().out
    assert "wrong  keep P99 TTFT < 2s at peak!" in printed
    assert "asked  latency under 2s" not in printed
    document = json.loads(out.read_text(encoding="utf-8"))
    assert document["benchmark"] == "intents"
    assert document["parameters"]["set"] == ["some.jsonl"]
    assert document["parameters"]["translator"] == "rules"
    assert document["results"]["exact"]["count"] == 2
    assert document["results"]["misread"]["count"] == 1
    assert document["results"]["translate_ms"]["max"] > 0
    assert [miss["id"] for miss in document["misses"]] == ["wrong"]
    assert {"commit", "hardware", "versions"} <= document.keys()
    assert "properties" not in document


def test_properties_are_run_when_asked_for(utterances, tmp_path, capsys):
    out = tmp_path / "out.json"
    assert main(["--set", str(utterances), "--properties", "3", "--json", str(out)]) == 0
    found = json.loads(out.read_text(encoding="utf-8"))["properties"]
    assert (found["count"], found["seed"], found["raised"]) == (3, 0, 0)
    assert "slowest string" in capsys.readouterr().out


def test_an_answer_is_what_the_document_says_with_its_question_or_its_findings():
    goal = Objective(metric="ttft", op="<=", evidence="TTFT 2s", stat="p99", value=2.0, unit="s")
    intent = Intent("TTFT 2s", "en", (goal,), TranslatorInfo("rules"), outcome=Outcome.CLARIFY)
    answer = answer_of(intent)
    assert answer.outcome is Outcome.CLARIFY
    assert "evidence" not in answer.goals[0]
    assert answer.goals[0]["value"] == 2.0
    finding, question = Finding("code", "/text", "Found this."), Question("Which?", ("a", "b"), "a")
    with_both = Intent("t", "en", (), TranslatorInfo("rules"), questions=(question,), findings=(finding,))
    assert answer_of(with_both).said == "Which?"
    without = Intent("t", "en", (), TranslatorInfo("rules"), findings=(finding,))
    assert (answer_of(without).said, answer_of(without).findings) == ("Found this.", ("code",))
