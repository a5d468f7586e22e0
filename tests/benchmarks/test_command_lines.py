"""Each benchmark can be imported and says what it takes, and refuses what it cannot run, in one line that names it."""

import importlib
import inspect
import pkgutil
import shlex
from pathlib import Path

import pytest

import benchmarks
from tests.rows import rows

COSTS = ["--stop-ms", "5", "--prepare-s", "0.5", "--syncing-ratio", "1.1"]
"""What a simulation of pressure would otherwise read from results."""
FILE = Path(__file__).parents[1] / "data" / "benchmark-refusals.txt"
REFUSED = [line.split(" | ") for line in FILE.read_text(encoding="utf-8").splitlines()[1:]]


@pytest.mark.slow
def test_every_benchmark_is_imported_and_its_command_line_read(capsys):
    helped = set()
    for name in (one.name for one in pkgutil.walk_packages(benchmarks.__path__, "benchmarks.")):
        module = importlib.import_module(name)
        if hasattr(module, "parser"):
            assert module.parser().format_help()
            helped.add(name)
        elif hasattr(module, "main") and "arguments" in inspect.signature(module.main).parameters:
            with pytest.raises(SystemExit) as ended:
                module.main(["--help"])
            assert ended.value.code == 0
            assert capsys.readouterr().out.startswith("usage: ")
            helped.add(name)
    assert {"benchmarks.cutover", "benchmarks.search", "benchmarks.gpu.__main__"} <= helped
    assert len(helped) >= 20


@pytest.mark.slow
@pytest.mark.exhaustive
@rows(("benchmark", "arguments", "message"), REFUSED)
def test_what_cannot_be_run_is_one_line_that_names_it(benchmark, arguments, message, capsys):
    given = [*(COSTS if benchmark == "pressure" else ()), *shlex.split(arguments)]
    assert importlib.import_module(f"benchmarks.{benchmark}").main(given) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("error: ")
    assert message in said.err
    assert said.err.count("\n") == 1


@pytest.mark.exhaustive
@rows(
    ("benchmark", "wrong"),
    [
        ("engine", ["--streams", "0"]),
        ("engine", ["--rounds", "-1"]),
        ("engine", ["--checkpoint", "gpt"]),
        ("engine", ["-o", "xml"]),
        *(("llm_faults", ["--deadline", deadline]) for deadline in ("0", "-1", "601", "soon")),
    ],
)
def test_an_option_that_cannot_be_is_refused(benchmark, wrong, capsys):
    with pytest.raises(SystemExit) as ended:
        importlib.import_module(f"benchmarks.{benchmark}").main(wrong)
    assert ended.value.code == 2
    assert "error: argument" in capsys.readouterr().err
