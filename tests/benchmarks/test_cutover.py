import json

from benchmarks.cutover import parameters_of, parser


def test_all_means_every_mode_the_engine_has():
    def modes(engine):
        return parameters_of(parser().parse_args(["--engine", engine, "--mode", "all"])).modes

    assert modes("torch") == ("patch", "stop-and-copy", "gather-scatter", "replay", "restart", "drain")
    assert modes("vllm") == ("patch", "follow", "replay", "restart", "drain")


def test_every_mode_is_measured_on_the_torch_engine(measured, tmp_path):
    picture = tmp_path / "stops.svg"
    sizes = ["--active", "3", "--switches", "1", "--context", "60", "--output", "400", "--pairs", "1x1-tp2"]
    more = ("--plot", picture, "-o", "json")
    document, printed = measured("cutover", "--mode", "all", *sizes, *more)
    assert json.loads(printed) == document
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
