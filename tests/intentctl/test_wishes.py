"""Follow-ups and OpenSLO as a person types them, with a service and without."""

import io
import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.service.scripted import write_deployment

TEXT = "keep P99 TTFT < 2s at peak"


@pytest.fixture(params=["service", "deployment"])
def place(request, shared):
    """Who answers: a service, or a deployment file in this process."""
    if request.param == "service":
        return ("--server", shared.url)
    return ("--deployment", shared.deployment_file)


@pytest.fixture
def parsed(run, place, tmp_path):
    """A file with the intent of a text."""

    def parsed(text: str = TEXT) -> str:
        file = tmp_path / "intent.json"
        file.write_text(run("parse", text, "-o", "json", *place)[1])
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


def test_what_amend_prints_can_be_amended_again(run, place, parsed, monkeypatch):
    _, out, _ = run("amend", parsed(), "also keep p95 TPOT under 50 ms", "-o", "json", *place)
    assert [one["change"] for one in json.loads(out)["diff"]] == ["added"]
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(out.encode())))
    code, out, _ = run("amend", "-", "drop the TTFT goal", *place)

    assert code == 0
    assert f'removed     "{TEXT.removeprefix("keep ")}"' in out
    assert "P95 TPOT at most 50 ms" in out


def test_replace_takes_the_place_of_everything(run, place, parsed):
    _, out, _ = run("amend", parsed(), "minimise cost", "--replace", "-o", "json", *place)

    assert [goal["metric"] for goal in json.loads(out)["intent"]["goals"]] == ["cost"]


@pytest.mark.slow
def test_a_question_is_shown_with_its_options_and_answered_by_number(run, place, parsed, tmp_path):
    code, out, _ = run(
        "amend", parsed("p99 TTFT under 2 s and p95 E2E under 10 s"), "make that 1.5 s", *place
    )
    assert code == 4
    assert "options" in out
    _, out, _ = run("amend", str(tmp_path / "intent.json"), "make that 1.5 s", "-o", "json", *place)
    (tmp_path / "asked.json").write_text(out)
    code, out, _ = run("amend", tmp_path / "asked.json", "2", *place)

    assert code == 0
    assert "P95 E2E at most 1.5 s" in out


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        ("blah", 5, "cannot tie"),
        ("make that 2 s", 0, "nothing changes"),
        ("x\udcff", 1, "UTF-8"),
        ("", 5, ""),
    ],
)
def test_a_follow_up_that_changes_nothing_is_one_message(run, place, parsed, text, code, said):
    found, out, err = run("amend", parsed(), text, *place)

    assert (found, out) == (code, "")
    assert said in err


def test_a_follow_up_from_outside_cannot_steer_the_terminal(run, place, parsed):
    _, out, err = run("amend", parsed(), "make \x1b[31mfoo\u202e", *place)

    assert "\\x1b[31mfoo\\u202e" in err
    assert "\x1b" not in out + err
    assert "\u202e" not in out + err


def test_a_question_is_said_once_with_numbered_options_and_its_default(run, place, parsed):
    file = parsed("p99 TTFT under 2 s and p95 E2E under 10 s")
    _, out, _ = run("amend", file, "make that 1.5 s", *place)

    assert out.count("Which goal does") == 1
    assert "options     1. P99 TTFT at most 1.5 s" in out
    assert "\n            2. P95 E2E at most 1.5 s" in out
    assert out.count("(default)") == 1
    assert out.index("1. ") < out.index("(default)") < out.index("2. ")


def test_an_intent_of_the_service_gets_a_next_version_and_is_planned_for(run, shared):
    at = ("--server", shared.url)
    plan = json.loads(run("plan", TEXT, "-o", "json", *at)[1])["plan"]
    name = plan["intent_id"]
    code, out, _ = run("amend", name, "make that 1.5 s", *at)

    assert code == 0
    assert f"{name} version 2" in out
    assert f"{name} version 2" in run("get", name, *at)[1]
    code, out, _ = run("plan", name, *at)
    assert code == 0
    assert f"{name} version 2" in out
    assert "P99 TTFT at most 1.5 s" in out


def test_a_follow_up_is_read_at_the_clock_that_is_given(run, place, parsed):
    words = "no reconfiguration tomorrow"
    for now, tomorrow in (("2026-01-05T09:30", "2026-01-06"), ("2026-01-05T23:30-08:00", "2026-01-07")):
        code, out, _ = run("amend", parsed(), words, "--now", now, "-o", "json", *place)

        assert code == 0
        assert json.loads(out)["intent"]["goals"][1]["window"]["date"] == tomorrow


def test_a_follow_up_to_an_intent_of_the_service_is_read_at_the_clock_that_is_given(run, shared):
    at = ("--server", shared.url)
    name = json.loads(run("plan", TEXT, "-o", "json", *at)[1])["plan"]["intent_id"]
    code, out, _ = run("amend", name, "no reconfiguration tomorrow", "--now", "2026-01-05", *at)

    assert code == 0
    assert f"{name} version 2" in out
    assert "no reconfiguration on 2026-01-06" in out


@pytest.mark.parametrize("now", ["", "noon", "2026-13-01", "9999-12-31T23:59Z"])
def test_a_clock_of_a_follow_up_that_is_none_is_a_usage_error_that_names_it(run, place, parsed, now):
    code, out, err = run("amend", parsed(), "make that 1.5 s", "--now", now, *place)

    assert (code, out) == (2, "")
    assert "--now" in err
    assert f"'{now}'" in err
    assert "2026-01-05T09:30+08:00" in "".join(err.split())


def test_an_id_without_a_service_says_what_to_do(run, deployment):
    code, _, err = run("amend", "intent-0123456789ab", "make that 1 s", *deployment)

    assert code == 7
    assert "--server" in err


def test_an_id_that_the_service_does_not_have_is_named(run, shared):
    code, _, err = run("amend", "intent-0123456789ab", "make that 1 s", "--server", shared.url)

    assert code == 1
    assert "intent-0123456789ab" in err


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ("", "empty"),
        ("[1, 2]", "must hold one intent document"),
        ('{"goals": 3}', "/apiVersion"),
        ("{", "file.json:"),
    ],
)
@pytest.mark.parametrize("command", [("amend", "FILE", "make that 1 s"), ("export", "openslo", "-f", "FILE")])
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


def test_json_holds_what_is_left_out(run, place):
    _, out, _ = run("export", "openslo", "p99 TTFT under 2.5 s; minimise cost", "-o", "json", *place)
    answer = json.loads(out)

    assert [one["pointer"] for one in answer["left_out"]] == ["/goals/1"]
    assert len(answer["slos"]) == 1


def test_an_intent_file_is_exported_and_standard_input_imported(run, place, parsed, monkeypatch):
    _, out, _ = run("export", "openslo", "-f", parsed("GPU utilisation above 70%"), *place)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(out.encode())))
    _, out, _ = run("import", "openslo", "-", "-o", "json", *place)

    assert json.loads(out)["goals"][0]["metric"] == "gpu_util"


def test_a_wish_that_openslo_cannot_say_at_all_is_rejected(run, place):
    code, out, err = run("export", "openslo", "minimise cost", *place)

    assert (code, out) == (5, "")
    assert "none of the goals" in err


def test_a_wish_that_is_not_settled_is_not_exported(run, place):
    assert run("export", "openslo", "keep latency under 2 s", *place)[0] == 4
    assert run("export", "openslo", "what is the weather", *place)[0] == 5


@pytest.mark.parametrize(
    "arguments", [("openslo",), ("openslo", "text", "-f", "x.json"), ("sloth", "text"), ()]
)
def test_a_wrong_use_of_export_is_a_usage_error(run, arguments):
    assert run("export", *arguments)[0] == 2


def test_what_has_no_place_in_an_intent_is_refused_with_its_path(run, place, tmp_path):
    (slo,) = yaml.safe_load_all(run("export", "openslo", "p99 TTFT under 2.5 s", *place)[1])
    slo["spec"]["objectives"][0]["target"] = 0.97
    (tmp_path / "slo.yaml").write_text(yaml.safe_dump(slo))
    code, out, err = run("import", "openslo", tmp_path / "slo.yaml", *place)

    assert (code, out) == (1, "")
    assert "/0/spec/objectives/0/target" in err


@pytest.mark.slow
def test_bytes_that_yaml_would_lose_survive_the_way_through_a_file(run, place, tmp_path):
    _, out, _ = run("export", "openslo", "p99 TTFT\u2028 under 2.5 s", *place)
    (tmp_path / "slo.yaml").write_bytes(out.encode())
    _, out, _ = run("import", "openslo", tmp_path / "slo.yaml", "-o", "json", *place)

    assert json.loads(out)["goals"][0]["value"] == 2.5


@pytest.mark.slow
@pytest.mark.parametrize(
    "command", [["explain"], ["amend", "INTENT", "make that 1.5 s", "--deployment", "FILE"]]
)
def test_nothing_heavy_is_imported(tmp_path, command, run):
    file = str(write_deployment(tmp_path))
    (tmp_path / "intent.json").write_text(run("parse", TEXT, "-o", "json", "--deployment", file)[1])
    words = [{"FILE": file, "INTENT": str(tmp_path / "intent.json")}.get(word, word) for word in command]
    script = f"import sys; sys.argv = ['intentctl', *{words!r}]\nimport intentctl.cli as c\n"
    script += "try: c.main()\nexcept SystemExit as e: assert not e.code\n"
    script += "print('LOADED', sorted({m.split('.')[0] for m in sys.modules}))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    for heavy in (
        "torch",
        "fastapi",
        "openai",
        "httpx",
        "langchain_core",
        "langchain_openai",
        "sqlalchemy",
        "numpy",
    ):
        assert f"'{heavy}'" not in done.stdout.split("LOADED")[1]
