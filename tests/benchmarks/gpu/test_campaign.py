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
    parts_on,
    share_of,
)
from benchmarks.gpu.machine import Machine

ROW = """
import json, os, signal, subprocess, sys
def say(**row): print(json.dumps(row), flush=True)
say(planned=["first", "second"])
say(case="first", figure=1)
"""
WELL = ROW + "say(case='second', figure=2)"
AWRY = {
    "raises": ROW + "raise ValueError('planted')",
    "exits": ROW + "print('planted', file=sys.stderr); sys.exit(3)",
    "dies": ROW + "os.kill(os.getpid(), signal.SIGSEGV)",
    "says that a case failed": ROW + "say(case='second', problem='planted')",
}
REASONS = {
    "raises": "ValueError: planted",
    "exits": "planted",
    "dies": "ended by SIGSEGV",
    "says that a case failed": "second: planted",
}


def part(name: str, code: str, share_s: float = 1.0) -> Part:
    return Part(name, share_s, (sys.executable, "-S", "-c", code))


def read(file: Path) -> dict[str, dict[str, Any]]:
    return {one["part"]: one for one in json.loads(file.read_text(encoding="utf-8"))["parts"]}


def ran(file: Path, parts: list[Part], seconds: float = 600.0) -> dict[str, dict[str, Any]]:
    Campaign(file, {}, lambda _: None).run(parts, seconds)
    return read(file)


@pytest.mark.parametrize("name", SHARES_S)
def test_a_failure_planted_in_a_part_leaves_the_rows_of_all(tmp_path: Path, name: str) -> None:
    parts = [part(other, AWRY["raises"] if other == name else WELL) for other in SHARES_S]
    found = ran(tmp_path / "gpu.json", parts)
    assert {other: one["status"] for other, one in found.items()} == {
        other: "failed" if other == name else "done" for other in SHARES_S
    }
    assert {other: len(one["rows"]) for other, one in found.items()} == {
        other: 1 if other == name else 2 for other in SHARES_S
    }
    assert found[name]["not_reached"] == ["second"]


@pytest.mark.parametrize("way", AWRY)
def test_a_part_that_goes_awry_says_why_and_the_next_goes_on(tmp_path: Path, way: str) -> None:
    found = ran(tmp_path / "gpu.json", [part("odd", AWRY[way]), part("next", WELL)])
    assert (found["odd"]["status"], found["odd"]["reason"]) == ("failed", REASONS[way])
    assert found["odd"]["rows"][0] == {"case": "first", "figure": 1}
    assert found["next"]["status"] == "done"


def test_what_a_part_wrote_before_it_failed_is_kept(tmp_path: Path) -> None:
    code = ROW + "[print(f'line {n}', file=sys.stderr) for n in range(200)]; sys.exit(1)"
    words = ran(tmp_path / "gpu.json", [part("odd", code)])["odd"]["last_words"]
    assert (words[0], words[-1]) == ("line 140", "line 199")


def test_the_reason_is_the_error_and_not_the_advice_after_it() -> None:
    words = [
        "Traceback",
        "torch.AcceleratorError: CUDA error: an illegal memory access",
        "Compile with TORCH_USE_CUDA_DSA",
    ]
    assert last_error(words) == words[1]
    assert last_error(["one", "two"]) == "two"
    assert last_error([]) == ""


def test_what_is_no_row_is_passed_over(tmp_path: Path) -> None:
    garbage = ["garbage", "[1, 2]", '{"case": 7}', '{"planned": "all"}', "\\xff\\xfe", '{"case": "half']
    code = ROW + f"[print(line) for line in {garbage!r}]; say(case='second', figure=2)"
    found = ran(tmp_path / "gpu.json", [part("odd", code), part("silent", "print('hello')")])
    assert (found["odd"]["status"], len(found["odd"]["rows"])) == ("done", 2)
    assert (found["silent"]["status"], found["silent"]["reason"]) == ("failed", "it said nothing")


@pytest.mark.slow
def test_a_part_that_hangs_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    """An engine's driver makes a process group of its own."""
    code = ROW + (
        "child = subprocess.Popen(['sleep', '1000'], process_group=0)\n"
        "say(case='second', child=child.pid, session=os.getsid(0))\n"
        "signal.pause()"
    )
    parts = [part("hangs", code, share_s=3.0), part("next", WELL, share_s=7.0)]
    found = ran(tmp_path / "gpu.json", parts, seconds=8)
    assert found["hangs"]["status"] == "out of time"
    _, row = found["hangs"]["rows"]
    assert list(members(row["session"])) == []
    assert found["next"]["status"] == "done"


def test_who_interrupts_it_leaves_nothing_running_and_has_what_was_said(tmp_path: Path) -> None:
    code = ROW + "say(case='second', session=os.getsid(0)); signal.pause()"

    def hear(line: str) -> None:
        if "second" in line:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Campaign(tmp_path / "gpu.json", {}, hear).run([part("hangs", code), part("next", WELL)], 600)
    found = read(tmp_path / "gpu.json")
    assert [row["case"] for row in found["hangs"]["rows"]] == ["first", "second"]
    assert list(members(found["hangs"]["rows"][1]["session"])) == []
    assert found["next"]["status"] == "not reached"


def test_a_part_whose_child_goes_on_does_not_keep_it(tmp_path: Path) -> None:
    code = ROW + (
        "child = subprocess.Popen(['sleep', '1000'], process_group=0, stdout=subprocess.DEVNULL)\n"
        "say(case='second', session=os.getsid(0))"
    )
    found = ran(tmp_path / "gpu.json", [part("leaves", code)])
    assert found["leaves"]["status"] == "done"
    assert list(members(found["leaves"]["rows"][1]["session"])) == []


def test_where_no_time_is_left_a_part_is_not_begun(tmp_path: Path) -> None:
    found = ran(tmp_path / "gpu.json", [part("late", WELL)], seconds=0.5)
    assert (found["late"]["status"], found["late"]["reason"]) == ("not reached", "no time was left")


def test_a_part_of_which_all_is_skipped_is_skipped_with_the_reason(tmp_path: Path) -> None:
    code = 'print(\'{"case": "first", "skipped": "too large"}\')'
    found = ran(tmp_path / "gpu.json", [part("large", code)])
    assert (found["large"]["status"], found["large"]["reason"]) == ("skipped", "too large")


SHARES = st.lists(st.floats(1, 100), min_size=1, max_size=8)


@given(SHARES, st.floats(1, 1000), st.floats(0, 1))
def test_what_a_part_does_not_use_the_later_ones_have(
    shares: list[float], total_s: float, used: float
) -> None:
    parts, left_s, given_s = [part("p", "", share) for share in shares], total_s, list[float]()
    for number in range(len(parts)):
        given_s.append(share_of(left_s, parts[number:]))
        left_s -= used * given_s[-1]
        least_s = total_s * shares[number] / sum(shares)
        assert given_s[-1] >= least_s * (1 - 1e-9)
    assert given_s[-1] == pytest.approx(left_s + used * given_s[-1])


def test_a_case_is_planned_until_something_is_said_of_it() -> None:
    result = Result("p")
    assert result.hear('{"planned": ["a", "b"]}')
    assert result.hear('{"case": "b", "figure": 1}')
    assert result.not_reached == ["a"]


def test_parts_are_run_in_their_order_whatever_order_they_are_named_in(cpu: Machine) -> None:
    names = [one.name for one in parts_on(cpu, ["walk", "logits"])]
    assert names == ["logits", "walk"]
    assert [one.name for one in parts_on(cpu, list(SHARES_S))] == list(SHARES_S)
    assert sum(SHARES_S.values()) <= 9 * 60


@pytest.mark.parametrize(("commit", "kept"), [("a", True), ("b", False)])
def test_parts_of_an_earlier_call_stay_where_the_code_is_the_same(
    tmp_path: Path, commit: str, kept: bool
) -> None:
    file = tmp_path / "gpu.json"
    for name, said in (("walk", "a"), ("logits", commit)):
        document = {"benchmark": "gpu", "commit": said, "kind": "H100"}
        Campaign(file, document, lambda _: None).run([part(name, WELL)], 600)
    assert set(read(file)) == ({"walk", "logits"} if kept else {"logits"})


def test_a_file_that_cannot_be_written_is_refused_and_one_that_can_stays_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "gpu.json"
    file.write_text("results")
    check_writable(file)
    assert file.read_text() == "results"
    assert [path.name for path in tmp_path.iterdir()] == ["gpu.json"]
    for wrong in (tmp_path, tmp_path / "none" / "gpu.json", file / "gpu.json"):
        with pytest.raises(NotWritableError, match="cannot be written"):
            check_writable(wrong)


def test_nothing_is_left_beside_the_file(tmp_path: Path) -> None:
    ran(tmp_path / "gpu.json", [part("p", WELL)])
    assert [path.name for path in tmp_path.iterdir()] == ["gpu.json"]
