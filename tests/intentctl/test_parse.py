"""`intentctl parse`: one text as an argument, or one per line of standard input, and a clock of one's own."""

import io
import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

TEXT = "keep P99 TTFT < 2s at peak"
REPOSITORY = Path(__file__).parents[2]
HOSTILE = [
    b"",
    b"   ",
    TEXT.encode(),
    b"x" * 100_000,
    b"keep p99 TTFT \xff < 2 s",
    b"\xed\xa0\x80 TTFT < 2 s",
    b"a\x00b\x1b[31mc\x07",
    "p99 首字延迟不超过 2 秒".encode(),
    "\u202eTTFT < 2 s\u202c \u2028 \x85".encode(),
    "🚀🚀🚀".encode(),
    b'{"goals": [NaN]}',
    b"TTFT < 1e400 s",
    b"%s %(a)s {0} {x}",
    b"-o json",
    b"-",
]


@pytest.fixture(params=["service", "deployment"])
def place(request, shared):
    """Who answers: a service, or a deployment file in this process."""
    if request.param == "service":
        return ("--server", shared.url)
    return ("--deployment", shared.deployment_file)


@pytest.fixture
def typed(monkeypatch):
    """Bytes on standard input."""

    def type_in(data: bytes) -> None:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data)))

    return type_in


def documents(out: str) -> list[dict]:
    return [json.loads(line) for line in out.splitlines()]


def test_every_line_gets_one_document_in_order_whatever_it_is(run, place, typed):
    typed(b"\r\n".join(HOSTILE))
    code, out, _ = run("parse", "-", "-o", "json", *place)
    found = documents(out)

    assert code == 0
    assert len(found) == len(HOSTILE)
    assert all(document["kind"] == "Intent" for document in found)
    assert [document["outcome"] for document in found[:6]] == [
        "out_of_scope", "out_of_scope", "ok", "out_of_scope", "out_of_scope", "out_of_scope",
    ]  # fmt: skip
    assert found[2]["text"] == TEXT
    codes = [{finding["code"] for finding in document["findings"]} for document in found]
    assert codes[0] == codes[1] == {"text_empty"}
    assert "text_too_long" in codes[3]
    assert codes[4] == codes[5] == {"text_damaged"}
    assert all(document["goals"] == [] for document in found if document["outcome"] == "out_of_scope")


def test_a_line_says_the_same_as_the_text_alone(run, place, typed):
    typed(TEXT.encode() + b"\n")
    _, lines, _ = run("parse", "-", "-o", "json", *place)
    _, alone, _ = run("parse", TEXT, "-o", "json", *place)

    assert lines.count("\n") == 1
    assert alone.count("\n") > 20
    assert documents(lines) == [json.loads(alone)]


def test_no_line_is_no_document(run, place, typed):
    typed(b"")

    assert run("parse", "-", "-o", "json", *place)[:2] == (0, "")


def test_many_lines_as_yaml_are_many_yaml_documents(run, place, typed):
    typed(f"{TEXT}\nwibble\n".encode())
    _, out, _ = run("parse", "-", "-o", "yaml", *place)

    assert [document["outcome"] for document in yaml.safe_load_all(out)] == ["ok", "out_of_scope"]


def test_many_lines_for_people_are_read_back_one_after_the_other(run, place, typed):
    typed(f"{TEXT}\nkeep p99 TTFT < 3s at peak\n".encode())
    _, out, _ = run("parse", "-", *place)

    assert out.index("at most 2 s") < out.index("at most 3 s")


@pytest.mark.parametrize("text", ["", "   ", "x" * 100_000, "a\udcffb", "\ud800"])
def test_one_text_that_is_none_is_a_document_with_a_finding_and_rejected(run, place, text):
    code, out, err = run("parse", text, "-o", "json", *place)
    document = json.loads(out)

    assert code == 5
    assert document["outcome"] == "out_of_scope"
    assert document["findings"]
    assert document["findings"][0]["message"] in err.replace("\n", " ")


def test_what_is_wrong_with_a_chinese_text_is_said_in_chinese(run, place):
    _, out, _ = run("parse", "首字延迟\udcff不超过 2 秒", "-o", "json", *place)
    (finding,) = json.loads(out)["findings"]

    assert "UTF-8" in finding["message"]
    assert "文本" in finding["message"]


@pytest.mark.parametrize(
    "now", ["2026-01-05T09:30", "2026-01-05T09:30+08:00", "2026-01-05 09:30:00Z", "2026-01-05"]
)
def test_a_clock_may_be_given(run, place, now):
    assert run("parse", TEXT, "--now", now, *place)[0] == 0


@pytest.mark.parametrize("now", ["", "noon", "25:00", "2026-13-01", "0001-01-01", "9999-12-31T23:59Z", "１"])
def test_a_clock_that_is_none_is_a_usage_error_that_shows_the_form(run, place, now):
    code, out, err = run("parse", TEXT, "--now", now, *place)

    assert (code, out) == (2, "")
    assert "2026-01-05T09:30+08:00" in "".join(err.split())


@pytest.mark.slow
def test_text_from_outside_cannot_steer_the_terminal(run, place):
    _, out, err = run("parse", "keep \x1b[31mred\u202e under 2 s", *place)

    assert "\x1b" not in out + err.replace("\x1b[2m", "").replace("\x1b[0m", "")
    assert "\u202e" not in out


def parse_process(data: bytes, *arguments: str, **environment: str) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "intentctl", "parse", "-", *arguments]
    file = REPOSITORY / "examples" / "local-cpu.yaml"
    return subprocess.run(
        [*command, "--deployment", str(file)],
        input=data,
        capture_output=True,
        cwd=REPOSITORY,
        env={"PATH": "", "HOME": "/nonexistent", **environment},
        check=False,
    )


@pytest.mark.slow
@pytest.mark.parametrize("encoding", ["utf-8", "ascii", "latin-1", "gb18030"])
def test_json_lines_are_json_in_every_encoding_of_the_terminal(encoding):
    done = parse_process("p99 首字延迟 🚀 不超过 2 秒\n".encode(), "-o", "json", PYTHONIOENCODING=encoding)

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.decode(encoding))["text"] == "p99 首字延迟 🚀 不超过 2 秒"


@pytest.mark.slow
@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_a_terminal_without_chinese_characters_gets_no_traceback(encoding):
    done = parse_process("p99 首字延迟 🚀 不超过 2 秒\n".encode(), PYTHONIOENCODING=encoding)

    assert done.returncode == 0
    assert b"Traceback" not in done.stderr


@pytest.mark.slow
def test_a_document_is_printed_before_the_next_line_has_come():
    file = REPOSITORY / "examples" / "local-cpu.yaml"
    command = [sys.executable, "-m", "intentctl", "parse", "-", "-o", "json", "--deployment", str(file)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=REPOSITORY
    ) as process:
        for text in (TEXT, "wibble"):
            process.stdin.write(text.encode() + b"\n")
            process.stdin.flush()
            assert json.loads(process.stdout.readline())["text"] == text
        process.stdin.close()
        assert process.wait() == 0


@pytest.mark.slow
def test_a_reader_that_goes_away_gets_no_traceback():
    file = REPOSITORY / "examples" / "local-cpu.yaml"
    command = [sys.executable, "-m", "intentctl", "parse", "-", "-o", "json", "--deployment", str(file)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=REPOSITORY
    ) as process:
        process.stdout.close()
        process.stdin.write(f"{TEXT}\n".encode() * 5)
        process.stdin.close()
        said = process.stderr.read()
        process.wait()

    assert b"Traceback" not in said
    assert b"Exception" not in said
