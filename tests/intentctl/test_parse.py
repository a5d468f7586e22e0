"""`intentctl parse`: one text as an argument, or one per line of standard input, and a clock of one's own."""

import io
import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from intentctl import cli
from tests.rows import rows

pytestmark = pytest.mark.slow

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
    for now in ("2026-01-05T09:30", "2026-01-05T09:30+08:00", "2026-01-05 09:30:00Z", "2026-01-05"):
        assert run("parse", TEXT, "--now", now, *place)[0] == 0


def test_lines_come_as_json_as_yaml_or_for_people_one_after_the_other(run, there, typed):
    typed(b"")
    assert run("parse", "-", "-o", "json", *there)[:2] == (0, "")
    typed(f"{TEXT}\nwibble\n".encode())
    _, out, _ = run("parse", "-", "-o", "yaml", *there)
    assert [document["outcome"] for document in yaml.safe_load_all(out)] == ["ok", "out_of_scope"]
    typed(f"{TEXT}\nkeep p99 TTFT < 3s at peak\n".encode())
    _, out, _ = run("parse", "-", *there)
    assert out.index("at most 2 s") < out.index("at most 3 s")


@rows("text", ["", "   ", "x" * 100_000, "a\udcffb", "\ud800"])
def test_one_text_that_is_none_is_a_document_with_a_finding_and_rejected(run, place, text):
    code, out, err = run("parse", text, "-o", "json", *place)
    document = json.loads(out)
    assert code == 5
    assert document["outcome"] == "out_of_scope"
    assert document["findings"]
    assert document["findings"][0]["message"] in err.replace("\n", " ")


def test_what_is_wrong_is_said_in_the_language_of_the_text_and_steers_no_terminal(run, there):
    _, out, _ = run("parse", "首字延迟\udcff不超过 2 秒", "-o", "json", *there)
    (finding,) = json.loads(out)["findings"]
    assert "UTF-8" in finding["message"]
    assert "文本" in finding["message"]
    _, out, err = run("parse", "keep \x1b[31mred\u202e under 2 s", *there)
    assert "\x1b" not in out + err.replace("\x1b[2m", "").replace("\x1b[0m", "")
    assert "\u202e" not in out


@rows("now", ["", "noon", "25:00", "2026-13-01", "0001-01-01", "9999-12-31T23:59Z", "１"])
def test_a_clock_that_is_none_is_a_usage_error_that_shows_the_form(run, there, now):
    code, out, err = run("parse", TEXT, "--now", now, *there)
    assert (code, out) == (2, "")
    assert "2026-01-05T09:30+08:00" in "".join(err.split())


PARSE = ("parse", "-", "--deployment", "examples/local-cpu.yaml")
COMMAND = [sys.executable, "-m", "intentctl", *PARSE]
CHINESE = "p99 首字延迟 🚀 不超过 2 秒"


@pytest.fixture
def at_terminal(monkeypatch):
    """What a command prints to standard output and error of an encoding."""

    def at_terminal(encoding: str, *arguments: str) -> tuple[int, bytes, bytes]:
        streams = {"stdin": io.BytesIO(f"{CHINESE}\n".encode()), "stdout": io.BytesIO(), "stderr": io.BytesIO()}
        with monkeypatch.context() as patch:
            patch.chdir(REPOSITORY)
            patch.setattr(sys, "argv", ["intentctl", *arguments])
            for name, data in streams.items():
                errors = "backslashreplace" if name == "stderr" else "strict"
                patch.setattr(sys, name, io.TextIOWrapper(data, encoding=encoding, errors=errors))
            with pytest.raises(SystemExit) as ended:
                cli.main()
            sys.stdout.flush()
            sys.stderr.flush()
            return int(ended.value.code or 0), streams["stdout"].getvalue(), streams["stderr"].getvalue()

    return at_terminal


@rows("encoding", ["utf-8", "ascii", "latin-1", "gb18030"])
def test_a_terminal_of_any_encoding_gets_json_and_no_traceback(at_terminal, encoding):
    code, out, err = at_terminal(encoding, *PARSE)
    assert (code, b"Traceback" in err) == (0, False)
    code, out, err = at_terminal(encoding, *PARSE, "-o", "json")
    assert code == 0, err
    assert json.loads(out.decode(encoding))["text"] == CHINESE


def test_a_process_without_an_environment_says_the_same():
    done = subprocess.run(
        [*COMMAND, "-o", "json"],
        input=f"{CHINESE}\n".encode(),
        capture_output=True,
        cwd=REPOSITORY,
        env={"PATH": "", "HOME": "/nonexistent", "PYTHONIOENCODING": "ascii"},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.decode("ascii"))["text"] == CHINESE


def test_a_document_is_printed_before_the_next_line_has_come_and_a_reader_may_go_away():
    with subprocess.Popen(
        [*COMMAND, "-o", "json"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=REPOSITORY,
    ) as process:
        for text in (TEXT, "wibble"):
            process.stdin.write(text.encode() + b"\n")
            process.stdin.flush()
            assert json.loads(process.stdout.readline())["text"] == text
        process.stdout.close()
        process.stdin.write(f"{TEXT}\n".encode() * 5)
        process.stdin.close()
        said = process.stderr.read()
        process.wait()
    assert b"Traceback" not in said
    assert b"Exception" not in said
