"""Pictures: the same data gives the same bytes, words are text, and a path that cannot be written is named."""

import subprocess
import sys
from xml.etree import ElementTree as ET

import matplotlib as mpl
import pytest

from benchmarks.pictures import Pair, SplitCurve, draw_pairs, draw_splits
from benchmarks.stops import StopCurve, draw_stops
from intentctl.plots import GuideLine, draw_frontier
from intentctl.status import CommandError
from selector.models import Frontier
from tests.rows import rows

CURVES = (
    Frontier("A100x4", "A100x4:0-80@bf16", (0.5, 1.0, 1.9), (0.2, 0.3, 4.0), (0.03, 0.05, 0.2), 2.0),
    Frontier("A100x1", "A100x1:0-80@bf16", (), (), (), 0.0),
)
BOUNDS = (
    GuideLine("ttft_s", 2.0, "P99 TTFT at most 2 s"),
    GuideLine("tpot_s", 0.1, "P99 TPOT at most 100 ms"),
    GuideLine("rate_rps", 1.5, "workload: 1.5 requests/s"),
)
SPLITS = (
    SplitCurve("prompts", ("A100", "L40S"), 4, {1: 1000.0, 2: 1500.0, 3: 2000.0}),
    SplitCurve("answers", ("A100", "L40S"), 4, {1: 900.0, 2: 600.0}),
)
PAIRS = (
    Pair("A100", "TTFT (ms)", 100.0, 110.0, fitted=True),
    Pair("L40S", "TTFT (ms)", 50.0, 80.0, fitted=False),
    Pair("A100", "throughput (tokens/s)", 1000.0, 900.0, fitted=True),
)
STOPS = (
    StopCurve("patch 1x1-tp2", {10: (-0.5, 3.0), 200: (4.0, 20.0)}),
    StopCurve("restart 1x1-tp2", {10: (4000.0, 5000.0)}),
    StopCurve("drain 1x1-tp2", {}),
)
DRAWN = {
    "stops": lambda path: draw_stops(STOPS, "streams that run", path),
    "frontier": lambda path: draw_frontier(CURVES, BOUNDS, path),
    "splits": lambda path: draw_splits(SPLITS, path),
    "pairs": lambda path: draw_pairs(PAIRS, 0.15, path),
}


@pytest.fixture
def words(tmp_path):
    """All text of a picture."""

    def words(draw):
        file = tmp_path / "words.svg"
        draw(file)
        root = ET.fromstring(file.read_text(encoding="utf-8"))
        return " | ".join("".join(one.itertext()) for one in root.iter("{http://www.w3.org/2000/svg}text"))

    return words


@pytest.mark.slow
@rows("name", DRAWN)
def test_the_same_data_gives_the_same_bytes_whatever_the_settings(name, tmp_path):
    DRAWN[name](tmp_path / "one.svg")
    with mpl.rc_context({"font.size": 30, "axes.edgecolor": "red", "svg.hashsalt": "mine"}):
        DRAWN[name](tmp_path / "two.svg")
        assert mpl.rcParams["font.size"] == 30
    first, second = ((tmp_path / file).read_bytes() for file in ("one.svg", "two.svg"))
    assert first == second


@pytest.mark.slow
def test_a_frontier_names_curves_saturation_bounds_and_units_in_any_script(words):
    found = words(DRAWN["frontier"])
    for said in (
        "A100x4: saturated at 2 requests/s (dotted)", "A100x1: not one request fits", *(bound.label for bound in BOUNDS),
        "P99 TTFT (s)", "P99 TPOT (ms)", "request rate (requests/s)",
    ):  # fmt: skip
        assert said in found
    assert {"50", "100", "200"} <= set(words(DRAWN["frontier"]).split(" | "))
    bound = GuideLine("ttft_s", 2.0, "企业: $1_a$ at most 2 s")
    assert bound.label in words(lambda path: draw_frontier(CURVES, [bound], path))


@pytest.mark.slow
@rows(
    "curve",
    [CURVES[1], Frontier("one token", "A100x1:0-80@bf16", (1.0, 2.0), (0.1, 0.2), (0.0, 0.0), 3.0)],
    ids=["none", "one"],
)
def test_a_latency_that_there_is_none_of_is_said(words, curve):
    assert "none" in words(lambda path: draw_frontier([curve], BOUNDS, path)).split(" | ")


@pytest.mark.slow
def test_splits_stops_and_pairs_name_what_they_show(words):
    found = words(DRAWN["splits"])
    for said in ("best: 3 layers", "2,000 tokens/s", "best: 1 layers", "layers on the L40S, of 4", "-50%"):
        assert said in found
    assert "0.5" not in found  # layers are whole
    assert found.count("%") == 1  # the other's best has no room here
    found = words(DRAWN["stops"])
    for said in ("patch 1x1-tp2", "restart 1x1-tp2", "drain 1x1-tp2", "streams that run", "5,000"):
        assert said in found
    found = words(DRAWN["pairs"])
    for said in ("TTFT (ms)", "throughput (tokens/s)", "A100", "L40S", "50% of 2", "100% of 1", "within 15%"):
        assert said in found


@rows(
    ("file", "reason"),
    [
        ("nowhere/out.svg", "cannot be written: there is no folder"),
        ("folder.svg", "cannot be written: Is a directory"),
        ("out.png", "name that ends with .svg"),
    ],
)
def test_a_path_that_cannot_be_written_is_named(tmp_path, file, reason):
    (tmp_path / "folder.svg").mkdir(exist_ok=True)
    with pytest.raises(CommandError, match=reason) as refused:
        DRAWN["splits"](tmp_path / file)
    assert file in str(refused.value)


@pytest.mark.slow
def test_nothing_is_drawn_with_before_something_is_drawn():
    code = "import sys, intentctl.plots; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
