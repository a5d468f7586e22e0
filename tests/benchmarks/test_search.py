"""The questions, the document, and CP-SAT beside the search."""

import argparse
import json
import os
import sys

import pytest

from benchmarks import search
from benchmarks.cp_sat import Found
from benchmarks.questions import PRECISIONS, cluster_of, quality_questions, questions
from benchmarks.search import agree, beside, disagreements, in_new_process, main, nearest_rank, sizes
from intent.models import Objective, PrecisionRule
from tests.rows import rows


@pytest.fixture
def few(monkeypatch):
    """Two questions, asked in this process."""
    monkeypatch.setattr("benchmarks.search.questions", lambda *size: [questions(*size)[n] for n in (0, -1)])
    monkeypatch.setattr("benchmarks.search.in_new_process", lambda measure, *arguments: measure(*arguments))


def test_the_questions_are_the_same_every_time_and_of_all_sorts():
    one = questions(4, 4)
    assert one == questions(4, 4)
    assert [question.goals for question in one] == [question.goals for question in questions(16, 16)]
    assert [question.problem.workload for question in one] == [
        question.problem.workload for question in questions(16, 16)
    ]
    asked = questions(8, 8)
    assert len({(question.goals, str(question.problem)) for question in asked}) == len(asked) >= 40
    goals = {(goal.metric, goal.op) for one in asked for goal in one.goals if isinstance(goal, Objective)}
    assert {("ttft", "<="), ("tpot", "<="), ("cost", "minimize"), ("throughput_tok", "maximize")} <= goals
    assert 5 < sum(question.problem.now is not None for question in asked) < len(asked) - 5
    allowed = {goal.value for goal in asked[0].goals if isinstance(goal, PrecisionRule)}
    assert allowed == set(PRECISIONS) == {"bf16", "fp16", "fp8", "int8", "int4"}
    assert {question.problem.now for question in questions(1, 1)} == {None}


def test_the_same_is_asked_under_a_bound_on_quality_loss():
    plain, bounded = questions(4, 4), quality_questions(4, 4)
    for one, other in zip(plain, bounded, strict=True):
        *goals, lost = other.goals
        assert tuple(goals) == one.goals[len(PRECISIONS) :]
        assert lost.metric == "quality_loss"
        assert 0.001 <= lost.value <= 0.02


def test_a_cluster_has_nodes_of_eight_and_is_measured_in_a_process_of_its_own():
    cluster = cluster_of(12, 8)
    assert [len(node.gpus) for node in cluster.nodes] == [8, 4, 8]
    assert [gpu.index for gpu in cluster.gpus] == list(range(20))
    assert [node.link.kind for node in cluster.nodes] == ["nvlink", "nvlink", "pcie"]
    assert cluster.network is not None
    assert in_new_process(os.getpid) != os.getpid()
    assert [nearest_rank([4.0, 1.0, 3.0, 2.0], share) for share in (0.5, 0.95, 1.0)] == [2.0, 4.0, 4.0]


@pytest.mark.usefixtures("few")
def test_one_document_is_printed_and_written(tmp_path, capsys):
    file = tmp_path / "search.json"
    assert main(["--clusters", "2+2,4+0", "--repeat", "2", "-o", "json", "--json", str(file)]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document == json.loads(file.read_text(encoding="utf-8"))
    assert document["benchmark"] == "search"
    assert {"commit", "hardware", "versions", "parameters", "load_average", "load_average_after"} <= set(document)
    row, other = document["rows"]
    assert [(one["a100"], one["l40s"]) for one in (row, other)] == [(2, 2), (4, 0)]
    assert (row["questions"], row["plans"], row["infeasible"]) == (2, 1, 1)
    assert 0 < row["p50_ms"] <= row["p95_ms"] <= row["max_ms"]
    assert row["cold_ms"] > 0
    assert row["batch_sizes"] > 10
    assert row["memory_mb"] >= row["memory_before_mb"] > 10


@pytest.mark.usefixtures("few")
def test_a_table_is_the_default(capsys):
    assert main(["--clusters", "2+2", "--repeat", "1"]) == 0
    head, row = capsys.readouterr().out.splitlines()
    assert head.split()[:3] == ["A100+L40S", "p50", "ms"]
    assert row.split()[0] == "2+2"
    assert row.split()[6] == "50%"


@rows("text", ["", "4", "4+x", "0+0", "-1+4", "4+4,"])
def test_clusters_that_cannot_be_are_refused(text):
    with pytest.raises(argparse.ArgumentTypeError, match=r"should read like 4\+4"):
        sizes(text)


def test_cp_sat_finds_the_same_optimum():
    pytest.importorskip("ortools", reason="OR-tools is not installed")
    row = beside((2, 1), limit_s=60.0)
    for core in (row["one_point"], row["all_points"]):
        assert core["cp_sat"]["status"] == "OPTIMAL"
        assert core["cp_sat"]["value"] == pytest.approx(core["ours_value"], rel=1e-6)
        assert core["agree"]
    assert row["one_point"]["points"] == 1 < row["all_points"]["points"]


@rows(
    ("ours", "found", "agreed"),
    [
        (0.1, Found("OPTIMAL", 0.1, 0.1, 1.0), True),
        (0.1, Found("FEASIBLE", 0.2, 0.0, 1.0), True),
        (0.1, Found("UNKNOWN", None, 0.05, 1.0), True),
        (0.1, Found("FEASIBLE", 0.0999, 0.0, 1.0), False),
        (0.1, Found("OPTIMAL", 0.1001, 0.1001, 1.0), False),
        (0.1, Found("INFEASIBLE", None, 0.0, 1.0), False),
        (None, Found("INFEASIBLE", None, 0.0, 1.0), True),
        (None, Found("OPTIMAL", 0.1, 0.1, 1.0), False),
    ],
)
def test_what_speaks_against_an_optimum(ours, found, agreed):
    assert agree(ours, found, 80) is agreed


@pytest.mark.usefixtures("few")
def test_another_optimum_is_said_and_fails(monkeypatch, capsys):
    core = {"points": 1, "ours_value": 0.1, "ours_seconds": 0.01, "agree": False}
    core["cp_sat"] = {"status": "OPTIMAL", "value": 0.09, "bound": 0.09, "seconds": 1.0}
    monkeypatch.setattr("benchmarks.search.beside", lambda size, limit_s: {"one_point": core})
    monkeypatch.setattr("benchmarks.cp_sat.required", lambda: None)
    assert main(["--clusters", "2+2", "--repeat", "1", "--beside", "cp-sat"]) == 1
    said = capsys.readouterr()
    assert "ANOTHER OPTIMUM" in said.out
    assert "2+2, 1 operating points: the search has 0.1 s" in said.err
    assert disagreements([{"a100": 2, "l40s": 2, "one_point": core | {"agree": True}}]) == []


def test_without_or_tools_it_says_what_to_install(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "ortools", None)
    monkeypatch.setattr(search, "in_new_process", lambda *_: pytest.fail("measured before looking"))
    assert main(["--clusters", "2+2", "--beside", "cp-sat"]) == 2
    assert "pip install 'ortools" in capsys.readouterr().err
