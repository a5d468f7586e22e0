"""Whatever a part does, what it said before and what the others say is in the file."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.gpu.campaign import (
    SHARES_S,
    Campaign,
    NotWritableError,
    Part,
    Result,
    check_writable,
    last_error,
    members,
    parts_here,
    parts_on,
    share_of,
)
from tests.rows import rows

ROW = """
import json, os, signal, subprocess, sys
def say(**row): print(json.dumps(row), flush=True)
say(planned=["first", "second"])
say(case="first", figure=1)
"""
WELL = ROW + "say(case='second', figure=2)"
AWRY = {
    "raises": (ROW + "raise ValueError('planted')", "ValueError: planted"),
    "exits": (ROW + "print('planted', file=sys.stderr); sys.exit(3)", "planted"),
    "dies": (ROW + "os.kill(os.getpid(), signal.SIGSEGV)", "ended by SIGSEGV"),
    "says that a case failed": (ROW + "say(case='second', problem='planted')", "second: planted"),
}
"""What a part does to why it failed."""
LEAVES = (
    ROW
    + """
child = subprocess.Popen(['sleep', '1000'], process_group=0, stdout=subprocess.DEVNULL)
say(case='second', session=os.getsid(0))
"""
)
"""A part whose child, in a process group of its own as an engine's driver has one, goes on."""


def part(name: str, code: str, share_s: float = 1.0) -> Part:
    return Part(name, share_s, (sys.executable, "-S", "-c", code))


@pytest.fixture
def file(tmp_path):
    return tmp_path / "gpu.json"


def read(file: Path) -> dict[str, dict[str, Any]]:
    return {one["part"]: one for one in json.loads(file.read_text(encoding="utf-8"))["parts"]}


def ran(file: Path, *parts: Part, seconds: float = 600.0, **document: str) -> dict[str, dict[str, Any]]:
    Campaign(file, document, lambda _: None).run(parts, seconds)
    return read(file)


@rows("name", SHARES_S)
def test_a_failure_planted_in_a_part_leaves_the_rows_of_all(file, name):
    file.unlink(missing_ok=True)
    found = ran(file, *(part(other, AWRY["raises"][0] if other == name else WELL) for other in SHARES_S))
    for other, one in found.items():
        assert (one["status"], len(one["rows"])) == (("failed", 1) if other == name else ("done", 2))
    assert [*found] == [*SHARES_S]
    assert found[name]["not_reached"] == ["second"]


@rows("way", AWRY)
def test_a_part_that_goes_awry_says_why_and_the_next_goes_on(file, way):
    file.unlink(missing_ok=True)
    code, reason = AWRY[way]
    found = ran(file, part("odd", code), part("next", WELL))
    assert (found["odd"]["status"], found["odd"]["reason"]) == ("failed", reason)
    assert found["odd"]["rows"][0] == {"case": "first", "figure": 1}
    assert found["next"]["status"] == "done"


def test_what_a_part_wrote_before_it_failed_is_kept_and_the_reason_is_the_error(file):
    code = ROW + "[print(f'line {n}', file=sys.stderr) for n in range(200)]; sys.exit(1)"
    words = ran(file, part("odd", code))["odd"]["last_words"]
    assert (words[0], words[-1]) == ("line 140", "line 199")
    words = [
        "Traceback",
        "torch.AcceleratorError: CUDA error: an illegal memory access",
        "Compile with TORCH_USE_CUDA_DSA",
    ]
    assert last_error(words) == words[1]
    assert last_error(["one", "two"]) == "two"
    assert last_error([]) == ""


def test_what_is_no_row_is_passed_over(file):
    garbage = ["garbage", "[1, 2]", '{"case": 7}', '{"planned": "all"}', "\\xff\\xfe", '{"case": "half']
    code = ROW + f"[print(line) for line in {garbage!r}]; say(case='second', figure=2)"
    found = ran(file, part("odd", code), part("silent", "print('hello')"))
    assert (found["odd"]["status"], len(found["odd"]["rows"])) == ("done", 2)
    assert (found["silent"]["status"], found["silent"]["reason"]) == ("failed", "it said nothing")


def test_a_part_that_hangs_or_whose_child_goes_on_is_ended_with_all_that_it_started(file):
    parts = [
        part("hangs", LEAVES + "signal.pause()", share_s=3.0),
        part("leaves", LEAVES, share_s=7.0),
        part("next", WELL, share_s=7.0),
    ]
    found = ran(file, *parts, seconds=14)
    assert [found[name]["status"] for name in ("hangs", "leaves", "next")] == ["out of time", "done", "done"]
    for name in ("hangs", "leaves"):
        assert list(members(found[name]["rows"][1]["session"])) == []


def test_who_interrupts_it_leaves_nothing_running_and_has_what_was_said(file):
    def hear(line: str) -> None:
        if "second" in line:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Campaign(file, {}, hear).run([part("hangs", LEAVES + "signal.pause()"), part("next", WELL)], 600)
    found = read(file)
    assert [row["case"] for row in found["hangs"]["rows"]] == ["first", "second"]
    assert list(members(found["hangs"]["rows"][1]["session"])) == []
    assert found["next"]["status"] == "not reached"


def test_a_part_for_which_no_time_is_left_or_of_which_all_is_skipped_says_so(file):
    found = ran(file, part("late", WELL), seconds=0.5)
    assert (found["late"]["status"], found["late"]["reason"]) == ("not reached", "no time was left")
    found = ran(file, part("large", 'print(\'{"case": "first", "skipped": "too large"}\')'))
    assert (found["large"]["status"], found["large"]["reason"]) == ("skipped", "too large")


SHARES = st.lists(st.floats(1, 100), min_size=1, max_size=8)


@given(SHARES, st.floats(1, 1000), st.floats(0, 1))
def test_what_a_part_does_not_use_the_later_ones_have(shares, total_s, used):
    parts, left_s, given_s = [part("p", "", share) for share in shares], total_s, list[float]()
    for number in range(len(parts)):
        given_s.append(share_of(left_s, parts[number:]))
        left_s -= used * given_s[-1]
        least_s = total_s * shares[number] / sum(shares)
        assert given_s[-1] >= least_s * (1 - 1e-9)
    assert given_s[-1] == pytest.approx(left_s + used * given_s[-1])


def test_parts_are_run_in_their_order_and_a_case_is_planned_until_something_is_said_of_it(cpu):
    result = Result("p")
    assert result.hear('{"planned": ["a", "b"]}')
    assert result.hear('{"case": "b", "figure": 1}')
    assert result.not_reached == ["a"]
    names = [one.name for one in parts_on(cpu, ["walk", "logits"])]
    assert names == ["logits", "walk"]
    assert [one.name for one in parts_on(cpu, list(SHARES_S))] == list(SHARES_S)
    assert sum(SHARES_S[name] for name in parts_here(has_vllm=False)) <= 9 * 60


@rows(("kind", "kept"), [("H100", {"walk": "a", "logits": "b"}), ("L40S", {"logits": "b"})])
def test_parts_of_an_earlier_call_stay_where_the_device_is_the_same_and_say_their_commit(file, kind, kept):
    ran(file, part("walk", WELL), benchmark="gpu", commit="a", kind="H100")
    now = ran(file, part("logits", WELL), benchmark="gpu", commit="b", kind=kind)
    assert {name: each["commit"] for name, each in now.items()} == kept


def test_a_file_that_cannot_be_written_is_refused_and_nothing_is_left_beside_one_that_can(file, tmp_path):
    file.write_text("results")
    check_writable(file)
    assert file.read_text() == "results"
    file.unlink()
    ran(file, part("p", WELL))
    assert [path.name for path in tmp_path.iterdir()] == ["gpu.json"]
    for wrong in (tmp_path, tmp_path / "none" / "gpu.json", file / "gpu.json"):
        with pytest.raises(NotWritableError, match="cannot be written"):
            check_writable(wrong)
