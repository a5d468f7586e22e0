"""Commands about what is promised: said, activated, replaced; agenda, report and the controller."""

import json
from pathlib import Path

import pytest

from intentctl.promises import agenda_rows
from service.documents.promises import AgendaDocument
from tests.service.scripted import DEPLOYMENT

pytestmark = pytest.mark.slow

EXAMPLE = Path(__file__).parents[2] / "examples" / "a100-l40s.yaml"
PAPER = (
    "keep P99 TTFT within 2 s at peak, GPU utilisation not below 40% off-peak, "
    "and keep the reconfiguration pause under 50 ms if possible"
)
BUDGET = DEPLOYMENT + "approval: {by: person, within: {per_hour: 4}}\n"


def test_the_first_sentence_of_the_paper_plans_both_of_its_windows(run):
    more = ("--now", "2026-01-05T08:00", "-o", "json", "--hours", "24")
    code, out, _ = run("agenda", PAPER, "--deployment", EXAMPLE, *more)
    assert code == 0
    found = AgendaDocument.model_validate_json(out)
    by_window = {segment.windows: segment for segment in found.segments}
    peak, off_peak = by_window["peak",], by_window["off_peak",]
    assert peak.topology
    assert off_peak.topology
    assert peak.prediction
    assert off_peak.prediction
    # four cheap devices for three dear ones
    assert off_peak.prediction.usd_per_hour < peak.prediction.usd_per_hour
    assert (peak.prediction.ttft_s["p99"] or 99) <= 2
    assert (off_peak.prediction.gpu_util or 0) >= 0.4
    assert off_peak.switch
    assert peak.switch
    assert any("pause <= 50 ms" in note.goal for note in peak.margins)  # a wish: it may be missed, and is told
    assert peak.switch_begins
    assert peak.switch_begins < peak.begins
    rows = dict(agenda_rows(found))
    assert "Mon 09:00 to Mon 21:00" in rows


def test_bare_text_that_is_a_promise_is_kept_and_switched_to(run, new_service):
    service = new_service()
    at = ("--server", service.url)
    code, _, err = run("use at most 1 GPU", "--no-input", *at)
    assert (code, "nobody can be asked" in err) == (6, True)
    code, out, _ = run("intents", *at)
    assert (code, "nothing yet" in out) == (0, True)
    code, out, _ = run("use at most 1 GPU", "--yes", "-o", "json", *at)
    said = json.loads(out)
    assert (code, said["promise"]["state"]) == (0, "active")
    assert said["agenda"]["segments"][0]["topology"]["shape"] == "1x1"
    assert said["operation"]["result"]["phase"] == "done"
    assert service.engine.topology.shape == "1x1"
    code, _, err = run("use at least 2 GPUs", "--yes", *at)
    assert (code, f"--replace {said['promise']['intent_id']}" in " ".join(err.split())) == (5, True)
    code, out, _ = run("use at least 2 GPUs", "--yes", "--replace", said["promise"]["intent_id"], *at)
    assert code == 0
    assert len(service.engine.topology.devices) == 2
    code, out, _ = run("intents", "-o", "json", *at)
    assert [one["state"] for one in json.loads(out)["promises"]] == ["active", "superseded"]


def test_a_controller_that_is_quicker_is_no_error(run, new_service):
    service = new_service(BUDGET + "mode: act\n")
    code, out, _ = run("use at most 1 GPU", "--yes", "-o", "json", "--server", service.url)
    assert (code, json.loads(out)["promise"]["state"]) == (0, "active")
    service.until(lambda: service.engine.topology.shape == "1x1")


def test_the_controller_is_looked_at_paused_and_let_go_on(run, new_service):
    at = ("--server", new_service(BUDGET).url)
    assert run("mode", *at)[1].split()[:2] == ["mode", "recommend"]
    assert run("mode", "act", *at)[1].split()[:2] == ["mode", "act"]
    assert "act, paused" in run("pause", *at)[1]
    assert "paused" not in run("resume", *at)[1]
    assert run("mode", "fly", *at)[0] == 2
    assert run("retire", "intent-000000000000", *at)[0] == 1
    for command, said in (
        (("report", "--since", "7d"), "device-hours"),
        (("load",), ""),
        (("agenda", "--hours", "1"), "nothing is promised"),
    ):
        code, out, _ = run(*command, *at)
        assert (code, said in " ".join(out.split())) == (0, True)
    code, _, err = run("report", "--since", "ever", *at)
    assert (code, "write 30m, 24h or 7d" in err) == (1, True)
