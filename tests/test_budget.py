"""The budget of the tests says no in time, and the tiers leave out what they say."""

import json
import subprocess
import sys
from types import SimpleNamespace

import pytest

from tests import budget
from tests.budget import BETWEEN, Cost, Meter, overrun
from tests.conftest import left_out
from tests.rows import rows


@rows(
    ("units", "named"),
    [
        ({"a": 100.0, "b": 14.0}, []),
        ({"a": 60.0, "b": 50.0, "new": 4.0}, []),
        ({"a": 90.0, "b": 10.0, "new": 16.0}, ["new: 0 -> 16"]),
        ({"a": 130.0, "b": 20.0}, ["a: 90 -> 130", "b: 10 -> 20"]),
    ],
)
def test_more_than_the_whole_may_take_names_what_grew_the_most_first(units, named):
    found = overrun(units, {"a": 90.0, "b": 10.0})
    assert [line.strip() for line in found[1:-1]] == named
    assert not found or "115 is the most" in found[0]


def test_ten_modules_are_named_at_most():
    found = overrun({str(number): 10.0 + number for number in range(30)}, {})
    assert [line.split(":")[0].strip() for line in found[1:-1]] == [str(number) for number in range(29, 19, -1)]


def test_a_run_is_what_all_its_processes_took_by_the_median_of_their_calculations():
    meters = [
        {"modules": {"a": 1.0, "b": 2.0}, "calculations": [0.01, 0.02, 0.9]},
        {"modules": {"b": 3.0}, "calculations": [0.02]},
    ]
    cost = Cost.of(meters)
    assert cost.units == {"a": 50.0, "b": 250.0}
    assert cost.summary == "CPU 6 s, 300 times the fixed calculation (20.0 ms here)"


def test_what_nobody_is_charged_with_is_counted_too(monkeypatch):
    group = SimpleNamespace(spent_s=lambda: 12.0, close=lambda: None)
    meter = Meter(group, calculations=[1.0])
    monkeypatch.setattr(budget, "calculation", lambda: 2.0)
    meter.note("a", 4.0)
    assert meter.calculations == [1.0]
    meter.note("b", 3.0)
    assert meter.calculations == [1.0, 2.0]
    assert meter.close()["modules"] == {"a": 4.0, "b": 3.0, BETWEEN: 2.0}


def test_a_process_that_nobody_waited_for_is_counted(tmp_path):
    """The child ends behind its parent, and so is nobody's."""
    grandchild = "sum(range(10**7)); open('done', 'w').close()"
    child = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {grandchild!r}])"
    script = (
        "import pathlib, subprocess, sys, time\n"
        "from tests.budget import Group\n"
        "group = Group()\n"
        f"subprocess.run([sys.executable, '-c', {child!r}], cwd=sys.argv[1])\n"
        "while not (pathlib.Path(sys.argv[1]) / 'done').exists(): time.sleep(0.01)\n"
        "print(group._is_counted, group.spent_s() - group._own_s())\n"
        "group.close()\n"
    )
    command = [sys.executable, "-c", script, str(tmp_path)]
    told = subprocess.run(command, cwd=budget.ROOT, capture_output=True, text=True, check=True)
    is_counted, more_s = told.stdout.split()
    if is_counted == "False":
        pytest.skip("no control group can be made here: it takes root and cpuacct")
    assert float(more_s) > 0.05


def test_the_last_run_is_held_to_the_record(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(budget, "ROOT", tmp_path)
    monkeypatch.setattr(budget, "RECORD", tmp_path / "budget.json")
    monkeypatch.setattr(sys, "argv", ["budget"])
    assert budget.main() == 2
    assert "`make test` first" in capsys.readouterr().err
    last = tmp_path / ".pytest_cache" / "v" / budget.LAST
    last.parent.mkdir(parents=True)
    last.write_text(json.dumps({"modules": {"a": 2.0}, "unit_s": 0.02}))
    monkeypatch.setattr(sys, "argv", ["budget", "--record"])
    assert budget.main() == 0
    assert json.loads((tmp_path / "budget.json").read_text()) == {"a": 100.0}
    monkeypatch.setattr(sys, "argv", ["budget"])
    assert budget.main() == 0
    last.write_text(json.dumps({"modules": {"a": 2.0, "b": 0.4}, "unit_s": 0.02}))
    assert budget.main() == 1
    assert "b: 0 -> 20" in capsys.readouterr().out


@rows(
    ("expression", "names"),
    [
        ("not slow and not vllm", {"slow", "vllm"}),
        ("not exhaustive", {"exhaustive"}),
        ("exhaustive", set()),
        ("not (slow and vllm)", set()),
        ("not slow or vllm", set()),
        ("", set()),
    ],
)
def test_a_list_of_what_is_left_out_is_understood_and_nothing_else(expression, names):
    assert left_out(SimpleNamespace(option=SimpleNamespace(markexpr=expression))) == names
