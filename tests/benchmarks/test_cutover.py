import json
import subprocess
import sys

import pytest

from benchmarks.cutover import main, parameters_of, parser


def test_all_means_every_mode_the_engine_has():
    def modes(engine):
        return parameters_of(parser().parse_args(["--engine", engine, "--mode", "all"])).modes

    assert modes("torch") == ("patch", "replay", "drain")
    assert modes("vllm") == ("patch", "follow", "replay", "drain")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--pairs", "1x1"], "joined by one dash"),
        (["--pairs", "1x1-tp3"], "TP 3 does not divide"),
        (["--mode", "follow"], "switches by patch only"),
        (["--context", "20000"], "over the model's 16384"),
    ],
)
def test_bad_input_is_one_line_that_names_it(capsys, arguments, message):
    assert main(arguments) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("error: ")
    assert message in said.err
    assert said.err.count("\n") == 1


@pytest.mark.slow
def test_every_mode_is_measured_on_the_torch_engine(tmp_path):
    file = tmp_path / "cutover.json"
    sizes = ["--streams", "3", "--switches", "1", "--context", "60", "--output", "400", "--pairs", "1x1-tp2"]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.cutover", "--mode", "all", *sizes, "--json", file],
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    assert "stop p99 drain/patch" in done.stdout
    document = json.loads(file.read_text())
    results = {one["mode"]: one for one in document["results"]}
    assert list(results) == ["patch", "replay", "drain"]
    for one in results.values():
        assert one["error"] is None
        assert one["switches"] == 2
        assert (one["tokens_lost"], one["tokens_duplicated"]) == (0, 0)
    assert results["patch"]["paths"] == {"patch": 6}
    assert results["patch"]["bytes_before"] > 0
    assert results["patch"]["tokens_recomputed"] == 0
    assert results["patch"]["stops"] > 0
    assert results["replay"]["tokens_recomputed"] > 6 * 54
    assert results["drain"]["left_to_drain"] == 6
    assert document["parameters"]["switches"] == 1
