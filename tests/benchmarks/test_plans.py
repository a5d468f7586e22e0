import json
import random

from benchmarks.plans import SMALL, main, questions, topologies
from benchmarks.questions import cluster_of


def test_every_pipeline_is_there_once_and_the_same_seed_asks_the_same():
    found = list(topologies(cluster_of(1, 1)))
    assert len(found) == len(set(found)) == 2 + 2 * (SMALL.num_layers - 1)
    assert {one.stages[-1].layers.end for one in found} == {SMALL.num_layers}
    asked = (questions(random.Random(1)), questions(random.Random(1)))
    for _ in range(5):
        assert next(asked[0]) == next(asked[1])


def test_few_plans_give_a_table_and_a_file(tmp_path, capsys):
    assert main(["--count", "2", "--json", str(tmp_path / "plans.json")]) == 0
    rows = json.loads((tmp_path / "plans.json").read_text())["rows"]
    assert rows["near"]["plans"] == 2
    assert rows["stays"] == {"goals hold already": 2, "nothing to change": 2}
    assert rows["moves"]["must move"] == 2
    for wrong in ("dearer than the cheapest of all", "refused though something holds", "nearest farther off than 5 %"):
        assert rows["moves"][wrong] == 0
    assert "margins with the sign of the simulation" in capsys.readouterr().out
