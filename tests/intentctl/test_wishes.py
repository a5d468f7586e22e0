"""Follow-ups and OpenSLO as a person types them, with a service and without."""

import json
from pathlib import Path

import pytest
import yaml

from tests.rows import rows

pytestmark = pytest.mark.slow

TEXT = "keep P99 TTFT < 2s at peak"
TWO = "p99 TTFT under 2 s and p95 E2E under 10 s"


@pytest.fixture
def parsed(run, tmp_path, shared):
    """A file with the intent of a text."""

    def parsed(text: str = TEXT) -> str:
        file = tmp_path / "intent.json"
        file.write_text(run("parse", text, "-o", "json", "--deployment", shared.deployment_file)[1])
        return str(file)

    return parsed


def test_a_file_is_amended_and_left_as_it_is(run, place, parsed):
    file = parsed()
    before = Path(file).read_text()
    code, out, _ = run("amend", file, "make that 1.5 s", *place)
    assert code == 0
    assert "ttft: value 2.0 -> 1.5" in out
    assert "P99 TTFT at most 1.5 s at peak" in out
    assert Path(file).read_text() == before


def test_what_amend_prints_can_be_amended_again_and_replaced(run, place, parsed, typed):
    _, out, _ = run("amend", parsed(), "also keep p95 TPOT under 50 ms", "-o", "json", *place)
    assert [one["change"] for one in json.loads(out)["diff"]] == ["added"]
    typed(out.encode())
    code, out, _ = run("amend", "-", "drop the TTFT goal", *place)
    assert code == 0
    assert f'removed     "{TEXT.removeprefix("keep ")}"' in out
    assert "P95 TPOT at most 50 ms" in out
    _, out, _ = run("amend", parsed(), "minimise cost", "--replace", "-o", "json", *place)
    assert [goal["metric"] for goal in json.loads(out)["intent"]["goals"]] == ["cost"]


def test_a_question_is_said_once_with_its_options_and_answered_by_number(run, place, parsed, tmp_path):
    code, out, _ = run("amend", parsed(TWO), "make that 1.5 s", *place)
    assert code == 4
    assert out.count("Which goal does") == 1
    assert "options     1. P99 TTFT at most 1.5 s" in out
    assert "\n            2. P95 E2E at most 1.5 s" in out
    assert out.count("(default)") == 1
    assert out.index("1. ") < out.index("(default)") < out.index("2. ")
    _, out, _ = run("amend", tmp_path / "intent.json", "make that 1.5 s", "-o", "json", *place)
    (tmp_path / "asked.json").write_text(out)
    code, out, _ = run("amend", tmp_path / "asked.json", "2", *place)
    assert code == 0
    assert "P95 E2E at most 1.5 s" in out


@rows(
    ("text", "code", "said"),
    [
        ("blah", 5, "cannot tie"),
        ("make that 2 s", 0, "nothing changes"),
        ("x\udcff", 1, "UTF-8"),
        ("", 5, ""),
        ("make \x1b[31mfoo\u202e", 5, "\\x1b[31mfoo\\u202e"),
    ],
)
def test_a_follow_up_that_changes_nothing_is_one_message_that_steers_no_terminal(run, place, parsed, text, code, said):
    found, out, err = run("amend", parsed(), text, *place)
    assert (found, out) == (code, "")
    assert said in err
    assert "\x1b" not in err
    assert "\u202e" not in err


def test_an_intent_of_the_service_gets_a_next_version_and_is_planned_for(run, there):
    plan = json.loads(run("plan", TEXT, "-o", "json", *there)[1])["plan"]
    name = plan["intent_id"]
    code, out, _ = run("amend", name, "make that 1.5 s", *there)
    assert code == 0
    assert f"{name} version 2" in out
    assert f"{name} version 2" in run("get", name, *there)[1]
    code, out, _ = run("plan", name, *there)
    assert code == 0
    assert f"{name} version 2" in out
    assert "P99 TTFT at most 1.5 s" in out
    code, out, _ = run("amend", name, "no reconfiguration tomorrow", "--now", "2026-01-05", *there)
    assert code == 0
    assert f"{name} version 3" in out
    assert "no reconfiguration on 6 Jan 2026" in out


@rows(("now", "tomorrow"), [("2026-01-05T09:30", "2026-01-06"), ("2026-01-05T23:30-08:00", "2026-01-07")])
def test_a_follow_up_is_read_at_the_clock_that_is_given(run, place, parsed, now, tomorrow):
    words = "no reconfiguration tomorrow"
    code, out, _ = run("amend", parsed(), words, "--now", now, "-o", "json", *place)
    assert code == 0
    assert json.loads(out)["intent"]["goals"][1]["window"]["date"] == tomorrow


@rows("now", ["", "noon", "2026-13-01", "9999-12-31T23:59Z"])
def test_a_clock_of_a_follow_up_that_is_none_is_a_usage_error_that_names_it(run, there, parsed, now):
    code, out, err = run("amend", parsed(), "make that 1.5 s", "--now", now, *there)
    assert (code, out) == (2, "")
    assert "--now" in err
    assert f"'{now}'" in err
    assert "2026-01-05T09:30+08:00" in "".join(err.split())


def test_an_id_without_a_service_or_that_it_does_not_have_is_said(run, there, deployment):
    for where, code, said in ((deployment, 7, "--server"), (there, 1, "intent-0123456789ab")):
        found, _, err = run("amend", "intent-0123456789ab", "make that 1 s", *where)
        assert found == code
        assert said in err


@rows(
    ("data", "said"),
    [
        ("", "empty"),
        ("[1, 2]", "must hold one intent document"),
        ('{"goals": 3}', "/apiVersion"),
        ("{", "file.json:"),
    ],
)
@rows("command", [("amend", "FILE", "make that 1 s"), ("export", "openslo", "-f", "FILE")])
def test_a_file_that_is_no_intent_is_one_message(run, place, tmp_path, command, data, said):
    file = tmp_path / "file.json"
    file.write_text(data)
    code, out, err = run(*(file if part == "FILE" else part for part in command), *place)
    assert (code, out) == (1, "")
    assert said in err


# -- OpenSLO ----------------------------------------------------------------------------------------------


def test_export_then_import_gives_the_same_goal(run, place, tmp_path):
    text = "p99 TTFT under 2.5 s; p95 E2E under 10 s at peak; minimise cost"
    code, out, err = run("export", "openslo", text, *place)
    assert code == 0
    assert "/goals/2: OpenSLO bounds a metric; it cannot say minimize" in err
    assert [one["kind"] for one in yaml.safe_load_all(out)] == ["SLO", "SLO"]
    (tmp_path / "slo.yaml").write_text(out)
    code, out, _ = run("import", "openslo", tmp_path / "slo.yaml", *place)
    assert code == 0
    assert "P99 TTFT at most 2.5 s at all times; P95 E2E at most 10 s at peak" in out
    answer = json.loads(run("export", "openslo", text, "-o", "json", *place)[1])
    assert [one["pointer"] for one in answer["left_out"]] == ["/goals/1", "/goals/2"]
    assert len(answer["slos"]) == 2


def test_an_intent_file_is_exported_and_standard_input_imported(run, place, parsed, typed, tmp_path):
    _, out, _ = run("export", "openslo", "-f", parsed("GPU utilisation above 70%"), *place)
    typed(out.encode())
    _, out, _ = run("import", "openslo", "-", "-o", "json", *place)
    assert json.loads(out)["goals"][0]["metric"] == "gpu_util"
    (slo,) = yaml.safe_load_all(run("export", "openslo", "p99 TTFT under 2.5 s", *place)[1])
    slo["spec"]["objectives"][0]["target"] = 0.97
    (tmp_path / "slo.yaml").write_text(yaml.safe_dump(slo))
    code, out, err = run("import", "openslo", tmp_path / "slo.yaml", *place)
    assert (code, out) == (1, "")
    assert "/0/spec/objectives/0/target" in err
    _, out, _ = run("export", "openslo", "p99 TTFT\u2028 under 2.5 s", *place)
    (tmp_path / "slo.yaml").write_bytes(out.encode())
    _, out, _ = run("import", "openslo", tmp_path / "slo.yaml", "-o", "json", *place)
    assert json.loads(out)["goals"][0]["value"] == 2.5


@rows(
    ("arguments", "code", "said"),
    [
        (("openslo", "minimise cost"), 5, "none of the goals"),
        (("openslo", "keep latency under 2 s"), 4, ""),
        (("openslo", "what is the weather"), 5, ""),
        (("openslo",), 2, ""),
        (("openslo", "text", "-f", "x.json"), 2, ""),
        (("sloth", "text"), 2, ""),
        ((), 2, ""),
    ],
)
def test_what_cannot_be_exported_is_refused(run, place, arguments, code, said):
    found, _, err = run("export", *arguments, *place)
    assert found == code
    assert said in err
