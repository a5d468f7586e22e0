import json
import subprocess
import sys

import pytest

from benchmarks.cutover import main, parameters_of, parser


def test_all_means_every_mode_the_engine_has():
    def modes(engine):
        return parameters_of(parser().parse_args(["--engine", engine, "--mode", "all"])).modes

    assert modes("torch") == ("patch", "stop-and-copy", "gather-scatter", "replay", "restart", "drain")
    assert modes("vllm") == ("patch", "follow", "replay", "restart", "drain")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--pairs", "1x1"], "joined by one dash"),
        (["--pairs", "1x1-tp3"], "TP 3 does not divide"),
        (["--mode", "follow"], "switches by patch, stop-and-copy, gather-scatter only"),
        (["--engine", "vllm", "--mode", "stop-and-copy"], "switches by patch, follow only"),
        (["--active", "10,many"], "whole numbers joined by commas"),
        (["--plot", "stops.png"], "ends with .svg"),
        (["--deployment", "nowhere.yaml"], "nowhere.yaml"),
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
@pytest.mark.exhaustive
def test_every_mode_is_measured_on_the_torch_engine(tmp_path):
    file, picture = tmp_path / "cutover.json", tmp_path / "stops.svg"
    sizes = ["--active", "3", "--switches", "1", "--context", "60", "--output", "400", "--pairs", "1x1-tp2"]
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "benchmarks.cutover",
            "--mode",
            "all",
            *sizes,
            "--json",
            file,
            "--plot",
            picture,
            "-o",
            "json",
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    document = json.loads(file.read_text())
    assert json.loads(done.stdout) == document
    assert "streams that run" in picture.read_text()
    results = {one["mode"]: one for one in document["rows"]}
    assert list(results) == ["patch", "stop-and-copy", "gather-scatter", "replay", "restart", "drain"]
    for one in results.values():
        assert one["error"] is None
        assert one["switches"] == 2
        assert (one["tokens_lost"], one["tokens_duplicated"]) == (0, 0)
    assert results["patch"]["paths"] == {"patch": 6}
    assert results["patch"]["bytes_before"] > 0
    assert results["patch"]["tokens_recomputed"] == 0
    assert results["patch"]["stops"] > 0
    assert results["patch"]["fence_to_commit_ms"]["max"] > 0
    assert results["patch"]["bytes_inside"] < results["stop-and-copy"]["bytes_inside"]
    assert results["stop-and-copy"]["bytes_inside"] < results["gather-scatter"]["bytes_inside"]
    assert results["stop-and-copy"]["tokens_recomputed"] == 0
    assert results["restart"]["tokens_recomputed"] > 6 * 54
    assert results["replay"]["tokens_recomputed"] > 6 * 54
    assert results["drain"]["left_to_drain"] == 6
    assert document["parameters"]["switches"] == [1]
