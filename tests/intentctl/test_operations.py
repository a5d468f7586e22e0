"""Commands about what is done to the running service."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from runtime.models import Phase
from tests.rows import rows
from tests.runtime.scripted import Script
from tests.service.scripted import DEPLOYMENT, elsewhen

pytestmark = pytest.mark.slow

EXAMPLE = Path(__file__).parents[2] / "examples" / "a100-l40s.yaml"


def test_cancel_gives_up_a_switch_that_takes_too_long_and_shows_how_it_ended(run, new_service):
    service = new_service(script=Script(silent_while=Phase.WARMING))
    at = ("--server", service.url)
    plan = json.loads(run("plan", "run it with tp=2", "-o", "json", *at)[1])["plan"]["id"]
    code, _, err = run("apply", plan, "--yes", "--timeout", "0", *at)
    assert (code, "intentctl get op-" in err) == (8, True)
    operation = next(word for word in err.split() if word.startswith("op-"))
    code, out, _ = run("cancel", operation, *at)
    assert code == 0
    assert "aborted" in out
    assert "given up by anybody (cancelled)" in " ".join(out.split())
    assert service.engine.topology.shape == "PP2"
    code, _, err = run("cancel", operation, *at)
    assert (code, "has ended as cancelled" in err) == (1, True)
    code, _, err = run("cancel", "op-nobody", *at)
    assert (code, "no operation op-nobody" in err) == (1, True)


def test_undo_goes_back_to_where_the_last_operation_came_from_and_history_tells(run, new_service):
    service = new_service()
    at = ("--server", service.url)
    code, out, _ = run("history", *at)
    assert (code, "nothing was applied yet" in out) == (0, True)
    code, _, err = run("undo", *at)
    assert (code, "there is nothing to undo: nothing was applied yet" in err) == (1, True)
    code, out, _ = run("plan", "--target", "CPU[2]:0-6 > CPU[3]:6-8", "-o", "json", *at)
    plan = json.loads(out)["plan"]
    assert (code, plan["target"]["text"]) == (0, "CPU[2]:0-6@fp32 > CPU[3]:6-8@fp32")
    assert run("apply", plan["id"], "--yes", *at)[0] == 0
    code, _, err = run("undo", "--no-input", *at)
    assert (code, "nobody can be asked" in err) == (6, True)
    code, out, _ = run("undo", "--yes", "-o", "json", *at)
    assert code == 0
    assert json.loads(out)["result"]["target"] == plan["now"]["text"]
    assert str(service.engine.topology) == plan["now"]["text"]
    undone = json.loads(out)["id"]
    code, out, _ = run("history", "-o", "json", *at)
    newest, oldest = json.loads(out)["operations"]
    assert (code, newest["phase"], oldest["phase"]) == (0, "done", "done")
    assert (newest["source"], newest["target"]) == (oldest["target"], oldest["source"])
    assert (newest["applied_by"], newest["approved_by"]) == ("anybody", "anybody")
    code, out, _ = run("history", "--limit", "1", *at)
    assert newest["id"] == undone
    assert undone in out
    assert (out.count("op-"), f'done: "undo {oldest["id"]}: run it as' in " ".join(out.split())) == (2, True)
    code, out, _ = run("undo", "--yes", "-o", "json", *at)  # the last one, not the first
    again = json.loads(out)
    assert (code, again["result"]["target"]) == (0, plan["target"]["text"])
    code, _, err = run("undo", undone, "--yes", *at)
    assert (code, "instead: intentctl plan --target" in err) == (1, True)
    assert run("undo", again["id"], "--yes", *at)[0] == 0
    for kind, said in (
        ("plans", "counting: PP2 to PP2; applied by op-"),
        (
            "operations",
            f'CPU[1]:4-8@fp32 to CPU[2]:0-6@fp32 > CPU[3]:6-8@fp32; done: "undo {undone}: run it as CPU[2]:0-6',
        ),
    ):
        code, out, _ = run("get", kind, *at)
        assert (code, said in " ".join(out.split())) == (0, True), out
    assert f'"undo {undone}: run it' in " ".join(run("get", again["id"], *at)[1].split())
    assert plan["id"] in {one["id"] for one in json.loads(run("get", "plans", *at, "-o", "json")[1])["plans"]}
    assert run("parse", "run it with tp=2", *at)[0] == 0
    assert run("plan", "run it with tp=2", *at)[0] == 0
    assert "ok: " in " ".join(run("get", "intents", *at)[1].split())


@rows(
    ("arguments", "code", "said"),
    [
        (("--target", "fast"), 1, "cannot read stage 'fast'"),
        (("--target", "x" * 3000), 1, "at most 2000 characters"),
        (("--target", "tp2", "go faster"), 2, "in words, or name a --target"),
        ((), 2, "in words, or name a --target"),
        (("--target", "CPU[0]@bf16"), 5, "the limits allow precision fp32"),
    ],
)
def test_a_target_that_is_none_is_refused(run, there, arguments, code, said):
    ended, _, err = run("plan", *arguments, *there)
    assert (ended, said in " ".join(err.replace("\u2502", " ").split())) == (code, True), err


def test_a_target_is_planned_for_without_a_service(run):
    code, out, _ = run("plan", "--target", "A100x4", "--deployment", EXAMPLE)
    assert code == 0
    assert "named, not searched for" in " ".join(out.split())


def test_a_dry_run_says_what_would_happen_and_changes_nothing(run, at, service):
    _, out, _ = run("plan", "--target", "tp2", "-o", "json", *at)
    plan, before = json.loads(out)["plan"]["id"], [*service.engine.calls]
    code, out, _ = run("apply", plan, "--dry-run", *at)
    assert code == 0
    assert "would be applied" in out
    assert "side by side" in out
    assert service.engine.calls == before
    assert run("apply", plan, "--yes", *at)[0] == 0
    code, out, err = run("apply", plan, "--dry-run", "-o", "json", *at)
    assert (code, json.loads(out)["would_apply"]) == (1, False)
    assert "would be refused: " in err


def test_a_plan_for_another_time_is_applied_when_that_is_said(run, new_service):
    service = new_service(DEPLOYMENT.replace("{peak: always}", elsewhen()))
    at = ("--server", service.url)
    text = "run it with tp=2 and keep P99 TTFT < 2s at peak"
    code, out, err = run(text, "--yes", "-o", "json", *at)
    assert (code, "is for peak, and at" in err, "intentctl agenda" in err) == (0, True, True)
    said = json.loads(out)
    assert (said["promise"]["state"], said["operation"]) == ("active", None)
    plan = said["plan"]["id"]
    assert run("apply", plan, "--yes", *at)[0] == 6
    assert run("apply", plan, "--yes", "--now", *at)[0] == 0
    assert service.engine.topology.shape == "TP2"


def test_a_shell_completes_commands():
    words = {"COMP_WORDS": "intentctl un", "COMP_CWORD": "1", "_INTENTCTL_COMPLETE": "complete_bash"}
    command = [sys.executable, "-m", "intentctl"]
    done = subprocess.run(command, env={**os.environ, **words}, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["undrain", "undo"]


def test_what_breaks_a_promise_is_applied_when_somebody_says_so(run, new_service):
    service = new_service()
    at = ("--server", service.url)
    promised = json.loads(run("use at least 2 GPUs", "--yes", "-o", "json", *at)[1])["promise"]["intent_id"]
    code, out, _ = run("plan", "--target", "1x1", *at)
    said = f"this breaks what {promised} promises: it misses GPUs >= 2: 1 predicted ('at least 2 GPUs')"
    assert (code, said in " ".join(out.split())) == (0, True), out
    plan = json.loads(run("plan", "--target", "1x1", "-o", "json", *at)[1])["plan"]["id"]
    code, _, err = run("apply", plan, "--yes", *at)
    assert (code, "with --break-promise" in err) == (6, True), err
    assert run("apply", plan, "--yes", "--break-promise", *at)[0] == 0
    assert service.engine.topology.shape == "1x1"
    assert run("retire", promised, *at)[0] == 0
    assert run("use at most 1 GPU", "--yes", *at)[0] == 0
    code, _, err = run("undo", "--yes", *at)
    assert (code, "this breaks what intent-" in err) == (6, True), err
    assert run("undo", "--yes", "--break-promise", *at)[0] == 0
    assert service.engine.topology.shape == "PP2"
