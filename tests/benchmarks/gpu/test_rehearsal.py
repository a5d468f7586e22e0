"""The whole campaign, tiny and on a CPU, in an environment that has only the packages of a bare GPU machine."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.gpu.campaign import parts_here

ROOT = Path(__file__).parents[3]
ROWS = {
    "logits": 8,
    "tests": 4,
    "walk": 12,
    "formats": 14,
    "kv-copy": 3,
    "cutover": 2,
    "resize": 3,
    "overhead": 1,
    "profile": 21,
}


def rehearse(env: dict[str, str], file: Path, *more: str) -> tuple[int, dict[str, Any]]:
    command = [sys.executable, "-m", "benchmarks.gpu", "--device", "cpu", "--json", str(file), *more]
    status = subprocess.run(command, cwd=ROOT, env=env, check=False).returncode
    return status, json.loads(file.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def rehearsed(tmp_path_factory: pytest.TempPathFactory) -> tuple[int, dict[str, Any]]:
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parent / "bare")}
    return rehearse(env, tmp_path_factory.mktemp("gpu") / "gpu-CPU.json")


def test_every_part_has_its_rows_and_none_went_wrong(rehearsed):
    status, document = rehearsed
    found = {one["part"]: one for one in document["parts"]}
    assert {name: one["reason"] for name, one in found.items() if one["status"] not in {"done", "skipped"}} == {}
    assert {name: len(one["rows"]) for name, one in found.items()} == ROWS
    assert list(found) == parts_here(has_vllm=False)
    assert status == 0
    assert [name for name, one in found.items() if one["status"] == "skipped"] in ([], ["tests"])
    _, document = rehearsed
    assert {"date", "commit", "hardware", "versions", "stolen_s", "stolen_after_s"} <= set(document)
    assert {"torch", "triton", "transformers", "numpy", "python"} <= set(document["versions"])
    assert (document["benchmark"], document["kind"]) == ("gpu", "CPU")
    _, document = rehearsed
    rows = {one["part"]: one["rows"] for one in document["parts"]}
    assert all(row["relative_error"] < 1e-5 for row in rows["logits"])
    assert all(row["digests_compared"] and row["worst_logprob_difference"] < 1e-4 for row in rows["walk"])
    products = [row for row in rows["formats"] if row["case"].startswith("product")]
    assert [[*row["us"]] == [*row["bf16_us"]] == ["1", "16", "64", "256"] for row in products] == [True] * 8
    swaps = [row["blocks_gained"] for row in rows["formats"] if row["case"].startswith("swap")]
    assert (swaps[0] > 0, swaps[2] > swaps[0], swaps[::2]) == (True, True, [-count for count in swaps[1::2]])
    assert all(row["gb_s"] > 0 and row["plain_gb_s"] > 0 for row in rows["kv-copy"])
    assert [row["mode"] for row in rows["cutover"]] == ["patch", "stop-and-copy"]
    assert all(row["stop_ms"] and row["sham_stop_ms"] and not row["tokens_lost"] for row in rows["cutover"])
    assert rows["resize"][0]["returned_bytes"] > 0
    assert [one["source"] for one in rows["overhead"][0]["directions"]] == ["1x1", "pp2"]
    assert len(rows["profile"][-1]["shipped_residuals"]) == len(rows["profile"][-1]["samples"]) > 6


def test_an_engine_that_does_not_start_costs_the_rows_of_its_part_only(bare, tmp_path):
    planted = {**bare, "PLANTED": "benchmarks.gpu.random_driver"}
    status, document = rehearse(planted, tmp_path / "gpu.json", "--only", "kv-copy", "--only", "resize")
    copied, resized = document["parts"]
    assert (copied["status"], len(copied["rows"])) == ("done", 3)
    assert (resized["status"], status) == ("failed", 1)
    assert "its driver process ended" in resized["reason"]
    assert any("random_driver" in line for line in resized["last_words"])


@pytest.mark.vllm
def test_the_parts_of_vllm_on_a_cpu(tmp_path):
    more = [word for name in ("vllm-gates", "vllm-switch", "vllm-cost") for word in ("--only", name)]
    status, document = rehearse(dict(os.environ), tmp_path / "gpu.json", *more)
    gates, switches, costs = document["parts"]
    assert {one["part"]: one["reason"] for one in document["parts"] if one["status"] != "done"} == {}
    assert [row["case"] for row in gates["rows"] if row.get("skipped")] == ["attention", "mapped memory"]
    pages, tokens, killed, load = switches["rows"]
    assert pages["pages"] > 100
    assert (tokens["paths"], tokens["worst_logprob_difference"] < 1e-3) == ({"patch": 6}, True)
    assert killed["back_s"] > 0
    assert (load["tokens_lost"], load["tokens_duplicated"]) == (0, 0)
    assert costs["rows"][0]["tokens_per_s_with"] > 0
    assert status == 0
